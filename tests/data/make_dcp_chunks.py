"""Writes a folder of torch.distributed.checkpoint of many chunks, to be opened, not read: its data files are holes.

    python make_dcp_chunks.py FOLDER N_TENSORS N_RANKS
"""
import os
import pickle
import sys

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta,
                                                   TensorProperties, TensorStorageMetadata)


def main():
    folder, n_tensors, n_ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rows, columns, length = 4, 16, 1577
    os.makedirs(folder)
    items, paths, places = {}, {}, {}
    for i in range(n_tensors):
        path = ("model", "layers.%d.mlp.experts.%d.gate_proj.weight" % (i // 64, i % 64))
        name = ".".join(path)
        chunks = [ChunkStorageMetadata(torch.Size((rows * r, 0)), torch.Size((rows, columns))) for r in range(n_ranks)]
        properties = TensorProperties(dtype=torch.bfloat16, strides=(columns, 1))
        items[name] = TensorStorageMetadata(properties, torch.Size((rows * n_ranks, columns)), chunks)
        paths[name] = path
    for r in range(n_ranks):  # as gathered: each rank's own texts
        file = "__%d_0.distcp" % r
        for i, name in enumerate(items):
            index = MetadataIndex((name + " ")[:-1], torch.Size((rows * r, 0)), r)
            places[index] = _StorageInfo(file, i * length, length)
        with open(os.path.join(folder, file), "wb") as data:
            data.truncate(n_tensors * length)
            data.write(b"PK\3\4")
    metadata = Metadata(items, paths, places, StorageMeta("folder", "id"), "1.0.0")
    with open(os.path.join(folder, ".metadata"), "wb") as out:
        pickle.dump(metadata, out)


if __name__ == "__main__":
    main()
