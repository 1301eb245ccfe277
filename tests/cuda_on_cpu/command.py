#!/usr/bin/env python3
"""`ckpt logits` and `ckpt ppl` with --device cuda, on the emulated device, give the CPU's figures.

    command.py CKPT DATA
"""
import json
import os
import subprocess
import sys
import tempfile

CKPT, DATA = sys.argv[1:]


def run(*words):
    return json.loads(subprocess.run([CKPT, *words, "--json"], check=True, capture_output=True, text=True).stdout)


def main():
    with tempfile.TemporaryDirectory() as folder:
        for family in ("llama", "gpt2"):
            outputs = {}
            for device in ("cpu", "cuda", None):
                outputs[device] = os.path.join(folder, f"{family}-{device}.safetensors")
                words = [] if device is None else ["--device", device]
                made = run("logits", f"{DATA}/tape/{family}", "--ids", "1,5,9,2,7", "-o", outputs[device], *words)
                assert made["device"] == (device or "cuda"), made
            for device in ("cuda", None):
                run("diff", outputs["cpu"], outputs[device], "--atol", "1e-4")
        results = {}
        for device in ("cpu", "cuda"):
            results[device] = run("ppl", f"{DATA}/dialect/mistral", "-f", f"{DATA}/text/eval.txt", "--ctx", "16",
                                  "--chunks", "3", "--device", device)
            assert results[device]["device"] == device, results
        cpu, cuda = results["cpu"], results["cuda"]
        assert cpu["n_tokens"] == cuda["n_tokens"] > 0, results
        assert abs(cpu["nll"] - cuda["nll"]) < 1e-5 * cpu["nll"], results
    print("logits within 1e-4, nll", cpu["nll"], cuda["nll"])


main()
