# Tensors that are there and not read: never equal, never proven, never silently left behind.
try() {
  echo "\$ ckpt $*"
  ckpt "$@" --quiet
  echo "exit $?"
}
cp "$DATA/torch/refused.pt" a.pt
cp a.pt b.pt
try diff a.pt b.pt
ckpt diff a.pt b.pt --json --quiet | cut -c1-170
try verify a.pt
ckpt convert a.pt -o out.safetensors --quiet 2>&1
ckpt convert a.pt -o out.pt --quiet 2>&1
ckpt convert a.pt -o out.pt --exclude nothing --quiet 2>&1
ls
left_out='--exclude b* --exclude c* --exclude meta --exclude wide'
set -f
ckpt convert a.pt -o out.safetensors $left_out --json --quiet | python3 -c 'import json, sys; print(json.load(sys.stdin)["dropped"])'
ckpt convert a.pt -o out.pt --exclude wide --json --quiet | python3 -c 'import json, sys; print(json.load(sys.stdin)["dropped"])'
try diff a.pt out.safetensors
try hash a.pt -o a.json
grep not_read a.json
set +f
try verify out.safetensors --manifest a.json
try verify a.pt --manifest a.json
sed 's/"not_read": \[/"not_read": [7, /' a.json > bad.json
ckpt verify a.pt --manifest bad.json 2>&1
