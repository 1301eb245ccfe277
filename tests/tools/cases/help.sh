# The whole help of the command and of one verb with every section.
ckpt help
ckpt --help >help && ckpt -h | cmp - help
ckpt help convert
ckpt --version
ckpt help split --json | python3 -c 'import json, sys
out = json.load(sys.stdin)
print(out["status"], *(v["name"] for v in out["verbs"]), *(o["name"] for o in out["verbs"][0]["options"]))'
ckpt help --json | python3 -c 'import json, sys; print(*(v["name"] for v in json.load(sys.stdin)["verbs"]))'
ckpt help zap --json || echo "exit $?"
# --help --json is JSON, as help --json is.
ckpt ls --help --json >one.json
ckpt help ls --json | cmp - one.json && ckpt help --json >all.json && ckpt --help --json | cmp - all.json && echo same
