"""Writes tests/data/zero/muon-<case>/: checkpoints of DeepSpeed's Muon, and beside each what it holds.

    python make_zero_muon.py [FOLDER [CASE...]]        (deepspeed 0.19.8, torch 2.15.0, safetensors; gloo on the CPU)

Matrices but the embedding are Muon's, which keeps one momentum of them; all else is Adam's, in a group of its own with
other states. In stages 1 and 2 the momentum is of whole parameters, some of which two ranks have.
"""
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_zero  # noqa: E402  (sets what DeepSpeed goes by)

# name: world size, stage, more of zero_optimization
CASES = {
    "muon-stage1": (3, 1, {}),
    "muon-stage2-offload": (2, 2, {"offload_optimizer": {"device": "cpu"}}),
    "muon-stage3": (2, 3, {}),
}


def engine_of(torch, deepspeed, stage, more, rest):
    torch.manual_seed(1)
    model = make_zero.model_of(torch)
    for name, p in model.named_parameters():
        p.requires_grad = True
        p.use_muon = p.dim() == 2 and "embed" not in name
    optimizer = {"type": "Muon", "params": {"lr": 0.01, "momentum": 0.9, "adam_lr": 0.01, "muon_lr": 0.02}}
    more = dict({"reduce_scatter": False} if stage == 3 else {}, **more)  # which Muon asks for
    config = make_zero.config_of(stage, "fp32", more, dict({"gradient_clipping": 0.0, "optimizer": optimizer}, **rest))
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


def momenta_of(torch, dist, engine):
    """Of stages 1 and 2, by parameter: what each rank has of it, whole or as its partition is."""
    optimizer, found = engine.optimizer, {}
    flat = optimizer.single_partition_of_fp32_groups[0]
    held, at = optimizer.optimizer.state[flat]["momentum_buffer"], 0
    if optimizer.cpu_offload:
        return {p: make_zero.fragment(torch, dist, engine, p, "momentum_buffer") for p in optimizer.bit16_groups[0]}
    for p in optimizer.params_in_partition[0]:
        found[p] = held[at:at + p.numel()].reshape(p.shape).clone()
        at += p.numel()
    assert at == held.numel(), "the momentum is of something else"
    everything, names = [None] * dist.get_world_size(), {p: name for name, p in engine.module.named_parameters()}
    dist.all_gather_object(everything, {names[p]: value for p, value in found.items()})
    merged = {}
    for of_rank in everything:
        for name, value in of_rank.items():
            assert torch.equal(merged.setdefault(name, value), value), "copies of %s differ" % name
    return {p: merged[name] for p, name in names.items() if name in merged}


def gathered(torch, dist, deepspeed, engine, stage):
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    tensors, momenta = {}, {} if stage == 3 else momenta_of(torch, dist, engine)
    of_adam = next(state for state in engine.optimizer.optimizer.state.values() if "exp_avg" in state)
    for name, p in engine.module.named_parameters():
        keys = {"momentum_buffer": "momentum"} if p.use_muon else {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}
        if not p.use_muon:
            tensors["optimizer.state.%s.step" % name] = make_zero.step_of(torch, of_adam)
        for key, ours in keys.items():
            if stage == 3:
                value = safe_get_full_optimizer_state(p, key)
            else:
                value = momenta[p] if p.use_muon else make_zero.fragment(torch, dist, engine, p, key)
            tensors["optimizer.state.%s.%s" % (name, ours)] = value.detach().clone()
        if stage == 3:
            with deepspeed.zero.GatheredParameters([p]):
                tensors[name] = p.detach().clone()
            tensors["optimizer.state.%s.master" % name] = safe_get_full_fp32_param(p).detach().clone()
        else:
            tensors[name] = p.detach().clone()
            tensors["optimizer.state.%s.master" % name] = make_zero.fragment(torch, dist, engine, p, "master")
    tensors.update({name: b.detach().clone() for name, b in engine.module.named_buffers()})
    return tensors


def work(rank, root, case, port):
    world, stage, more = CASES[case]
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    import deepspeed
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    engine = engine_of(torch, deepspeed, stage, more, {})
    for i in range(3):
        make_zero.step(torch, engine, rank, i)
    make_zero.end(engine, os.path.join(root, case), gathered(torch, dist, deepspeed, engine, stage))


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else make_zero.ROOT
    import torch.multiprocessing as mp
    os.makedirs(root, exist_ok=True)
    for i, case in enumerate(sys.argv[2:] or CASES):
        shutil.rmtree(os.path.join(root, case), ignore_errors=True)
        mp.spawn(work, args=(root, case, 29700 + os.getpid() % 300 + i), nprocs=CASES[case][0])


if __name__ == "__main__":
    main()
