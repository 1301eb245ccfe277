"""Checkpoints that torch_checkpointing writes in the run, on 2 and 4 processes, read with the bits that these had.

Its package is looked for beside torch; where it is not there, that is said and nothing is tried.
"""
import os
import subprocess
import sys

import command
from command import TESTS, ckpt


def test_folders_of_the_run(folder):
    subprocess.run([sys.executable, "-B", os.path.join(TESTS, "data", "make_dcpv2.py"), folder], check=True,
                   stderr=subprocess.DEVNULL)
    names = [name for name in os.listdir(folder) if name.endswith(".safetensors")]
    assert len(names) == 4, names
    for name in names:
        ckpt("diff", "--include", "all", os.path.join(folder, name[:-len(".safetensors")]), os.path.join(folder, name))
    for name in ("fsdp", "safetensors"):
        os.replace(os.path.join(folder, name + "-1.0.pkl"), os.path.join(folder, name, "metadata.pkl"))
        ckpt("diff", "--include", "all", os.path.join(folder, name), os.path.join(folder, name + ".safetensors"))


if __name__ == "__main__":
    command.need("torch_checkpointing")
    command.main(globals())
