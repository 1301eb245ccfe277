# What cannot be is refused with a message that says what to do, before anything is written.
cp -r $DATA/llama-tiny in
cp -r $DATA/gpt2-tiny gpt2
ckpt join in -o whole.safetensors --quiet >/dev/null
cp in/model-00001-of-00003.safetensors a.safetensors
mkdir empty kept && touch kept/mine
ckpt convert a.safetensors -o there.safetensors --quiet >there.sum
touch before && find . | sort >before
try() {
  echo "$ ckpt $*" >&2
  ckpt "$@" || echo "  exit $?" >&2
}

try convert nope -o x.safetensors
try convert empty -o x.safetensors
try convert a.safetensors
try convert -o x.safetensors
try convert a.safetensors in -o x.safetensors
try convert a.safetensors -o x --to zip
try convert a.safetensors -o x.safetensors --dtype bf17
try convert a.safetensors -o x.safetensors --shard-size 0
try convert a.safetensors -o ''

# outputs and inputs
try convert in -o in --force
try convert in -o in/sub
try convert in -o ./in/../in/x.safetensors
try convert in/model.safetensors.index.json -o in --force
try convert in/model.safetensors.index.json -o in/model-00002-of-00003.safetensors --force
try convert a.safetensors -o a.safetensors --force
try convert a.safetensors -o . --force
ln -s in link
try convert in -o link/x.safetensors
rm link
try convert whole.safetensors --like in -o in --force
try convert a.safetensors -o x.safetensors --receipt a.safetensors --force
try convert in -o x.safetensors --receipt in/receipt.json
try convert a.safetensors -o x.safetensors --receipt x.safetensors
try convert a.safetensors -o x.safetensors -o ./x.safetensors
try convert in -o x -o x/model.safetensors

# what stands at the output
try convert a.safetensors -o there.safetensors
try convert a.safetensors -o x.safetensors --receipt there.sum
try convert a.safetensors -o kept
try convert a.safetensors -o kept --force
try convert a.safetensors -o kept --to safetensors
try convert a.safetensors -o none/x.safetensors
try convert a.safetensors -o /proc/x
try convert a.safetensors -o x.safetensors --trace none/t.jsonl

# patterns, names, models
try convert a.safetensors -o x.safetensors --match 'zap*'
try convert a.safetensors -o x.safetensors --exclude 're:zap'
try convert a.safetensors -o x.safetensors --rename 's/zap/zip/'
try convert a.safetensors -o x.safetensors --dtype 'zap=f16'
try convert a.safetensors -o x.safetensors --exclude '*'
try convert a.safetensors -o x.safetensors --rename 's/.*/same/'
try convert a.safetensors -o x.safetensors --rename 's/(/x/'
try convert a.safetensors --like in -o x
try convert in --like gpt2 -o x
try convert a.safetensors -o x.safetensors --memory 1K
try convert a.safetensors -o there.safetensors --json --quiet

find . | sort | diff before - && echo nothing was written
