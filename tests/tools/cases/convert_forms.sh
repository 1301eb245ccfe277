# The same model in every form: one file, shards, a folder again; its digest stays, and so do its side files.
llama=$DATA/llama-tiny
closing() { sed -E 's/ in [0-9].*peak memory .*/ in TIME, RATE, PEAK/'; }
ckpt convert $llama -o one.safetensors 2>&1 | closing
ckpt convert one.safetensors -o bare 2>&1 | closing
ckpt convert $llama -o shards/ --shard-size 100K 2>&1 | closing
ls shards
ckpt convert shards -o again --quiet
for file in config.json generation_config.json tokenizer.json tokenizer_config.json; do cmp $llama/$file again/$file; done

# The side files of --like make a bare file the folder that it was.
ckpt convert one.safetensors --like $llama -o like --quiet
diff -r like again && echo same

# A cast is stated in config.json; nothing else of it changes.
ckpt convert $llama -o half --dtype f16 --quiet
diff $llama/config.json half/config.json
ckpt convert $llama -o rules.safetensors --dtype 're:norm=f32' --dtype f16 --json --quiet | sed -E 's/,"seconds".*//'
ckpt ls rules.safetensors --match '*.0.*norm*'
ckpt convert $llama -o some.safetensors --match 'model.layers.0.*' --exclude '*norm*' --rename 's/^model\.layers\.0\.//' 2>&1 |
  closing
ckpt ls some.safetensors
