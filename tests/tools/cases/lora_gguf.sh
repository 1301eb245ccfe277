# Adapters as llama.cpp has them: from PEFT's folder and back, merged, listed, and what is refused.
cp -r "$DATA/adapters" a
echo '{"base_digest": "as ckpt-train leaves it"}' > a/linear/adapter/run.json
try() {
  echo "\$ ckpt $*"
  ckpt "$@" --quiet 2>&1
  echo "exit $?"
}
try convert a/linear/adapter -o lora.gguf
cmp lora.gguf a/linear/llama.gguf && echo as the converter writes it
try ls lora.gguf
try verify lora.gguf
ckpt inspect lora.gguf | sed -n '/^metadata/,$p'
try convert lora.gguf -o back/ --like a/linear/base
ls back
cat back/adapter_config.json
try hash a/linear/adapter
try hash a/linear/base --adapter a/linear/adapter
try hash a/linear/base --adapter lora.gguf
try hash a/linear/base --adapter back
try convert a/linear/base -o base.gguf --dtype f32
try convert lora.gguf -o again/ --like base.gguf
cmp back/adapter_model.safetensors again/adapter_model.safetensors && echo the same
echo "\$ patterns"
ckpt convert a/patterns/adapter -o patterns.gguf 2>&1 | grep note
try convert a/linear/adapter -o half.gguf --dtype f16
ckpt ls half.gguf | head -2
# the base by --like, else by the config's name of it
sed 's/"base"/null/' a/linear/adapter/adapter_config.json > c && cp c a/linear/adapter/adapter_config.json
try convert a/linear/adapter -o x.gguf
try convert a/linear/adapter -o x.gguf --like a/gpt2/base
try convert a/linear/adapter -o named.gguf --like a/linear/base
cmp named.gguf lora.gguf && echo the same
try convert lora.gguf -o x/
try convert a/dora/adapter -o x.gguf
try convert a/saved/adapter -o x.gguf
try quantize a/gpt2/adapter -o x.gguf --type Q8_0
ls x x.gguf 2> /dev/null
