# A receipt is a function of what was done: the same bytes again, whatever the threads.
cp -r $DATA/llama-tiny in
ckpt convert in -o out.safetensors --match '*.0.*' --rename 's/model.layers.0/first/' --dtype '*norm*=f32' --receipt r.json --quiet
sed -E 's/"version":".*"/"version":V/' r.json
ckpt convert in -o out.safetensors --match '*.0.*' --rename 's/model.layers.0/first/' --dtype '*norm*=f32' --receipt r2.json \
  --quiet --threads 1 --memory 4M --force >/dev/null
cmp r.json r2.json && echo same
ckpt convert in -o out.safetensors --receipt r.json --quiet --force >/dev/null
sed -nE 's/.*"names":"hf.*"digest":"(.*)".*/\1  in/p' r.json
ckpt join in -o j.safetensors --receipt join.json --quiet
sed -n 3p join.json
printf 'ckpt1' >in/$(printf 'caf\351')
ckpt convert in -o $(printf 'caf\351').safetensors --receipt r3.json --quiet || echo exit $?
ls
# A size of shards is the folder's alone.
ckpt convert "$DATA/llama-tiny" -o one.safetensors -o cut --shard-size 100KB --receipt both.json --quiet
for out in one.safetensors cut; do
  ckpt verify $out --receipt both.json | tail -n 1
done
