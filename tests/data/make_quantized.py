"""Writes gguf/imatrix.gguf and gguf/quantized.tsv: what llama.cpp's tools make of gguf/tiny-llama-f16.gguf.

imatrix.gguf    llama-imatrix over a text of random words
quantized.tsv   lines `PRESET sha256` and `PRESET+imatrix sha256` of the files of llama-quantize, or `refused`

Made with llama.cpp as llama-cpp-python 0.3.36 carries it:
    python make_quantized.py BIN      (the folder of llama-imatrix and llama-quantize)
"""
import hashlib
import importlib.util
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("presets", HERE / "presets/make.py")
presets = importlib.util.module_from_spec(spec)
spec.loader.exec_module(presets)


def run(tools, folder, *command):
    """Paths are names in the folder: llama.cpp's tools record them."""
    return subprocess.run([os.path.join(tools, command[0]), *command[1:]], cwd=folder, capture_output=True).returncode


def main():
    tools = os.path.abspath(sys.argv[1])
    words = "the of and to in is was model weight layer token data file train loss step rank shard hash proof".split()
    chooser = random.Random(5)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(HERE / "gguf/tiny-llama-f16.gguf", os.path.join(folder, "model.gguf"))
        pathlib.Path(folder, "words.txt").write_text(" ".join(chooser.choice(words) for _ in range(6000)))
        run(tools, folder, "llama-imatrix", "-m", "model.gguf", "-f", "words.txt", "-o", "imatrix.gguf", "-c", "128", "-b",
            "128", "--chunks", "8", "-t", "1")
        lines = []
        for preset in presets.PRESETS:
            for options in ([], ["--imatrix", "imatrix.gguf"]):
                status = run(tools, folder, "llama-quantize", *options, "model.gguf", "out.gguf", preset)
                made = pathlib.Path(folder, "out.gguf").read_bytes()
                digest = hashlib.sha256(made).hexdigest() if status == 0 else "refused"
                lines.append(f"{preset}{'+imatrix' if options else ''} {digest}\n")
        (HERE / "gguf/quantized.tsv").write_text("".join(lines))
        shutil.copy(os.path.join(folder, "imatrix.gguf"), HERE / "gguf/imatrix.gguf")


if __name__ == "__main__":
    main()
