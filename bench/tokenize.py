"""Encoding speed of ckpt against the `tokenizers` library, one core, CPU time; exit 1 where ckpt is slower.

    python bench/tokenize.py [BUILD]          with a Python that has tokenizers
"""
import os
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402

root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
build = sys.argv[1] if len(sys.argv) > 1 else os.path.join(root, "build")
data = os.path.join(root, "tests", "data")
path = os.path.join(data, "text", "train.txt")
text = open(path, encoding="utf-8", newline="").read()


def best(inner, texts):
    times = []
    for _ in range(5):
        begin = time.process_time()
        for one in texts:
            inner.encode(one)
        times.append(time.process_time() - begin)
    return len(text.encode()) / min(times) / 1e6


worst = 1e9
for name in ("llama-256", "tokenizer/gpt2", "tokenizer/qwen2", "tokenizer/gpt4o", "tokenizer/llama2"):
    folder = os.path.join(data, name)
    inner = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    ours = subprocess.run([os.path.join(build, "bench", "tokenize"), folder, path], check=True, capture_output=True, text=True)
    for line in ours.stdout.splitlines():
        form, speed = line.split()
        theirs = best(inner, [text] if form == "whole" else text.split("\n"))
        worst = min(worst, float(speed) / theirs)
        print(f"{name:18} {form}  ckpt {float(speed):6.1f} MB/s  tokenizers {theirs:5.2f} MB/s  {float(speed) / theirs:5.1f}x")
sys.exit(worst < 1.0)
