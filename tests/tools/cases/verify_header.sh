# All that is wrong inside one header and one index of shards is named, by file and tensor; what is whole is looked at.
say() { # PATH [OPTION...]
  echo "\$ verify $*"
  ckpt verify "$@"
  echo "exit $?"
}
files() { # PATH...: the files that problems name
  for path in "$@"; do
    ckpt verify "$path" --json | python3 -c '
import json, sys
print(*sorted({problem["file"] for problem in json.load(sys.stdin)["problems"]}))'
  done
}
cat >write.py <<'END'
import json, struct, sys
def write(path, header, payload, tail=b""):
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + payload + tail)
def f32(n, begin, end, **more):
    return dict({"dtype": "F32", "shape": [n], "data_offsets": [begin, end]}, **more)
write("one.safetensors", {
    "__metadata__": {"key": 1}, "a": f32(4, 0, 16), "b": f32(4, 8, 24), "c": f32(2, 20, 28),
    "backwards": f32(2, 30, 10), "unknown": f32(2, 28, 36, dtype="F33"), "": f32(1, 0, 4),
    "nested": f32(2, 36, 44, shape=["x", {"y": [1]}]), "short": f32(3, 44, 52), "number": 5, "list": [1, [2]],
    "untyped": {"shape": [1], "data_offsets": [52, 56]}, "nan": f32(2, 56, 64)},
    bytes(56) + struct.pack("<2f", float("nan"), 1), b"tail")
write("shards/1.safetensors", {"a": f32(2, 0, 8), "cut": f32(9, 8, 44)}, struct.pack("<2f", float("inf"), 1))
write("shards/2.safetensors", {"b": f32(2, 0, 8)}, bytes(8), b"tail")
with open("shards/model.safetensors.index.json", "w") as file:
    json.dump({"metadata": {"total_size": 5}, "weight_map": {
        "a": "1.safetensors", "cut": "1.safetensors", "b": "1.safetensors", "ghost": "2.safetensors",
        "lost": "3.safetensors", "far": "4.safetensors", "out": "../5.safetensors"}}, file)
END
mkdir shards
python3 write.py
echo '{"model_type": "llama", "hidden_size": "2"}' >shards/config.json
say one.safetensors
say shards
files one.safetensors shards

# Sums and manifests are compared all the same, of what cannot be opened too.
(cd shards && sha256sum *.safetensors) >sums
printf x >>shards/2.safetensors
truncate -s 30 shards/1.safetensors
say shards --sums sums
head -c 50 one.safetensors >cut.safetensors
(sha256sum cut.safetensors | sed 's/^..../0000/') >sums
say cut.safetensors --sums sums --digest ckpt1:0000000000000000000000000000000000000000000000000000000000000000
mkdir other
echo text >other/notes.txt
(cd other && sha256sum notes.txt) >sums
say other --sums sums
TINY="python3 $DATA/../tools/tiny.py"
$TINY whole.safetensors 'a F32 1 1' 'b F32 1 2' 'c F32 1 3'
ckpt hash whole.safetensors -o manifest.json >digest
$TINY bad.safetensors 'a F32 1 1' 'b F32 1 9' 'c F32 1 3'
sed -i 's/"c": {"dtype": "F32"/"c": {"dtype": "F99"/' bad.safetensors
say bad.safetensors --manifest manifest.json
say bad.safetensors --digest "$(cut -d ' ' -f 1 digest)"

# A digest of none of the tensors proves nothing.
$TINY state.safetensors 'optimizer.state.w.exp_avg F32 1 1'
say state.safetensors --digest ckpt1:0000000000000000000000000000000000000000000000000000000000000000
ckpt convert state.safetensors --include optimizer -o copy.safetensors --json --quiet | python3 -c '
import json, sys
print(json.load(sys.stdin)["digest"])'
ckpt convert state.safetensors --include optimizer -o again.safetensors --quiet

# --like: its config is the model's.
ckpt convert "$DATA/gpt2-tiny" -o gpt2.pt --quiet >digest
say gpt2.pt --like "$DATA/gpt2-tiny" | grep config
