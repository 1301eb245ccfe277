"""Writes tests/data/dcp/rank-*: saves without collectives, in which ranks have their own values under one name.

    python make_dcp_local.py [FOLDER]        (torch 2.15.0, safetensors, zstandard)

rank-local         three ranks: tensors of which all are equal, or rank 1's is another, or each rank's; a DTensor in parts
rank-local-zstd    the same with compressed items, whose checksums stand behind them
rank-equal         two ranks with the same values everywhere
rank-drift         four ranks, a DTensor of two replicas of two parts: a part of the second replica has drifted

Beside rank-local and rank-equal stands what they hold, under the names that ckpt gives it.
"""
import os
import shutil
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import save_file
from torch.distributed.checkpoint._extension import ZStandard
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dcp")


def save(state, case):
    extensions = [ZStandard()] if case.endswith("zstd") else None
    writer = FileSystemWriter(case, _extensions=extensions)
    dcp.save(state, storage_writer=writer, use_collectives=False)


def local(case):
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (dist.get_world_size(),))
    seen = [torch.arange(6, dtype=torch.int32), torch.arange(6, dtype=torch.int32) + 10]
    whole = {"w": torch.arange(12.0).reshape(3, 4), "b": torch.arange(4).bfloat16()}
    state = {"model": {"w": whole["w"], "b": distribute_tensor(whole["b"], mesh, [Shard(0)])},
             "data": {"seen": seen[rank == 1], "position": torch.tensor([rank, 7])}, "cursor": rank}
    save(state, case)
    if rank == 0 and case == "rank-local":
        positions = {"data.position" + ("@%d" % r if r else ""): torch.tensor([r, 7]) for r in range(3)}
        save_file(dict(whole, **positions, **{"data.seen": seen[0], "data.seen@1": seen[1]}), case + ".safetensors")


def equal(case):
    state = {"w": torch.arange(12.0).reshape(3, 4), "b": torch.arange(4).bfloat16(), "none": torch.empty(0, 3)}
    save(state, case)
    if dist.get_rank() == 0:
        save_file(state, case + ".safetensors")


def drift(case):
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "shard"))
    value = distribute_tensor(torch.arange(12.0).reshape(4, 3), grid, [Replicate(), Shard(0)])
    moved = value.to_local() + (dist.get_rank() == 3)
    save({"w": DTensor.from_local(moved, grid, [Replicate(), Shard(0)], run_check=False)}, case)


def worker(rank, world, port, function, case):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    globals()[function](case)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # gloo's threads may abort what ends in the usual way


def main():
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else ROOT)  # what stands in StorageMeta is then no path of this machine
    for port, world, function, case in ((29631, 3, "local", "rank-local"), (29632, 3, "local", "rank-local-zstd"),
                                        (29633, 2, "equal", "rank-equal"), (29634, 4, "drift", "rank-drift")):
        print(case, flush=True)
        shutil.rmtree(case, ignore_errors=True)
        mp.spawn(worker, (world, port, function, case), nprocs=world)
    shutil.rmtree("../../golden-errors/dcp/rank-drift", ignore_errors=True)
    shutil.move("rank-drift", "../../golden-errors/dcp/rank-drift")  # it is refused


if __name__ == "__main__":
    main()
