#!/usr/bin/env python3
"""ckpt-train with --device cuda gives the CPU's curve within 1e-5, saves what either goes on from, and trains adapters.

    train.py CKPT_TRAIN DATA

On the emulated device in `./dev test`, on a real one in `./dev gpu`.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

TRAIN, DATA = sys.argv[1], os.path.join(sys.argv[2], "training")
COMMON = ["--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "2", "--weight_decay", "0.1", "--quiet",
          "--learning_rate", "5e-3", "--lr_scheduler_type", "cosine", "--adam_beta2", "0.95", "--threads", "1"]


def run(out, device, model, *words):
    command = [TRAIN, "--model", os.path.join(DATA, model), "--data", os.path.join(DATA, "rows.jsonl"), "-o", out, "--device",
               device, *COMMON, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (command, done.stderr)


def log_of(out):
    with open(os.path.join(out, "log.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read(path):
    with open(path, "rb") as file:
        return file.read()


def compare(a, b):
    """The same steps; how far losses are apart at most."""
    one, two = log_of(a), log_of(b)
    assert len(one) == len(two) > 0, (a, b)
    worst = 0
    for x, y in zip(one, two):
        assert x["step"] == y["step"] and x.get("learning_rate") == y.get("learning_rate"), (x, y)
        key = "loss" if "loss" in x else "eval_loss"
        gap = abs(x[key] - y[key]) / x[key]
        assert gap < 1e-5, (a, b, x, y)  # which NaN fails
        worst = max(worst, gap)
        assert "grad_norm" not in x or abs(x["grad_norm"] - y["grad_norm"]) < 1e-4 * x["grad_norm"], (x, y)
    return worst


def curves(folder):
    adapter = os.path.join(folder, "lora.json")
    with open(adapter, "w", encoding="utf-8") as file:
        json.dump({"r": 2, "target_modules": "all-linear", "peft_type": "LORA", "init_lora_weights": False, "bias": "all",
                   "lora_dropout": 0.1}, file)
    cases = {
        "llama": ["llama", "--eval-data", os.path.join(DATA, "eval.jsonl"), "--eval_strategy", "steps", "--eval_steps", 3],
        "gpt2": ["gpt2", "--gradient_checkpointing", "true", "--label_smoothing_factor", 0.1],
        "qwen2-lora": ["qwen2", "--lora", adapter],
    }
    for name, words in cases.items():
        outs = [os.path.join(folder, f"{name}-{device}") for device in ("cpu", "cuda")]
        for out, device in zip(outs, ("cpu", "cuda")):
            run(out, device, *words, "--max_steps", 3, "--save_strategy", "no")
        print(name, "losses within", compare(*outs))


def resumes(folder):
    """Either device goes on from what the other saved; on the same one to the same bytes."""
    whole, parts, other = (os.path.join(folder, name) for name in ("whole", "parts", "other"))
    run(whole, "cuda", "llama", "--max_steps", 2, "--save_steps", 1)
    shutil.copytree(whole, parts)
    shutil.rmtree(os.path.join(parts, "checkpoint-2"))
    shutil.copytree(parts, other)
    run(parts, "cuda", "llama", "--max_steps", 2, "--save_steps", 1, "--resume", "last")
    assert read(os.path.join(parts, "model.safetensors")) == read(os.path.join(whole, "model.safetensors"))
    run(other, "cpu", "llama", "--max_steps", 2, "--save_steps", 1, "--resume", "last")
    print("resumed, the same bytes; on the CPU losses within", compare(whole, other))


def refusals(folder):
    for words, what in ((["--ranks", "2"], "one rank on one GPU"), (["--lora", os.path.join(DATA, "lora-dora")], "DoRA")):
        done = subprocess.run([TRAIN, "--model", os.path.join(DATA, "llama"), "--data", os.path.join(DATA, "rows.jsonl"), "-o",
                               os.path.join(folder, "no"), "--device", "cuda", *words], capture_output=True, text=True)
        assert done.returncode == 1 and what in done.stderr, done.stderr


with tempfile.TemporaryDirectory() as scratch:
    curves(scratch)
    resumes(scratch)
    refusals(scratch)
