# Tensors of one file, of shards and of a tied model; patterns; JSON; names that a terminal would obey.
cd "$DATA"
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1
  echo "exit $?"
}
try ls safetensors/every-dtype.safetensors
try ls safetensors/shapes.safetensors
try ls safetensors/names.safetensors
try ls safetensors/names.safetensors --json
try ls llama-tiny --match '*norm*' --match 're:^lm_head'
try ls llama-tiny/model.safetensors.index.json --match 'model.norm.*' --json
try ls gpt2-tiny --match '*wte*'
try ls gpt2-tiny --match '*wte*' --json
try ls gpt2-tiny --match '*ln_f*' --names stored
try ls gpt2-tiny --include optimizer
try ls gpt2-tiny --match 'wte*'
try ls gpt2-tiny --match 're:('
try ls gpt2-tiny --weights master
try ls gpt2-tiny --like llama-tiny
try ls gpt2-tiny --like gpt2-tiny --match '*wpe*'
try ls safetensors/nothing.safetensors
try ls no-such-file --json
try ls make_llama_tiny.py

# What a pattern could have meant, and a cast.
ckpt ls $DATA/dcp/fsdp4 --match '*exp_avg' 2>&1 | sed "s|$DATA/||" || true
ckpt ls $DATA/llama-tiny --match lm_head 2>&1 | sed "s|$DATA/||" || true
ckpt hash $DATA/llama-tiny --cast Q4_K 2>&1 || true
