# A manifest of values as another dtype proves no bytes, and verify does not say so.
TINY="python3 $DATA/../tools/tiny.py"
$TINY m.safetensors 'w F32 4 1,2,3,4' 'n I64 1 7'
ckpt hash m.safetensors --cast bf16 -o bf16.json > /dev/null
ckpt hash m.safetensors -o as-is.json > /dev/null
$TINY m.safetensors 'w F32 4 0x0100803f000000400000404000008040' 'n I64 1 7'
for manifest in bf16 as-is; do
  echo "$manifest"
  ckpt verify m.safetensors --manifest $manifest.json
  echo "exit $?"
done
ckpt verify m.safetensors --manifest bf16.json --json | python3 -c '
import json, sys
result = json.load(sys.stdin)
print(result["proven"], result["unproven"], result["digest"] == json.load(open("bf16.json"))["digest"], result["cast"])'
ckpt verify m.safetensors --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["cast"])'
