"""Writes tests/data/zero/grid-<case>/: pipelines of DeepSpeed whose stages are tensor-parallel ranks, as those of
Megatron-DeepSpeed are, and beside each what it holds.

    python make_zero_grid.py [FOLDER [CASE...]]        (deepspeed 0.19.8, torch 2.15.0, safetensors; gloo on the CPU)

Each <case>.safetensors holds the full tensors of all stages, gathered in the run that saved and put together from the
ranks' slices by what this script asked for: never by what the checkpoint says of it.
"""
import os
import re
import shutil
import sys

import make_zero  # (sets what DeepSpeed goes by)
import make_zero_pipe
import make_zero_tensor
from make_zero_tensor import slices_of, values_of

# name: (pipeline stages, tensor-parallel ranks, data-parallel ranks), stage, precision, whether the embedding is tied,
# more of the configuration; "uneven": of a tensor that is put together of parts of several sizes
CASES = {
    "grid-stage0": ((2, 2, 1), 0, "fp32", False, {}),
    "grid-stage1": ((2, 2, 2), 1, "fp32", True, {}),
    "grid-stage1-fp16": ((2, 2, 1), 1, "fp16", True, {}),
    "grid-uneven": ((1, 2, 1), 1, "fp32", True, {}),
    "grid-bf16-optimizer": ((2, 2, 1), 1, "bf16", True, {"data_types": {"grad_accum_dtype": "fp32"}}),
}

WIDTH, INNER, WORDS = 6, 10, 7  # the vocabulary is padded to as many rows for each rank

PARTS = {False: (INNER, INNER), True: (12, 8)}  # of `up`, of one size or of several


def cuts_of(is_uneven):
    """Along which axis a parameter is cut, or each of its parts of some sizes; others are the same on all ranks."""
    parts = PARTS[is_uneven]
    return {r"tied_modules\.embed\.weight|[05]\.weight": 0, r"\d+\.up\.weight": (0, parts), r"\d+\.up\.bias": (0, parts),
            r"\d+\.down\.weight": (1, parts) if is_uneven else 1}


VOCABULARY = r"tied_modules\.embed\.weight", r"[05]\.weight"  # tied, and not


def info_of(is_tied, is_uneven):
    """What the pipeline's model says of itself, as that of Megatron-DeepSpeed does."""
    info = {"universal_checkpoint_version": 0.2, "original_vocab_size": WORDS,
            "vocabulary_parameter_patterns": [VOCABULARY[not is_tied]],
            "tp_replicated_parameter_patterns": [r"\d+\.down\.bias", r"\d+\.offset", r"4\.weight", r"4\.bias"],
            "parameter_with_row_parallelism_patterns": [r"\d+\.down\.weight"],
            "parameter_with_2_sub_params_cat_dim_0": [r"\d+\.up\.weight", r"\d+\.up\.bias"]}
    if is_uneven:
        del info["parameter_with_row_parallelism_patterns"], info["parameter_with_2_sub_params_cat_dim_0"]
        parts, shapes = PARTS[True], {r"\d+\.up\.weight": (PARTS[True], WIDTH), r"\d+\.up\.bias": (PARTS[True],),
                                      r"\d+\.down\.weight": (WIDTH, PARTS[True])}
        info["parameter_with_sub_params"] = [{"patterns": [name], "shape": shape, "partition_dim": shape.index(parts)}
                                             for name, shape in shapes.items()]
    return dict(info, pipeline_replicated_parameter_patterns=[VOCABULARY[0]]) if is_tied else info


def cut_of(name, is_uneven):
    return next((cut for pattern, cut in cuts_of(is_uneven).items() if re.fullmatch(pattern, name)), None)


def put_together(torch, cut, slices):
    """The tensor that is cut so into these slices."""
    if isinstance(cut, tuple):
        axis, sizes = cut
        parts = zip(*(s.split([n // len(slices) for n in sizes], axis) for s in slices))
        return torch.cat([torch.cat(part, axis) for part in parts], axis)
    return make_zero_tensor.put_together(torch, cut, slices)


def collectives(torch, dist):
    """To and from what the tensor-parallel ranks have: each is the other's backward."""
    class Spread(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, group):
            ctx.group = group
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            grad = grad.clone()
            dist.all_reduce(grad, group=ctx.group)
            return grad, None

    class Add(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, group):
            x = x.clone()
            dist.all_reduce(x, group=group)
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad, None

    return Spread.apply, Add.apply


def layers_of(torch, dist, tensor, rank, group, is_tied, is_uneven):
    from deepspeed.pipe import LayerSpec, TiedLayerSpec
    spread, add = collectives(torch, dist)
    nn, padded = torch.nn, -(-WORDS // tensor) * tensor

    def part(weight, cut):
        """The slice of this rank; all ranks draw the same whole."""
        if isinstance(cut, tuple):
            axis, sizes = cut
            weight = torch.cat([of.chunk(tensor, axis)[rank] for of in weight.split(sizes, axis)], axis)
        else:
            weight = weight.chunk(tensor, cut)[rank]
        slice = nn.Parameter(weight.detach().clone())
        slice.model_parallel = True  # norms go by it
        return slice

    class Embedding(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = part(torch.randn(padded, WIDTH) * 0.3, 0)

        def forward(self, ids):
            at = ids - rank * len(self.weight)
            is_mine = (at >= 0) & (at < len(self.weight))
            return add(self.weight[at.clamp(0, len(self.weight) - 1)] * is_mine.unsqueeze(-1).to(self.weight.dtype), group)

        def logits(self, x):
            full = nn.functional.pad(spread(x, group) @ self.weight.t(),
                                     (rank * len(self.weight), padded - (rank + 1) * len(self.weight)))
            return add(full, group)[..., :WORDS]

    class Linear(nn.Module):
        def __init__(self, n_in, n_out, cut, bias_cut):
            super().__init__()
            whole = nn.Linear(n_in, n_out)
            self.weight = part(whole.weight, cut)
            self.bias = whole.bias if bias_cut is None else part(whole.bias, bias_cut)

    class Block(nn.Module):
        """Two parts in one tensor; a row of `down` ends in mid-rank; `offset` is frozen, `scale` a buffer."""

        def __init__(self):
            super().__init__()
            parts = PARTS[is_uneven]
            self.up = Linear(WIDTH, sum(parts), (0, parts), (0, parts))
            self.down = Linear(sum(parts), WIDTH, (1, parts), None) if is_uneven else Linear(INNER, WIDTH, 1, None)
            self.parts = [n // tensor for n in parts]
            self.offset = nn.Parameter(torch.randn(WIDTH), requires_grad=False)
            self.register_buffer("scale", torch.tensor([0.5, 1.5]))

        def forward(self, x):
            a, b = nn.functional.linear(spread(x, group), self.up.weight, self.up.bias).split(self.parts, -1)
            y = torch.cat((torch.tanh(a), b), -1) if is_uneven else torch.tanh(a) * b
            y = add(y @ self.down.weight.t(), group) + self.down.bias
            return x + y * self.scale[0].to(x.dtype) + self.offset

    class Head(Embedding):
        def forward(self, x):
            return self.logits(x)

    first, last = LayerSpec(Embedding), LayerSpec(Head)
    if is_tied:
        first = TiedLayerSpec("embed", Embedding)
        last = TiedLayerSpec("embed", Embedding, forward_fn=lambda embed, x: embed.logits(x))
    return [first, LayerSpec(Block), torch.tanh, LayerSpec(Block), LayerSpec(nn.LayerNorm, WIDTH), last]


def engine_of(torch, dist, deepspeed, grid, config, is_tied, is_uneven):
    """A pipeline and its engine; a grid of one rank is a pipeline, too."""
    from deepspeed.pipe import PipelineModule
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology
    stages, tensor, data = grid
    topology = PipeModelDataParallelTopology(num_pp=stages, num_mp=tensor, num_dp=data)
    group = None
    for ranks in topology.get_axis_comm_lists("model") or [[rank] for rank in range(dist.get_world_size())]:
        made = dist.new_group(ranks)
        group = made if dist.get_rank() in ranks else group
    torch.manual_seed(1)
    layers = layers_of(torch, dist, tensor, topology.get_coord(dist.get_rank()).model, group, is_tied,
                       is_uneven)
    model = PipelineModule(layers, topology=topology, loss_fn=make_zero_pipe.loss_of(torch), partition_method="uniform",
                           seed_layers=True, base_seed=7)
    learned = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in learned if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in learned if p.dim() == 1], "weight_decay": 0.0}]
    return deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(groups, lr=0.05), config=config)[0]


def gathered(torch, dist, deepspeed, engine, stage, is_uneven):
    """Name -> full tensor, as ckpt is to call them."""
    tensor, data, tensors = engine.grid.get_slice_parallel_group(), engine.grid.get_data_parallel_group(), {}
    inner = getattr(engine.optimizer, "optimizer", engine.optimizer)
    for name, p in engine.module.named_parameters():
        value, states = values_of(torch, dist, deepspeed, engine, stage, p, data)
        for key, of in dict(states, **{"": value}).items():
            whole = put_together(torch, cut_of(name, is_uneven), slices_of(dist, tensor, of))
            whole = whole[:WORDS] if any(re.fullmatch(pattern, name) for pattern in VOCABULARY) else whole
            tensors["optimizer.state.%s.%s" % (name, key) if key else name] = whole.clone()
        if p.requires_grad:
            tensors["optimizer.state.%s.step" % name] = next(iter(inner.state.values()))["step"].detach().clone()
    for name, b in engine.module.named_buffers():
        tensors[name] = b.detach().clone()
    everything, merged = [None] * dist.get_world_size(), {}
    dist.all_gather_object(everything, tensors)
    for of_rank in everything:
        for name, value in of_rank.items():
            assert torch.equal(merged.setdefault(name, value), value), "copies of %s differ" % name
    return merged


def begin(rank, grid, precision, port):
    """This process as a rank of a job."""
    world = grid[0] * grid[1] * grid[2]
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    import deepspeed
    import torch
    torch.set_num_threads(1)
    make_zero.patch(precision)
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # it would be compiled
    deepspeed.init_distributed("gloo")
    return torch, torch.distributed, deepspeed


def config_of(stage, precision, rest):
    """Nothing is clipped: a norm depends on the partition."""
    return dict(make_zero.config_of(stage, precision, {}, dict({"gradient_clipping": 0.0}, **rest)),
                gradient_accumulation_steps=2)


def work(rank, root, case, port):
    grid, stage, precision, is_tied, rest = CASES[case]
    is_uneven = "uneven" in case
    torch, dist, deepspeed = begin(rank, grid, precision, port)
    from safetensors.torch import save_file
    engine = engine_of(torch, dist, deepspeed, grid, config_of(stage, precision, rest), is_tied, is_uneven)
    data = make_zero_pipe.batches(torch, engine.grid.get_data_parallel_rank())
    for _ in range(3):
        engine.train_batch(data)
    folder = os.path.join(root, case)
    engine.save_checkpoint(folder, client_state={"note": "kept as it is", "universal_checkpoint_info": info_of(is_tied, is_uneven)})
    tensors = gathered(torch, dist, deepspeed, engine, stage, is_uneven)
    if rank == 0:
        print(case, type(engine.optimizer).__name__, sorted(os.listdir(os.path.join(folder, "global_step3"))))
        for name in os.listdir(folder):
            if name.endswith(".py"):
                os.remove(os.path.join(folder, name))
        save_file({k: v.contiguous() for k, v in tensors.items()}, folder + ".safetensors")
    dist.barrier()
    dist.destroy_process_group()


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else make_zero.ROOT
    import deepspeed  # noqa: F401  (once for all)
    import torch.multiprocessing as mp
    os.makedirs(root, exist_ok=True)
    for i, case in enumerate(sys.argv[2:] or CASES):
        shutil.rmtree(os.path.join(root, case), ignore_errors=True)
        stages, tensor, data = CASES[case][0]
        mp.start_processes(work, args=(root, case, 29600 + os.getpid() % 300 + i), nprocs=stages * tensor * data,
                           start_method="fork")


if __name__ == "__main__":
    main()
