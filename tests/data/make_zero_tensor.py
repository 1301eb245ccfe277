"""Writes tests/data/zero/tensor-<case>/: checkpoints of DeepSpeed with tensor-parallel ranks (AutoTP), and beside each
what it holds.

    python make_zero_tensor.py [FOLDER [CASE...]]    (deepspeed 0.19.8, torch 2.15.0, safetensors; gloo on the CPU)

Each <case>.safetensors holds the full tensors, gathered in the run that saved as make_zero.py does, and put together
from the ranks' slices by what this script asked for: never by what the checkpoint says of it.
"""
import os
import sys

from make_zero import ROOT, end, patch, step

# name: tensor-parallel ranks, data-parallel ranks, stage, precision, more of the configuration
CASES = {
    "tensor-stage0": (2, 1, 0, "fp32", {}),
    "tensor-stage1": (2, 2, 1, "fp32", {}),
    "tensor-bf16-optimizer": (2, 2, 1, "bf16", {"data_types": {"grad_accum_dtype": "fp32"}}),
    "tensor-stage2-fp16": (2, 2, 2, "fp16", {}),
    "tensor-stage2-bf16": (2, 2, 2, "bf16", {}),
    "tensor-stage3": (2, 2, 3, "bf16", {}),
    "tensor-mean": (3, 1, 1, "bf16", {}),
}

# Of which the patterns alone say how slices are put together, as in DeepSpeed before it wrote affine maps.
WITHOUT_MAPS = ("tensor-stage3", "tensor-stage1", "tensor-mean")

# Whose tensor-parallel ranks learn other labels each, so that what none of them cuts comes apart: it is averaged, and of
# parameters that are vocabularies so many rows are kept.
AVERAGED, VOCABULARY, N_ROWS = ("tensor-mean",), ("embed.weight", "up.weight"), 6

# Along which axis a parameter is cut; "qkv": each third of it along axis 0. Others are the same on all ranks.
CUTS = {"attn.qkv.weight": "qkv", "attn.qkv.bias": "qkv", "attn.proj.weight": 1, "up.weight": 0, "up.bias": 0,
        "down.weight": 1, "fixed.weight": 0, "fixed.bias": 0}


def model_of(torch):
    nn = torch.nn

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(6, 18)
            self.proj = nn.Linear(6, 6)

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            return self.proj(torch.tanh(q * k) + v)

    class Tiny(nn.Module):
        """Each kind of cut; rows that end in mid-rank; `fixed` is frozen, `scale` a buffer, `head` tied to `embed`."""

        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(7, 6)
            self.attn = Attention()
            self.norm = nn.LayerNorm(6)
            self.up = nn.Linear(6, 10)
            self.down = nn.Linear(10, 6)
            self.fixed = nn.Linear(6, 10)
            self.head = nn.Linear(6, 7, bias=False)
            self.head.weight = self.embed.weight
            self.register_buffer("scale", torch.tensor([0.5, 1.5]))
            for p in self.fixed.parameters():
                p.requires_grad = False

        def forward(self, ids):
            x = self.embed(ids)
            x = x + self.attn(self.norm(x))
            x = x + self.down(torch.tanh(self.up(x) + self.fixed(x))) * self.scale[0].to(x.dtype)
            return self.head(x)

    return Tiny()


def config_of(tensor, stage, precision, rest):
    specs = [{"patterns": [r".*\.qkv\.weight$"], "partition_type": "column", "shape": [3, -1], "partition_dim": 0},
             {"patterns": [r".*\.proj\.weight$", r".*down\.weight$"], "partition_type": "row"},
             {"patterns": [r".*up\.weight$", r".*fixed\.weight$"], "partition_type": "column"}]
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "steps_per_print": 1000000,
              "zero_optimization": {"stage": stage},
              "tensor_parallel": {"autotp_size": tensor,
                                  "partition_config": {"use_default_specs": False, "layer_specs": specs}}}
    if precision != "fp32":
        config[precision] = {"enabled": True}
    if precision == "fp16":
        config[precision]["initial_scale_power"] = 4
    return dict(config, **rest)


def put_together(torch, cut, slices):
    """The tensor that is cut so into these slices."""
    if cut is None:
        assert all(torch.equal(s, slices[0]) for s in slices)
        return slices[0]
    if cut == "qkv":
        return torch.cat([torch.cat(third) for third in zip(*(s.chunk(3) for s in slices))])
    return torch.cat(slices, cut)


def rules(torch, case):
    """What put_together makes of slices in a case, by what universal_checkpoint_info is made to say."""
    def put(name, slices):
        cut = CUTS.get(name)
        if case not in AVERAGED or cut is not None:
            value = put_together(torch, cut, slices)
        else:
            value = sum(s.float() for s in slices) / len(slices)
        return value[:N_ROWS] if case in AVERAGED and name in VOCABULARY else value
    return put


def say_averaged(info):
    """Replicated parameters as averaged ones, and vocabularies, in the words of Megatron-DeepSpeed."""
    info["parameter_to_average_patterns"] = info.pop("tp_replicated_parameter_patterns")
    info["vocabulary_parameter_patterns"] = ["^%s$" % name.replace(".", r"\.") for name in VOCABULARY]
    info["original_vocab_size"] = N_ROWS


def slices_of(dist, group, value):
    """What each rank of the group has, of any shape."""
    slices = [None] * dist.get_world_size(group)
    dist.all_gather_object(slices, value.detach().cpu().clone(), group=group)
    return slices


def fragment(torch, dist, engine, p, key, group):
    """A slice's master, or a state of it, from the fragments that the optimizers of data-parallel ranks work on."""
    optimizer, full = engine.optimizer, torch.zeros(p.numel())
    mapping = getattr(p, "_hp_mapping", None)
    if mapping is not None:
        to, at, number = mapping.lp_fragment_address, mapping.hp_fragment_address, mapping.param_group_index
        flats = getattr(optimizer, "single_partition_of_fp32_groups", None)
        flat = (optimizer.fp32_groups_flat_partition if flats is None else flats)[number]
        values = flat if key == "master" else optimizer.optimizer.state[flat][key]
        full[to.start:to.start + to.numel] = values.detach()[at.start:at.start + at.numel].float()
    dist.all_reduce(full, group=group)
    return full.reshape(p.shape)


def values_of(torch, dist, deepspeed, engine, stage, p, group):
    """Of a slice: what is called the parameter's name and what is of its states."""
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    keys = ("exp_avg", "exp_avg_sq")
    if stage == 3:
        with deepspeed.zero.GatheredParameters([p]):
            value = p.detach().clone()
        if not p.requires_grad:
            return value, {}
        return value, dict({key: safe_get_full_optimizer_state(p, key) for key in keys},
                           master=safe_get_full_fp32_param(p).float())
    if not p.requires_grad:
        return p, {}
    if stage == 0:
        return p, {key: engine.optimizer.state[p][key] for key in keys}
    return p, {key: fragment(torch, dist, engine, p, key, group) for key in keys + ("master",)}


def gathered(torch, dist, deepspeed, engine, stage, case):
    """Name -> full tensor, as ckpt is to call them."""
    put = rules(torch, case)
    from deepspeed.utils import groups
    tensor, data = groups.get_tensor_model_parallel_group(), groups._get_data_parallel_group()
    inner, tensors = getattr(engine.optimizer, "optimizer", engine.optimizer), {}
    n_apart = 0
    for name, p in engine.module.named_parameters():
        value, states = values_of(torch, dist, deepspeed, engine, stage, p, data)
        if case in AVERAGED and name not in CUTS:  # the model's own is what a run makes of its master
            slices = slices_of(dist, tensor, states["master"])
            n_apart += not torch.equal(slices[0], slices[1])
            tensors[name] = put(name, slices).to(value.dtype)
        else:
            tensors[name] = put(name, slices_of(dist, tensor, value))
        for key, state in states.items():
            tensors["optimizer.state.%s.%s" % (name, key)] = put(name, slices_of(dist, tensor, state))
        if p.requires_grad:
            tensors["optimizer.state.%s.step" % name] = next(iter(inner.state.values()))["step"].detach().clone()
    for name, b in engine.module.named_buffers():
        tensors[name] = b.detach().clone()
    assert case not in AVERAGED or n_apart > 2, "means of what is the same prove nothing"
    return tensors


def begin(rank, tensor, data, precision, port):
    """This process as a rank of a job."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(tensor * data), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    import deepspeed
    import torch
    torch.set_num_threads(1)
    patch(precision)
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # it would be compiled
    deepspeed.init_distributed("gloo")
    torch.manual_seed(1)
    return torch, torch.distributed, deepspeed


def engine_of(torch, deepspeed, model, config):
    """Two groups of parameters: with and without weight decay."""
    learned = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW([{"params": [p for p in learned if p.dim() > 1], "weight_decay": 0.1},
                                   {"params": [p for p in learned if p.dim() == 1], "weight_decay": 0.0}], lr=0.05)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def work(rank, root, case, port):
    tensor, data, stage, precision, rest = CASES[case]
    torch, dist, deepspeed = begin(rank, tensor, data, precision, port)
    from deepspeed.utils import groups
    model = model_of(torch)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    engine = engine_of(torch, deepspeed, model, config_of(tensor, stage, precision, rest))
    if stage < 3:  # what is put together is the model that was cut
        for name, p in engine.module.named_parameters():
            whole = put_together(torch, CUTS.get(name), slices_of(dist, groups.get_tensor_model_parallel_group(), p))
            assert torch.equal(whole, before[name].to(whole.dtype)), name
    for i in range(3):
        step(torch, engine, groups._get_data_parallel_rank(), i, rank if case in AVERAGED else 0)
    if case in WITHOUT_MAPS:
        del engine.module.universal_checkpoint_info["affine_map"]
    if case in AVERAGED:
        say_averaged(engine.module.universal_checkpoint_info)
    end(engine, os.path.join(root, case), gathered(torch, dist, deepspeed, engine, stage, case))


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else ROOT
    import shutil

    import deepspeed  # once for all
    import torch.multiprocessing as mp
    os.makedirs(root, exist_ok=True)
    for i, case in enumerate(sys.argv[2:] or CASES):
        shutil.rmtree(os.path.join(root, case), ignore_errors=True)
        mp.start_processes(work, args=(root, case, 29600 + os.getpid() % 300 + i),
                           nprocs=CASES[case][0] * CASES[case][1], start_method="fork")


if __name__ == "__main__":
    main()
