# --force replaces a file or a folder by a whole new one, and no file that is not its own.
ckpt convert $DATA/llama-tiny -o folder --quiet
ckpt convert $DATA/llama-tiny -o folder --dtype f32 --force --quiet
ckpt ls folder | head -1
touch folder/notes.txt
ckpt convert $DATA/llama-tiny -o folder --force --quiet || echo exit $?
ls folder
ckpt convert $DATA/gpt2-tiny -o file.safetensors --quiet
ckpt convert $DATA/gpt2-tiny -o file.safetensors --dtype bf16 --force --quiet
ckpt ls file.safetensors | head -1
ls -A
# The stray file is named, not hidden behind the shards that it keeps from being ours.
ckpt split $DATA/llama-tiny -o shards --shard-size 50KB --quiet
touch shards/model-00003-of-00004.safetensors
ckpt convert $DATA/llama-tiny -o shards --force --quiet || echo exit $?
rm shards/model-00003* && touch shards/zoo
ckpt convert $DATA/llama-tiny -o shards --force --quiet || echo exit $?
