"""Writes tests/data/zero/pipe-<case>/: checkpoints of DeepSpeed's pipelines, and beside each what it holds.

    python make_zero_pipe.py [FOLDER [CASE...]]        (deepspeed 0.19.8, torch 2.15.0, safetensors; gloo on the CPU)

Each <case>.safetensors holds the full tensors of all stages, gathered in the run that saved, under the names that the
state_dict() of a pipeline of one stage has.
"""
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_zero  # noqa: E402  (sets what DeepSpeed goes by)
import make_zero_moe  # noqa: E402

# name: world size, pipeline stages, stage of ZeRO, precision, whether a layer is tied, more of the configuration
CASES = {
    "pipe-stage0": (2, 2, 0, "fp32", False, {}),
    "pipe-stage1": (4, 2, 1, "fp32", True, {}),
    "pipe-stage1-bf16": (4, 2, 1, "bf16", True, {}),
}


def layers_of(torch, is_tied):
    from deepspeed.pipe import LayerSpec, TiedLayerSpec

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up = torch.nn.Linear(5, 3)
            self.down = torch.nn.Linear(3, 5, bias=False)
            self.register_buffer("scale", torch.tensor([0.5, 1.5, 2.5]))

        def forward(self, x):
            return x + self.down(torch.tanh(self.up(x)) * self.scale.to(x.dtype))

    if is_tied:
        first = TiedLayerSpec("embed", torch.nn.Embedding, 7, 5)
        last = TiedLayerSpec("embed", torch.nn.Embedding, 7, 5, forward_fn=lambda embed, x: x @ embed.weight.t())
    else:
        first, last = LayerSpec(torch.nn.Embedding, 7, 5), LayerSpec(torch.nn.Linear, 5, 7)
    return [first, LayerSpec(Block), torch.tanh, LayerSpec(Block), LayerSpec(torch.nn.LayerNorm, 5), last]


def loss_of(torch):
    return lambda logits, labels: torch.nn.functional.cross_entropy(logits.float().reshape(-1, 7), labels.reshape(-1))


def batches(torch, rank):
    for i in range(1000):
        torch.manual_seed(100 * i + rank)
        yield torch.randint(0, 7, (2, 4)), torch.randint(0, 7, (2, 4))


def engine_of(torch, deepspeed, n_stages, config, is_tied):
    """A pipeline and its engine; of 0 stages a model with the same names that is none."""
    from deepspeed.pipe import LayerSpec, PipelineModule
    torch.manual_seed(1)
    layers = layers_of(torch, is_tied)
    if n_stages == 0:
        model = torch.nn.Sequential(*[layer.build() if isinstance(layer, LayerSpec) else torch.nn.Tanh() for layer in layers])
    else:
        model = PipelineModule(layers, num_stages=n_stages, loss_fn=loss_of(torch), partition_method="uniform")
    learned = list(model.parameters())
    groups = [{"params": [p for p in learned if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in learned if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.05)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def work(rank, root, case, port):
    world, n_stages, stage, precision, is_tied, rest = CASES[case]
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    import deepspeed
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    config = dict(make_zero.config_of(stage, precision, {}, rest), gradient_accumulation_steps=2)
    engine = engine_of(torch, deepspeed, n_stages, config, is_tied)
    data = batches(torch, engine.grid.get_data_parallel_rank())
    for _ in range(3):
        engine.train_batch(data)
    make_zero.end(engine, os.path.join(root, case), make_zero_moe.gathered(torch, dist, engine))


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else make_zero.ROOT
    import torch.multiprocessing as mp
    os.makedirs(root, exist_ok=True)
    for i, case in enumerate(sys.argv[2:] or CASES):
        shutil.rmtree(os.path.join(root, case), ignore_errors=True)
        mp.spawn(work, args=(root, case, 29600 + os.getpid() % 300 + i), nprocs=CASES[case][0])


if __name__ == "__main__":
    main()
