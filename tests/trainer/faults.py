#!/usr/bin/env python3
"""Every rename of a run is once where it is killed, and calls fail: what is left is what a run goes on from.

    faults.py CKPT_TRAIN FAULT_SO DATA [--full]

killrename: SIGKILL in place of the n-th rename, for each n; then --resume auto ends with the bytes of a whole run, and so
does --resume last where a checkpoint is there. kill: the same of every call that changes a file. write, fsync, rename, open,
read, alloc: the n-th call fails; the run ends with 0 or 1, a failure has a message, no checkpoint is there in part, and
--resume auto ends with the same bytes. Calls are sampled but for renames, with a printed seed; --full takes each. Then the
disk is full from the n-th save on: training goes on, what was saved stays, and the run ends with 1.
"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

RUN = ["--max_steps", "6", "--save_steps", "2", "--save_total_limit", "2", "--learning_rate", "5e-3", "--quiet", "--threads",
       "1", "--per_device_train_batch_size", "2", "--ranks", "2", "--stage", "1"]


class Sweep:
    def __init__(self, train, fault, data, folder):
        self.fault, self.folder = fault, folder
        self.command = [train, "--model", os.path.join(data, "llama"), "--data", os.path.join(data, "rows.jsonl"), *RUN]
        self.whole = os.path.join(folder, "whole")
        subprocess.run([*self.command, "-o", self.whole], check=True)
        self.bytes = self.content(self.whole)
        # oneDNN ends the process where its first allocation fails: those of a plan, which reads and packs every row
        rows = os.path.join(folder, "text.jsonl")
        with open(rows, "w", encoding="utf-8") as file:
            file.writelines('{"text": "%s \\u00e9"}\n' % (f"{n} words of a row " * n) for n in range(1, 40))
        self.plan = [train, "--model", os.path.join(data, "../llama-256"), "--data", rows, "--init", "scratch", *RUN,
                     "--packing", "concat", "--max_length", "8", "--plan"]
        self.planned = subprocess.run(self.plan, capture_output=True, text=True, check=True).stdout

    @staticmethod
    def content(out):
        with open(os.path.join(out, "model.safetensors"), "rb") as file:
            weights = file.read()
        with open(os.path.join(out, "run.json"), encoding="utf-8") as file:
            return weights, json.load(file)["checkpoints"]

    def once(self, what, n):
        """Whether the n-th call was reached."""
        out, report = os.path.join(self.folder, "run"), os.path.join(self.folder, "report")
        for path in (out, report):
            if os.path.exists(path):
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
        environment = dict(os.environ, LD_PRELOAD=self.fault, CKPT_FAULT=f"{what}:{n}", CKPT_FAULT_REPORT=report)
        command = self.plan if what == "alloc" else [*self.command, "-o", out]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", timeout=60)
        killed = done.returncode == -signal.SIGKILL
        where = f"{what}:{n}: exit {done.returncode}: {done.stderr}"
        assert done.returncode in (0, 1) or (killed and what.startswith("kill")), where
        assert done.returncode != 1 or "ckpt-train: " in done.stderr, where
        assert "\ufffd" not in done.stderr, where
        if what != "alloc":
            self.resume(out, where, killed)
        elif done.returncode == 0:
            assert done.stdout == self.planned, f"{where}: {done.stdout}"
        if killed:
            return True
        with open(report, encoding="utf-8") as file:
            return file.read().startswith("hit")

    def resume(self, out, where, killed):
        """It ends with the bytes of a whole run."""
        has_some = os.path.isdir(out) and any(name.startswith("checkpoint-") for name in os.listdir(out))
        how = "last" if killed and has_some else "auto"
        again = subprocess.run([*self.command, "-o", out, "--resume", how], capture_output=True, text=True, errors="replace", timeout=60)
        assert again.returncode == 0, f"{where}; resumed: exit {again.returncode}: {again.stderr}"
        assert "is skipped" not in again.stderr, f"{where}; resumed: {again.stderr}"
        weights, checkpoints = self.content(out)
        same = weights == self.bytes[0] and checkpoints["checkpoint-6"] == self.bytes[1]["checkpoint-6"]
        assert same and set(checkpoints) == {name for name in os.listdir(out) if name.startswith("checkpoint-")}, \
            f"{where}: other bytes, or {sorted(os.listdir(out))}"
        assert not killed or checkpoints == self.bytes[1], f"{where}: {checkpoints}"
        left = [name for name in os.listdir(out) if name.startswith(".") or name.endswith(".new")]
        assert not left, f"{where}: {left} are left"


    def full_disk(self, n, formats):
        """No space from the n-th reservation on; checkpoints in these formats. How many checkpoints were written; None: the disk never was full."""
        out, report = os.path.join(self.folder, "run"), os.path.join(self.folder, "report")
        shutil.rmtree(out, ignore_errors=True)
        environment = dict(os.environ, LD_PRELOAD=self.fault, CKPT_FAULT=f"fallocate:{n}:forever", CKPT_FAULT_REPORT=report)
        done = subprocess.run([*self.command, "-o", out, "--save-format", formats], env=environment, capture_output=True,
                              text=True, timeout=60)
        with open(report, encoding="utf-8") as file:
            if not file.read().startswith("hit"):
                return None
        where = f"{formats}, disk full from reservation {n}: exit {done.returncode}: {done.stderr}"
        kept = sorted(name for name in os.listdir(out) if name.startswith("checkpoint-"))
        assert done.returncode == 1 and "No space left on device" in done.stderr, where
        assert ("is not written, training goes on" in done.stderr) == ("checkpoint-6" not in kept), where
        with open(os.path.join(out, "log.jsonl"), encoding="utf-8") as file:
            assert len(file.readlines()) == 6, where
        assert not [name for name in os.listdir(out) if name.startswith(".")], (where, os.listdir(out))
        self.resume(out, where, False)
        return len(kept)


def main():
    train, fault, data = sys.argv[1:4]
    seed = int(os.environ.get("CKPT_SEED", time.time_ns() % 1000000))
    print("seed", seed)
    generator = random.Random(seed)
    folder = tempfile.mkdtemp(prefix="ckpt-train-faults-")
    sweep = Sweep(train, fault, data, folder)
    for what, most in (("killrename", 1), ("kill", 160), ("rename", 1), ("fsync", 6), ("write", 45), ("open", 6), ("read", 20), ("alloc", 90)):
        n, count = 1, 0
        while sweep.once(what, n):
            count += 1
            n += 1 if "--full" in sys.argv else generator.randint(1, 2 * most - 1)
        print(f"{what}: {count} of {n} calls")
        assert count > 0, f"no {what} was reached"
    for formats, step in (("dcp", 3), ("dcp,torch", 4)):
        kept, n = [], 1
        while (n_kept := sweep.full_disk(n, formats)) is not None:
            kept.append(n_kept)
            n += 1 if "--full" in sys.argv else step
        print(f"disk full, {formats}: checkpoints kept", kept)
        assert kept[0] == 0 and kept == sorted(kept) and kept[-1] > 1, kept
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
