# --plan says what would be done and does none of it.
ckpt convert $DATA/llama-tiny -o p.safetensors --match '*.0.*proj*' --dtype f32 --plan | sed -E 's/memory .*, about/memory M, about/'
ckpt convert $DATA/llama-tiny -o p --match 'lm_head*' --dtype f32 --plan --json --receipt r.json |
  sed -E 's/"peak_bytes":[0-9]+/"peak_bytes":N/'
ckpt convert $DATA/llama-tiny -o p -o p/x.safetensors --match 'lm_head*' --plan --receipt r.json | sed -E 's/memory .*, about/memory M, about/'
ckpt split $DATA/llama-tiny -o p --shard-size 100K --plan | tail -2 | sed -E 's/memory .*, about/memory M, about/'
ls -A
