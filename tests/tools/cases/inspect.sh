# What a folder and a file are, as text and as JSON.
cd "$DATA"
ckpt inspect llama-tiny
ckpt inspect gpt2-tiny --json
ckpt inspect safetensors/every-dtype.safetensors
ckpt inspect safetensors/nothing.safetensors
ckpt inspect safetensors/no-such.safetensors --json
