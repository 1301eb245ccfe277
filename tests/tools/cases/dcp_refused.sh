# What a DCP folder cannot hold is said by its key and with the reason; convert writes the rest.
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1 | grep -v 'peak memory'
}
for name in quantized sparse refused; do
  cp "$DATA/torch/$name.pt" .
  try reshard $name.pt --to dcp --world 2 -o out-$name
  try convert $name.pt --to dcp -o dcp-$name --include all
done
set -f
try convert refused.pt --to dcp -o dcp-left --include all --exclude b* --exclude c* --exclude meta --exclude wide
set +f

# What was saved is no dict.
cp "$DATA/torch/random-states.pt" "$DATA/torch/list.pt" .
try convert list.pt --to dcp -o dcp-list
ckpt ls dcp-list --include all
try convert random-states.pt -o states.safetensors --include all
