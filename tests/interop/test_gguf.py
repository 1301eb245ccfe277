"""GGUF files of the gguf package and of llama.cpp's tools and ours are the same, tensor by tensor and value by value.

The tools of llama.cpp are looked for in LLAMA_CPP_BIN (a folder with llama-gguf-split, llama-quantize, ...) and, where
they are not there, said to be skipped.
"""
import hashlib
import json
import os
import struct
import subprocess

import command
from command import ckpt, digest

command.need("gguf", "numpy")
import gguf  # noqa: E402
import numpy as np  # noqa: E402
from gguf import GGMLQuantizationType as Kind  # noqa: E402
from gguf import GGUFValueType as Type  # noqa: E402

DATA = os.path.join(command.TESTS, "data", "gguf")
PLAIN = [np.float64, np.float32, np.float16, np.int64, np.int32, np.int16, np.int8]


def tool(name, *arguments):
    """Output of a tool of llama.cpp; None where there is none."""
    path = command.llama(name)
    if path is None:
        return None
    done = subprocess.run([path, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError("%s: exit %d: %s" % (name, done.returncode, done.stderr[-2000:]))
    return done.stdout + done.stderr


def read(path):
    """Metadata, in order, and tensors of a file, as the gguf package reads them."""
    reader = gguf.GGUFReader(path)
    values = [(f.name, [int(t) for t in f.types], f.contents()) for f in reader.fields.values() if not f.name.startswith("GGUF.")]
    return values, {t.name: (t.tensor_type, tuple(t.shape), t.data.tobytes()) for t in reader.tensors}, reader.alignment


def same(a, b):
    assert repr(read(a)) == repr(read(b))


def random_file(path, seed):
    rng = np.random.default_rng(seed)
    w = gguf.GGUFWriter(path, "llama")
    if seed % 3 == 1:
        w.add_custom_alignment(8 << (seed % 5))
    scalars = [(Type.UINT8, 255), (Type.INT8, -128), (Type.UINT16, 65535), (Type.INT16, -32768), (Type.UINT32, 2**32 - 1),
               (Type.INT32, -2**31), (Type.FLOAT32, 0.1), (Type.BOOL, True), (Type.STRING, "\u00e9\n"), (Type.UINT64, 2**64 - 1),
               (Type.INT64, -2**63), (Type.FLOAT64, 0.1)]
    for i in rng.permutation(len(scalars)):
        kind, value = scalars[i]
        w.add_key_value("s.%d" % i, value, kind)
        w.add_key_value("a.%d" % i, [value] * int(rng.integers(1, 300)), Type.ARRAY, kind)
    for i in range(20):
        dtype = PLAIN[i % len(PLAIN)]
        shape = tuple(int(n) for n in rng.integers(1, 9, int(rng.integers(1, 5))))
        w.add_tensor("t.%d" % i, (rng.standard_normal(shape) * 30).astype(dtype))
    for kind in (Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0, Kind.BF16, Kind.TQ1_0, Kind.TQ2_0, Kind.MXFP4):
        values = rng.standard_normal((int(rng.integers(1, 9)), 256)).astype(np.float32)
        w.add_tensor("blk.0.%s.weight" % kind.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def test_files_of_the_package_come_back_byte_for_byte(folder):
    for seed in range(12):
        theirs, ours = os.path.join(folder, "t%d.gguf" % seed), os.path.join(folder, "o%d.gguf" % seed)
        random_file(theirs, seed)
        ckpt("convert", theirs, "-o", ours)
        with open(theirs, "rb") as a, open(ours, "rb") as b:
            assert a.read() == b.read()


def test_shapes_and_dtypes_are_those_of_the_package(folder):
    path = os.path.join(folder, "a.gguf")
    random_file(path, 2)
    listed = {t["name"]: t for t in json.loads(ckpt("ls", path, "--json"))["tensors"]}
    names = {"F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16", "I64": "i64", "I32": "i32", "I16": "i16", "I8": "i8"}
    _, tensors, _ = read(path)
    assert listed.keys() == tensors.keys()
    for name, (kind, shape, content) in tensors.items():
        assert listed[name]["dtype"] == names.get(kind.name, kind.name), name
        assert listed[name]["shape"] == [int(n) for n in reversed(shape)], name
        assert listed[name]["n_bytes"] == len(content), name


def test_the_digest_is_over_stored_blocks_and_the_name_of_their_type(folder):
    """As docs/digest.md has it, from what the gguf package reads."""
    path = os.path.join(folder, "a.gguf")
    random_file(path, 5)
    dtypes = {k.name: k.name.lower() for k in (Kind.F64, Kind.F32, Kind.F16, Kind.BF16, Kind.I64, Kind.I32, Kind.I16, Kind.I8)}

    def sha256(*parts):
        return hashlib.sha256(b"".join(parts)).digest()

    def u64(*numbers):
        return struct.pack("<%dQ" % len(numbers), *numbers)

    rows = []
    for name, (kind, shape, content) in sorted((n.encode(), t) for n, t in read(path)[1].items()):
        dtype, shape = dtypes.get(kind.name, kind.name).encode(), [int(n) for n in reversed(shape)]
        leaves = [sha256(content[at:at + (1 << 20)]) for at in range(0, len(content), 1 << 20)]
        rows += [u64(len(name)), name, sha256(b"ckpt1 tensor\n", dtype, b"\n", u64(len(shape), *shape), u64(len(content)), *leaves)]
    assert digest(path) == "ckpt1:" + sha256(b"ckpt1 model\n", u64(len(rows) // 3), *rows).hex()


def test_the_package_reads_what_is_edited(folder):
    theirs, ours = os.path.join(folder, "t.gguf"), os.path.join(folder, "o.gguf")
    random_file(theirs, 3)
    ckpt("convert", theirs, "-o", ours, "--set", "s.0=7", "--set", "new.text=text", "--set", "new.f32=1.5", "--set",
         "general.alignment=512", "--remove", "s.1")
    before, tensors, _ = read(theirs)
    after, tensors_after, alignment = read(ours)
    assert alignment == 512 and tensors == tensors_after
    want = [(k, t, 7 if k == "s.0" else v) for k, t, v in before if k not in ("s.1", "general.alignment")]
    assert repr([x for x in after if x[0] != "general.alignment" and not x[0].startswith("new.")]) == repr(want)
    assert ("new.text", [int(Type.STRING)], "text") in after and ("new.f32", [int(Type.FLOAT32)], 1.5) in after


def test_safetensors_and_back_keep_every_bit(folder):
    source, flat, back = (os.path.join(folder, n) for n in ("a.gguf", "a.safetensors", "b.gguf"))
    random_file(source, 4)
    ckpt("convert", source, "-o", flat, "--match", "t.*")
    ckpt("convert", flat, "-o", back, "--names", "stored")
    _, tensors, _ = read(source)
    _, tensors_back, _ = read(back)
    assert tensors_back == {n: t for n, t in tensors.items() if n.startswith("t.")}
    assert digest(flat) == digest(back)


def test_llama_gguf_split_both_ways(folder):
    whole, theirs, ours = os.path.join(folder, "w.gguf"), os.path.join(folder, "model"), os.path.join(folder, "ours")
    rng = np.random.default_rng(5)
    w = gguf.GGUFWriter(whole, "llama")
    w.add_array("tokenizer.ggml.tokens", ["t%d" % i for i in range(1000)])
    for i in range(9):
        w.add_tensor("blk.%d.w" % i, rng.standard_normal((300 + 40 * i, 255)).astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    if tool("llama-gguf-split", "--split", "--split-max-size", "1M", whole, theirs) is None:
        return
    ckpt("split", whole, "-o", ours, "--shard-size", "1MB")
    shards = sorted(n for n in os.listdir(folder) if n.startswith("model-"))
    assert shards == sorted(os.listdir(ours)) and len(shards) > 3
    for shard in shards:
        with open(os.path.join(folder, shard), "rb") as a, open(os.path.join(ours, shard), "rb") as b:
            assert a.read() == b.read(), shard
    joined, merged = os.path.join(folder, "joined.gguf"), os.path.join(folder, "merged.gguf")
    ckpt("join", os.path.join(folder, shards[0]), "-o", joined)
    with open(whole, "rb") as a, open(joined, "rb") as b:
        assert a.read() == b.read()
    tool("llama-gguf-split", "--merge", os.path.join(ours, shards[0]), merged)
    ckpt("diff", merged, whole)
    tool("llama-gguf-split", "--split", "--split-max-tensors", "4", "--no-tensor-first-split", whole,
         os.path.join(folder, "first-empty"))
    ckpt("join", os.path.join(folder, "first-empty-00001-of-00004.gguf"), "-o", os.path.join(folder, "joined2.gguf"))
    with open(whole, "rb") as a, open(os.path.join(folder, "joined2.gguf"), "rb") as b:
        assert a.read() == b.read()


def test_axes_of_one_stay_in_shards(folder):
    """ggml drops the slowest axes where they are 1: our shards keep them, so that join gives what was split, with one digest;
    to llama-gguf-split both are the same model, cut at the same places."""
    whole, theirs, ours = (os.path.join(folder, n) for n in ("w.gguf", "model", "ours"))
    rng, w = np.random.default_rng(5), gguf.GGUFWriter(whole, "bert")
    shapes = [(8, 256), (1, 256), (1, 1, 1, 256), (1, 2, 256), (1, 2, 1, 256), (300, 1000)]
    for i, shape in enumerate(shapes):
        w.add_tensor("blk.%d.w" % i, rng.standard_normal(shape).astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    if tool("llama-gguf-split", "--split", "--split-max-size", "1M", whole, theirs) is None:
        return
    ckpt("split", whole, "-o", ours, "--shard-size", "1MB")
    shards = sorted(n for n in os.listdir(folder) if n.startswith("model-"))
    assert shards == sorted(os.listdir(ours)) and len(shards) == 2
    assert digest(ours) == digest(whole) != digest(os.path.join(folder, shards[0]))
    ckpt("join", ours, "-o", os.path.join(folder, "joined.gguf"))
    merged = []
    for i, first in enumerate((os.path.join(folder, shards[0]), os.path.join(ours, shards[0]))):
        merged.append(os.path.join(folder, "merged-%d.gguf" % i))
        tool("llama-gguf-split", "--merge", first, merged[-1])
    for a, b in (whole, os.path.join(folder, "joined.gguf")), merged:
        with open(a, "rb") as x, open(b, "rb") as y:
            assert x.read() == y.read(), (a, b)
    for shard in shards:
        mine, other = (read(os.path.join(f, shard)) for f in (ours, folder))
        assert repr(mine[0]) == repr(other[0])
        assert {n: (t, [d for d in s if d != 1], b) for n, (t, s, b) in mine[1].items()} == \
            {n: (t, [d for d in s if d != 1], b) for n, (t, s, b) in other[1].items()}


def test_llama_cpp_runs_what_is_written(folder):
    """The same perplexity, to the last digit, from the converter's file, from ours, and from shards of another alignment."""
    source = os.path.join(DATA, "tiny-llama-f16.gguf")
    text, ours, shards = (os.path.join(folder, n) for n in ("text", "o.gguf", "shards"))
    with open(text, "w") as f:
        f.write("the model reads a small text again and writes it. weights are checked and kept. " * 60)
    ckpt("convert", source, "-o", ours, "--set", "general.alignment=128", "--set", "general.name=ours")
    ckpt("split", ours, "-o", shards, "--shard-size", "300KB")
    results = []
    for path in (source, ours, os.path.join(shards, sorted(os.listdir(shards))[0])):
        results.append(command.perplexity(path, text))
        if results[-1] is None:
            return
    n = min(map(len, results))
    assert results[0][:n] == results[1][:n] == results[2][:n], results


def test_llama_quantize_takes_what_is_written(folder):
    source = os.path.join(DATA, "tiny-llama-f16.gguf")
    ours, quantized, reference = (os.path.join(folder, n) for n in ("o.gguf", "q.gguf", "r.gguf"))
    ckpt("convert", source, "-o", ours)
    if tool("llama-quantize", ours, quantized, "Q4_K_M", "1") is None:
        return
    tool("llama-quantize", source, reference, "Q4_K_M", "1")
    same(quantized, reference)
    dtypes = {t["dtype"] for t in json.loads(ckpt("ls", quantized, "--json"))["tensors"]}
    assert dtypes == {"f32", "Q4_K", "Q6_K"}, dtypes
    again = os.path.join(folder, "again.gguf")
    ckpt("convert", quantized, "-o", again)
    with open(quantized, "rb") as a, open(again, "rb") as b:
        assert a.read() == b.read()


def rewrite(source, out, change):
    """A copy of a file, its keys {name: (types, value)} and tensors [(name, data, type)] changed."""
    reader = gguf.GGUFReader(source)
    keys = {f.name: (f.types, f.contents()) for f in reader.fields.values() if not f.name.startswith("GGUF.")}
    tensors = [(t.name, np.array(t.data), t.tensor_type) for t in reader.tensors]
    change(keys, tensors)
    w = gguf.GGUFWriter(out, keys.pop("general.architecture")[1])
    for name, (types, value) in keys.items():
        w.add_key_value(name, value, types[0], types[-1] if types[0] == Type.ARRAY else None)
    for name, data, kind in tensors:
        w.add_tensor(name, data, raw_dtype=kind if kind.value > 1 else None)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def test_verify_refuses_what_llama_cpp_refuses(folder):
    """Each key changed or removed, each tensor left out, one too many: verify fails where llama.cpp does not load it."""
    program, made, text = command.llama("llama-perplexity"), os.path.join(folder, "m.gguf"), os.path.join(folder, "t.txt")
    if program is None:
        return
    source = os.path.join(DATA, "tiny-llama-f16.gguf")
    with open(text, "w") as out:
        out.write("hello world the quick brown fox " * 100)
    reader = gguf.GGUFReader(source)
    keys = {f.name: (f.types, f.contents()) for f in reader.fields.values() if not f.name.startswith("GGUF.")}

    def without(name):
        return lambda k, t: k.pop(name)

    def becomes(name, value):
        return lambda k, t: k.__setitem__(name, (k[name][0], value))

    def drops(name):
        return lambda k, t: t.__setitem__(slice(None), [x for x in t if x[0] != name])

    changes = {"plain": lambda k, t: None, "junk": lambda k, t: t.append(("junk", *t[0][1:]))}
    for name, (types, value) in keys.items():
        if name.startswith("general.") or name == "tokenizer.ggml.bos_token_id":
            continue
        changes[name + " removed"] = without(name)
        if types[0] == Type.UINT32:
            changes[name + " + 1"] = becomes(name, value + 1)
        elif types[0] == Type.ARRAY and name != "tokenizer.ggml.merges":
            changes[name + " short"] = becomes(name, value[:-1])
        elif name.endswith("epsilon"):
            changes[name + " nan"] = becomes(name, float("nan"))
    for tensor in [t.name for t in reader.tensors][:12]:
        changes["drop " + tensor] = drops(tensor)
    wrong = []
    for name, change in changes.items():
        rewrite(source, made, change)
        peer = subprocess.run([program, "-m", made, "-f", text, "-c", "16", "--chunks", "1", "-t", "1"], capture_output=True,
                              text=True, errors="replace")
        ours = subprocess.run([command.CKPT, "verify", made], capture_output=True, text=True)
        if (peer.returncode == 0) != (ours.returncode == 0):
            wrong.append("%s: llama.cpp %d, verify %d" % (name, peer.returncode, ours.returncode))
    assert not wrong, "\n".join(wrong)


def test_tensors_are_ordered_as_llama_quantize_orders_them(folder):
    source = os.path.join(DATA, "tiny-llama-f16.gguf")
    flat, ours, theirs = (os.path.join(folder, n) for n in ("f.safetensors", "o.gguf", "t.gguf"))
    ckpt("convert", source, "-o", flat, "--names", "stored")
    ckpt("convert", flat, "-o", ours, "--names", "stored")
    if tool("llama-quantize", source, theirs, "COPY", "1") is None:
        return
    assert list(read(ours)[1]) == list(read(theirs)[1])


command.main(globals())
