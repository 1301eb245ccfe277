# A cast that loses values is refused, and so is one of weights that mean nothing without their scales.
tensor() { # FILE NAME=DTYPE:SHAPE:HEX...
  python3 - "$@" <<'END'
import json, struct, sys
header, data = {}, b""
for one in sys.argv[2:]:
    name, rest = one.split("=")
    dtype, shape, value = rest.split(":")
    value = bytes.fromhex(value)
    header[name] = {"dtype": dtype, "shape": json.loads(shape), "data_offsets": [len(data), len(data) + len(value)]}
    data += value
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + data)
END
}
try() { ckpt "$@" --quiet || echo "  exit $?" >&2; }

tensor big.safetensors w=F32:[3]:0000803f00247449000080ff n=I64:[1]:0100000000000000 # 1, 1000000, -inf
try convert big.safetensors -o x.safetensors --dtype f16
try convert big.safetensors -o x.safetensors --dtype f16 --json
ls x.safetensors 2>/dev/null
try convert big.safetensors -o x.safetensors --dtype f16 --allow-overflow
ckpt cat x.safetensors w
ckpt cat x.safetensors n
try convert big.safetensors -o y.safetensors --dtype bf16
ckpt cat y.safetensors w

tensor fp8.safetensors w=F8_E4M3:[2]:3838 w_scale_inv=F32:[1]:0000803f plain=F32:[1]:0000803f
try convert fp8.safetensors -o z.safetensors --dtype bf16
try convert fp8.safetensors -o z.safetensors --dtype 'plain=bf16'
try convert fp8.safetensors -o as-stored.safetensors
ckpt ls z.safetensors

# The config ties the two: what would make them differ is no cast.
mkdir tied && cp $DATA/llama-tiny/tokenizer.json tied
echo '{"model_type": "llama", "tie_word_embeddings": true}' >tied/config.json
tensor tied/model.safetensors model.embed_tokens.weight=F32:[1,2]:0000803f00000040 \
  lm_head.weight=F32:[1,2]:0000803f00000040
try convert tied -o t --dtype bf16
try convert tied -o u --dtype 'lm_head*=bf16'
ls -A
