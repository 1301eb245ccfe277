# A receipt's inputs are looked for from the current folder, then beside the receipt; when they are nowhere, it is said.
mkdir work kept && cp "$DATA/gpt2-tiny/model.safetensors" work/in.safetensors
(cd work && ckpt convert in.safetensors -o out.safetensors --receipt r.json --quiet)
(cd work && ckpt verify out.safetensors --receipt r.json | tail -n 1)
ckpt verify work/out.safetensors --receipt work/r.json | tail -n 1
cp work/r.json kept/r.json
ckpt verify work/out.safetensors --receipt kept/r.json 2>&1 | sed "s|$PWD|HERE|"
cp work/in.safetensors kept/ && ckpt verify work/out.safetensors --receipt kept/r.json | tail -n 1
