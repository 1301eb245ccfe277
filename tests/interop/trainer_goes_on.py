"""DeepSpeed goes on from what was made of a Trainer's checkpoint: ranks that load it, and say what they hold.

    python trainer_goes_on.py FOLDER STAGE WORLD OUT      (FOLDER: of `reshard --to zero`)

Writes every parameter, its master, moments and step by name to OUT, a safetensors file.
"""
import os
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data"))
import make_zero  # noqa: E402  (sets what DeepSpeed goes by)
import make_trainer  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

def groups_of(model):
    """The Trainer's: what decays first."""
    learned = list(model.parameters())
    return [{"params": [p for p in learned if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in learned if p.dim() == 1], "weight_decay": 0.0}]


def work(rank, folder, stage, world, out, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    import deepspeed
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    torch.manual_seed(5)
    model = make_trainer.llama()
    config = make_zero.config_of(stage, "fp32", {}, {"gradient_clipping": 0.0, "train_micro_batch_size_per_gpu": 1})
    config.pop("scheduler")
    optimizer = torch.optim.AdamW(groups_of(model), lr=0.01)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    path, _ = engine.load_checkpoint(folder)
    assert path is not None and engine.global_steps == 2, (path, engine.global_steps)
    tensors = make_zero.gathered(torch, dist, deepspeed, engine, stage)
    tensors = {name: value for name, value in tensors.items() if name != "table" and "inv_freq" not in name}
    if rank == 0:
        save_file({name: value.contiguous() for name, value in tensors.items()}, out)


def main():
    folder, stage, world, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(work, (folder, stage, world, out, port), nprocs=world)


if __name__ == "__main__":
    main()
