"""Writes tests/data/dcp/objects*/, alone/, odd/, behind/, accelerate/, apart/ and
beside/: checkpoints that hold more than tensors.

    python make_dcp_objects.py [FOLDER]        (torch 2.15.0; zstandard for `objects-zstd`)

What they hold is stated in tests/formats/dcp/objects_test.cc.
"""
import collections
import os
import shutil
import sys

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._extension import ZStandard
from torch.distributed.checkpoint.filesystem import FileSystemWriter, SerializationFormat

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dcp")


def objects():
    """A flattened optimizer state, as torchtitan saves it; tensors and a sparse one within items of bytes."""
    optimizer = {"state.w.exp_avg": torch.arange(6.0).reshape(2, 3), "state.w.step": torch.tensor(3.0)}
    for name, rate in (("w", 0.5), ("b", 0.5), ("g", 0.25)):
        optimizer["param_groups.%s.lr" % name] = rate
        optimizer["param_groups.%s.betas" % name] = (0.5, 0.75)
    return {
        "model": collections.OrderedDict(w=torch.arange(6).reshape(2, 3), b=torch.ones(2)),
        "optimizer": optimizer,
        "lr_scheduler": {"last_epoch": 3, "_last_lr": [0.5, 0.25]},
        "extra": (torch.arange(3), {"x": torch.arange(4.0)[1:3], "y": None}),
        "sparse": (torch.eye(2).to_sparse(),),
        "list": [torch.ones(1), {"k": b"bytes"}, "text"],
        "global_step": 7,
        "big": 1 << 70,
    }


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else ROOT
    os.chdir(root)
    for name in ("objects", "objects-zstd", "alone", "odd", "behind", "accelerate", "apart", "beside"):
        shutil.rmtree(name, ignore_errors=True)
    dcp.save(objects(), checkpoint_id="objects", no_dist=True)
    dcp.save(objects(), storage_writer=FileSystemWriter("objects-zstd", _extensions=[ZStandard()]), no_dist=True)
    dcp.save({"net": {"w": torch.arange(2.), "b.c": torch.arange(3.)}}, checkpoint_id="alone", no_dist=True)
    odd = {"": torch.arange(2.), "l": [(torch.arange(3.), 2), torch.arange(4.)], "t": ({"x": torch.arange(5.)}, None),
           "args": {"lr": 1}}
    dcp.save(odd, checkpoint_id="odd", no_dist=True)
    writer = FileSystemWriter("behind", serialization_format=SerializationFormat.SAFETENSORS)
    dcp.save({"w": torch.arange(6.).reshape(2, 3), "none": torch.ones(0, 2), "epoch": 3}, storage_writer=writer,
             no_dist=True)
    state = {"w": {"exp_avg": torch.arange(6.0).reshape(2, 3), "step": torch.tensor(2.0)}}
    optimizer = {"state": state, "param_groups": [{"lr": 0.5, "params": ["w"]}]}
    dcp.save({"model": {"w": torch.arange(6).reshape(2, 3)}}, checkpoint_id="accelerate/pytorch_model_fsdp_0",
             no_dist=True)
    dcp.save({"optimizer": optimizer}, checkpoint_id="accelerate/optimizer_0", no_dist=True)
    torch.save({"last_epoch": 3}, "accelerate/scheduler.bin")
    dcp.save({"w": torch.arange(6).reshape(2, 3)}, checkpoint_id="apart/model", no_dist=True)
    dcp.save(optimizer, checkpoint_id="apart/optimizer", no_dist=True)
    dcp.save({"model": {"w": torch.arange(6).reshape(2, 3)}, "step": 7, "seen": torch.arange(2)},
             checkpoint_id="beside/model", no_dist=True)
    dcp.save({"optim": optimizer, "lr_scheduler": {"last_epoch": 3}, "step": 8, "seen": torch.arange(2) + 5},
             checkpoint_id="beside/optimizer", no_dist=True)


if __name__ == "__main__":
    main()
