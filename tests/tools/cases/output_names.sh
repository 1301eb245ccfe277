# A suffix is a dot, a letter, then letters or digits to the end; a name without one is a folder.
in=$DATA/llama-tiny
for name in Qwen2.5-7B-Instruct Llama-3.1-8B model.v1.5 .hidden a.b/plain v.2; do
  mkdir -p a.b && ckpt convert $in -o $name --quiet >/dev/null && ls $name/config.json
done
for name in x.v2 x.tensors a.b/x.zip; do ckpt convert $in -o $name 2>&1 || echo "exit $?"; done
ckpt convert $in -o x.v2/ --quiet && ls x.v2/config.json

# An output inside another one comes before it or after it.
ckpt convert $in -o late/x.safetensors -o late --quiet && ls late

# What no version writes is no format.
for format in megatron FSDP; do ckpt convert $in -o later --to $format 2>&1 || echo "exit $?"; done
for format in megatron hf; do ckpt reshard $in -o later --to $format 2>&1 || echo "exit $?"; done
ckpt convert $in -o ok --to HF 2>&1 || echo "exit $?"
# A folder below a folder, whichever way its name is written.
ckpt convert $in -o both -o both/sub/ --quiet
find both -type f | sort
