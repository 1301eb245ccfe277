"""Writes tests/data/dcpv2/<case>/: checkpoints of torch_checkpointing ("DCPv2"), and beside each what it holds.

    python make_dcpv2.py [FOLDER]        (torch 2.15.0, torch-checkpointing 0.1.1, safetensors)

Each <case>.safetensors holds the full tensors, gathered in the run that wrote the checkpoint, under the names that ckpt
gives them. <case>-1.0.pkl is the same metadata in the form of version 1.0, which nothing writes any more: made of what is
there, and read by torch_checkpointing as the same.
"""
import json
import os
import pickle
import shutil
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch_checkpointing import CheckpointManager, DefaultMetadataManager, ItemSpec
from torch_checkpointing.checkpoint_layout import JsonSerialization, LayoutInfo, SafetensorsSerialization
from torch_checkpointing.config import SyncCheckpointSaverConfig
from torch_checkpointing.default_resharder import DefaultResharder
from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig

DefaultMetadataManager._all_gather_pickled_data = lambda self, data, process_group=None: gather(data)

ROOT = os.environ.get("DCPV2_ROOT") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "dcpv2")


def full(value):
    value = value.full_tensor() if isinstance(value, DTensor) else value
    return value.detach().clone().contiguous()


def gather(data):
    """Of DefaultMetadataManager, which asks for a GPU: without one."""
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, data)
    return dict(enumerate(values))


def save(case, items, tensors, **specs):
    specs = {name: specs.get(name, ItemSpec(resharder=DefaultResharder())) for name in items}
    manager = CheckpointManager.Config(save=SyncCheckpointSaverConfig(), items=specs,
                                       storage_config=LocalFileSystemStorageConfig(use_direct_io=False)).build()
    manager.save(os.path.join(ROOT, case), items)
    manager.close()
    dist.barrier()
    if dist.get_rank() == 0:
        save_file(tensors, os.path.join(ROOT, case + ".safetensors"))


def fsdp(case):
    """FSDP2 after two steps of AdamW, with a counter that the metadata does not place, and a file of JSON."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2, bias=False))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    weights, states = get_state_dict(model, optimizer)
    tensors = {name: full(value) for name, value in weights.items()}
    for parameter, state in states["state"].items():
        for leaf, value in state.items():
            tensors["optimizer.state.%s.%s" % (parameter, leaf)] = full(value)
    save(case, {"model": weights, "optimizer": states, "step": 2, "config": {"width": 5}}, tensors, step=ItemSpec(),
         config=ItemSpec(layout=LayoutInfo("config_{rank}.json", JsonSerialization())))


def placed():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    whole = {"rows": torch.arange(21.0).reshape(7, 3), "columns": torch.arange(30, dtype=torch.int32).reshape(6, 5),
             "both": torch.arange(35.0).reshape(7, 5).bfloat16(), "twice": torch.arange(14.0).reshape(7, 2),
             "same": torch.arange(3.0), "one": torch.tensor(3.5)}
    how = {"rows": [Shard(0), Replicate()], "columns": [Replicate(), Shard(1)], "both": [Shard(0), Shard(1)],
           "twice": [Shard(0), Shard(0)], "same": [Replicate(), Replicate()], "one": [Replicate(), Replicate()]}
    state = {"layer.%s" % name: distribute_tensor(value, mesh, how[name]) for name, value in whole.items()}
    state["layer.plain"] = whole["plain"] = torch.arange(6.0).reshape(2, 3).t()
    return state, {"layer.%s" % name: full(value) for name, value in whole.items()}


def mesh(case):
    """A mesh of 2 x 2, all placements, uneven; a layer whose weight has no contiguous memory."""
    state, tensors = placed()
    save(case, {"model": state}, tensors)


def safetensors(case):
    """The same, saved as safetensors, in folders of ranks."""
    layout = LayoutInfo("rank_{rank}/model.safetensors", SafetensorsSerialization())
    state, tensors = placed()
    save(case, {"model": state}, tensors, model=ItemSpec(resharder=DefaultResharder(), layout=layout))


def parallel(case):
    """FSDP2 over tensor parallelism: strided shards."""
    torch.manual_seed(2)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4, bias=False))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    weights = model.state_dict()
    save(case, {"model": weights}, {name: full(value) for name, value in weights.items()})


CASES = {"fsdp": (2, fsdp), "mesh": (4, mesh), "safetensors": (4, safetensors), "parallel": (4, parallel)}


def run(rank, case):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(CASES[case][0]), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT="29577")
    dist.init_process_group("gloo", rank=rank, world_size=CASES[case][0])
    CASES[case][1](case)
    dist.destroy_process_group()


def older(case):
    from torch_checkpointing.distributed_metadata import DistributedMetadata
    with open(os.path.join(ROOT, case, "metadata.pkl"), "rb") as file:
        newer = pickle.load(file)
    items = newer["metadata"]
    made = {"metadata": {json.dumps([key, *json.loads(path)], separators=(",", ":")): groups
                         for key, item in items.items()
                         for path, groups in item["nested_path_to_metadata"].items()},
            "rank_to_layout_info_mappings": {rank: {key: item["rank_to_layout_info"][rank]
                                                    for key, item in items.items()}
                                             for rank in range(newer["world_size"])},
            "world_size": newer["world_size"], "version": "1.0"}
    assert DistributedMetadata.from_dict(made) == DistributedMetadata.from_dict(newer)
    with open(os.path.join(ROOT, case + "-1.0.pkl"), "wb") as file:
        pickle.dump(made, file)


def main():
    global ROOT
    if len(sys.argv) > 1:
        ROOT = os.path.abspath(sys.argv[1])
    os.environ["DCPV2_ROOT"] = ROOT  # for the ranks
    shutil.rmtree(ROOT, ignore_errors=True)
    os.makedirs(ROOT)
    for case in CASES:
        mp.spawn(run, (case,), nprocs=CASES[case][0])
    for case in ("fsdp", "safetensors"):
        older(case)


if __name__ == "__main__":
    main()
