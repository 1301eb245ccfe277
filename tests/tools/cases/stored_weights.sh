# Weights stay as they are stored, in memory too: the bits of weights that are expanded first, and their bytes in --plan.
check() {
  ckpt logits $1 --ids 5,1,0,9,9 -o a.safetensors --quiet
  ckpt logits $2 --ids 5,1,0,9,9 -o b.safetensors --quiet
  cmp a.safetensors b.safetensors && echo "$1, $2: the same bits"
  for which in $1 $2; do
    ckpt logits $which --ids 5 -o none.safetensors --plan --quiet 2>&1 | sed -n 's/^\(parameters [0-9]*\).*/  \1/p'
  done
  rm a.safetensors b.safetensors
}
for model in llama-tied mistral qwen2 gpt2; do
  from=$DATA/dialect/$model
  ckpt convert $from -o $model --dtype bf16 --quiet > /dev/null 2>&1
  for type in bf16 q8_0; do ckpt convert $model -o $model-$type.gguf --dtype $type --quiet > /dev/null 2>&1; done
  ckpt convert $model -o $model-f32 --dtype f32 --quiet > /dev/null 2>&1
  ckpt convert $model-q8_0.gguf -o $model-q8_0 --dtype f32 --quiet > /dev/null 2>&1
  check $model $model-f32
  check $model-bf16.gguf $model
  check $model-q8_0.gguf $model-q8_0
done
