# shellcheck shell=bash disable=SC2154
# The whole chain of `./dev demo` on one small Llama: trained from nothing, adapted, consolidated, converted, quantized,
# and let through a gate or not. frame.sh defines part, say and run. eval.txt shares no sentence with train.txt.
part train 'a Llama of 1.4M parameters and its training text; ckpt-train on two ranks that share out weights and optimizer'
run "cp -r $data/llama-256 $data/text/train.txt $data/text/eval.txt ."
run "echo '{\"max_steps\": 150, \"save_steps\": 50, \"logging_steps\": 50, \"per_device_train_batch_size\": 4,
       \"learning_rate\": 3e-3, \"warmup_steps\": 10, \"weight_decay\": 0.1}' > args.json"
train="ckpt-train --model llama-256 --init scratch --data train.txt --args args.json --ranks 2 --stage 3"
run "$train -o whole"

part resume 'the same, killed with SIGKILL in the middle: checkpoint-50 is left, the run goes on from it, and ends with the same bytes'
run 137 "$train -o killed --quiet &
  until grep -qs '\"step\":70,' killed/log.jsonl; do kill -0 \$! || break; sleep 0.1; done
  kill -KILL \$!; wait \$! 2> /dev/null"
run "ls -d killed/checkpoint-*"
run "$train -o killed --resume auto"
run "ckpt hash whole/checkpoint-150 killed/checkpoint-150 --include all"
run "ckpt diff whole/checkpoint-150 killed/checkpoint-150 --include all"
run "cmp whole/model.safetensors killed/model.safetensors"

part perplexity 'did it learn? text that it never saw: perplexity of random weights, and of the checkpoint as the ranks wrote it'
run "$train --max_steps 1 --learning_rate 0 --quiet -o random"
run 1 "ckpt ppl random/checkpoint-1 -f eval.txt --ctx 256 --max-ppl 20"
run "ckpt ppl killed/checkpoint-150 -f eval.txt --ctx 256 --max-ppl 20"

part LoRA 'a LoRA on the result, as PEFT loads it'
run "echo '{\"r\": 8, \"lora_alpha\": 16, \"target_modules\": \"all-linear\"}' > lora.json"
run "ckpt-train --model killed --lora lora.json --data train.txt --max_steps 20 --learning_rate 1e-3 --save_strategy no --logging_steps 10 -o lora"
run "ckpt ls lora --match '*.0.self_attn.q_proj.*'"

part consolidate 'the checkpoint of two ranks as a Hugging Face folder, and for eight ranks'
run "ckpt consolidate killed/checkpoint-150 -o folder"
run "ckpt verify folder"
run "ckpt reshard killed/checkpoint-150 -o for-eight --to dcp --world 8"

part merge 'the adapter into the model: a folder, and the same straight into a preset'
run "ckpt merge folder --adapter lora -o merged"
run "ckpt quantize folder --adapter lora --type Q8_0 -o merged-Q8_0.gguf"
run "ckpt ppl merged-Q8_0.gguf --against merged -f eval.txt --ctx 256 --max-kl 0.001"
run "ckpt convert lora --like folder -o lora.gguf"
run "ckpt hash merged"
run "ckpt hash folder --adapter lora.gguf"
run "ckpt extract-lora --base folder --tuned merged --energy 0.999999 -o again --quiet | tail -n 2"

part convert 'to GGUF and back: one digest'
run "ckpt convert folder -o folder.gguf --dtype f32"
run "ckpt convert folder.gguf -o back"
run "ckpt hash --cast f32 folder folder.gguf back"
run "ckpt diff folder folder.gguf"
run "ckpt diff folder back"
run "ckpt ppl back --against folder -f eval.txt --ctx 256 --max-kl 0"

part quantize 'three presets and a folder, from one read'
run "ckpt quantize killed/checkpoint-150 -o 'small-{type}.gguf' --type Q8_0 --type Q4_K_M --type Q2_K -o small"

part gate 'the gate before a release: how far is it from the model? Q4_K_M passes, Q2_K does not'
run "ckpt ppl small-Q4_K_M.gguf --against small -f eval.txt --ctx 256 --max-kl 0.005"
run 1 "ckpt ppl small-Q2_K.gguf --against small -f eval.txt --ctx 256 --max-kl 0.005"
parts_took
