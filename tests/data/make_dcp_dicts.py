"""Writes tests/data/dicts/: dicts as training scripts save them, each by torch.save and by dcp.save.

    python make_dcp_dicts.py [FOLDER]        (torch 2.15.0)

tests/formats/dcp/dicts_test.cc compares what is read from both.
"""
import os
import random
import shutil
import sys

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import DefaultSavePlanner

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dicts")


def model(start):
    return {"a.weight": torch.arange(start, start + 4.0).reshape(2, 2), "a.bias": torch.arange(start, start + 2.0)}


def optimizer(start, named=False):
    """AdamW's state of two parameters by number; with their names beside the numbers, as PyTorch 2.6 keeps them."""
    state = {number: {"step": torch.tensor(start), "exp_avg": torch.arange(2.0) + start + number,
                      "exp_avg_sq": torch.arange(2.0) + start + number + 8} for number in range(2)}
    group = {"lr": 0.5, "betas": (0.5, 0.75), "params": [0, 1]}
    if named:
        group["param_names"] = ["a.weight", "a.bias"]
    return {"state": state, "param_groups": [group]}


def dicts():
    random.seed(0)
    flat = model(1)
    return {
        "common": {"app": {"model": model(1), "optim": optimizer(3.0)}, "step": 3, "extra": {"t": torch.ones(2)}},
        "nested": {"checkpoint": {"model": model(1), "opt": optimizer(3.0)}, "meta": {"epoch": 2}},
        "lightning": {"epoch": 1, "global_step": 7, "state_dict": model(1), "optimizer_states": [optimizer(3.0)],
                      "lr_schedulers": [{"last_epoch": 1, "_last_lr": [0.5]}]},
        "last": {"args": None, "model": model(1), "last_optimizer_state": optimizer(3.0), "num_updates": 4},
        "two": {"model": model(1), "optimizers": {"g": optimizer(3.0), "d": optimizer(5.0)}},
        "apart": {"netG": model(1), "netD": model(2), "optG": optimizer(3.0), "optD": optimizer(5.0)},
        "named": {"model": model(1), "optimizer": optimizer(3.0, True)},
        "beside": {"state_dict": model(1), "ema.decay": torch.tensor([0.5])},
        "flat": {**flat, "scaler": torch.ones(1), "schedule": torch.arange(3.0)},
        "tuple": {"w": torch.arange(2.0), "b": (torch.arange(3.0), 1), "x": (random.randbytes(4), torch.zeros(1))},
        "unflattened": {"model": model(1), "optimizers": [optimizer(3.0), optimizer(5.0, True)], "rng": (1, torch.arange(2))},
        "hole": {"model": model(1), "l": [slice(1), torch.ones(3), 5]},
        "keys": {"model": model(1), "by": {False: torch.ones(1), None: torch.ones(2), -0.5: torch.ones(3)}},
        "gaps": {"model": model(1), "cb": [{}, {"a": 1}, torch.ones(2)]},
        "fresh": {"model": model(1), "optim": {"state": {}, "param_groups": [{"lr": torch.tensor(0.5), "params": [0, 1]}]}},
        "groupless": {"model": model(1), "optimizer": {"state": {"a.bias": {"exp_avg": torch.arange(2.0)}}}},
    }


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else ROOT
    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(root)
    for name, saved in dicts().items():
        torch.save(saved, os.path.join(root, name + ".pt"))
        planner = DefaultSavePlanner(flatten_state_dict=name != "unflattened")
        dcp.save(saved, checkpoint_id=os.path.join(root, name), planner=planner, no_dist=True)


if __name__ == "__main__":
    main()
