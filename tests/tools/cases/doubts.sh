# What a run was asked for and does not do, or does in another way than it seems: said, in lines that begin with warning.
python3 "$DATA/../tools/tiny.py" in.safetensors 'ids I32 2 1,2' 'w F32 2 1,2'
ckpt convert in.safetensors -o a.safetensors --dtype ids=f16 2>&1 | grep -v peak
ckpt convert in.safetensors -o b.safetensors --dtype '*=f16' 2>&1 | grep -v peak
# Names that are given and that readers unwrap: shown as the model has them, with a note, at both ends.
ckpt convert in.safetensors -o renamed.safetensors --rename 's/^/module./' 2>&1 | grep -v peak
ckpt ls renamed.safetensors 2>&1
ckpt ls renamed.safetensors --names stored 2>&1
ckpt convert in.safetensors -o plain.safetensors --rename 's/^w$/v/' 2>&1 | grep -v peak
ckpt ls plain.safetensors 2>&1
# A tokenizer of a kind that is not read is refused by name; the way out writes the model without it.
ckpt convert "$DATA/llama-tiny" -o tiny.gguf 2>&1 | sed "s|$DATA/||"
ckpt quantize "$DATA/llama-tiny" -o tiny.gguf --type F16 2>&1 | sed "s|$DATA/||"
ls -A
ckpt convert "$DATA/llama-tiny" -o tiny.gguf --names stored 2>&1 | grep -v peak
