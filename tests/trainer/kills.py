#!/usr/bin/env python3
"""A run that is killed again and again, and resumed, gives the bytes of one that was not.

    kills.py CKPT_TRAIN DATA [N]

Each case trains once without interruption, then with SIGKILL at random instants and --resume auto until it ends. Weights,
the last checkpoint's digest, and the losses, norms and rates of every step have to be the same. The folder is such that
--resume auto always takes it. Prints the seed; exit 1 names what differs.
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

TIMES = {"seconds", "tokens_per_second", "data_seconds", "comm_seconds", "mem_bytes", "eval_seconds"}
COMMON = ["--max_steps", "120", "--learning_rate", "5e-3", "--lr_scheduler_type", "cosine", "--warmup_steps", "5",
          "--save_steps", "7", "--save_total_limit", "2", "--quiet", "--threads", "1"]
CASES = {
    "accumulation": ["--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "3"],
    "packing": ["--per_device_train_batch_size", "2", "--packing", "document", "--max_length", "12"],
    "ranks": ["--per_device_train_batch_size", "2", "--ranks", "2", "--stage", "3", "--eval_strategy", "steps",
              "--eval_steps", "11"],
    "formats": ["--per_device_train_batch_size", "4", "--ranks", "2", "--stage", "1", "--save-format", "dcp,torch"],
}


def log_of(out):
    with open(os.path.join(out, "log.jsonl"), encoding="utf-8") as file:
        return [{k: v for k, v in json.loads(line).items() if k not in TIMES} for line in file]


def read(path):
    with open(path, "rb") as file:
        return file.read()


def compare(case, whole, broken):
    if log_of(whole) != log_of(broken):
        sys.exit(f"{case}: log.jsonl differs ({whole}, {broken})")
    if read(os.path.join(whole, "model.safetensors")) != read(os.path.join(broken, "model.safetensors")):
        sys.exit(f"{case}: model.safetensors differs ({whole}, {broken})")
    digests = []
    for out in (whole, broken):
        with open(os.path.join(out, "run.json"), encoding="utf-8") as file:
            digests.append(json.load(file)["checkpoints"]["checkpoint-120"])
        kept = sorted(name for name in os.listdir(out) if name.startswith("checkpoint-"))
        if kept != ["checkpoint-119", "checkpoint-120"]:
            sys.exit(f"{case}: {kept} are there ({out})")
        if any(name.startswith(".") for name in os.listdir(out)):
            sys.exit(f"{case}: {os.listdir(out)}: something was left ({out})")
    if digests[0] != digests[1]:
        sys.exit(f"{case}: digests of the last checkpoint {digests}")


def interrupted(command, generator, length):
    """Runs until it ends by itself; how often it was killed."""
    n_kills = 0
    while True:
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        if n_kills < 12:
            time.sleep(generator.random() * length * 0.6)
            if process.poll() is None:
                process.send_signal(generator.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
                n_kills += 1
        _, text = process.communicate()
        if process.returncode == 0:
            return n_kills
        if process.returncode not in (-signal.SIGKILL, 3, -signal.SIGTERM):
            sys.exit(f"exit {process.returncode} after {n_kills} kills: {text.decode()}")


def main():
    train, data = sys.argv[1:3]
    n_rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    seed = int(os.environ.get("CKPT_SEED", time.time_ns() % 1000000))
    print("seed", seed)
    generator = random.Random(seed)
    common = [train, "--model", os.path.join(data, "llama"), "--data", os.path.join(data, "rows.jsonl"), "--eval-data",
              os.path.join(data, "eval.jsonl"), *COMMON]
    folder = tempfile.mkdtemp(prefix="ckpt-kills-")
    for case, more in CASES.items():
        whole = os.path.join(folder, case)
        begun = time.monotonic()
        subprocess.run([*common, *more, "-o", whole], check=True)
        length = time.monotonic() - begun
        for i in range(n_rounds):
            broken = f"{whole}-{i}"
            n_kills = interrupted([*common, *more, "-o", broken, "--resume", "auto"], generator, length)
            compare(case, whole, broken)
            print(f"{case}: {n_kills} kills, the same bytes")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
