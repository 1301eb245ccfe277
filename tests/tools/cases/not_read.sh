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
ckpt hash a.pt out.safetensors --quiet 2>&1
ckpt hash a.pt --exclude b* --quiet 2>&1
ckpt hash a.pt $left_out --exclude nothing --quiet 2>&1
ckpt hash a.pt --exclude * --quiet 2>&1
ckpt hash a.pt --files --exclude wide 2>&1
try hash a.pt -o a.json $left_out
grep -e exclude -e not_read a.json
ckpt hash a.pt $left_out > sums
try hash --check sums 2>&1
try hash --check sums $left_out
# Every verb that writes leaves one out by its name.
ckpt convert a.pt -o model --exclude wide --exclude meta --exclude complex32 --exclude bits --quiet > /dev/null
for verb in 'consolidate a.pt -o o' 'reshard a.pt --to dcp -o o' 'split a.pt --shard-size 1M -o o' \
  'join a.pt -o o.safetensors'; do
  ckpt $verb --quiet 2>&1 | sed 's/ (4 tensors.*;/ (.../'
  ckpt $verb $left_out --receipt r.json --quiet 2>&1 && grep -o '"exclude":[^]]*]' r.json
  rm -rf o r.json
done
set +f
# Values of conjugates and negatives are read: one digest as DCP has them.
cp "$DATA/torch/signs.pt" .
ckpt convert signs.pt --to dcp -o signs --quiet > /dev/null
try hash signs.pt signs "$DATA/torch/signs.safetensors" | sed "s|$DATA/||"
ckpt convert signs.pt -o again.pt 2>&1 | grep -o 'the conjugate or negative.*(both, [^)]*)'
# A name of a tensor that has others.
cp "$DATA/torch/views.pt" .
ckpt hash views.pt --quiet
ckpt hash views.pt --exclude 'head.*' --quiet
ckpt hash views.pt --exclude embed.weight --quiet 2>&1
ckpt hash views.pt --exclude embed.weight --exclude 'head.*' --quiet
try verify out.safetensors --manifest a.json
try verify a.pt --manifest a.json
sed 's/"not_read": \[/"not_read": [7, /' a.json > bad.json
ckpt verify a.pt --manifest bad.json 2>&1
# A stream has no checksum: a function or a storage of another name is a tensor that cannot be read, and nothing is proven.
LC_ALL=C sed 's/_rebuild_tensor_v2/_rebuild_tensor_v6/' "$DATA/torch/legacy4.pt" > function.pt
LC_ALL=C sed 's/FloatStorage/FloatStoragf/' "$DATA/torch/legacy4.pt" > storage.pt
try verify function.pt
try verify storage.pt
