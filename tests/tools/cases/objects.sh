# Objects: inspect lists those that an output lacks, JSON has them whole, and cat prints each.
names() { python3 -c 'import json, sys; print(*(o["name"] for o in json.load(sys.stdin)["objects"]))'; }
for in in dcp/carried dcp/fsdp4 torch/training.pt zero/stage1; do
  echo "$in: $(ckpt inspect $DATA/$in --json | names)"
  ckpt convert $DATA/$in -o out.safetensors --force --json --quiet 2> /dev/null | python3 -c 'import json, sys
print(*(text for text in json.load(sys.stdin)["dropped"] if "object" in text))'
done
ckpt inspect $DATA/dcp/carried | sed -n '/^objects/,/^$/p' | cut -c1-90
# Whole values: nothing is cut, nothing is text that holds JSON.
ckpt inspect $DATA/dcp/fsdp4 --json | python3 -c 'import json, sys
for o in json.load(sys.stdin)["objects"]: print(o["name"], o["kind"], json.dumps(o["value"])[:70], len(json.dumps(o["value"])) > 200)'
try() {
  {
    echo "\$ ckpt cat $*"
    ckpt cat "$@" 2>&1
  } | sed "s|$DATA/||"
}
try $DATA/dcp/fsdp4 optimizer.param_groups
try $DATA/dcp/fsdp4 optimizer.param_groups.0.lr
try $DATA/dcp/fsdp4 optimizer.param_groups.0.params --json
try $DATA/dcp/fsdp4 trainer.note
try $DATA/dcp/fsdp4 trainer.note --raw
echo
try $DATA/dcp/fsdp4 trainer --raw
try $DATA/dcp/fsdp4 trainer.nothing
try $DATA/dcp/fsdp4 optimizer.param_groups.1
try $DATA/dcp/objects trainer.big
try $DATA/dcp/fsdp4 trainer --plan
# What has no number in JSON is text, as Python calls it; tensors stand with their names.
python3 - <<'END'
import pickle, zipfile
value = {"best": float("-inf"), "last": float("nan"), 3: [(1, 2), {4}, b"abc"], "a.b": {"c": None}}
with zipfile.ZipFile("plain.pt", "w") as archive:
    for name, content in (("data.pkl", pickle.dumps(value, 2)), ("byteorder", b"little"), ("version", b"3\n")):
        archive.writestr("plain/" + name, content)
END
try plain.pt torch
try plain.pt 3.0.1
try plain.pt torch.3.0.1
try plain.pt a.b.c
