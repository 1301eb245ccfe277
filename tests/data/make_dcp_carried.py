"""Writes dcp/carried: items of a DCP folder that go to another one as they lie: of classes that we do not model, a
tuple and a namespace with tensors. Python with torch 2.15."""
import argparse
import os
import pathlib
import shutil
import uuid

import torch
import torch.distributed.checkpoint as dcp

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dcp", "carried")


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    dcp.save({"model": {"l.w": torch.arange(6.0).reshape(3, 2)},
              "path": pathlib.PurePosixPath("/data/x"),
              "ids": [uuid.UUID(int=7), 1],
              "tuple": ((3, None), torch.arange(9)),
              "args": argparse.Namespace(lr=0.5, scale=torch.full((2,), 0.25))}, checkpoint_id=FOLDER, no_dist=True)


if __name__ == "__main__":
    main()
