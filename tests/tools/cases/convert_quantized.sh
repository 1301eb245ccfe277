# No cast takes quantized weights or their scales alone, with a config that says so or by names and dtypes.
try() {
  echo "\$ ckpt $*"
  ckpt "$@" --quiet 2>&1
  echo "exit $?"
}
TINY="python3 $DATA/../tools/tiny.py"
mkdir int8
$TINY int8/model.safetensors 'l.weight U8 2,2 1' 'l.SCB F32 2 0.5' 'l.weight_format U8 - 0' 'norm.weight F32 2 1'
echo '{"quantization_config": {"load_in_8bit": true, "quant_method": "bitsandbytes"}}' > int8/config.json
try convert int8 -o out --dtype bf16
$TINY gptq.safetensors 'l.qweight I32 2,2 1' 'l.scales F16 2 0.5' 'l.bias F16 2 1' 'norm.weight F32 2 1'
try convert gptq.safetensors -o out.safetensors --dtype f32
try hash gptq.safetensors --cast f32
try convert gptq.safetensors -o out.safetensors --dtype 'norm*=bf16'
ckpt ls out.safetensors
# A parameter that is only called so is one like any.
$TINY plain.safetensors 'l.weight F32 2,2 1' 'l.scales F16 2 0.5' 'l.SCB F32 2 1' 'logit_scale F32 - 1'
try convert plain.safetensors -o plain-bf16.safetensors --dtype bf16
ckpt ls plain-bf16.safetensors
