"""Writes tests/data/zero/moe-<case>/: checkpoints of DeepSpeed with experts (MoE), and beside each what it holds.

    python make_zero_moe.py [FOLDER [CASE...]]        (deepspeed 0.19.8, torch 2.15.0, safetensors; gloo on the CPU)

Each <case>.safetensors holds the full tensors of all ranks, gathered in the run that saved. Experts have the names that
a run with ep_size 1 gives them: each rank has its own under numbers from 0.
"""
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_zero  # noqa: E402  (sets what DeepSpeed goes by)

# name: world size, stage, precision, (experts, ep_size) of each layer, more of zero_optimization, of the configuration
CASES = {
    "moe-stage0": (2, 0, "fp32", ((4, 2), (2, 2)), {}, {}),
    "moe-stage1-bf16": (4, 1, "bf16", ((4, 2), (2, 1)), {}, {}),
    "moe-stage2": (2, 2, "fp32", ((4, 2), (2, 2)), {}, {}),
}
EXPERT = re.compile(r"(.*\.deepspeed_moe\.experts\.deepspeed_experts\.)([0-9]+)(\..*)")


def model_of(torch, layers):
    from deepspeed.moe.layer import MoE

    class Expert(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up = torch.nn.Linear(5, 3)
            self.down = torch.nn.Linear(3, 5, bias=False)
            self.register_buffer("scale", torch.tensor([0.5, 1.5, 2.5]))

        def forward(self, x):
            return self.down(torch.tanh(self.up(x)) * self.scale.to(x.dtype))

    class Tiny(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(7, 5)
            self.mix = torch.nn.ModuleList(MoE(5, Expert(), num_experts=n, ep_size=ep, k=1, capacity_factor=8.0, use_rts=False)
                                           for n, ep in layers)
            self.norm = torch.nn.LayerNorm(5)
            self.head = torch.nn.Linear(5, 7)

        def forward(self, ids):
            x = self.embed(ids)
            for layer in self.mix:
                x = x + layer(x)[0]
            return self.head(self.norm(x))

    return Tiny()


def engine_of(torch, deepspeed, layers, config):
    """A model whose experts begin with values of their own, and its engine; its groups are with and without decay."""
    from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer as split
    torch.manual_seed(1)
    model = model_of(torch, layers)
    rank, learned = int(os.environ["RANK"]), list(model.parameters())
    with torch.no_grad():
        for name, p in model.named_parameters():
            match = EXPERT.match(name)
            if match:
                n, ep = layers[int(name.split(".")[1])]
                torch.manual_seed(17 * (rank % ep * (n // ep) + int(match[2])) + p.dim())
                p.copy_(torch.randn(p.shape) / 3)
    groups = split([{"name": "decay", "params": [p for p in learned if p.dim() > 1], "weight_decay": 0.1},
                    {"name": "plain", "params": [p for p in learned if p.dim() == 1], "weight_decay": 0.0}])
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=0.05)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def whole_name(name, engine):
    """The name of what this rank has as `name`, with the number that an expert has among those of all ranks."""
    from deepspeed.utils import groups
    match = EXPERT.match(name)
    if not match:
        return name
    layer = engine.module.get_submodule(match[1].split(".deepspeed_moe.")[0])
    first = groups._get_expert_parallel_rank(layer.expert_group_name) * layer.num_local_experts
    return "%s%d%s" % (match[1], first + int(match[2]), match[3])


def parts(engine):
    """(name, shape, begin, values) of all that this rank has of weights, masters and states."""
    optimizer = engine.optimizer
    inner = getattr(optimizer, "optimizer", optimizer)
    for name, tensor in [*engine.module.named_parameters(), *engine.module.named_buffers()]:
        yield whole_name(name, engine), tensor.shape, 0, tensor.detach().clone()
    for local, p in engine.module.named_parameters():
        state, mapping = "optimizer.state.%s." % whole_name(local, engine), getattr(p, "_hp_mapping", None)
        if hasattr(optimizer, "single_partition_of_fp32_groups"):
            if mapping is None:
                continue
            to, at = mapping.lp_fragment_address, mapping.hp_fragment_address
            flat = optimizer.single_partition_of_fp32_groups[mapping.param_group_index]
            for key in ("master", "exp_avg", "exp_avg_sq"):
                values = flat if key == "master" else inner.state[flat][key]
                yield state + key, p.shape, to.start, values.detach()[at.start:at.start + at.numel].clone()
            yield state + "step", (), 0, inner.state[flat]["step"].clone()
            continue
        master = make_zero.master_of(optimizer, p)
        if master is not p:
            yield state + "master", p.shape, 0, master.detach().clone()
        for key in ("exp_avg", "exp_avg_sq", "step"):
            value = inner.state[master][key]
            yield state + key, value.shape, 0, value.detach().clone()


def gathered(torch, dist, engine):
    """Name -> full tensor, of what all ranks have."""
    everything = [None] * dist.get_world_size()
    dist.all_gather_object(everything, list(parts(engine)))
    tensors = {}
    for name, shape, begin, values in (part for of_rank in everything for part in of_rank):
        full = tensors.setdefault(name, torch.full(shape, 77, dtype=values.dtype))
        full.reshape(-1)[begin:begin + values.numel()] = values.reshape(-1)
    return tensors


def work(rank, root, case, port):
    world, stage, precision, layers, more, rest = CASES[case]
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    import deepspeed
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    engine = engine_of(torch, deepspeed, layers, make_zero.config_of(stage, precision, more, rest))
    for i in range(3):
        make_zero.step(torch, engine, rank, i)
    make_zero.end(engine, os.path.join(root, case), gathered(torch, dist, engine))


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else make_zero.ROOT
    import torch.multiprocessing as mp
    os.environ["PYTHONHASHSEED"] = "0"  # groups of several ep_size are in the order of a set: the same on all ranks, or they hang
    os.makedirs(root, exist_ok=True)
    for i, case in enumerate(sys.argv[2:] or CASES):
        shutil.rmtree(os.path.join(root, case), ignore_errors=True)
        mp.spawn(work, args=(root, case, 29600 + os.getpid() % 300 + i), nprocs=CASES[case][0])


if __name__ == "__main__":
    main()
