# Tensors that are larger than one block of `cat`: all of one, boxes that cross blocks, and a reader that goes away.
header='{"t":{"dtype":"U8","shape":[3,600,500],"data_offsets":[0,900000]},"v":{"dtype":"U8","shape":[900000],"data_offsets":[900000,1800000]}}'
printf '\220\000\000\000\000\000\000\000' > big.safetensors
printf '%-144s' "$header" >> big.safetensors
seq 1 300000 | head -c 1800000 > bytes
cat bytes >> big.safetensors
head -c 900000 bytes > t
tail -c 900000 bytes > v

ckpt cat big.safetensors t --raw | cmp - t && echo "t is whole"
ckpt cat big.safetensors v --raw | cmp - v && echo "v is whole"
ckpt cat big.safetensors 'v[100000:800000]' --raw > part
tail -c +100001 v | head -c 700000 | cmp - part && echo "part of v"
ckpt cat big.safetensors 't[1:]' --raw > part
tail -c 600000 t | cmp - part && echo "part of t"
ckpt cat big.safetensors 't[:,599,498:]' --raw | od -An -v -tu1
for at in 300000 600000 900000; do head -c $at t | tail -c 2; done | od -An -v -tu1
ckpt cat big.safetensors t | wc
ckpt cat big.safetensors t | tr ' ' '\n' | grep . > text
od -An -v -tu1 -w1 t | tr -d ' ' | cmp - text && echo "t as text"
ckpt cat big.safetensors t --json | tr -d '[]{}' | sed 's/.*"values"://; s/,"notes":.*//' | tr , '\n' | cmp - text && echo "t as JSON"
ckpt cat big.safetensors t | head -n 1 | cut -c 1-20
ckpt cat big.safetensors 't[:,50:]' --raw > part
for at in 300000 600000 900000; do head -c $at t | tail -c 275000; done | cmp - part && echo "rows of t"
