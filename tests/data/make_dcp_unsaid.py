"""Writes tests/data/dcp/unsaid-strides/: tensors in other orders than row-major, of a PyTorch whose metadata has no
strides, and beside it the same tensors as safetensors.

    python make_dcp_unsaid.py [FOLDER]        (PyTorch 2.9.1)
"""
import os
import shutil
import sys

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

ROOT = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "dcp"))


def main():
    path = os.path.join(ROOT, "unsaid-strides")
    whole = torch.arange(60.0).reshape(6, 10)
    state = {"plain": torch.arange(6.0).reshape(2, 3), "transposed": whole.t(), "part": whole[:, 2:5],
             "permuted": torch.arange(24, dtype=torch.int16).reshape(2, 3, 4).permute(2, 0, 1),
             "channels": torch.arange(96.0).reshape(2, 3, 4, 4).bfloat16().to(memory_format=torch.channels_last),
             "row": torch.arange(5.0).reshape(5, 1).t(), "scalar": torch.tensor(3.0)}
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    os.chdir(ROOT)  # what stands in StorageMeta is then no path of this machine
    dcp.save(state, checkpoint_id="unsaid-strides", no_dist=True)
    save_file({name: value.contiguous() for name, value in state.items()}, path + ".safetensors")


if __name__ == "__main__":
    main()
