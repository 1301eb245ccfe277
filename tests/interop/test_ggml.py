"""Blocks and values of ggml's own C are ours: tests/kernels/quant/quant_against_ggml.sh, and that it can fail.

CKPT_GGML names the ggml folder of llama.cpp's sources; else they are looked for around LLAMA_CPP_BIN (SOURCES/build/bin).
"""
import os
import pathlib
import shutil
import subprocess

import command
from command import TESTS

SCRIPT = os.path.join(TESTS, "kernels/quant/quant_against_ggml.sh")


def sources():
    """The folder, or None, which is said."""
    folder = os.environ.get("CKPT_GGML") or os.path.join(os.environ.get("LLAMA_CPP_BIN", "nowhere"), "../../ggml")
    if not os.path.exists(os.path.join(folder, "src/ggml-quants.c")):
        command.skip("CKPT_GGML names no folder with ggml's sources")
    elif shutil.which(os.environ.get("CC", "cc")) is None:
        command.skip("there is no C compiler")
    else:
        return os.path.abspath(folder)
    return None


def run(*arguments):
    """What the script prints; None where there are no sources."""
    folder = sources()
    if folder is None:
        return None
    done = subprocess.run([SCRIPT, *arguments], cwd=os.path.dirname(TESTS), env={**os.environ, "CKPT_GGML": folder},
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_blocks_and_values(folder):
    """The goldens that the tests of every build go by are made anew, and compared with ggml on the way."""
    printed = run()
    assert printed is None or printed == pathlib.Path(TESTS, "data/quant.tsv").read_text()


def test_the_comparison_can_fail(folder):
    """A contracted build of theirs and a divisor of ours that is an ulp off are noticed."""
    printed = run("control")
    if printed is None:
        return
    for program in "contracted", "off_by_an_ulp":
        assert f"{program}: " in printed and "not noticed" not in printed, printed


if __name__ == "__main__":
    command.main(globals())
