"""The vocabularies that llama.cpp tests its tokenizers with: ids of its texts (models/ggml-vocab-*.gguf, .inp, .out).

They lie in llama.cpp's sources, around LLAMA_CPP_BIN (SOURCES/build/bin).
"""
import glob
import os
import subprocess

import command
from command import CKPT, ckpt

SEPARATOR = "\n__ggml_vocab_test__\n"
# kinds that are not read, and ways to cut text that have no regex here
REFUSED = {"bert-bge", "deepseek-coder", "deepseek-llm", "gemma-4", "qwen35"}


def test_ids_are_llama_cpps(folder):
    sources = os.path.join(os.environ.get("LLAMA_CPP_BIN", "nowhere"), "../../models")
    n = 0
    for path in sorted(glob.glob(os.path.join(sources, "ggml-vocab-*.gguf"))):
        if not os.path.exists(path + ".inp"):
            continue
        name = os.path.basename(path)[len("ggml-vocab-"):-len(".gguf")]
        if name in REFUSED:
            done = subprocess.run([CKPT, "tokenize", "--model", path, "a"], capture_output=True, text=True)
            assert done.returncode == 1 and done.stderr.startswith("ckpt: "), (name, done)
            continue
        with open(path + ".inp", encoding="utf-8", newline="") as file:
            texts = file.read().split(SEPARATOR)
        with open(path + ".out", encoding="utf-8") as file:
            wanted = [line.split() for line in file.read().split("\n")]
        for text, ids in zip(texts, wanted):
            at = os.path.join(folder, "text")
            with open(at, "w", encoding="utf-8", newline="") as file:
                file.write(text)
            found = ckpt("tokenize", "--model", path, "-f", at, "--no-special").split()
            assert found == ids, (name, text, found, ids)
            n += 1
    if n == 0:
        command.skip("no vocabularies of llama.cpp around LLAMA_CPP_BIN")
    print("%d texts" % n)


command.main(globals())
