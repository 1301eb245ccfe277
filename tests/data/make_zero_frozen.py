"""Writes tests/data/zero/frozen-<case>/: checkpoints of DeepSpeed whose frozen parameter has two names, and beside each
what it holds.

    python make_zero_frozen.py [FOLDER [CASE...]]     (deepspeed 0.19.8, torch 2.15.0, safetensors; gloo on the CPU)

As of LoRA on a model that ties its embedding. With exclude_frozen_parameters, which the Trainer of Hugging Face says for
PEFT, DeepSpeed takes the first name out of what it saves and leaves the other there.
"""
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_zero  # noqa: E402  (sets what DeepSpeed goes by)

# name: world size, stage, precision, whether frozen parameters are left out
CASES = {
    "frozen-ties": (2, 3, "bf16", False),
    "frozen-left-over": (2, 3, "bf16", True),
    "frozen-left-over-stage2": (2, 2, "bf16", True),
}


def model_of(torch):
    class Tiny(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Embedding(7, 5)
            self.learned = torch.nn.Linear(5, 5)
            self.again = torch.nn.Linear(5, 7, bias=False)
            self.again.weight = self.first.weight
            self.first.weight.requires_grad = False

        def forward(self, ids):
            return self.again(self.learned(self.first(ids)))

    return Tiny()


def engine_of(torch, deepspeed, stage, precision, rest):
    torch.manual_seed(1)
    model = model_of(torch)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
    more = {"memory_efficient_linear": False}
    return deepspeed.initialize(model=model, optimizer=optimizer,
                                config=make_zero.config_of(stage, precision, more, rest))[0]


def work(rank, root, case, port):
    world, stage, precision, is_left_out = CASES[case]
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    import deepspeed
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    engine = engine_of(torch, deepspeed, stage, precision, {})
    for i in range(3):
        make_zero.step(torch, engine, rank, i)
    tensors = make_zero.gathered(torch, dist, deepspeed, engine, stage)
    del tensors["table"]
    value = tensors.pop("first.weight")
    if not is_left_out:
        tensors["again.weight"] = value  # the name of both that comes first
    make_zero.end(engine, os.path.join(root, case), tensors, exclude_frozen_parameters=is_left_out)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else make_zero.ROOT
    import torch.multiprocessing as mp
    os.makedirs(root, exist_ok=True)
    for i, case in enumerate(sys.argv[2:] or CASES):
        shutil.rmtree(os.path.join(root, case), ignore_errors=True)
        mp.spawn(work, args=(root, case, 29700 + os.getpid() % 300 + i), nprocs=CASES[case][0])


if __name__ == "__main__":
    main()
