# What a folder and a file are, as text and as JSON.
cd "$DATA"
ckpt inspect llama-tiny
ckpt inspect gpt2-tiny --json
ckpt inspect safetensors/every-dtype.safetensors
ckpt inspect safetensors/nothing.safetensors
ckpt inspect safetensors/no-such.safetensors --json
# Objects, and ranks: a DCP folder; every kind of object has its own value or what it looks like.
ckpt inspect dcp/fsdp4 | sed -n '3p;5,9p'
ckpt inspect dcp/fsdp4 --json | python3 -c 'import json, sys
out = json.load(sys.stdin)
print(out["min_ranks"], out["step"], *(dict(o, value=json.dumps(o["value"])[:40]) for o in out["objects"]), sep="\n")'
ckpt inspect dcp/objects --json | python3 -c 'import json, sys
for o in json.load(sys.stdin)["objects"]: print(o["name"], o["kind"], o["size"], repr(o["value"])[:60])'
