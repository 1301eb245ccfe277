#!/usr/bin/env python3
"""The memory rule: peak RSS is at most --memory, the index and 32 MiB, and does not grow with the checkpoint.

    memory.py CKPT

Sparse safetensors files (their bytes are holes) are hashed, cast and converted at several --memory; the peak is what
the kernel counted for the process. An index may have 400 bytes per tensor, also while it is opened: 1,200 are granted
there, but a file of one extent per tensor needs less than 400 at any time, and so the smaller limit is tested.
Models that run have their weights as they are stored, once.
With CKPT_TEST_FULL: 20 GB, 500,000 tensors, the limit of 1,000,000, and more values of --memory.
"""
import io
import json
import math
import os
import pickle
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import types
import zipfile
import zlib

CKPT = sys.argv[1]
FULL = "CKPT_TEST_FULL" in os.environ
MIB, GB = 1 << 20, 10**9
ALLOWED = 32 * MIB  # beside --memory and the index
SAME = 6 * MIB  # noise between two runs
ITSELF = 8 * MIB  # code and libraries
BYTES_PER_TENSOR = 400
problems = []


def write_sparse(path, n_tensors, n_bytes, dtype="F32"):
    """A file of n_bytes of zeros in n_tensors tensors. Written as it is made: a child begins with this script's size."""
    item = {"F32": 4, "BF16": 2, "U8": 1}[dtype]
    each = n_bytes // n_tensors // item // 64 * 64 * item or item
    shape = "[%d,64]" % (each // item // 64) if each > item else "[1,1]"
    with open(path, "wb") as f:
        f.write(bytes(8) + b"{")
        for i in range(n_tensors):
            f.write(b'%s"t%d":{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}'
                    % (b"," if i else b"", i, dtype.encode(), shape.encode(), i * each, (i + 1) * each))
        f.write(b"}")
        n_header = f.tell() - 8
        f.seek(0)
        f.write(n_header.to_bytes(8, "little"))
        f.truncate(8 + n_header + n_tensors * each)


def wire(number, n):
    """The beginning of a protobuf field of n bytes."""
    text = b""
    for value in (number << 3 | 2, n):
        while value >= 128:
            text, value = text + bytes([value & 127 | 128]), value >> 7
        text += bytes([value])
    return text


def write_sparse_onnx(path, n_tensors, n_bytes):
    """A model of n_bytes of zeros in n_tensors initializers, whose graph has no node."""
    each = n_bytes // n_tensors // 4 * 4
    dims, n = b"", each // 4
    while n >= 128:
        dims, n = dims + bytes([n & 127 | 128]), n >> 7
    heads = [b"\x08" + dims + bytes([n]) + b"\x10\x01" + wire(8, 3) + b"t%02d" % i + wire(9, each) for i in range(n_tensors)]
    heads = [wire(5, len(head) + each) + head for head in heads]
    with open(path, "wb") as f:
        f.write(b"\x08\x08" + wire(7, sum(map(len, heads)) + n_tensors * each))
        for head in heads:
            f.write(head)
            f.truncate(f.tell() + each)
            f.seek(0, 2)
        f.write(wire(8, 2) + b"\x10\x11")


def run(*arguments):
    """Peak RSS of a run in bytes (at least what this script has: a child begins as its copy), status and messages."""
    with tempfile.TemporaryFile() as said:
        started = time.monotonic()
        process = subprocess.Popen([CKPT, *arguments], stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        message = said.read().decode()
    return usage.ru_maxrss * 1024, process.returncode, message, time.monotonic() - started


def measure(what, limit, *arguments):
    """The peak of a run that has to succeed below limit."""
    peak, status, message, seconds = run(*arguments)
    print("%-44s %6.1f MiB%s, %4.1f s" % (what, peak / MIB, " of %.0f" % (limit / MIB), seconds))
    if status != 0:
        problems.append("%s: exit %d: %s" % (what, status, message))
    elif peak > limit:
        problems.append("%s: %d MiB, at most %d MiB are allowed" % (what, peak // MIB, limit // MIB))
    return peak


def planned_bytes(*arguments):
    """What --plan says that a run holds: its buffers, its plan and its indexes."""
    with tempfile.TemporaryFile() as said:  # rows are many, and children begin with what this script has
        subprocess.run([CKPT, *arguments, "--plan", "--json"], stdout=said, check=True)
        said.seek(-min(1000, said.seek(0, os.SEEK_END)), os.SEEK_END)
        return int(re.search(rb'"peak_bytes": ?([0-9]+)', said.read()).group(1))


def check_budgets(base):
    """--memory is obeyed, for one large tensor and for many."""
    for n_tensors in (1, 300):
        path, out = os.path.join(base, "budget.safetensors"), os.path.join(base, "out.safetensors")
        write_sparse(path, n_tensors, 200 * 1000**2)  # more than any of the limits
        for memory in (16, 64, 128) if FULL else (16, 128):
            limit = memory * MIB + ALLOWED + n_tensors * BYTES_PER_TENSOR
            name = "200 MB in %d, --memory %dM: " % (n_tensors, memory)
            measure(name + "hash", limit, "hash", path, "--memory", "%dM" % memory)
            measure(name + "cast", limit, "convert", path, "-o", out, "--dtype", "f8_e4m3", "--memory", "%dM" % memory,
                    "--quiet")
            os.remove(out)
        os.remove(path)


def check_growth(base):
    """The peak does not depend on the size. Compared with --memory 16M: how much of more a run fills is chance, too."""
    sizes = (1, 20) if FULL else (0.5, 1)
    peaks = {}
    for size in sizes:
        path, out = os.path.join(base, "large.safetensors"), os.path.join(base, "out.safetensors")
        write_sparse(path, 20, int(size * GB))
        convert = ["convert", path, "-o", out, "--quiet", "--dtype", "f8_e4m3"]
        if not FULL:  # a quarter of it is written, and a disk may be slow
            convert += ["--match", "t[0-4]"]
        for name, memory, words in (("", 128, []), (", --memory 16M", 16, ["--memory", "16M"])):
            limit = memory * MIB + ALLOWED
            peaks["hash", size] = measure("%g GB%s: hash" % (size, name), limit, "hash", path, *words)
            if shutil.disk_usage(base).free > size * GB:
                peaks["cast", size] = measure("%g GB%s: cast" % (size, name), limit, *convert, *words)
                os.remove(out)
        os.remove(path)
    for verb in ("hash", "cast"):
        a, b = (peaks.get((verb, size), 0) for size in sizes)
        if b > a + SAME:
            problems.append("%s: %d MiB at %g GB, %d MiB at %g GB" % (verb, a // MIB, sizes[0], b // MIB, sizes[1]))


def check_tensors(base):
    """Many tensors: the indexes are what they may cost, whatever is proven of them, and nothing is quadratic."""
    path, other, out = (os.path.join(base, name + ".safetensors") for name in ("many", "other", "out"))
    manifest, receipt = os.path.join(base, "manifest.json"), os.path.join(base, "receipt.json")
    for n in (500_000, 1_000_000) if FULL else (75_000,):
        write_sparse(path, n, n, "U8")
        shutil.copy(path, other)
        small, index = ("--memory", "16M"), n * BYTES_PER_TENSOR
        memory = 16 * MIB + 24 * n * MIB // 150_000  # a conversion has all of its plan at once, out of --memory
        room = ("--memory", str(memory))
        convert = ("convert", path, "-o", out, *room)
        planned = planned_bytes(*convert)
        for what, limit, *arguments in (
                ("ls", index, "ls", path),
                ("ls --stats", index + 16 * MIB, "ls", path, "--stats", *small),
                ("hash", index + 16 * MIB, "hash", path, *small),
                ("verify", index + 16 * MIB, "verify", path, *small),
                ("hash -o", index + 16 * MIB, "hash", path, "-o", manifest, *small),
                ("verify --manifest", index + 16 * MIB, "verify", path, "--manifest", manifest, *small),
                ("diff", 2 * index + 16 * MIB, "diff", path, other, *small),
                ("convert", 2 * index + memory, *convert, "--receipt", receipt, "--quiet"),
                ("verify --receipt", 3 * index + memory, "verify", out, "--receipt", receipt, *room)):
            peak = measure("%d tensors: %s" % (n, what), limit + ALLOWED, *arguments)
            if what == "convert" and peak > planned + ITSELF:
                problems.append("%d tensors: --plan says %d MiB, %d were taken" % (n, planned // MIB, peak // MIB))
        for made in (out, manifest, receipt):
            os.remove(made)
    if FULL:
        write_sparse(path, 1_000_001, 1_000_001, "U8")
        peak, status, message, _ = run("ls", path)
        if status != 1 or "1,000,000" not in message and "1000000" not in message:
            problems.append("1,000,001 tensors: exit %d: %s" % (status, message))


def check_chunks(base):
    """Many chunks, compressed or not: a plan of them has its place in --memory, and they are written one by one."""
    path, out = os.path.join(base, "chunks.safetensors"), os.path.join(base, "out")
    n_tensors, world = (4000, 100) if FULL else (1000, 50)
    write_sparse(path, n_tensors, n_tensors * 64 * world, "U8")
    memory = n_tensors * world * 64 * MIB // 50_000
    for options in ((), ("--zstd", "3")):
        measure("%d chunks%s: reshard" % (n_tensors * world, " in zstd" if options else ""), memory + ALLOWED, "reshard",
                path, "-o", out, "--to", "dcp", "--world", str(world), "--quiet", "--memory", str(memory), *options)
        shutil.rmtree(out, ignore_errors=True)
    write_sparse(path, 1, 300 * 1000**2)  # and one that is large: its frame is no larger in memory
    for memory in (24, 64) if FULL else (24,):
        measure("300 MB in zstd, --memory %dM: reshard" % memory, memory * MIB + ALLOWED, "reshard", path, "-o", out, "--to",
                "dcp", "--quiet", "--memory", "%dM" % memory, "--zstd", "3")
        shutil.rmtree(out, ignore_errors=True)
    os.remove(path)


def write_torch(path, root, storages):
    """torch.save by hand: root's pickle calls stored tensors by persistent ids; storages of zeros are holes."""
    records = [("a/data.pkl", root), ("a/version", b"3\n"), *(("a/data/%d" % i, n) for i, n in enumerate(storages))]
    central = b""
    with open(path, "wb") as f:
        for name, content in records:
            at, n, crc = f.tell(), content if isinstance(content, int) else len(content), 0  # 0: not computed
            if not isinstance(content, int):
                crc = zlib.crc32(content)
            pad = -(at + 30 + len(name) + 4) % 64
            f.write(struct.pack("<4s5H3I2H", b"PK\3\4", 0, 0, 0, 0, 0, crc, n, n, len(name), 4 + pad))
            f.write(name.encode() + b"FB" + struct.pack("<H", pad) + b"Z" * pad)
            central += struct.pack("<4s6H3I5H2I", b"PK\1\2", 0, 0, 0, 0, 0, 0, crc, n, n, len(name), 0, 0, 0, 0, 0, at)
            central += name.encode()
            if isinstance(content, int):
                f.truncate(f.tell() + n)
                f.seek(0, os.SEEK_END)
            else:
                f.write(content)
        f.write(central + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, len(records), len(records), len(central), f.tell(), 0))


class Pickled:
    """What a pickle of torch's names: a function, and what it is called with."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def pickled(root):
    """A pickle in which a tuple ("storage", ...) is a persistent id."""
    class Pickler(pickle._Pickler):
        def persistent_id(self, obj):
            return tuple(obj) if isinstance(obj, list) and obj[:1] == ["storage"] else None

    out = io.BytesIO()
    Pickler(out, 2).dump(root)
    return out.getvalue()


def write_zero(folder, n_ranks, shapes):
    """A ZeRO-3 checkpoint of zeros, with Adam's states: each rank has a part of each parameter."""
    names = {"FloatStorage": "torch", "Size": "torch", "_rebuild_tensor_v2": "torch._utils"}
    for module in set(names.values()):
        sys.modules[module] = types.ModuleType(module)
    made = {}
    for name, module in names.items():
        made[name] = type(name, (), {"__module__": module})
        setattr(sys.modules[module], name, made[name])

    def flat(key, n):
        return Pickled(made["_rebuild_tensor_v2"], ["storage", made["FloatStorage"], str(key), "cpu", n], 0, (n,), (1,), False, {})

    n = sum(-(-math.prod(shape) // n_ranks) for shape in shapes.values())
    tag = os.path.join(folder, "global_step1")
    os.makedirs(tag)
    for rank in range(n_ranks):
        model = {"module": {}, "buffer_names": [], "shared_params": {}, "dp_world_size": n_ranks, "global_steps": 1,
                 "param_shapes": [{name: Pickled(made["Size"], shape) for name, shape in shapes.items()}]}
        optimizer = {"zero_stage": 3, "partition_count": n_ranks, "fp32_flat_groups": [flat(0, n)],
                     "optimizer_state_dict": {"state": {0: {"step": 1, "exp_avg": flat(1, n), "exp_avg_sq": flat(2, n)}},
                                              "param_groups": [{"lr": 0.1, "params": [0]}]}}
        name = os.path.join(tag, "zero_pp_rank_%d_mp_rank_00_%%s_states.pt" % rank)
        write_torch(name % "model", pickled(model), [])
        write_torch(name % "optim", pickled({"optimizer_state_dict": optimizer}), 3 * [4 * n])
    with open(os.path.join(folder, "latest"), "w") as f:
        f.write("global_step1")
    for module in set(names.values()):
        del sys.modules[module]
    return 4 * sum(math.prod(shape) for shape in shapes.values())


def check_zero(base):
    """Weights of a ZeRO checkpoint are a third of it: no more is read. Resharding holds no more than any other run."""
    folder, out, trace = (os.path.join(base, name) for name in ("zero", "out", "trace.jsonl"))
    n_bytes = write_zero(folder, 4, {"t%d" % i: (1000 + i, 1003) for i in range(40)})
    for memory in (32, 128) if FULL else (32,):
        limit = memory * MIB + ALLOWED
        small = ("--memory", "%dM" % memory, "--quiet")
        measure("480 MB of ZeRO-3: consolidate, %dM" % memory, limit, "consolidate", folder, "-o", out, "--trace", trace, *small)
        with open(trace) as f:
            n_read = json.loads(f.readlines()[-1])["total"]["read"]
        shutil.rmtree(out)
        os.remove(trace)
        n_counted = n_read  # or what the kernel counted, libraries and all
        if os.path.exists("/proc/self/io"):
            told = subprocess.run(["sh", "-c", '"$0" consolidate "$@" > /dev/null && cat /proc/$$/io', CKPT, folder, "-o", out,
                                   *small], stdout=subprocess.PIPE, check=True).stdout
            n_counted = int(re.search(rb"rchar: ([0-9]+)", told).group(1))
            shutil.rmtree(out)
        if not n_bytes <= n_read <= n_counted <= n_bytes + 4 * MIB:
            problems.append("ZeRO-3: %d bytes were read for weights of %d, %d in all" % (n_read, n_bytes, n_counted))
        for target in (("zero", "--stage", "1", "--dp", "3"), ("universal",)):
            measure("480 MB of ZeRO-3: to %s, %dM" % (target[0], memory), limit, "reshard", folder, "-o", out, "--to", *target,
                    *small)
            shutil.rmtree(out)
    shutil.rmtree(folder)


def check_pickles(base):
    """What a pickle may take of --memory: one that would take more is looked into so far, and said to be a problem."""
    path = os.path.join(base, "large.pkl")
    n_text = 200 * 1000**2
    call = b"0cposix\nsystem\n(X\x02\x00\x00\x00lstR."
    for what, head, piece, n, tail in (  # written piece by piece: a child begins with this script's size
            ("10,000 numbers", b"\x80\x04]", b"M\x39\x30a", 10_000, b"."),
            ("many memoized texts", b"\x80\x04](", b"\x8c\x0812345678\x94", 2_000_000, b"e."),
            ("many marks", b"\x80\x02", b"(", 10_000_000, b"N."),
            ("a text of 200 MB before a call", b"\x80\x04\x8e" + n_text.to_bytes(8, "little"), bytes(1000), n_text // 1000,
             call)):
        with open(path, "wb") as f:
            f.write(head)
            for _ in range(0, n, 1000):
                f.write(piece * min(n, 1000))
            f.write(tail)
        peak, status, _, seconds = run("scan", path, "--memory", "16M")
        limit = 16 * MIB + ALLOWED
        print("%-44s %6.1f MiB of %.0f, %4.1f s" % (what + ": scan", peak / MIB, limit / MIB, seconds))
        said = subprocess.run([CKPT, "scan", path, "--memory", "16M"], capture_output=True, text=True).stdout
        is_small = n == 10_000
        if status != (not is_small) or ("needs more than the memory limit" in said) == is_small or peak > limit:
            problems.append("scan, %s: exit %d, %d MiB: %s" % (what, status, peak // MIB, said))
    os.remove(path)


def write_zstd(path, content, window_log):
    """A file as a zstd frame by hand (RFC 8878): blocks of one byte repeated, or raw."""
    n = 128 << 10
    with open(content, "rb") as f, open(path, "wb") as out:
        out.write(b"\x28\xb5\x2f\xfd\0" + bytes([(window_log - 10) << 3]))
        block = f.read(n)
        while block:
            behind = f.read(n)
            is_run = block.count(block[:1]) == len(block)
            out.write((len(block) << 3 | is_run << 1 | (not behind)).to_bytes(3, "little"))
            out.write(block[:1] if is_run else block)
            block = behind
        out.write(b"\x50\x2a\x4d\x18" + (1 << 17).to_bytes(4, "little") + bytes(1 << 17))  # skipped; no zip's end in sight


def check_scan(base):
    """What is compressed is scanned with 21 MiB held: its beginning, two windows, and a decoder at a time."""
    content, path = os.path.join(base, "content"), os.path.join(base, "packed")
    with zipfile.ZipFile(content, "w") as archive:  # read from its end: unpacked twice
        archive.writestr("a/data.pkl", b"\x80\x02N.")
        with archive.open("a/data/0", "w") as record:
            for _ in range(60):
                record.write(bytes(MIB))
    for window_log in (17, 20, 23):
        write_zstd(path, content, window_log)
        measure("zstd, a window of 2^%d: scan" % window_log, ALLOWED, "scan", path)
    os.remove(content)
    os.remove(path)


def check_hostile(base):
    """A pickle of nothing but opcodes that make nodes is refused before it takes more than a chunk's index may."""
    n = 20 * 1000**2
    for what, head, opcode, tail in (("lists", b"(", b"]", b"t."), ("tuples", b"N", b"\x85", b".")):
        folder = os.path.join(base, what)
        os.mkdir(folder)
        with open(os.path.join(folder, ".metadata"), "wb") as f:
            f.write(b"\x80\x04" + head)
            for _ in range(n // 1000):  # piece by piece, as above
                f.write(opcode * 1000)
            f.write(tail)
        peak, status, message, _ = run("ls", folder)
        print("%-44s %6.1f MiB" % (".metadata of 20 MB of %s" % what, peak / MIB))
        if status != 1 or "bytes of memory for each of its own" not in message or peak > 12 * n + 16 * MIB + ALLOWED:
            problems.append(".metadata of %s: exit %d, %d MiB: %s" % (what, status, peak // MIB, message))
        shutil.rmtree(folder)


def check_metadata(base):
    """A tokenizer of a GGUF file stays in the file: 100 MB of strings cost nothing, shown, copied or cut."""
    path, out = os.path.join(base, "strings.gguf"), os.path.join(base, "out.gguf")
    key, n, token = b"tokenizer.ggml.tokens", 1_000_000, bytes(92)
    with open(path, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, len(key)) + key + struct.pack("<IIQ", 9, 8, n))
        for _ in range(n // 1000):
            f.write((struct.pack("<Q", len(token)) + token) * 1000)
        f.write(bytes(-f.tell() % 32))
    limit = 16 * MIB + ALLOWED
    measure("100 MB of strings: inspect", limit, "inspect", path)
    measure("100 MB of strings: convert", limit, "convert", path, "-o", out, "--quiet", "--memory", "16M", "--set", "a=1")
    measure("100 MB of strings: split", limit, "split", path, "-o", os.path.join(base, "shards"), "--shard-size", "1M",
            "--quiet", "--memory", "16M")
    os.remove(path)
    os.remove(out)
    shutil.rmtree(os.path.join(base, "shards"))


def check_quantize(base):
    """Three types from one read of a tensor of 128 MB, with importance and against what its source gives."""
    model, imatrix, out = (os.path.join(base, name) for name in ("model.gguf", "imatrix.gguf", "out-{type}.gguf"))
    n_rows, n_columns, name = 1 << 13, 1 << 13, b"blk.0.ffn_up.weight"

    def text(word):
        return struct.pack("<Q", len(word)) + word

    keys = text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama")
    keys += text(b"llama.block_count") + struct.pack("<II", 4, 1)
    with open(model, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, 1, 2) + keys + text(name))
        f.write(struct.pack("<IQQIQ", 2, n_columns, n_rows, 1, 0))
        f.write(bytes(-f.tell() % 32))
        f.truncate(f.tell() + 2 * n_rows * n_columns)
    with open(imatrix, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, 2, 0) + text(name + b".in_sum2") + struct.pack("<IQIQ", 1, n_columns, 0, 0))
        f.write(text(name + b".counts") + struct.pack("<IQIQ", 1, 1, 0, 4 * n_columns))
        f.write(bytes(-f.tell() % 32) + struct.pack("<f", 1) * n_columns + struct.pack("<f", 1) + bytes(28))
    types, limit = ("Q8_0", "F32", "Q4_0"), 16 * MIB + ALLOWED
    options = ("--imatrix", imatrix, "--quiet", "--memory", "16M")
    measure("128 MB to three types", limit, "quantize", model, "-o", out, *options,
            *(word for kind in types for word in ("--type", kind)))
    measure("128 MB: diff --requantize", limit, "diff", model, out.replace("{type}", "Q4_0"), "--requantize", *options)
    for path in (model, imatrix, *(out.replace("{type}", kind) for kind in types)):
        os.remove(path)


def check_experts(base):
    """Two layers of Mixtral's shape, an eighth as wide without CKPT_TEST_FULL, become a stack of experts in two presets,
    one of them with importance: from files of one expert each, and from GGUF."""
    width, ffn, n_experts, memory = (4096, 14336, 8, 128) if FULL else (512, 1024, 8, 16)
    folder, imatrix = os.path.join(base, "mixtral"), os.path.join(base, "imatrix.gguf")
    tensors = [("model.embed_tokens", (256, width)), ("lm_head", (256, width)), ("model.norm", (width,))]
    sums = {}
    for layer in range(2):
        of = "model.layers.%d." % layer
        tensors += [(of + "self_attn." + name, shape) for name, shape in (
            ("q_proj", (width, width)), ("k_proj", (width // 4, width)), ("v_proj", (width // 4, width)),
            ("o_proj", (width, width)))]
        tensors += [(of + name, (width,)) for name in ("input_layernorm", "post_attention_layernorm")]
        tensors += [(of + "block_sparse_moe.gate", (n_experts, width))]
        tensors += [(of + "block_sparse_moe.experts.%d.%s" % (e, name), shape) for e in range(n_experts)
                    for name, shape in (("w1", (ffn, width)), ("w2", (width, ffn)), ("w3", (ffn, width)))]
        sums.update({"blk.%d.ffn_%s_exps.weight" % (layer, name): (n, n_experts) for name, n in (
            ("gate", width), ("down", ffn), ("up", width))})
        sums.update({"blk.%d.%s.weight" % (layer, name): (width, 1) for name in (
            "attn_q", "attn_k", "attn_v", "attn_output")})
    os.mkdir(folder)
    header, at = {}, 0
    for name, shape in tensors:
        end = at + 2 * math.prod(shape)
        header[name + ".weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)
    config = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 256, "hidden_size": width,
              "intermediate_size": ffn, "num_hidden_layers": 2, "num_attention_heads": 32, "num_key_value_heads": 8,
              "num_local_experts": n_experts, "num_experts_per_tok": 2, "max_position_embeddings": 4096,
              "rms_norm_eps": 1e-5, "rope_theta": 1e6, "hidden_act": "silu", "tie_word_embeddings": False}
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    parts = [(name + end, (n, m) if end == ".in_sum2" else (1, m)) for name, (n, m) in sums.items()
             for end in (".in_sum2", ".counts")]
    table, at = b"", 0
    for name, (n, m) in parts:
        table += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<IQQIQ", 2, n, m, 0, at)
        at += -(-4 * n * m // 32) * 32
    with open(imatrix, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, len(parts), 0) + table)
        f.write(bytes(-f.tell() % 32))
        for _, (n, m) in parts:
            f.write(struct.pack("<f", 1) * (n * m) + bytes(-4 * n * m % 32))
    limit, options = memory * MIB + ALLOWED, ("--quiet", "--memory", "%dM" % memory, "--imatrix", imatrix)
    types = ("--type", "Q8_0", "--type", "Q4_K_M")
    out, gguf = os.path.join(base, "out-{type}.gguf"), os.path.join(base, "mixtral.gguf")
    measure("experts to two presets", limit, "quantize", folder, "-o", out, *types, *options)
    measure("experts to GGUF", limit, "convert", folder, "-o", gguf, *options[:3])
    shutil.rmtree(folder)
    measure("experts in GGUF to two presets", limit, "quantize", gguf, "-o", out, *types, *options, "--force")
    for path in (gguf, imatrix, *(out.replace("{type}", kind) for kind in types[1::2])):
        os.remove(path)


def write_tokenizer(folder, n_tokens, n_merges):
    """A copy of a small Llama with so many tokens, of which each but the bytes is two others, and more merges."""
    shutil.copytree(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/dialect/llama-tied"), folder)
    path, weights = (os.path.join(folder, name) for name in ("tokenizer.json", "model.safetensors"))
    with open(path) as f:
        tokenizer = json.load(f)
    vocab, merges = tokenizer["model"]["vocab"], tokenizer["model"]["merges"]
    letters = [token for token in vocab if len(token) == 1][:64]
    pairs = [a + b for a in letters for b in letters]
    for left, right in [tuple(pair) for pair in pairs] + [(pair, a) for pair in pairs for a in letters]:
        if len(vocab) < n_tokens and left + right not in vocab:
            vocab[left + right] = len(vocab)
            merges.append([left, right])
    for token in list(vocab):
        if len(token) == 3 and token[1:] in vocab and len(merges) < n_merges:
            merges.append([token[0], token[1:]])
    with open(path, "w") as f:
        json.dump(tokenizer, f, ensure_ascii=False)
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(dict(config, vocab_size=n_tokens), f)
    with open(weights, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
    at = 0
    for name, tensor in header.items():
        if name != "__metadata__":
            begin, end = tensor["data_offsets"]
            n = end - begin
            if name == "model.embed_tokens.weight":
                n = n // tensor["shape"][0] * n_tokens
                tensor["shape"][0] = n_tokens
            tensor["data_offsets"] = [at, at + n]
            at += n
    text = json.dumps(header).encode()
    with open(weights, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)
    return len(vocab) == n_tokens and len(merges) == n_merges


def check_tokenizer(base):
    """262,144 tokens and 500,000 merges on the way to GGUF and back; --plan counts what GGUF has of them."""
    folder, gguf, back = (os.path.join(base, name) for name in ("tokens", "tokens.gguf", "back"))
    child = os.fork()  # other children begin with this script's size
    if child == 0:
        os._exit(0 if write_tokenizer(folder, 262_144, 500_000) else 1)
    if os.waitpid(child, 0)[1] != 0:
        problems.append("no such tokenizer was written")
        return
    limit, options = 16 * MIB + ALLOWED, ("--quiet", "--memory", "16M")
    planned = planned_bytes("convert", folder, "-o", gguf, *options[1:])
    measure("262,144 tokens: to GGUF", limit, "convert", folder, "-o", gguf, *options)
    n_metadata = 0
    with open(gguf, "rb") as f:  # bit by bit: children begin with this script's size; a norm is in the table of tensors
        while b"_norm.weight" not in f.read(1 << 16) and n_metadata < 1 << 30:
            n_metadata += 1 << 16
    if n_metadata < 9 * MIB or planned < n_metadata:
        problems.append("262,144 tokens: %d bytes are planned, %d of them metadata" % (planned, n_metadata))
    measure("262,144 tokens: back", limit, "convert", gguf, "-o", back, *options)
    measure("262,144 tokens: quantize", limit, "quantize", folder, "-o", gguf, "--type", "Q8_0", "--force", *options)
    for path in (folder, back):
        shutil.rmtree(path)
    os.remove(gguf)


def check_graph(base):
    """Of an ONNX model neither data nor graph are held: 200 MB inside or outside, beside 100 MB of other fields."""
    model, out = (os.path.join(base, name) for name in ("large.onnx", "out.onnx"))
    write_sparse_onnx(model, 30, 200 * 1000**2)
    limit = 16 * MIB + ALLOWED
    with open(model, "ab") as f:  # a field that nobody knows, at the end of the model
        f.write(b"\xfa\x3e\x80\xc2\xd7\x2f")
        f.truncate(f.tell() + 100 * 1000**2)
    measure("300 MB of ONNX: ls", limit, "ls", model)
    measure("300 MB of ONNX: convert", limit, "convert", model, "-o", out, "--quiet", "--memory", "16M")
    if os.path.getsize(out) != os.path.getsize(model):
        problems.append("300 MB of ONNX: written as %d bytes" % os.path.getsize(out))
    os.remove(out)
    measure("300 MB of ONNX: data outside", limit, "convert", model, "-o", out, "--quiet", "--memory", "16M", "--external-data")
    for path in (model, out, out + ".data"):
        os.remove(path)


def check_fields(base):
    """What is unpacked of an ONNX model costs its bytes, and so much for a field: at the limits of both."""
    head = wire
    path, n_text, numbers = os.path.join(base, "fields.onnx"), 15 * MIB, b"\x90\x03\x01" * 16000  # of field 50
    tensor = b"\x08\x01\x10\x02" + head(8, 1) + b"w" + head(9, 1) + b"1" + head(16, len(numbers)) + numbers
    for what, n_more in (("as many fields as are read", 0), ("too many", 300)):
        with open(path, "wb") as f:  # bit by bit: a child begins with this script's size
            n = len(tensor) + len(head(12, n_text)) + n_text
            f.write(b"\x08\x08" + head(8, 2) + b"\x10\x11" + head(14, n_more * len(numbers)))
            for _ in range(n_more):
                f.write(numbers)
            f.write(head(7, len(head(5, n)) + n) + head(5, n) + tensor + head(12, n_text))
            f.truncate(f.tell() + n_text)
        peak, status, message, _ = run("ls", path, "--memory", "16M")
        print("ONNX, %-38s %6.1f MiB" % (what, peak / MIB))
        if (status == 0) == (n_more != 0):
            problems.append("%s: exit %d: %s" % (what, status, message))
        if peak > 16 * MIB + ALLOWED + n_text:  # the index has the text
            problems.append("%s: %d MiB" % (what, peak // MIB))
    os.remove(path)


def write_sparse_lora(model, folder, n, hidden, rank):
    embedding, part = "model.embed_tokens", "base_model.model.model.embed_tokens.lora_embedding_"
    for path, dtype, tensors in ((os.path.join(model, "model.safetensors"), "BF16", {embedding + ".weight": (n, hidden)}),
                                 (os.path.join(folder, "adapter_model.safetensors"), "F32",
                                  {part + "A": (rank, n), part + "B": (hidden, rank)})):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        header, at = {}, 0
        for name, shape in tensors.items():
            n_bytes = math.prod(shape) * (2 if dtype == "BF16" else 4)
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n_bytes]}
            at += n_bytes
        text = json.dumps(header).encode()
        with open(path, "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text)
            f.truncate(8 + len(text) + at)
    with open(os.path.join(folder, "adapter_config.json"), "w") as f:
        json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": ["embed_tokens"]}, f)


def check_adapter(base):
    """An update of rank 256 of an embedding passes in blocks, whatever its size: of Llama 3's, where there is time. Opening
    an adapter keeps to --memory, too."""
    model, folder, out = (os.path.join(base, name) for name in ("model", "lora", "merged.safetensors"))
    rank = 256
    for n, hidden, memory in ((128256, 4096, 128) if FULL else (4096, 4096, 24), (65536, 64, 8)):
        write_sparse_lora(model, folder, n, hidden, rank)
        measure("rank %d of %d x %d, --memory %dM: merge" % (rank, n, hidden, memory), memory * MIB + ALLOWED, "merge", model,
                "--adapter", folder, "--allow-noop", "-o", out, "--memory", "%dM" % memory, "--quiet")
        os.remove(out)


def check_listing(base):
    """Findings of one kind are listed so far, and counted all."""
    path = os.path.join(base, "zeros.safetensors")
    write_sparse(path, 5000, 5000, "U8")
    result = subprocess.run([CKPT, "verify", path], capture_output=True, text=True)
    lines = [line for line in result.stdout.splitlines() if line.startswith("warning: ")]
    if result.returncode != 0 or len(lines) != 21 or not lines[20].endswith("... and 4,980 more of this kind") \
            or "5000 warnings" not in result.stdout:
        problems.append("5,000 tensors of zeros: exit %d, %d warnings: %s" % (result.returncode, len(lines), lines[-1:]))
    found = json.loads(subprocess.run([CKPT, "verify", path, "--json"], capture_output=True, text=True).stdout)
    if found["n_warnings"] != 5000 or len(found["warnings"]) != 20 or found["warnings"][19]["n_more"] != 4980:
        problems.append("5,000 tensors of zeros: --json counts %s" % found["n_warnings"])


def write_sparse_llama(folder):
    """A Llama of 100M parameters, all zero, in bf16."""
    width, inner, vocabulary, n_layers = 768, 2048, 32000, 8
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocabulary, "hidden_size": width,
              "intermediate_size": inner, "num_hidden_layers": n_layers, "num_attention_heads": 12,
              "num_key_value_heads": 12, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5}
    shapes = {"model.embed_tokens": [vocabulary, width], "lm_head": [vocabulary, width], "model.norm": [width]}
    for i in range(n_layers):
        at = "model.layers.%d." % i
        shapes.update((at + "self_attn.%s_proj" % which, [width, width]) for which in "qkvo")
        shapes.update((at + "mlp.%s_proj" % which, [inner, width]) for which in ("gate", "up"))
        shapes.update({at + "mlp.down_proj": [width, inner], at + "input_layernorm": [width],
                       at + "post_attention_layernorm": [width]})
    header, offset = {}, 0
    for name, shape in shapes.items():
        n = 2 * math.prod(shape)
        header[name + ".weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + n]}
        offset += n
    os.makedirs(folder)
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + offset)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    tokenizer = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "llama-256")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(tokenizer, name), folder)
    return offset


def check_models(base):
    """A model that runs takes its weights as they are stored, what --plan says besides, and 2 % or 48 MiB."""
    folder, gguf, out = (os.path.join(base, name) for name in ("llama", "llama.gguf", "logits.safetensors"))
    n_stored = write_sparse_llama(folder)
    subprocess.run([CKPT, "quantize", folder, "-o", gguf, "--type", "Q8_0", "--quiet"], check=True, capture_output=True)
    ids = ",".join(map(str, range(64)))
    for path, n_bytes in ((folder, n_stored), (gguf, os.path.getsize(gguf))):
        for dtype in ("f32", "bf16"):
            arguments = ["logits", path, "--ids", ids, "-o", out, "--dtype", dtype, "--threads", "6", "--force"]
            said = subprocess.run([CKPT, *arguments, "--plan", "--json"], capture_output=True, check=True)
            plan = json.loads(said.stdout)
            if plan["parameter_bytes"] > n_bytes + MIB:
                problems.append("%s: %d bytes of parameters, %d are stored" % (path, plan["parameter_bytes"], n_bytes))
            planned = sum(plan[key + "_bytes"] for key in ("parameter", "activation", "state", "product", "logit"))
            measure("%s, %s: logits" % (os.path.basename(path), dtype), planned + max(planned // 50, 48 * MIB), *arguments)


def check_refusal(base):
    """What cannot fit is refused before anything is written."""
    path = os.path.join(base, "small.safetensors")
    write_sparse(path, 2, 1000**2)
    _, status, message, _ = run("convert", path, "-o", os.path.join(base, "never.safetensors"), "--memory", "100K")
    if status not in (1, 2) or not re.search(r"memory", message) or os.path.exists(os.path.join(base, "never.safetensors")):
        problems.append("--memory 100K: exit %d: %s" % (status, message))


def main():
    with tempfile.TemporaryDirectory(prefix="ckpt-memory-") as base:
        for part in (check_budgets, check_growth, check_tensors, check_chunks, check_zero, check_pickles, check_scan,
                     check_hostile, check_metadata, check_tokenizer, check_graph, check_fields, check_quantize,
                     check_experts, check_adapter, check_listing, check_models,
                     check_refusal):
            part(base)
    for problem in problems:
        print(problem.strip())
    print(json.dumps({"problems": len(problems)}))
    return 1 if problems else 0


sys.exit(main())
