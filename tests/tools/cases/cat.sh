# Values of every dtype and shape, boxes of them, raw bytes, and what is wrong with a box.
cd "$DATA"
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1
  echo "exit $?"
}
for name in $(ckpt ls safetensors/every-dtype.safetensors | cut -d' ' -f1); do
  try cat safetensors/every-dtype.safetensors "$name"
done
try cat safetensors/every-dtype.safetensors 16.complex64 --json
try cat safetensors/every-dtype.safetensors 0.bool --json
for name in a empty empty.inside odd rank8 scalar; do
  try cat safetensors/shapes.safetensors $name
  try cat safetensors/shapes.safetensors $name --json
done
try cat safetensors/shapes.safetensors 'rank8[0,:,0]' --json
try cat llama-tiny 'model.norm.weight[0:4]'
try cat llama-tiny 'model.norm.weight[-2:]' --json
try cat gpt2-tiny 'transformer.wte.weight[2:4,:3]'
try cat gpt2-tiny 'transformer.wte.weight[2:4,:3]' --json
try cat gpt2-tiny 'lm_head.weight[2,-1]'
try cat gpt2-tiny 'lm_head.weight[2,5:5]' --json
ckpt cat gpt2-tiny 'transformer.wte.weight[7,1:4]' --raw | od -An -v -tx1
try cat gpt2-tiny 'lm_head.weight[160]'
try cat gpt2-tiny 'lm_head.weight[158:161,-3:99999999999999999999]'
try cat gpt2-tiny 'lm_head.weight[-999:1,0]'
try cat gpt2-tiny 'lm_head.weight[-161]'
try cat gpt2-tiny 'lm_head.weight[,]'
try cat gpt2-tiny 'lm_head.weight[]'
try cat gpt2-tiny 'lm_head.weight[0,]'
try cat gpt2-tiny 'lm_head.weight[3:2]'
try cat gpt2-tiny 'lm_head.weight[0,0,0]'
try cat gpt2-tiny 'lm_head.weight[0;1]'
try cat gpt2-tiny 'lm_head.weight[x]'
try cat gpt2-tiny 'lm_head.weigth'
try cat gpt2-tiny 'nothing at all[0]'
try cat gpt2-tiny lm_head.weight --raw --json
try cat gpt2-tiny
try cat torch/refused.pt 'complex32[0]'
