# split and join are each other's inverse: the same bytes come back.
closing() { sed -E 's/ in [0-9].*peak memory .*/ in TIME, RATE, PEAK/'; }
ckpt convert $DATA/llama-tiny -o one.safetensors --quiet
ckpt split one.safetensors -o parts --shard-size 64K 2>&1 | closing
ls parts
ckpt join parts -o again.safetensors 2>&1 | closing
cmp one.safetensors again.safetensors && echo same
ckpt join parts/model.safetensors.index.json -o from-index.safetensors --quiet
cmp one.safetensors from-index.safetensors && echo same
ckpt split $DATA/llama-tiny -o with-config --shard-size 64K --json --quiet | sed -E 's/,"seconds".*//'
ckpt split one.safetensors -o parts --shard-size 32K --force --quiet 2>&1 | sed 's/anew: .*(/anew: LIST (/'
ckpt split one.safetensors -o parts.safetensors --shard-size 32K || echo exit $?
ckpt split one.safetensors -o more || echo exit $?
ckpt split one.safetensors -o more --shard-size 1Q || echo exit $?
ckpt join parts -o folder || echo exit $?
ckpt join parts -o x.foo || echo exit $?
ckpt join parts -o x.pt || echo exit $?
ckpt join parts -o parts/one.safetensors || echo exit $?
ckpt join parts || echo exit $?
# One of several files is no model to be joined.
ckpt join parts/model-00002-of-* -o second.safetensors || echo exit $?
ln -s nowhere link && ckpt join link -o linked.safetensors || echo exit $?
rm link parts/model-00003-of-*
ckpt join parts -o broken.safetensors || echo exit $?
ls -A
# Neither gives a model other names.
ckpt join $DATA/llama-tiny -o llama.gguf 2>&1 | sed "s|$DATA|DATA|"
ckpt join $DATA/gguf/tiny-llama-f16.gguf -o llama.safetensors 2>&1 | sed "s|$DATA|DATA|"
