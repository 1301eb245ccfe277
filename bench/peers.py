"""What bench/run needs of PyTorch: checkpoints that it wrote, and its own consolidation, timed without imports.

    python peers.py save FOLDER N_RANKS AXIS < LIST     a DCP folder; LIST: lines "name rows columns", f32; cut along AXIS
    python peers.py torch FILE < LIST                   the same as one torch.save file
    python peers.py consolidate FOLDER FILE             dcp_to_torch_save: prints seconds and peak resident bytes
"""
import resource
import sys
import time

import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, MetadataIndex, TensorProperties)
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.default_planner import create_default_global_save_plan


def tensors():
    """Values as of a model: small, and no two tensors alike."""
    generator = torch.Generator().manual_seed(1)
    block = torch.randn(1 << 22, generator=generator) / 64
    for line in sys.stdin:
        name, rows, columns = line.split()
        n = int(rows) * int(columns)
        yield name, block.roll(len(name)).repeat(-(-n // block.numel()))[:n].reshape(int(rows), int(columns))


class Rank:
    """The planner of one rank: hands out what it holds."""

    def __init__(self, local):
        self.local = local

    def resolve_data(self, item):
        return self.local[item.index.fqn].detach()


def save(folder, n_ranks, axis):
    """As n_ranks processes with DTensors of Shard(axis) leave it, one after another."""
    plans, ranks = [[] for _ in range(n_ranks)], [{} for _ in range(n_ranks)]
    for name, whole in tensors():
        start = 0
        for rank, part in enumerate(whole.chunk(n_ranks, axis)):
            offsets = [0, 0]
            offsets[axis] = start
            start += part.shape[axis]
            data = TensorWriteData(ChunkStorageMetadata(torch.Size(offsets), part.shape),
                                   TensorProperties(dtype=whole.dtype), whole.shape)
            plans[rank].append(WriteItem(MetadataIndex("model." + name, torch.Size(offsets)), WriteItemType.SHARD, tensor_data=data))
            ranks[rank]["model." + name] = part.contiguous()
    plans, metadata = create_default_global_save_plan([SavePlan(items) for items in plans])
    results = []
    for rank, plan in enumerate(plans):
        writer = FileSystemWriter(folder, sync_files=False)
        writer.set_up_storage_writer(is_coordinator=rank == 0)
        plan = writer.prepare_local_plan(plan)
        plan = writer.prepare_global_plan([SavePlan([])] * rank + [plan])[rank]
        results.append(writer.write_data(plan, Rank(ranks[rank])).wait())
        ranks[rank] = None
        if rank == n_ranks - 1:
            writer.finish(metadata, results)


def consolidate(folder, path):
    start = time.monotonic()
    dcp_to_torch_save(folder, path)
    print(time.monotonic() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def main(job, *arguments):
    if job == "save":
        save(arguments[0], int(arguments[1]), int(arguments[2]))
    elif job == "torch":
        torch.save(dict(tensors()), arguments[0])
    elif job == "consolidate":
        consolidate(*arguments)
    else:
        sys.exit(f"peers.py: no job '{job}'")


if __name__ == "__main__":
    main(*sys.argv[1:])
