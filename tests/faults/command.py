#!/usr/bin/env python3
"""Every call of the command fails in turn, in every verb: faults by tests/faults/fault.c under LD_PRELOAD.

    command.py CKPT FAULT_SO DATA [VERB...]

After each run: exit status 0 or 1, never a signal or a hang; a failure has a message; what was printed and written by a
run that ended well is what a run without faults prints and writes; a run that failed leaves the old output or none (or
the new one, whole, where it failed after the rename, and then it says so); nothing else is left; inputs are untouched.
Faults are drawn at random, a few of each kind for each case; with CKPT_TEST_FULL all but those of memory are planted.
CKPT_TEST_SEED repeats a draw.
"""
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time

import scratch

CKPT, FAULT_SO, DATA = sys.argv[1:4]
FULL = "CKPT_TEST_FULL" in os.environ
SEED = int(os.environ.get("CKPT_TEST_SEED", random.randrange(10**6)))
DRAWS = {"alloc": 5, "read": 2, "write": 3, "fsync": 3, "rename": 3, "open": 3, "fallocate": 2}  # of each kind of call
KINDS = list(DRAWS)
# Arguments, what stands at the outputs before, and the outputs. Every run is in a folder of its own beside the inputs.
CASES = {
    "convert to a new file": ("convert IN -o o.safetensors", {}),
    "convert over a file": ("convert IN -o o.safetensors --force", {"o.safetensors": "old"}),
    "convert to a torch file": ("convert IN -o o.pt --threads 2", {}),
    "convert over a torch file": ("convert IN -o o.pt --force", {"o.pt": "old"}),
    "convert to a GGUF file": ("convert IN -o o.gguf --set a=1 --names stored --threads 2", {}),
    "convert from a GGUF file": ("convert GGUF -o o.gguf --force --remove array.text", {"o.gguf": "old"}),
    "convert an ONNX model": ("convert ONNX -o o.onnx --force", {"o.onnx": "old"}),
    "put an ONNX model's data outside": ("convert ONNX -o o.onnx --external-data --force", {"o.onnx": "old"}),
    "replace an ONNX model and its data": ("convert ONNX -o o.onnx --external-data --force",
                                           {"o.onnx": "old", "o.onnx.data": "old data"}),
    "put them outside in a folder": ("convert ONNX -o o -o o/model.onnx --external-data", {}),
    "give a graph other weights": ("convert OUTSIDE --graph ONNX -o o.onnx --external-data", {}),
    "quantize to two types": ("quantize MODEL -o {type}.gguf --type Q4_0 --type Q8_0 --imatrix IMATRIX --receipt r.json", {}),
    "extract an adapter": ("extract-lora --base BASE --tuned ../tuned --energy 0.99999 -o o --threads 2", {}),
    "extract one over a folder": ("extract-lora --base BASE --tuned ../tuned --rank 2 -o o --json --force",
                                  {"o/adapter_model.safetensors": "old", "o/adapter_config.json": "{}"}),
    "split a GGUF file": ("split GGUF -o o --shard-size 500", {}),
    "convert to a new folder": ("convert IN -o o", {}),
    "convert into an empty folder": ("convert IN -o o", {"o/": ""}),
    "convert over a folder": ("convert IN -o o --force", {"o/model.safetensors": "old", "o/config.json": "{}"}),
    "cast": ("convert IN -o o.safetensors --dtype f16 --threads 2", {}),
    "several outputs and a receipt": ("convert IN -o o.safetensors -o o --receipt r.json", {}),
    "outputs in one folder": ("convert IN -o o -o o/one.safetensors", {}),
    "convert --json": ("convert IN -o o.safetensors --json --match *mlp*", {}),
    "convert from a torch file": ("convert TORCH -o o.pt", {}),
    "convert from DCP over a torch file": ("convert DCP -o o.pt --force", {"o.pt": "old"}),
    "convert from a torch file to safetensors": ("convert TORCH -o o.safetensors --receipt r.json", {}),
    "consolidate": ("consolidate DCP -o o", {}),
    "reshard a torch file": ("reshard VIEWS -o o --to dcp --world 2", {}),
    "reshard DCP": ("reshard DCP -o o --to dcp --world 3", {}),
    "reshard to a new folder": ("reshard IN -o o --to dcp --world 3", {}),
    "reshard into an empty folder": ("reshard IN -o o --to dcp --world 2 --threads 2", {"o/": ""}),
    "reshard compressed over a folder": ("reshard IN -o o --to dcp --world 2 --zstd 3 --force",
                                         {"o/.metadata": "old", "o/__7_0.distcp": "old"}),
    "reshard over a folder": ("reshard IN -o o --to dcp --force", {"o/.metadata": "old", "o/__7_0.distcp": "old"}),
    "reshard ZeRO": ("reshard ZERO -o o --to zero --stage 2 --dp 2 --receipt r.json", {}),
    "reshard ZeRO to universal": ("reshard ZERO -o o --to universal --threads 2", {}),
    "reshard DCP to ZeRO over a folder": ("reshard DCP -o o --to zero --dp 2 --force",
                                          {"o/latest": "old", "o/global_step2/zero_pp_rank_0_mp_rank_00_model_states.pt": "old"}),
    "split": ("split IN -o o --shard-size 100KB", {}),
    "join": ("join IN -o o.safetensors", {}),
    "manifest": ("hash IN -o m.json", {}),
    "ls": ("ls IN", {}),
    "ls --stats": ("ls IN --stats", {}),
    "inspect": ("inspect IN --json", {}),
    "cat": ("cat IN model.norm.weight", {}),
    "hash": ("hash IN --tensors --cast f32", {}),
    "hash --files": ("hash --files IN", {}),
    "hash --check": ("hash --check ../sums", {}),
    "diff": ("diff IN ../one.safetensors", {}),
    "verify": ("verify IN --manifest ../manifest.json", {}),
    "diff --requantize": ("diff MODEL ../quantized.gguf --requantize --imatrix IMATRIX", {}),
    "verify a GGUF file": ("verify MODEL", {}),
    "verify --receipt": ("verify ../one.safetensors --receipt ../receipt.json", {}),
}


def tree(folder):
    """Everything below folder: name to hash; a folder has the name's slash."""
    found = {}
    for path, folders, files in os.walk(folder):
        for name in folders:
            found[os.path.relpath(os.path.join(path, name), folder) + "/"] = ""
        for name in files:
            with open(os.path.join(path, name), "rb") as f:
                found[os.path.relpath(os.path.join(path, name), folder)] = hashlib.sha256(f.read()).hexdigest()
    return found


def settled(out):
    """What was printed, without what differs from run to run."""
    return re.sub(r'"(seconds|peak_bytes)": ?[-+.e0-9]+', r'"\1":0', out)


class Run:
    def __init__(self, case, fault, work):
        arguments, before = CASES[case]
        self.case, self.fault, self.is_json = case, fault, "--json" in arguments
        shutil.rmtree(work, ignore_errors=True)
        os.mkdir(work)
        for name, text in before.items():
            os.makedirs(os.path.join(work, os.path.dirname(name)), exist_ok=True)
            if not name.endswith("/"):
                with open(os.path.join(work, name), "w") as f:
                    f.write(text)
        self.before = tree(work)
        report = work + ".report"
        environment = dict(os.environ, LD_PRELOAD=FAULT_SO, CKPT_FAULT=fault, CKPT_FAULT_REPORT=report, TMPDIR=work)
        inputs = {"IN": os.path.join("..", "in"), "GGUF": os.path.join(DATA, "gguf", "every-type.gguf"),
                  "MODEL": os.path.join(DATA, "gguf", "tiny-llama-f16.gguf"),
                  "ONNX": os.path.join(DATA, "onnx", "dynamo.onnx"),
                  "OUTSIDE": os.path.join(DATA, "onnx", "external", "model.onnx"),
                  "TORCH": os.path.join(DATA, "torch", "training.pt"), "VIEWS": os.path.join(DATA, "torch", "views.pt"),
                  "DCP": os.path.join(DATA, "dcp", "fsdp4"), "ZERO": os.path.join(DATA, "zero", "stage2-fp16"),
                  "IMATRIX": os.path.join(DATA, "gguf", "imatrix.gguf"),
                  "BASE": os.path.join(DATA, "adapters", "linear", "base")}
        command = [CKPT] + [inputs.get(a, a) for a in arguments.split()]
        done = subprocess.run(command, cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60)
        self.status, self.out, self.message = done.returncode, settled(done.stdout), done.stderr
        self.after = tree(work)
        with open(report) as f:
            text = f.read()
        self.is_hit = text == "hit\n"
        self.n_calls = 0 if self.is_hit else int(text.split()[-1])

    def problem(self, good):
        """What is wrong with the run, or None; good is the same run without a fault."""
        if self.status not in (0, 1):
            return "exit status %d" % self.status
        if self.status == 0:
            if self.out != good.out:
                return "printed something else: " + self.out[:500]
            return None if self.after == good.after else "wrote something else: %s" % self.after
        if not self.is_hit and good.status == 0:
            return "failed without a fault"
        if self.is_json:
            if json.loads(self.out)["status"] != "error" or not json.loads(self.out)["error"]["message"]:
                return "JSON without an error: " + self.out
        elif not re.search(r"^ckpt: .", self.message, re.M) and not re.search(r"^problem: .", self.out, re.M):
            return "failed without a message"
        if "bug in libckpt" in self.message or "in OpenSSL" in self.message:
            return "an internal error"
        return self.problem_of_files(good)

    def problem_of_files(self, good):
        """Each output, the first part of a name, is as it was, or as it will be."""
        for part in {name.split("/")[0] for name in [*self.before, *self.after, *good.after]}:
            of = [{name: h for name, h in files.items() if name.split("/")[0] == part}
                  for files in (self.before, self.after, good.after)]
            if of[1] not in (of[0], of[2]):
                return "left %s" % sorted(of[1])
            if self.fault.split(":")[0] in ("rename", "fsync") and of[1] != of[0]:
                if not re.search(r"^ckpt: %s: is in its place|place already: (.*, )?%s[,)]" % (
                        (re.escape(part),) * 2), self.message, re.M):
                    return "does not say that %s is in its place" % part
        return None


def prepare(base):
    inputs = os.path.join(base, "in")
    shutil.copytree(os.path.join(DATA, "llama-tiny"), inputs)
    quantize = "quantize {0}/tiny-llama-f16.gguf -o quantized.gguf --type Q4_0 --imatrix {0}/imatrix.gguf"
    merge = "merge {0}/base --adapter {0}/adapter -o tuned"
    for command in ("hash in -o manifest.json", "convert in -o one.safetensors --receipt receipt.json",
                    quantize.format(os.path.join(DATA, "gguf")),
                    merge.format(os.path.join(DATA, "adapters", "linear")), "hash in"):
        done = subprocess.run([CKPT] + command.split(), cwd=base, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit("%s: %s" % (command, done.stderr))
    with open(os.path.join(base, "sums"), "w") as f:
        f.write(done.stdout.replace("  in", "  ../in"))
    with open(os.path.join(base, "receipt.json")) as f:  # as it will be seen from the folders of the runs
        text = f.read()
    with open(os.path.join(base, "receipt.json"), "w") as f:
        f.write(text.replace('"path":"in"', '"path":"../in"').replace('"path":"one', '"path":"../one'))


def faults(case, kind, work):
    """The n of each fault to plant: all, or some that were drawn."""
    n = Run(case, kind + ":1000000000", work).n_calls
    numbers = range(1, n + 1)
    if kind == "alloc" and n > 1000:  # in the middle OpenSSL sets itself up, with 5,000 of them
        first, middle, last = numbers[:400], numbers[400:-600], numbers[-600:]
        draw = (150, 50, 300) if FULL else (2, 1, 3)
        return n, sorted(x for part, k in zip((first, middle, last), draw) for x in random.sample(part, k))
    return n, sorted(random.sample(numbers, n if FULL else min(n, DRAWS[kind])))


def main():
    random.seed(SEED)
    print("seed %d (CKPT_TEST_SEED repeats it)%s" % (SEED, "" if FULL else ", a few faults of each kind"))
    problems = n_runs = 0
    with scratch.folder("ckpt-faults-", 32 << 20) as base:
        prepare(base)
        untouched = tree(base)
        work = os.path.join(base, "work")
        for case in CASES:
            if len(sys.argv) > 4 and case not in sys.argv[4:]:
                continue
            started, counts = time.monotonic(), []
            good = Run(case, "none:1", work)
            if good.status != 0:
                print("%s: fails without a fault: %s" % (case, good.message.strip()))
                problems += 1
                continue
            plan = ["short:1", "norename2:1", "noopenat2:1"]
            for kind in KINDS:
                n, numbers = faults(case, kind, work)
                counts.append("%s %d" % (kind, n))
                plan += ["%s:%d" % (kind, i) for i in numbers]
                if numbers and (FULL or random.random() < 0.5):  # once a rename was done, nothing could undo it
                    plan.append("%s:%d:forever" % (kind, numbers[0] if kind in ("alloc", "read", "write") else 1))
            n_failed = 0
            for fault in plan:
                try:
                    run = Run(case, fault, work)
                    problem = run.problem(good)
                    n_failed += run.status != 0
                    if problem is None and run.status != 0 and fault.split(":")[0] in ("short", "norename2", "noopenat2"):
                        problem = "failed: " + run.message
                except subprocess.TimeoutExpired:
                    problem = "hangs"
                except ValueError as error:
                    problem = "no JSON: %s: %s" % (error, run.out)
                if problem is not None:
                    problems += 1
                    print("%s: %s: %s\n  %s" % (case, fault, problem, run.message.strip()))
            left = [n for n in tree(base) if n.split("/")[0] not in ("work", "work.report") and n not in untouched]
            changed = [n for n, h in untouched.items() if tree(base).get(n) != h]
            if left or changed:
                problems += 1
                print("%s: left %s, changed %s" % (case, left, changed))
            n_runs += len(plan)
            print("%-30s %4d runs, %4d failed, %4.1f s (%s)" % (case, len(plan), n_failed, time.monotonic() - started,
                                                                ", ".join(counts)))
    print("%d runs, %d problems" % (n_runs, problems))
    return 1 if problems else 0


sys.exit(main())
