# A checkpoint without tensors is one: it lists, hashes, converts and verifies.
printf '\002\000\000\000\000\000\000\000{}' > none.safetensors
printf '\040\000\000\000\000\000\000\000{"__metadata__":{"format":"pt"}}' > meta.safetensors
for path in none meta; do
  ckpt ls $path.safetensors 2>&1
  ckpt ls $path.safetensors --json --quiet
  ckpt convert $path.safetensors -o $path.out.safetensors --receipt $path.json --quiet
  ckpt convert $path.safetensors -o $path --quiet
  ckpt verify $path.out.safetensors --receipt $path.json
  ckpt diff $path.safetensors $path
  od -An -v -c $path.out.safetensors
done
ckpt split none.safetensors -o parts --shard-size 1M --quiet && ls parts
ckpt join parts -o joined.safetensors --quiet && cmp joined.safetensors meta.safetensors && echo same
ckpt convert none.safetensors -o x.safetensors --match 'x*' 2>&1
