# Several outputs come from one read; those in one folder appear together, the receipt with them.
ckpt convert $DATA/gpt2-tiny -o out -o out/extra.safetensors -o alone.safetensors --receipt out/receipt.json --quiet \
  --trace trace.jsonl
ls out
cmp out/extra.safetensors alone.safetensors && echo same
ckpt convert $DATA/gpt2-tiny -o json.safetensors -o json --json --quiet |
  sed -E 's/"(seconds|peak_bytes)":[0-9.e-]+/"\1":N/g'
# Each tensor's bytes are read once, whatever the number of outputs.
read_bytes() { sed -nE 's/.*"read":([0-9]+).*/\1/p' $1 | awk '{ n += $1 } END { print n }'; }
ckpt convert $DATA/gpt2-tiny -o single.safetensors --quiet --trace single.jsonl >/dev/null
test "$(read_bytes trace.jsonl)" = "$(read_bytes single.jsonl)" && echo one read
ls -A
