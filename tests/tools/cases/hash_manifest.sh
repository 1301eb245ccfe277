# A manifest is the same for every packaging of a model, and verify names what differs from it.
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1
  echo "exit $?"
}
cp -r "$DATA/llama-tiny" llama
ckpt hash llama -o manifest.json > /dev/null
ckpt convert llama -o one --quiet > /dev/null
ckpt hash one --threads 1 --memory 16M -o again.json > /dev/null
cmp manifest.json again.json && head -c 1400 manifest.json && echo ...
python3 -c '
import json, sys
manifest = json.load(open("manifest.json"))
names = [one["name"] for one in manifest["tensors"]]
print(len(names), names == sorted(names), sorted(manifest))'
try verify one --manifest manifest.json
try hash llama -o manifest.json
try hash llama -o manifest.json --force
try hash llama -o llama/manifest.json
try hash llama -o llama

printf '\125' | dd of=llama/model-00002-of-00003.safetensors bs=1 seek=100001 conv=notrunc 2> /dev/null
try verify llama --manifest manifest.json
ckpt verify llama --manifest manifest.json --json | python3 -c '
import json, sys
result = json.load(sys.stdin)
print(result["status"], result["problems"], result["warnings"])'
echo "exit $?"
ckpt convert one -o other.safetensors --exclude '*.0.*' --rename 's/norm/nrom/' --dtype '*mlp*=f32' --quiet > /dev/null
ckpt verify other.safetensors --manifest manifest.json | grep -e ^problem -e ^warning | sort | uniq | cut -c1-110 | head -12
ckpt hash llama --names stored --cast f32 --include all -o stored.json > /dev/null
try verify llama --manifest stored.json
try verify llama --manifest stored.json --digest "ckpt1:$(printf '%064d' 0)"
# Names that agree without their wrappers can only be told apart, and proven, as they are stored.
python3 "$DATA/../tools/tiny.py" wrapped.safetensors '_orig_mod.a F32 1 1' 'a F32 1 2'
ckpt hash wrapped.safetensors --names stored -o stored.json --force > /dev/null
try verify wrapped.safetensors
try verify wrapped.safetensors --manifest stored.json
for text in '' '[]' '{}' '{"ckpt_manifest": 2}' '{"ckpt_manifest": 1, "digest": "ckpt1:12"}' \
  '{"ckpt_manifest": 1, "tensors": [{"name": "x", "dtype": "f33"}]}' \
  '{"ckpt_manifest": 1, "tensors": [{"name": "x", "shape": [1,1,1,1,1,1,1,1,1]}]}' \
  '{"ckpt_manifest": 1, "tensors": [{"name": "x"}]}' '{"ckpt_manifest": 1, "ckpt_manifest": 1}'; do
  echo "$text" > broken.json
  try verify llama --manifest broken.json
done
# --check of what is no list says what it takes.
ckpt hash --check "$DATA/gpt2-tiny/config.json" 2>&1 | sed "s|$DATA|DATA|g"
echo '# a tensor that a manifest lists as not read, and that is gone'
cp "$DATA/torch/refused.pt" .
set -f
ckpt hash refused.pt -o unread.json --exclude bits --exclude complex32 --exclude meta --exclude wide --quiet
set +f
sed 's/"meta"/"gone"/' unread.json >gone.json
ckpt verify refused.pt --manifest unread.json | grep -c problem
ckpt verify refused.pt --manifest gone.json | grep problem
