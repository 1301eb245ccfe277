# shellcheck shell=bash disable=SC2154
# The commands of `./dev demo`; frame.sh defines say, run and $data. Each feature adds its lines here.
say 'a sharded Hugging Face folder, as transformers wrote it: what is in it?'
run "cp -r $data/llama-tiny ."
run "ckpt inspect llama-tiny"
run "ckpt ls llama-tiny --match 'model.layers.0.*'"
run "ckpt cat llama-tiny 'model.layers.0.self_attn.q_proj.weight[0:2,0:4]'"

say 'its content digest: names, dtypes, shapes and values, whatever the files; and a manifest with a digest per tensor'
run "ckpt hash llama-tiny -o llama.manifest.json | tee llama.sum"

say 'to one file, and from there back to a folder with other shards; --like says whose config and tokenizer go with it'
run "ckpt convert llama-tiny -o one.safetensors"
run "ckpt split one.safetensors --like llama-tiny -o shards --shard-size 100KB"
run "ls shards"
run "ckpt join shards -o joined.safetensors"

say 'nothing changed: the same digest, no difference, and the joined file is the first one byte for byte'
run "ckpt hash llama-tiny one.safetensors shards"
run "ckpt diff llama-tiny shards"
run "ckpt verify shards --manifest llama.manifest.json"
run "cmp one.safetensors joined.safetensors"

say 'several outputs from one read, with a receipt; the receipt says how to make them again, and verify does'
run "ckpt convert llama-tiny -o bf16.safetensors -o copy --receipt receipt.json"
run "ckpt verify bf16.safetensors --receipt receipt.json"

say 'casts round to nearest even; one tensor may keep its precision'
run "ckpt convert llama-tiny -o f16 --dtype '*norm.weight=f32' --dtype f16"
run "ckpt ls f16 --match 'model.layers.0.*'"
run 1 "ckpt diff llama-tiny f16 | tail -n 4"
run "ckpt diff llama-tiny f16 --cast f32 --atol 1e-6"

say 'a value that does not fit is refused, and no file is left'
run "printf '8\\0\\0\\0\\0\\0\\0\\0{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}  ' > large.safetensors"
run "printf '\\0\\0\\x80\\x3f\\0\\xb8\\x88\\x47' >> large.safetensors"
run "ckpt cat large.safetensors w"
run 1 "ckpt convert large.safetensors -o small.safetensors --dtype f16"
run "test ! -e small.safetensors"

say 'one flipped byte in a copy is caught, and the tensor is named'
run "cp -r copy damaged"
n_bytes=$(stat -c %s damaged/model.safetensors)
run "printf '\\xff' | dd of=damaged/model.safetensors bs=1 seek=$((n_bytes - 1000)) conv=notrunc status=none"
run "sed 's,llama-tiny,damaged,' llama.sum | tee damaged.sum"
run 1 "ckpt hash --check damaged.sum"
run 1 "ckpt diff llama-tiny damaged"
run 1 "ckpt verify damaged --manifest llama.manifest.json"

say 'hostile files are refused, with what is wrong with them'
run "mkdir hostile"
run "cp -r $data/../golden-errors/safetensors/{overlap,shape-overflows,payload-truncated}.safetensors hostile"
run "cp -r $data/../golden-errors/hf/map-escapes hostile"
run 1 "ckpt ls hostile/overlap.safetensors"
run 1 "ckpt ls hostile/shape-overflows.safetensors"
run 1 "ckpt ls hostile/map-escapes"
run 1 "ckpt convert hostile/payload-truncated.safetensors -o never.safetensors"

say 'what four FSDP2 ranks saved (torch.distributed.checkpoint): weights, AdamW states, other objects; nothing is unpickled'
run "cp -r $data/dcp/fsdp4 ."
run "ckpt inspect fsdp4"
run "ckpt ls fsdp4 --include all"

say 'one model out of it, as a folder and as one torch file: one digest; and written back for two ranks'
run "ckpt consolidate fsdp4 -o consolidated"
run "ckpt consolidate fsdp4 -o whole.pt"
run "ckpt hash fsdp4 consolidated whole.pt"
run "ckpt reshard fsdp4 -o for-two --to dcp --world 2"
run "ls -A for-two"
run "ckpt diff fsdp4 for-two --include all"
run "ckpt verify for-two"

say 'what three ranks of DeepSpeed saved in ZeRO stage 3: masters, moments, a frozen and a tied parameter, all cut in three'
run "cp -r $data/zero/stage3-bf16 zero3"
run "ckpt inspect zero3"
run "ckpt consolidate zero3 -o from-zero3"
run "ckpt ls from-zero3"
run "ckpt diff zero3 $data/zero/stage3-bf16.safetensors --include all"
run "ckpt reshard zero3 -o zero3-dcp --to dcp --world 2"
run "ckpt hash --include all zero3 zero3-dcp"
run "ckpt reshard zero3 -o for-five --to zero --stage 1 --dp 5"
run "ckpt inspect for-five | head -n 8"
run "ckpt reshard for-five -o any-engine --to universal --dp 2"
run "ckpt hash --include all zero3 for-five any-engine"
run "ckpt verify any-engine"

say 'what would unpickling do? nothing here; and a .pt that would run a command is refused, by name'
run "ckpt scan fsdp4 whole.pt for-two zero3 | tail -n 1"
run 1 "ckpt scan $data/scan/bad/torch.pt"

say 'a GGUF model, as llama.cpp converted it: three of its presets from one read, with a receipt'
run "cp $data/gguf/tiny-llama-f16.gguf model.gguf"
run "ckpt inspect model.gguf | head -n 24"
run "ckpt quantize model.gguf -o 'model-{type}.gguf' --type Q8_0 --type Q6_K --type Q4_K_M --receipt quantized.json"
run "ckpt ls model-Q4_K_M.gguf"
run "ckpt verify model-Q4_K_M.gguf --receipt quantized.json"

say 'the same bytes as llama-quantize made of it; a type of very few bits wants an importance matrix'
run "for t in Q8_0 Q6_K Q4_K_M; do printf '%s\t' \$t; sha256sum < model-\$t.gguf | cut -d' ' -f1; done | tee ours.sum"
run "sed -n 's/^\(Q8_0\|Q6_K\|Q4_K_M\) /\1\t/p' $data/gguf/quantized.tsv | diff - ours.sum"
run 1 "ckpt quantize model.gguf -o small.gguf --type IQ2_XS"
run "ckpt quantize model.gguf -o small.gguf --type IQ2_XS --imatrix $data/gguf/imatrix.gguf"

say 'an ONNX model, as torch.onnx.export wrote it: its data beside it, the same weights, and back to the same bytes'
run "cp $data/onnx/dynamo.onnx model.onnx"
run "ckpt ls model.onnx"
run "ckpt convert model.onnx -o beside.onnx --external-data"
run "wc -c model.onnx beside.onnx beside.onnx.data"
run "ckpt hash model.onnx beside.onnx"
run "ckpt diff model.onnx beside.onnx"
run "ckpt convert beside.onnx -o again.onnx && cmp model.onnx again.onnx"

say 'the same graph over weights that stay where they are'
run "ckpt convert model.onnx -o stay.safetensors"
run "ckpt convert stay.safetensors --graph model.onnx -o linked.onnx --link"
run "ckpt hash model.onnx linked.onnx"

say 'its weights as safetensors, in bf16, and back into its graph; ONNX Runtime computes the same from what is equal'
run "ckpt convert model.onnx -o weights.safetensors --dtype bf16"
run "ckpt convert weights.safetensors --graph model.onnx -o rounded.onnx"
run "${CKPT_PYTHON:-python3} $data/../demo/outputs.py model.onnx beside.onnx again.onnx linked.onnx"

say 'what is there is not overwritten, unless told so'
run 1 "ckpt convert llama-tiny -o one.safetensors"
run "ckpt convert llama-tiny -o one.safetensors --force"

say 'wrong usage is exit 2, and says what was meant'
run 2 "ckpt hassh one.safetensors"
run 2 "ckpt convert one.safetensors -o two.tensors"
