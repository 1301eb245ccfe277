"""What a case of make_zero_errors.py is: the files of a small checkpoint, of which one change makes a broken one.

Two ranks have a model of two parameters: `a` of 3 elements, `b` of 2 x 2, and a frozen `c`.
"""
import os
from collections import OrderedDict

from zero_pickles import Fragment, Size, Stage, Tensor, save

TAG = "global_step1"


def model(stage):
    """What each rank's model file, or the one, says."""
    weights = OrderedDict(a=Tensor(3), b=Tensor(2, 2), c=Tensor(2))
    if stage == 3:
        weights = OrderedDict(a=Tensor(0), b=Tensor(0), c=Tensor(0))
    said = {"module": weights, "buffer_names": [], "param_shapes": [OrderedDict(a=Size(3), b=Size(2, 2))],
            "frozen_param_shapes": OrderedDict(c=Size(2)), "shared_params": {},
            "frozen_param_fragments": OrderedDict(c=Tensor(1) if stage == 3 else weights["c"]), "global_steps": 1,
            "ds_version": "0.19.8"}
    return said


def optimizer(stage, rank):
    """Stage 1: a is at 0 of rank 0, b at 3 of rank 0 and at 0 of rank 1. Stage 3: 2 elements of each on each rank."""
    n = 4
    state = {"state": {0: {"step": 1, "exp_avg": Tensor(n), "exp_avg_sq": Tensor(n)}},
             "param_groups": [{"lr": 0.1, "params": [0]}]}
    if stage == 3:
        inner = {"zero_stage": Stage(3), "partition_count": 2, "optimizer_state_dict": state,
                 "fp32_flat_groups": [Tensor(n)]}
    else:
        held = OrderedDict(a=Fragment(3, 0), b=Fragment(1, 3)) if rank == 0 else OrderedDict(b=Fragment(3, 0))
        inner = {"zero_stage": Stage(stage), "partition_count": [2], "base_optimizer_state": state,
                 "single_partition_of_fp32_groups": [Tensor(n)], "param_slice_mappings": [held]}
    return {"optimizer_state_dict": inner, "ds_version": "0.19.8"}


class Case:
    def __init__(self, stage):
        self.latest, self.latest_name, self.files = TAG, "latest", {}
        for rank in range(2):
            name = "zero_pp_rank_%d_mp_rank_00" % rank
            self.files[name + "_optim_states.pt"] = optimizer(stage, rank)
            if stage == 3:
                self.files[name + "_model_states.pt"] = model(3)
        if stage != 3:
            self.files["mp_rank_00_model_states.pt"] = model(stage)

    def model(self, rank=0):
        return self.files.get("mp_rank_00_model_states.pt") or self.files["zero_pp_rank_%d_mp_rank_00_model_states.pt" % rank]

    def rank(self, rank):
        return self.files["zero_pp_rank_%d_mp_rank_00_optim_states.pt" % rank]["optimizer_state_dict"]

    def write(self, folder):
        for name, value in self.files.items():
            save(os.path.join(folder, TAG, name), value)
        if self.latest is not None:
            with open(os.path.join(folder, self.latest_name), "w") as out:
                out.write(self.latest)


CASES = {}


def case(stage, name=None):
    def add(change):
        CASES[name or change.__name__.replace("_", "-")] = (stage, change)
        return change
    return add


def set_in(stage, name, pick, key, value):
    def change(c):
        pick(c)[key] = value
    case(stage, name)(change)


def drop(stage, name, *files):
    def change(c):
        for file in files:
            del c.files[file]
    case(stage, name)(change)


MODEL, RANK = (lambda c: c.model()), (lambda c: c.rank(0))
OTHER = lambda c: c.rank(1)
STATE = lambda c: c.rank(1)["base_optimizer_state"]["state"][0]
HELD = lambda c: c.rank(0)["param_slice_mappings"][0]
