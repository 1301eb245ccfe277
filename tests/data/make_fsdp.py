"""Writes tests/data/trainer/fsdp<version>-full/: what accelerate gathers of FSDP on 2 processes, and beside each what the
run holds by the names that it has for it.

    python make_fsdp.py [FOLDER]        (accelerate 1.15.0, torch 2.15.0)

Accelerator.save_state takes this way on a GPU only, so its functions are called as it calls them.
"""
import os
import shutil
import socket
import sys
import types
import warnings

os.environ["CUDA_VISIBLE_DEVICES"] = ""
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trainer")
KINDS = {"full": "FULL_STATE_DICT", "sharded": "SHARDED_STATE_DICT"}


def wrap(model, version):
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    if version == 2:
        return fully_shard(model) or model
    return FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)


def model_of():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2, bias=False))


def loss_of(model):
    """All ranks see the same data: their mean is what one has."""
    return model(torch.ones(2, 3)).sum()


def step(model, optimizer):
    loss = loss_of(model)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def train(wrapped):
    """Two steps of the model that wrapped() makes of it."""
    model = wrapped(model_of())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(2):
        step(model, optimizer)
        scheduler.step()
    return model, optimizer, scheduler


def reference():
    """Every tensor of the run, as ckpt calls them: of one process without FSDP, which computes the same."""
    model, optimizer, _ = train(lambda model: model)
    return named(model.state_dict(), {name: optimizer.state[parameter] for name, parameter in model.named_parameters()})


def stored(folder):
    """The same as torch.load reads it. torch 2.15 gathers moments of FSDP1 on a CPU with exp_avg_sq in the place of exp_avg
    for all ranks but the first: such a folder holds what it holds."""
    states = torch.load(os.path.join(folder, "optimizer.bin"), weights_only=True)["state"]
    return named(torch.load(os.path.join(folder, "pytorch_model_fsdp.bin"), weights_only=True), states)


def named(model, states):
    tensors = dict(model)
    for name, state in states.items():
        tensors.update({"optimizer.state.%s.%s" % (name, leaf): value for leaf, value in state.items()})
    return {name: value.clone().contiguous() for name, value in tensors.items()}


def save(rank, folder, port, version, kind, n_behind=0):
    """The losses of so many steps more, at the learning rate that was saved."""
    from accelerate import FullyShardedDataParallelPlugin, PartialState
    from accelerate.checkpointing import save_accelerator_state
    from accelerate.utils.fsdp_utils import save_fsdp_model, save_fsdp_optimizer
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    PartialState(cpu=True)  # accelerate's logger asks for it
    model, optimizer, scheduler = train(lambda model: wrap(model, version))
    plugin = FullyShardedDataParallelPlugin(fsdp_version=version, state_dict_type=KINDS[kind])
    accelerator = types.SimpleNamespace(process_index=rank, num_processes=2)
    save_fsdp_model(plugin, accelerator, model, folder)
    save_fsdp_optimizer(plugin, accelerator, optimizer, model, folder)
    save_accelerator_state(folder, [], [], [scheduler], [], rank, 2)
    losses = [step(model, optimizer) for _ in range(n_behind)]
    dist.barrier()
    dist.destroy_process_group()
    return losses


def write(root, version, kind):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    folder = os.path.join(root, "fsdp%d-%s" % (version, kind))
    shutil.rmtree(folder, ignore_errors=True)
    mp.spawn(save, (folder, port, version, kind), nprocs=2)
    save_file(stored(folder) if (version, kind) == (1, "full") else reference(), folder + ".safetensors")
    return folder


def main():
    for version in 1, 2:
        folder = write(sys.argv[1] if len(sys.argv) > 1 else ROOT, version, "full")
        for rank in 0, 1:
            os.remove(os.path.join(folder, "random_states_%d.pkl" % rank))  # of the machine that ran it


if __name__ == "__main__":
    main()
