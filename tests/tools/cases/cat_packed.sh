# Slices of packed dtypes at any element, also where rows begin within a byte; raw bytes only from byte to byte. Empty
# tensors as numpy's tolist; modifiers of the input behind the tensor's name.
header='{"a":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]},"b":{"dtype":"F4","shape":[3,4],"data_offsets":[3,9]},"c":{"dtype":"F6_E2M3","shape":[2,6],"data_offsets":[9,18]},"y":{"dtype":"F32","shape":[0,2],"data_offsets":[18,18]},"z":{"dtype":"F32","shape":[3,0,5],"data_offsets":[18,18]},"huge":{"dtype":"F32","shape":[4000000000,4000000000,0],"data_offsets":[18,18]}}'
printf '\200\001\000\000\000\000\000\000%-384s' "$header" > packed.safetensors
printf '\041\103\145\020\062\124\166\230\272\000\001\002\003\004\005\006\007\010' >> packed.safetensors
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1
  echo "exit $?"
}
for tensor in a b c; do try cat packed.safetensors $tensor --json; done
for i in 0 1; do for j in 0 1 2; do ckpt cat packed.safetensors "a[$i,$j]"; done; done
for begin in 0 1 2 3 4 5; do ckpt cat packed.safetensors "c[:,$begin:]" --json; done
try cat packed.safetensors 'b[:,1:3]'
try cat packed.safetensors 'b[1:1,1:3]' --json
for box in a 'a[0]' 'a[0:2]' 'b[1]' 'b[1:,1:3]' 'c[0,1:5]'; do
  echo "raw $box"
  ckpt cat packed.safetensors "$box" --raw 2>&1 > raw || echo "exit $?"
  od -An -v -tx1 raw
done
for tensor in y z 'z[1:]' 'z[:,:,2]' 'z[0]' huge 'huge[0,:2]'; do try cat packed.safetensors "$tensor" --json; done
try cat packed.safetensors 'b[0]' --weights model
try cat --weights model packed.safetensors 'b[0]'
try cat packed.safetensors 'b[0]' --trace t.jsonl
