#!/usr/bin/env python3
"""Records whose CRC-32 is not that of their content: every verb that reads one whole fails, and leaves nothing.

    corrupt.py CKPT DATA

One bit of a record is flipped in torch.save files, in items of DCP folders and in files of ZeRO. Each verb is exit 1 and
names file, record and tensor; with --allow-corrupt it warns, and writes what it writes of the same content with a right
checksum. Without checksums (torch can be told to write zeros) nothing is compared. Files and records are drawn at
random; CKPT_TEST_FULL takes all, CKPT_TEST_SEED repeats a draw.
"""
import collections
import filecmp
import glob
import io
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
import types
import zipfile
import zlib

CKPT, DATA = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
FULL = "CKPT_TEST_FULL" in os.environ
SEED = int(os.environ.get("CKPT_TEST_SEED", random.randrange(10**6)))
SAMPLE = 10
CARRIED = ("/dcp/carried", "/dcp/odd")  # tensors within objects, which `reshard` carries as they lie
problems = []


def run(*args):
    done = subprocess.run([CKPT, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def check(is_right, what, *details):
    if not is_right:
        problems.append("%s: %s" % (what, " | ".join(str(d)[:600] for d in details)))
    return is_right


class Record:
    """A record of an archive in a file: where its payload is, and the places that have its checksum."""

    def __init__(self, data, start, entry):
        header = data.rfind(b"PK\3\4", 0, start + entry.header_offset + 4)
        name, extra = (int.from_bytes(data[header + at:header + at + 2], "little") for at in (26, 28))
        self.name, self.size, self.is_stored = entry.filename, entry.compress_size, entry.compress_type == 0
        self.at = header + 30 + name + extra
        self.crc = entry.CRC
        self.sums = [header + 14] if entry.CRC == int.from_bytes(data[header + 14:header + 18], "little") else []
        if data[self.at + self.size:self.at + self.size + 4] == b"PK\7\x08":
            self.sums.append(self.at + self.size + 4)


def records(data):
    """All records of all archives in a file, each with its entry in the directory."""
    found, at = [], data.find(b"PK\5\6")
    while at >= 0:
        try:
            archive = zipfile.ZipFile(io.BytesIO(data[:at + 22]))
        except zipfile.BadZipFile:
            archive = None
        for entry in archive.infolist() if archive else []:
            record = Record(data, 0, entry)
            central = data.rfind(b"PK\1\2", 0, at)
            name = entry.filename.encode()
            while central >= 0 and data[central + 46:].find(name) != 0 or data[central + 28] != len(name):
                central = data.rfind(b"PK\1\2", 0, central)
            record.sums.append(central + 16)
            found.append(record)
        at = data.find(b"PK\5\6", at + 4)
    return found


def flip(path, record, fix):
    """Flips a bit in the middle of the record; fix: and states the checksum of what it has then."""
    data = bytearray(open(path, "rb").read())
    data[record.at + record.size // 2] ^= 8
    for place in record.sums if fix else []:
        data[place:place + 4] = zlib.crc32(data[record.at:record.at + record.size]).to_bytes(4, "little")
    with open(path, "wb") as out:
        out.write(data)


def clear_sums(path):
    data = bytearray(open(path, "rb").read())
    for record in records(bytes(data)):
        for place in record.sums:
            data[place:place + 4] = bytes(4)
    with open(path, "wb") as out:
        out.write(data)


def copy(path, to):
    (shutil.copytree if os.path.isdir(path) else shutil.copy)(path, to)
    for folder, _, names in os.walk(to):
        for name in names + ["."]:
            os.chmod(os.path.join(folder, name), 0o755)
    if os.path.isfile(to):
        os.chmod(to, 0o644)
    return to


def same(a, b, is_carried):
    """The same bytes; items that are carried as they lie bring their own checksums, and there it is the content."""
    if is_carried:
        return run("hash", "--include", "all", "--allow-corrupt", a)[1].split()[0] == run("hash", "--include", "all", b)[1].split()[0]
    if os.path.isfile(a):
        return filecmp.cmp(a, b, shallow=False)
    names = sorted(os.path.relpath(os.path.join(f, n), a) for f, _, ns in os.walk(a) for n in ns)
    return names == sorted(os.path.relpath(os.path.join(f, n), b) for f, _, ns in os.walk(b) for n in ns) and all(
        filecmp.cmp(os.path.join(a, n), os.path.join(b, n), shallow=False) for n in names)


def is_read(path, fixed):
    """Whether what stands in the record makes a difference: copies on other ranks, and views of a part, do not."""
    hashes = [run("hash", "--include", "all", p)[1].split()[:1] for p in (path, fixed)]
    return hashes[0] != hashes[1]


def verbs_of(path):
    """What reads all of an input: arguments behind the verb, and whether it writes `out`."""
    yield "hash", ["--include", "all"], None
    yield "ls", ["--stats", "--include", "all"], None
    yield "convert", ["--to", "torch", "--include", "all"], "out.pt"
    if os.path.isdir(path):
        yield "consolidate", ["--include", "all"], "out"
        yield "reshard", ["--to", "dcp", "--world", "2"], "out"


def check_input(base, path, inner):
    """One record of one file of an input: `inner` below it, "" for a file."""
    held = records(open(os.path.join(path, inner) if inner else path, "rb").read())
    held = [r for r in held if "/data/" in r.name and r.size and r.is_stored and r.crc]
    for record in held if FULL else random.sample(held, min(2, len(held))):
        broken, fixed = (copy(path, os.path.join(base, name, os.path.basename(path))) for name in ("broken", "fixed"))
        for at, fix in ((broken, False), (fixed, True)):
            flip(os.path.join(at, inner) if inner else at, record, fix)
        file = os.path.join(broken, inner) if inner else broken
        for verb, options, output in verbs_of(path) if is_read(path, fixed) else []:
            what = "%s of %s, record %s at %d" % (verb, os.path.join(path, inner), record.name, record.at)
            out = os.path.join(base, output) if output else None
            to = ["-o", out] if out else []
            if run(verb, fixed, *options, *to)[0] != 0:
                continue  # not what this verb is for
            wanted = shutil.move(out, os.path.join(base, "wanted")) if out else run(verb, fixed, *options)[1]
            status, stdout, stderr = run(verb, broken, *options, *to)
            named = file in stderr and "record '" in stderr and record.name.split("/", 1)[1] in stderr
            check(status == 1 and named and "CRC-32" in stderr and "--allow-corrupt" in stderr, what, status, stderr)
            check(not out or not os.path.exists(out), what, "left its output")
            status, stdout, stderr = run(verb, broken, *options, *to, "--allow-corrupt", "--quiet")
            check(status == 0 and "ckpt: warning: " + file in stderr, what + ", allowed", status, stderr)
            if out:
                check(same(out, wanted, verb == "reshard" and path.endswith(CARRIED)), what + ", allowed", "writes something else")
            else:
                check(stdout.replace(broken, fixed) == wanted, what + ", allowed", stdout, wanted)
            for left in [out, os.path.join(base, "wanted")] if out else []:
                (shutil.rmtree if os.path.isdir(left) else os.remove)(left)
        for name in ("broken", "fixed"):
            shutil.rmtree(os.path.join(base, name))
            os.mkdir(os.path.join(base, name))


def inputs():
    for path in glob.glob(DATA + "/torch/*.pt"):
        yield path, ""
    for path in glob.glob(DATA + "/dcp/*/**/*.distcp", recursive=True):
        top = os.path.join(DATA, "dcp", os.path.relpath(path, DATA + "/dcp").split("/")[0])
        if os.path.exists(os.path.join(top, "__1.metadata")):
            continue  # with another checksum, which says that it is another value, it is a rank's own
        yield top, os.path.relpath(path, top)
    for path in glob.glob(DATA + "/zero/*/**/*.pt", recursive=True):
        top = os.path.join(DATA, "zero", os.path.relpath(path, DATA + "/zero").split("/")[0])
        yield top, os.path.relpath(path, top)


def check_other_verbs(base):
    """Verbs that read a tensor or a model, and receipts."""
    path = copy(DATA + "/torch/training.pt", os.path.join(base, "broken", "training.pt"))
    record = [r for r in records(open(path, "rb").read()) if "/data/" in r.name and r.size][0]
    flip(path, record, False)
    status, _, stderr = run("hash", "--include", "all", "--tensors", path)
    name = stderr.split("tensor '")[1].split("'")[0] if "tensor '" in stderr else ""
    status, _, stderr = run("cat", path, name)
    check(status == 1 and "tensor '%s': record 'data/" % name in stderr, "cat", status, stderr)
    status, stdout, stderr = run("cat", path, name, "--allow-corrupt")
    check(status == 0 and "ckpt: warning: " in stderr, "cat, allowed", status, stderr)
    status, _, stderr = run("cat", path, name + "[0:1]")
    check(status == 0 and stderr == "", "cat of a part, of which nothing is claimed", status, stderr)
    status, _, stderr = run("diff", path, DATA + "/torch/training.pt", "--include", "all")
    check(status == 1 and "CRC-32" in stderr, "diff", status, stderr)
    status, stdout, stderr = run("diff", path, DATA + "/torch/training.pt", "--include", "all", "--allow-corrupt")
    check(status == 1 and "warning" in stderr and name in stdout, "diff, allowed", status, stdout, stderr)
    status, stdout, stderr = run("verify", path)
    check(status == 1 and stdout.count("CRC-32") == 1, "verify tells of it once", stdout, stderr)
    out, receipt = os.path.join(base, "o.safetensors"), os.path.join(base, "r.json")
    status, _, stderr = run("convert", path, "-o", out, "--receipt", receipt, "--include", "all")
    check(status == 1 and not os.path.exists(out) and not os.path.exists(receipt), "convert --receipt", status, stderr)
    status, _, stderr = run("convert", path, "-o", out, "--receipt", receipt, "--include", "all", "--allow-corrupt")
    kept = json.load(open(receipt))["options"] if status == 0 else {}
    check(kept.get("allow_corrupt") is True, "what the receipt says", status, stderr, kept)
    status, stdout, stderr = run("verify", out, "--receipt", receipt)
    check(status == 0, "replay of that receipt", status, stdout, stderr)
    clear_sums(path)
    for verb in (["hash", "--include", "all"], ["ls", "--stats"]):
        status, _, stderr = run(*verb, path)
        check(status == 0 and stderr.count("CRC") == 0, "%s without checksums" % verb[0], status, stderr)


def check_pickle(base):
    """What is no tensor: a number in data.pkl, which would be another one."""
    path = copy(DATA + "/torch/training.pt", os.path.join(base, "broken", "pickle.pt"))
    data = bytearray(open(path, "rb").read())
    at = data.find(b"lr") + 2
    number = data.find(b"G", at) + 3  # BINFLOAT, big-endian: in the mantissa
    data[number] ^= 1
    open(path, "wb").write(data)
    for verb in (["inspect"], ["hash", "--include", "all"], ["convert", "-o", os.path.join(base, "p.pt")]):
        status, _, stderr = run(*verb, path)
        check(status == 1 and "/data.pkl': the CRC-32" in stderr, verb[0] + " of a flipped pickle", status, stderr)
    status, stdout, stderr = run("inspect", path, "--allow-corrupt")
    check(status == 0 and "ckpt: warning: " in stderr, "inspect of a flipped pickle, allowed", status, stderr)


class Storage:
    """The storage of all tensors below; pickled as torch.save does."""


class View:
    """A tensor of 16 elements in it."""

    def __init__(self, offset):
        self.offset = offset

    def __reduce__(self):
        return sys.modules["torch._utils"]._rebuild_tensor_v2, (Storage(), self.offset, (16,), (1,), False, collections.OrderedDict())


def write_shared(path, n):
    """A torch.save file of n tensors that are views of one storage: more than a digest plans at once."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    torch.FloatStorage = type("FloatStorage", (), {"__module__": "torch", "__qualname__": "FloatStorage"})
    utils._rebuild_tensor_v2 = types.FunctionType((lambda *_: None).__code__, {}, "_rebuild_tensor_v2")
    utils._rebuild_tensor_v2.__module__, utils._rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    sys.modules.update({"torch": torch, "torch._utils": utils})
    stream = io.BytesIO()

    class Pickler(pickle.Pickler):
        def persistent_id(self, what):
            return ("storage", torch.FloatStorage, "0", "cpu", 16 * n) if isinstance(what, Storage) else None

    Pickler(stream, 2).dump({"p%05d" % i: View(16 * i) for i in range(n)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", stream.getvalue())
        archive.writestr("x/byteorder", "little")
        archive.writestr("x/data/0", random.randbytes(64 * n).replace(b"\x7f", b"\x3f").replace(b"\xff", b"\xbf"))
        archive.writestr("x/version", "3\n")


def check_many_views(base):
    """A record whose tensors are read by several plans, none of which reads all of it."""
    path, whole = os.path.join(base, "broken", "views.pt"), os.path.join(base, "fixed", "views.pt")
    write_shared(path, 20000)
    shutil.copy(path, whole)
    status, stdout, stderr = run("hash", path)
    check(status == 0, "hash of many views", status, stderr)
    record = [r for r in records(open(path, "rb").read()) if "/data/" in r.name][0]
    flip(path, record, False)
    for verb in (["hash"], ["ls", "--stats"], ["diff", whole], ["convert", "-o", os.path.join(base, "views.safetensors")]):
        status, _, stderr = run(*verb, path)
        check(status == 1 and "record 'data/0': the CRC-32" in stderr, verb[0] + " of many views", status, stderr)
    status, stdout, stderr = run("hash", path, "--allow-corrupt")
    check(status == 0 and "ckpt: warning: " in stderr, "hash of many views, allowed", status, stderr)


def main():
    random.seed(SEED)
    print("CKPT_TEST_SEED=%d" % SEED)
    every = sorted(inputs())
    with tempfile.TemporaryDirectory() as base:
        for name in ("broken", "fixed"):
            os.mkdir(os.path.join(base, name))
        check_other_verbs(base)
        check_pickle(base)
        check_many_views(base)
        for name in ("broken", "fixed"):
            shutil.rmtree(os.path.join(base, name))
            os.mkdir(os.path.join(base, name))
        for path, inner in every if FULL else random.sample(every, SAMPLE):
            check_input(base, path, inner)
    for problem in problems:
        print(problem)
    sys.exit(bool(problems))


main()
