# --plan says what would be done and does none of it.
ckpt convert $DATA/llama-tiny -o p.safetensors --match '*.0.*proj*' --dtype f32 --plan | sed -E 's/memory .*, about/memory M, about/'
ckpt convert $DATA/llama-tiny -o p --match 'lm_head*' --dtype f32 --plan --json --receipt r.json |
  sed -E 's/"(peak_bytes|n_bytes_free)":[0-9]+/"\1":N/g'
ckpt convert $DATA/llama-tiny -o p -o p/x.safetensors --match 'lm_head*' --plan --receipt r.json | sed -E 's/memory .*, about/memory M, about/'
ckpt split $DATA/llama-tiny -o p --shard-size 100K --plan | tail -2 | sed -E 's/memory .*, about/memory M, about/'
ckpt convert $DATA/llama-tiny -o p.safetensors --match '*.0.*proj*' --plan=rows | sed -E 's/memory .*, about/memory M, about/'
ckpt convert $DATA/llama-tiny -o p.safetensors --match 'lm_head*' --plan=rows --json | sed -E 's/"(peak_bytes|n_bytes_free)":[0-9]+/"\1":N/g'
ckpt convert $DATA/llama-tiny -o p.safetensors --plan=all 2>&1
ls -A
# What it says is what is written, framing and all; where that is not known before, it says "about".
bytes() { find "$1" -type f -printf '%s\n' | awk '{ n += $1 } END { print n }'; }
planned() { python3 -c 'import json, sys
out = json.load(sys.stdin)
print(out["status"], out["n_bytes"], out["n_bytes_written"], out["is_exact"], sep=" ")'; }
for to in '--to torch' '--to dcp' '--to hf' '--to safetensors' '--to dcp --zstd 3'; do
  echo "$to"
  ckpt convert $DATA/dcp/fsdp4 -o sized $to --plan --json --include all | planned
  ckpt convert $DATA/dcp/fsdp4 -o sized $to --quiet --include all > /dev/null && bytes sized && rm -r sized
done
ckpt convert $DATA/dcp/fsdp4 -o sized --to dcp --zstd 3 --plan | tail -2 | sed -E 's/memory .*, about/memory M, about/'
