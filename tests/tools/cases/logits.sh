# Logits of ids: shapes, the same bits for any threads and beside other sequences, and what is refused.
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1
  echo "exit $?"
}
ln -s "$DATA/tape" models
printf '{"input_ids": [1, 2, 3], "text": "x"}\n\n{"n": [], "input_ids": [60, 0, 5, 9, 9]}\n' > ids.jsonl
for model in llama mistral qwen2 gpt2; do
  ckpt logits models/$model --ids 60,0,5,9,9 -o one.safetensors --threads 1 --quiet || echo "exit $?"
  ckpt logits models/$model -f ids.jsonl -o two.safetensors --threads 3 --quiet || echo "exit $?"
  ckpt ls two.safetensors
  ckpt cat one.safetensors 'logits[0]' > one
  ckpt cat two.safetensors 'logits[1]' > two
  cmp one two && echo "$model: the same bits"
  ckpt cat two.safetensors 'logits[0,3:]' | tr ' ' '\n' | sort -u
  ckpt cat two.safetensors lengths
  rm one.safetensors two.safetensors
done
ckpt logits models/gpt2 -f - -o in.safetensors --json --quiet < ids.jsonl
try logits models/gpt2 --ids 1 -o in.safetensors
ckpt logits models/gpt2 --ids 1,2 -o plan.safetensors --plan --threads 1 | tail -3
ls plan.safetensors 2>&1
try logits models/gpt2 -o out.safetensors
try logits models/gpt2 --ids 1 -f ids.jsonl -o out.safetensors
try logits models/gpt2 --ids 1 -o out.foo
try logits models/gpt2 --ids 1 -o out.onnx
mkdir folder.safetensors folder.pt && touch folder.safetensors/kept # folders, whatever their names end in
try logits models/gpt2 --ids 1 -o folder.safetensors
try logits models/gpt2 --ids 1 -o folder.pt
try logits models/gpt2 --ids 1 -o none/out
rm -r folder.*
try logits models/gpt2 --ids 1,,2 -o out.safetensors
try logits models/gpt2 --ids 1,61 -o out.safetensors
try logits models/gpt2 --ids 99999999999 -o out.safetensors
try logits models/gpt2 --ids 1 -o out.safetensors --device cuda
try logits models/gpt2-exact --ids "$(seq -s, 0 32)" -o out.safetensors
printf '{"input_ids": []}\n' > empty.jsonl
printf '{"input_ids": [1]}\n{"ids": [1]}\n' > other.jsonl
printf '{"input_ids": [1, -2]}\n' > negative.jsonl
printf '\n' > none.jsonl
mkfifo fifo
try logits models/gpt2 -f fifo -o out.safetensors # nobody writes to it
rm fifo
for name in empty other negative none absent; do try logits models/gpt2 -f $name.jsonl -o out.safetensors; done
try logits models/gpt2/model.safetensors --ids 1 -o out.safetensors
try logits models/gpt2/model.safetensors --like models/llama --ids 1 -o out.safetensors
ls
# Products in bf16: near, not the same, the same bits for any threads.
for n in 1 3; do ckpt logits models/llama --ids 60,0,5,9,9 -o bf16-$n.safetensors --dtype bf16 --threads $n --quiet; done
ckpt logits models/llama --ids 60,0,5,9,9 -o f32.safetensors --quiet
ckpt diff bf16-1.safetensors bf16-3.safetensors --quiet | tail -1
ckpt diff bf16-1.safetensors f32.safetensors --quiet > /dev/null || echo "bf16 is not f32"
ckpt diff bf16-1.safetensors f32.safetensors --atol 0.05 --quiet > /dev/null && echo "but near"
rm bf16-*.safetensors f32.safetensors
try logits models/llama --ids 1 -o out.safetensors --dtype f16
