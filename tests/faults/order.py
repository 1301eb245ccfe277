#!/usr/bin/env python3
"""The order of syncs and renames, in every verb that writes: what a power cut leaves is the old output or the new one.

    order.py CKPT FAULT_SO DATA

tests/faults/fault.c logs writes, fsyncs and renames. No file is renamed with bytes that were not synced, no folder before
it and its subfolders were; each folder that a name appeared in is synced after that; and in the end every file of every
output has been synced.
"""
import os
import subprocess
import sys
import tempfile

CKPT, FAULT_SO, DATA = (os.path.abspath(a) for a in sys.argv[1:4])
EXCHANGE = 2
FORMER = {"o/model-%05d-of-00002.safetensors" % i: "old" for i in (1, 2)}
# Arguments, what stands there before.
CASES = [
    ("convert IN -o o.safetensors", {}),
    ("convert IN -o o.safetensors --force", {"o.safetensors": "old"}),
    ("convert ONNX -o o.onnx --external-data", {}),
    ("convert ONNX -o o.onnx --external-data --force", {"o.onnx": "old", "o.onnx.data": "old"}),
    ("convert IN -o o", {}),
    ("convert IN -o o --shard-size 100KB", {"o/": ""}),
    ("convert IN -o o --force", {**FORMER, "o/config.json": "{}"}),
    ("convert IN -o o.safetensors -o o --receipt r.json", {}),
    ("convert IN -o o -o o/one.safetensors --receipt o/r.json", {}),
    ("split IN -o o --shard-size 100KB", {}),
    ("join IN -o o.safetensors", {}),
    ("consolidate IN -o o --shard-size 100KB", {}),
    ("convert IN -o o.pt", {}),
    ("convert IN -o o.pt --force", {"o.pt": "old"}),
    ("reshard IN -o o --to dcp --world 3", {}),
    ("reshard IN -o o --to dcp --world 2", {"o/": ""}),
    ("reshard IN -o o --to dcp --world 100", {}),  # many files are synced one by one, too
    ("reshard IN -o o --to dcp --force", {"o/.metadata": "old", "o/__7_0.distcp": "old"}),
    ("reshard IN -o o --to dcp --world 3 --zstd 3", {}),
    ("reshard IN -o o --to dcp --world 2 --zstd 3", {"o/": ""}),
    ("reshard IN -o o --to dcp --zstd 3 --force", {"o/.metadata": "old", "o/__7_0.distcp": "old"}),
    ("hash IN -o m.json", {}),
]


def below(folder, path):
    return path == folder or path.startswith(folder + "/")


class Log:
    """Replays a log: which files and folders are synced, under their names of the time."""

    def __init__(self, base):
        self.base, self.problems, self.n_renames = base, [], 0
        self.is_synced = {}  # of each file and folder that was written or synced
        self.owed = {}  # folder: the name that appeared in it

    def take(self, what, *fields):
        if not below(self.base, fields[-1]):
            return
        if what == "write":
            self.is_synced[fields[0]] = False
        elif what == "sync":
            self.is_synced[fields[0]] = True
            self.owed.pop(fields[0], None)
        else:
            self.rename(int(fields[0]), fields[1], fields[2])

    def rename(self, flags, old, new):
        self.n_renames += 1
        for path in [p for p in self.is_synced if below(old, p)]:
            while path != old:  # the folders of what moves, too
                path = os.path.dirname(path)
                self.is_synced.setdefault(path, False)
        for path in [p for p in self.is_synced if below(old, p)]:
            if not self.is_synced[path]:
                self.problems.append("%s is renamed before %s is synced" % (old, path))
        names = [(old, new)] + ([(new, old)] if flags & EXCHANGE else [])
        renamed = {}
        for path, is_synced in self.is_synced.items():
            for a, b in names:
                if below(a, path):
                    path = b + path[len(a):]
                    break
            renamed[path] = is_synced
        self.is_synced = renamed
        self.owed[os.path.dirname(new)] = new

    def end(self):
        self.problems += ["%s is not synced after %s appeared in it" % owed for owed in self.owed.items()]
        if self.n_renames == 0:
            self.problems.append("nothing was renamed")
        for path, _, files in os.walk(self.base):
            for name in files:
                if not self.is_synced.get(os.path.join(path, name), False):
                    self.problems.append("%s was never synced" % os.path.join(path, name))


def problems_of(arguments, before, fault, base):
    work, log = os.path.join(base, "work"), os.path.join(base, "log")
    os.mkdir(work)
    for name, text in before.items():
        os.makedirs(os.path.dirname(os.path.join(work, name)), exist_ok=True)
        if not name.endswith("/"):
            with open(os.path.join(work, name), "w") as f:
                f.write(text)
    inputs = {"IN": os.path.join(DATA, "llama-tiny"), "ONNX": os.path.join(DATA, "onnx", "dynamo.onnx")}
    command = [inputs.get(a, a) for a in arguments.split()]
    done = subprocess.run([CKPT, *command], cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                          env=dict(os.environ, LD_PRELOAD=FAULT_SO, CKPT_FAULT=fault, CKPT_FAULT_LOG=log))
    if done.returncode != 0:
        return ["exit %d: %s" % (done.returncode, done.stderr)]
    replay = Log(work)
    with open(log) as f:
        for line in f:
            replay.take(*line.rstrip("\n").split("\t"))
    replay.end()
    return replay.problems


def main():
    n_problems = 0
    for arguments, before in CASES:
        for fault in ("none:1", "norename2:1"):
            with tempfile.TemporaryDirectory(prefix="ckpt-order-") as base:
                for problem in problems_of(arguments, before, fault, os.path.realpath(base)):
                    n_problems += 1
                    print("%s (%s): %s" % (arguments, fault, problem))
    print("%d runs, %d problems" % (2 * len(CASES), n_problems))
    return 1 if n_problems else 0


sys.exit(main())
