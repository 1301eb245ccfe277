"""Writes golden-errors/safetensors/*.safetensors and golden-errors/hf/*/: one hostile input per defect.

messages.tsv beside them holds what is said of each (CKPT_BLESS=1 makes the test write it; read the difference).
    python make_golden_errors.py
"""
import json
import os
import shutil
import sys

here = os.path.dirname(os.path.abspath(__file__))
out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "golden-errors")

F32 = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(content if isinstance(content, bytes) else content.encode())


def file(header, n_payload=4, n=None):
    header = header if isinstance(header, (str, bytes)) else json.dumps(header, separators=(",", ":"))
    header = header if isinstance(header, bytes) else header.encode()
    return (len(header) if n is None else n).to_bytes(8, "little") + header + b"\0" * n_payload


def one(**changes):
    return {"a": {**F32, **changes}}


FILES = {
    "too-short": b"\5\0\0\0",
    "empty": b"",
    "text": "this is no checkpoint at all\n",
    "html": "<html>not found</html>",
    "lfs-pointer": "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 100\n",
    "header-over-limit": file("{}", 0, 100000001),
    "header-past-end": file(one(), 4, 1000),
    "payload-truncated": file({"a": F32, "b": {"dtype": "F32", "shape": [100], "data_offsets": [4, 404]}}, 200),
    "json-cut": file('{"a":{"dtype":"F32"', 0),
    "json-trailing": file(json.dumps(one()) + "x"),
    "json-nul-padding": file(json.dumps(one()) + "\0\0"),
    "json-not-utf8": file(b'{"\xff":{}}'),
    "json-lone-surrogate": file('{"\\ud800":{}}'),
    "json-control-character": file('{"a\nb":{}}'),
    "json-too-deep": file('{"a":{"x":' + "[" * 70 + "]" * 70 + "}}"),
    "name-empty": file({"": F32}),
    "name-nul": file({"a\0b": F32}),
    "name-too-long": file({"n" * 4097: F32}),
    "name-twice": file('{"a":%s,"a":%s}' % (json.dumps(F32), json.dumps({**F32, "data_offsets": [4, 8]})), 8),
    "tensor-no-object": file('{"a":[1]}'),
    "tensor-null": file('{"a":null}'),
    "dtype-missing": file('{"a":{"shape":[1],"data_offsets":[0,4]}}'),
    "shape-missing": file('{"a":{"dtype":"F32","data_offsets":[0,4]}}'),
    "offsets-missing": file('{"a":{"dtype":"F32","shape":[1]}}'),
    "dtype-unknown": file(one(dtype="F128")),
    "dtype-number": file(one(dtype=32)),
    "field-twice": file('{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}'),
    "shape-negative": file(one(shape=[-1])),
    "shape-float": file(one(shape=[1.0])),
    "shape-text": file(one(shape=["1"])),
    "shape-too-many-axes": file(one(shape=[1] * 9)),
    "shape-overflows": file(one(shape=[2**32, 2**32])),
    "shape-overflows-before-zero": file(one(shape=[2**62, 2**62, 0], data_offsets=[0, 0]), 0),
    "shape-past-64-bits": file('{"a":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]}}'),
    "size-wrong": file(one(shape=[2])),
    "size-of-half-blocks": file(one(dtype="F4", shape=[3], data_offsets=[0, 2]), 2),
    "offsets-one": file(one(data_offsets=[0])),
    "offsets-three": file(one(data_offsets=[0, 4, 8])),
    "offsets-reversed": file(one(data_offsets=[4, 0])),
    "offsets-huge": file('{"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551614,18446744073709551615]}}'),
    "overlap": file({"first": F32, "second": {**F32, "data_offsets": [2, 6]}}, 8),
    "overlap-same": file({"first": F32, "second": F32}),
    "metadata-number": file('{"__metadata__":{"step":5}}', 0),
    "metadata-array": file('{"__metadata__":[]}', 0),
    "metadata-twice": file('{"__metadata__":{"a":"b"},"__metadata__":{"a":"b"}}', 0),
    "metadata-key-twice": file('{"__metadata__":{"a":"b","a":"b"}}', 0),
    "metadata-nul": file('{"__metadata__":{"a":"\\u0000"}}', 0),
    # accepted, with a problem note:
    "noted-hole": file(one(data_offsets=[4, 8]), 8),
    "noted-trailing": file(one(), 9),
    "noted-misplaced-empty": file({"a": F32, "z": {"dtype": "F32", "shape": [0], "data_offsets": [2, 2]}}),
}

MODEL = file({"__metadata__": {"format": "pt"}, "w": F32})
OTHER = file({"__metadata__": {"format": "pt"}, "v": F32})
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"


def index(weights, **metadata):
    return json.dumps({"metadata": metadata, "weight_map": weights})


GOOD = {"w": ONE, "v": TWO}
FOLDERS = {
    "shard-missing": {INDEX: index(GOOD), ONE: MODEL},
    "shards-missing": {INDEX: index({"w": ONE, "v": TWO, "u": "model-3.safetensors"}), ONE: MODEL},
    "shard-truncated": {INDEX: index(GOOD), ONE: MODEL, TWO: OTHER[:-1]},
    "shard-no-safetensors": {INDEX: index(GOOD), ONE: MODEL, TWO: "version https://git-lfs.github.com/spec/v1\n"},
    "tensor-not-in-shard": {INDEX: index({**GOOD, "x": TWO}), ONE: MODEL, TWO: OTHER},
    "tensor-in-other-shard": {INDEX: index({"w": TWO, "v": ONE}), ONE: MODEL, TWO: OTHER},
    "tensor-in-two-shards": {INDEX: index(GOOD), ONE: MODEL, TWO: file({"v": F32, "w": {**F32, "data_offsets": [4, 8]}}, 8)},
    "map-key-twice": {INDEX: '{"weight_map":{"w":"%s","v":"%s","w":"%s"}}' % (ONE, TWO, ONE), ONE: MODEL, TWO: OTHER},
    "map-twice": {INDEX: '{"weight_map":{},"weight_map":{}}', ONE: MODEL},
    "map-missing": {INDEX: "{}", ONE: MODEL},
    "map-array": {INDEX: '{"weight_map":[]}', ONE: MODEL},
    "map-empty": {INDEX: '{"weight_map":{}}', ONE: MODEL},
    "map-key-nul": {INDEX: '{"weight_map\\u0000x":{"w":"%s"}}' % ONE, ONE: MODEL},
    "config-folder": {"model.safetensors": MODEL, "config.json/x.txt": "x"},
    "map-value-number": {INDEX: '{"weight_map":{"w":1}}', ONE: MODEL},
    "map-value-empty": {INDEX: '{"weight_map":{"w":""}}', ONE: MODEL},
    "map-name-too-long": {INDEX: index({"w" * 4097: ONE}), ONE: MODEL},
    "map-escapes": {INDEX: index({"w": "../shard-missing/" + ONE}), ONE: MODEL},
    "map-absolute": {INDEX: index({"w": "/etc/hostname"}), ONE: MODEL},
    "map-names-itself": {INDEX: index({"w": INDEX}), ONE: MODEL},
    "map-names-folder": {INDEX: index({"w": "sub"}), "sub/x.txt": "x", ONE: MODEL},
    "index-cut": {INDEX: index(GOOD)[:-10], ONE: MODEL, TWO: OTHER},
    "index-empty": {INDEX: "", ONE: MODEL},
    "numbered-incomplete": {"model-00001-of-00003.safetensors": MODEL, "model-00003-of-00003.safetensors": OTHER},
    "numbered-end-missing": {"model-00001-of-00003.safetensors": MODEL, "model-00002-of-00003.safetensors": OTHER},
    "unrelated-files": {"a.safetensors": MODEL, "b.safetensors": OTHER},
    "no-weights": {"config.json": "{}", "README.md": "x"},
    "config-broken": {"model.safetensors": MODEL, "config.json": '{"model_type": "llama",}'},
    # accepted, with a problem note:
    "noted-tensor-outside-map": {INDEX: index({"v": TWO, "w": ONE}), ONE: file({"w": F32, "extra": {**F32, "data_offsets": [4, 8]}}, 8),
                                 TWO: OTHER},
    "noted-total-size": {INDEX: index(GOOD, total_size=9), ONE: MODEL, TWO: OTHER},
    "noted-total-size-text": {INDEX: '{"metadata":{"total_size":"8"},"weight_map":{"v":"%s","w":"%s"}}' % (TWO, ONE), ONE: MODEL, TWO: OTHER},
    "noted-total-size-negative": {INDEX: index(GOOD, total_size=-8), ONE: MODEL, TWO: OTHER},
    "noted-total-size-half": {INDEX: index(GOOD, total_size=8.5), ONE: MODEL, TWO: OTHER},
    "noted-total-size-other-float": {INDEX: index(GOOD, total_size=9.0), ONE: MODEL, TWO: OTHER},
    "noted-metadata-array": {INDEX: '{"metadata":[],"weight_map":{"v":"%s","w":"%s"}}' % (TWO, ONE), ONE: MODEL, TWO: OTHER},
    "noted-both": {INDEX: index(GOOD, total_size=8.0), ONE: MODEL, TWO: OTHER, "model.safetensors": MODEL},
    "noted-tokenizer-folder": {"model.safetensors": MODEL, "tokenizer.json/x.txt": "x"},
    "noted-no-index": {ONE: MODEL, TWO: OTHER},
    "noted-metadata-differs": {INDEX: index(GOOD, total_size=8), ONE: MODEL, TWO: file({"__metadata__": {"format": "np"}, "v": F32})},
    "noted-others": {"model.safetensors": MODEL, "pytorch_model.bin": "x", "onnx/model.onnx": "x", "optimizer.pt": "x",
                     "rng_state_0.pth": "x", "trainer_state.json": "{}", "checkpoint-5/model.safetensors": MODEL,
                     "a/b/c/kept.txt": "x", "a/b/c/d/deep.txt": "x", ".hidden": "x", "consolidated.safetensors": MODEL},
}

for kind in ("safetensors", "hf"):
    folder = os.path.join(out, kind)
    for entry in os.listdir(folder) if os.path.isdir(folder) else []:
        path = os.path.join(folder, entry)
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif entry != "messages.tsv":
            os.remove(path)
for name, content in FILES.items():
    write(os.path.join(out, "safetensors", name + ".safetensors"), content)
for name, files in FOLDERS.items():
    for path, content in files.items():
        write(os.path.join(out, "hf", name, path), content)
