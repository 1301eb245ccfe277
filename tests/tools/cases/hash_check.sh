# Lists of digests are written and checked; a flipped byte fails; what is no list says so.
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1
  echo "exit $?"
}
cp -r "$DATA/llama-tiny" "$DATA/gpt2-tiny" .
ckpt hash llama-tiny gpt2-tiny > list
cat list
try hash --check list
try hash --check - < list
ckpt convert llama-tiny -o one.safetensors --quiet > /dev/null
ckpt convert llama-tiny -o shards --shard-size 50K --quiet > /dev/null
ckpt hash llama-tiny one.safetensors shards | cut -c1-20 | uniq -c
ckpt hash llama-tiny --cast f32 > cast; try hash --check cast; try hash --check cast --cast f32
ckpt hash llama-tiny --names stored > stored; try hash --check stored --names stored
try hash gpt2-tiny --tensors --include optimizer

printf '\125' | dd of=llama-tiny/model-00002-of-00003.safetensors bs=1 seek=100001 conv=notrunc 2> /dev/null
try hash --check list
try hash --check list --quiet
ckpt hash --check list --json | python3 -c '
import json, sys
result = json.load(sys.stdin)
print(result["status"], [(one["path"], one["equal"], one["digest"] == one["expected"]) for one in result["checked"]])'

mkdir 'odd
name'; cp gpt2-tiny/* 'odd
name'; ckpt hash 'odd
name' > odd; cat odd; try hash --check odd
echo "ckpt1:$(printf '%064d' 0)  nowhere" > missing; try hash --check missing
cat list missing > some; try hash --check some
# What was hashed with an adapter is checked with it.
adapters=$DATA/adapters/linear && cp -r $adapters/base base
ckpt hash base --adapter $adapters/adapter=0.5 > merged
try hash --check merged; ckpt hash --check merged --adapter $adapters/adapter=0.5; ckpt hash --files base --adapter x
echo "ckpt1:1234  gpt2-tiny" > short; try hash --check short
{ cat list; echo "what is this"; } > malformed; try hash --check malformed
: > empty; try hash --check empty
try hash --check nowhere
ckpt hash gpt2-tiny -o manifest.json > /dev/null; try hash --check manifest.json
for line in 'hash' 'hash --check list gpt2-tiny' 'hash --check list --tensors' 'hash --check list --files' \
  'hash gpt2-tiny llama-tiny -o x' 'hash --files gpt2-tiny --cast f32' 'hash gpt2-tiny --force'; do
  try $line
done
