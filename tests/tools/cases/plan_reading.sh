# --plan of the verbs that write nothing: what they would read, and in what time; no value is read or printed.
python3 "$DATA/../tools/tiny.py" m.safetensors 'a F32 4,2 7' 'b F16 3 nan'
for verb in 'ls m.safetensors' 'ls m.safetensors --stats' 'inspect m.safetensors' 'hash m.safetensors' \
  'verify m.safetensors' 'diff m.safetensors m.safetensors' 'cat m.safetensors a[1:3]' 'cat m.safetensors a --raw'; do
  echo "\$ $verb"
  ckpt $verb --plan 2>&1 | sed -E 's/memory .*, about/memory M, about/'
  ckpt $verb --plan --json 2>&1 | python3 -c '
import json, sys
text = sys.stdin.read()
if text.startswith("{"):
    plan = json.loads(text)
    print({key: value for key, value in plan.items() if key not in ("peak_bytes", "rows", "notes")})
else:
    print(text, end="")'
done
# What cannot be done is said by the plan too.
ckpt ls m.safetensors --stats --plan=rows 2>&1 | sed -E "s/memory .*, about/memory M, about/"
ckpt hash m.safetensors --plan=rows --json | python3 -c "import json, sys; print(json.load(sys.stdin)['rows'])"
ckpt cat m.safetensors c --plan 2>&1
