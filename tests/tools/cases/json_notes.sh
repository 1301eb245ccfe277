# Every note stands in --json too, --quiet or not; so does what is left beside the model.
cp -r $DATA/llama-tiny in && echo >in/optimizer.pt && echo >in/scheduler.pt && printf 'PK\003\004' >in/pytorch_model.bin
show() { python3 -c 'import json, sys
out = json.load(sys.stdin)
print(*(out.get(key) for key in sys.argv[1:]), sep="\n")' "$@"; }
ckpt convert in -o one.safetensors --json --quiet | show dropped notes
ckpt convert in -o two.safetensors -o folder --json --quiet --trace t.jsonl | show notes
ckpt convert one.safetensors -o bare --json 2>stderr | show dropped notes
sed -E 's/.* in [0-9].*peak memory .*/CLOSING/' stderr
ckpt convert one.safetensors -o bare1 -o small.safetensors --match model.norm.weight --dtype f8_e4m3 --json --quiet | show notes
ckpt convert one.safetensors -o planned --plan --json --quiet | show notes
for verb in 'hash in' 'hash --files in' 'verify in' 'ls in' 'ls in --stats --plan' 'diff in one.safetensors' 'inspect in --trace t'; do
  echo "$verb" && ckpt $verb --json --quiet | show notes
done

# Several outputs: which of them a line is about
ckpt convert in -o a.safetensors -o b 2>&1 >/dev/null | sed -E 's/ in [0-9].*peak memory .*/ in TIME, RATE, PEAK/'
ckpt convert one.safetensors -o c.safetensors -o d 2>&1 >/dev/null | sed -E 's/ in [0-9].*peak memory .*/ in TIME, RATE, PEAK/'
ckpt --version --json | show status
