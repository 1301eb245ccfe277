"""What accelerate saves of FSDP2 on 2 processes, sharded: one checkpoint of model and optimizer, with the bits of the run.

Accelerator.save_state takes this way on a GPU only, so its two functions are called as it calls them.
"""
import os
import socket
import types
import warnings

import command

command.need("accelerate")
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402


def save(rank, folder, port):
    from accelerate import FullyShardedDataParallelPlugin
    from accelerate.utils.fsdp_utils import save_fsdp_model, save_fsdp_optimizer
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    from accelerate import PartialState
    PartialState(cpu=True)  # accelerate's logger asks for it
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2, bias=False))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type="SHARDED_STATE_DICT")
    accelerator = types.SimpleNamespace(process_index=rank, num_processes=2)
    save_fsdp_model(plugin, accelerator, model, folder)
    save_fsdp_optimizer(plugin, accelerator, optimizer, model, folder)
    whole, states = get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True))
    for parameter, state in states.get("state", {}).items():
        for leaf, value in state.items():
            whole["optimizer.state.%s.%s" % (parameter, leaf)] = value
    if rank == 0:
        torch.save({"last_epoch": 2}, os.path.join(folder, "scheduler.bin"))
        save_file({name: value.clone().contiguous() for name, value in whole.items()}, folder + ".safetensors")
    dist.barrier()
    dist.destroy_process_group()


def test_fsdp2(folder):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    folder = os.path.join(folder, "saved")
    mp.spawn(save, (folder, port), nprocs=2)
    assert {"pytorch_model_fsdp_0", "optimizer_0"} <= set(os.listdir(folder)), os.listdir(folder)
    command.ckpt("diff", "--include", "all", folder, folder + ".safetensors")
    command.ckpt("verify", folder)


if __name__ == "__main__":
    command.main(globals())
