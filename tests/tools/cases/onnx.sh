# A file of data beside a model: what stays of the replaced one is said, and a receipt of links tells their model's size.
ckpt convert "$DATA/onnx/dynamo.onnx" -o m.onnx --external-data --quiet
ckpt convert "$DATA/onnx/dynamo.onnx" -o m.onnx --force 2>&1 | grep -o 'm.onnx.data.*'
ls -A
ckpt convert "$DATA/onnx/dynamo.onnx" -o other.onnx 2>&1 | grep -o 'other.onnx.data.*'

check() { ckpt verify "$1" --receipt "$2" | grep -v 'not proven'; }
mkdir model
ckpt convert "$DATA/onnx/dynamo.onnx" -o model/w.safetensors --quiet
ckpt convert model/w.safetensors --graph "$DATA/onnx/dynamo.onnx" -o links.onnx --link --receipt links.json --quiet
check links.onnx links.json
sed -i 's/\("n_tensors":[0-9]*,"n_bytes":\)[0-9]*/\17/' links.json
check links.onnx links.json | sed 's/replay makes [0-9]*/replay makes N/'

# Beside a copy of the weights: the receipt's inputs do not lie there.
mkdir copy
cp -r links.onnx model copy
check copy/links.onnx links.json

# A mask with infinities is a warning in a graph, NaN in a parameter a problem; both are warnings in a constant.
cat >write.py <<'END'
import struct
def field(number, data): return bytes([number << 3 | 2, len(data)]) + data
def tensor(name, *values):
    return b"\x08" + bytes([len(values)]) + b"\x10\x01" + field(8, name) + field(9, struct.pack("<%df" % len(values), *values))
inf, nan = float("inf"), float("nan")
def model(path, nodes):
    graph = nodes + field(2, b"g") + field(5, tensor(b"mask", 0, -inf)) + field(5, tensor(b"nan", nan, 1))
    with open(path, "wb") as file:
        file.write(b"\x08\x08" + field(7, graph) + field(8, b"\x10\x11"))
model("graph.onnx", field(1, field(2, b"c") + field(4, b"Constant") + field(5, field(1, b"value") + field(5, tensor(b"", nan, -inf)))))
model("weights.onnx", b"")
END
python3 write.py
ckpt verify graph.onnx | grep -v 'not proven'
ckpt verify weights.onnx | grep -v 'not proven'

# Casts into a graph are said.
ckpt convert "$DATA/onnx/dynamo.onnx" -o half.safetensors --dtype 'val_*=f32' --dtype f16 --quiet
ckpt convert half.safetensors --graph "$DATA/onnx/dynamo.onnx" -o wide.onnx 2>&1 | grep 'not written'

# What a model said of itself stays in safetensors, and is not said of another one.
ckpt convert half.safetensors -o alone.onnx 2>&1

# What it is, its data in shards, and a graph with weights that lack one and have another too many.
cp "$DATA/onnx/dynamo.onnx" exported.onnx
ckpt inspect exported.onnx | head -n 8
ckpt split exported.onnx -o shards --shard-size 2KB --quiet
ls shards
ckpt hash shards exported.onnx | cut -d' ' -f1 | uniq | wc -l
ckpt convert model/w.safetensors --graph "$DATA/onnx/dynamo.onnx" -o renamed.onnx --rename 's/bias/bios/' 2>&1 | sed "s|$DATA|DATA|g"
ckpt convert model/w.safetensors --graph "$DATA/onnx/dynamo.onnx" -o renamed.onnx --rename 's/bias/bios/' --partial 2>&1 | grep 'not written'

# Weights that an exporter stored under its own names, transposed: of both exporters, by the checkpoint that they took.
old="$DATA/onnx/weights.safetensors"
for exporter in dynamo legacy; do
  ckpt convert "$old" --graph "$DATA/onnx/$exporter.onnx" -o no.onnx 2>&1 | sed "s|$DATA|DATA|g"
  ckpt convert "$old" --graph "$DATA/onnx/$exporter.onnx" --graph-weights "$old" -o filled.onnx --receipt filled.json --force \
    --quiet
  cmp filled.onnx "$DATA/onnx/$exporter.onnx" && check filled.onnx filled.json
  rm filled.json
done
ckpt convert "$old" -o tuned.safetensors --dtype bf16 --quiet
ckpt convert tuned.safetensors --graph "$DATA/onnx/dynamo.onnx" --graph-weights "$old" -o tuned.onnx --quiet
ckpt cat tuned.onnx 'val_2[3,5]' && ckpt cat tuned.safetensors 'fc.weight[5,3]'
# A model that has one weight less than the graph; below, one more.
ckpt convert tuned.safetensors --exclude fc.weight --graph "$DATA/onnx/dynamo.onnx" --graph-weights "$old" -o less.onnx \
  2>&1 | sed "s|$DATA|DATA|g"
# Two tensors of the old checkpoint with the same values: which was meant cannot be told.
python3 - "$old" << 'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + n])
header["twin.weight"] = dict(header["fc.weight"])
begin, end = header["fc.weight"]["data_offsets"]
body = data[8 + n:]
header["twin.weight"]["data_offsets"] = [len(body), len(body) + end - begin]
text = json.dumps(header).encode()
open("twins.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body + body[begin:end])
END
ckpt convert tuned.safetensors --graph "$DATA/onnx/dynamo.onnx" --graph-weights twins.safetensors -o no.onnx 2>&1 \
  | sed "s|$DATA|DATA|g"
ckpt convert twins.safetensors --graph "$DATA/onnx/dynamo.onnx" --graph-weights "$old" -o no.onnx 2>&1
ckpt convert twins.safetensors --graph "$DATA/onnx/dynamo.onnx" --graph-weights "$old" -o more.onnx --partial 2>&1 \
  | grep 'not written'
# Not the checkpoint that the graph was exported from, or a weight that the exporter folded others into.
ckpt convert tuned.safetensors --graph "$DATA/onnx/dynamo.onnx" --graph-weights tuned.safetensors -o no.onnx 2>&1 \
  | sed "s|$DATA|DATA|g"
ckpt convert tuned.safetensors --partial -o no.onnx 2>&1 || echo "exit $?"
