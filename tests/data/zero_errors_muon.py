"""Cases of make_zero_errors.py whose groups have states of their own, as those of DeepSpeed's Muon have.

Of group 0, `b`, two elements are on each rank, and the momentum is of all four. Group 1, `a`, is Adam's.
"""
from collections import OrderedDict

from zero_errors import case
from zero_pickles import Fragment, Size, Tensor


def optimizer(rank):
    n = 2 - rank
    states = {0: {"momentum_buffer": Tensor(4)}, 1: {"step": 1, "exp_avg": Tensor(2), "exp_avg_sq": Tensor(2)}}
    groups = [{"lr": 0.1, "use_muon": True, "params": [0]}, {"lr": 0.1, "use_muon": False, "params": [1]}]
    return {"partition_count": [2, 2], "base_optimizer_state": {"state": states, "param_groups": groups},
            "single_partition_of_fp32_groups": [Tensor(2), Tensor(n)],
            "param_slice_mappings": [OrderedDict(b=Fragment(2, 0)), OrderedDict(a=Fragment(n, 0))]}


def muon(name, change=lambda states, rank: None):
    def made(c):
        c.model()["param_shapes"] = [OrderedDict(b=Size(2, 2)), OrderedDict(a=Size(3))]
        for rank in range(2):
            c.rank(rank).update(optimizer(rank))
            change(c.rank(rank)["base_optimizer_state"]["state"], rank)
    case(1, name)(made)


def momentum(n):
    return lambda states, rank: states[0].update(momentum_buffer=Tensor(n))


muon("noted-muon")
muon("noted-muon-of-parts", momentum(2))
muon("muon-off", momentum(500))
muon("muon-short", momentum(1))
muon("muon-with-adam", lambda states, rank: states[0].update(exp_avg=Tensor(2)))
muon("kind-lacks-a-state", lambda states, rank: rank == 0 or states[1].pop("exp_avg_sq"))
muon("kind-of-no-states", lambda states, rank: states[0].pop("momentum_buffer"))
muon("kind-with-another", lambda states, rank: states.update({0: {"exp_avg": Tensor(2)}}))
