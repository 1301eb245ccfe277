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
# As MLX and torchao store a model: refused by name, or kept whole; what is none of theirs is cast.
for peer in mlx torchao; do
  cp "$DATA/quantized/$peer.safetensors" .
  try convert $peer.safetensors -o out.safetensors --force --dtype f32
  try hash $peer.safetensors --cast bf16
  ckpt convert $peer.safetensors -o kept.safetensors --force --quiet | cut -d' ' -f1 > kept.sum
  ckpt hash $peer.safetensors | cut -d' ' -f1 | diff - kept.sum && echo whole
  try convert $peer.safetensors -o norm.safetensors --force --dtype 'norm*=f32'
done
# A config of MLX's says it too, and what it is beside says whether a model can be made of it.
mkdir llama && cp "$DATA"/llama-tiny/* llama
sed 's/^{/{"quantization": {"bits": 4, "group_size": 32},/' llama/config.json > config.json && cp config.json llama
try convert llama -o llama.gguf
try verify llama | grep quantization
# An 8 bit weight with its scale is no model to run.
mkdir fp8 && cp "$DATA"/llama-tiny/*.json fp8 && rm fp8/*.index.json
ckpt join "$DATA/llama-tiny" -o one.safetensors --quiet > /dev/null
python3 - << 'END'
import json, struct
data = open("one.safetensors", "rb").read()
n = struct.unpack("<Q", data[:8])[0]
header, body, out, made = json.loads(data[8:8 + n]), data[8 + n:], b"", {}
for name, spec in header.items():
    if name == "__metadata__":
        continue
    begin, end = spec["data_offsets"]
    part = body[begin:end]
    if name.endswith("q_proj.weight"):
        made[name + "_scale"] = {"dtype": "F32", "shape": [1], "data_offsets": [len(out), len(out) + 4]}
        out += struct.pack("<f", 0.5)
        part, spec["dtype"] = b"8" * ((end - begin) // 2), "F8_E4M3"
    made[name] = {"dtype": spec["dtype"], "shape": spec["shape"], "data_offsets": [len(out), len(out) + len(part)]}
    out += part
text = json.dumps(made).encode()
open("fp8/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + out)
END
try logits fp8 --ids 1,2,3 -o logits.safetensors
try convert fp8 -o fp8.gguf
