"""Writes tests/golden-errors/dcpv2/<case>/: folders of torch_checkpointing ("DCPv2"), each with one defect.

    python3.11 make_dcpv2_errors.py [FOLDER]

The metadata is a pickle of plain dicts, and the ranks' files are safetensors: nothing but Python is needed.
"""
import json
import os
import pickle
import shutil
import struct
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden-errors", "dcpv2")


def safetensors(name, shape, dtype="F32"):
    n_bytes = 4
    for axis in shape:
        n_bytes *= axis
    header = json.dumps({name: {"dtype": dtype, "shape": shape, "data_offsets": [0, n_bytes]}}).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + bytes(n_bytes)


class Checkpoint:
    """Tensor w of (4, 3), a half of its rows on each of two ranks; a case damages it."""

    def __init__(self):
        self.files = {"rank_%d/m.safetensors" % rank: safetensors("w", [2, 3]) for rank in range(2)}
        self.data = {"global_shape": [4, 3], "dtype": "torch.float32", "stride": [3, 1],
                     "mesh_spec": {"device_type": "cpu", "mesh_shape": (2,), "mesh_data": (0, 1),
                                   "mesh_dim_names": None},
                     "placements": [{"type": "Shard", "dim": 0}]}
        self.sharding = {"type": "DTensorShardingMetadata", "data": self.data}
        self.group = {"sharding_metadata": self.sharding, "ranks": (0, 1)}
        self.paths = {'["w"]': [self.group]}
        self.ranks = {rank: {"file_path": "rank_%d/m.safetensors" % rank,
                             "serialization_format": {"type": "SafetensorsSerialization"}} for rank in range(2)}
        self.item = {"nested_path_to_metadata": self.paths, "rank_to_layout_info": self.ranks}
        self.root = {"metadata": {"model": self.item}, "version": "2.0", "world_size": 2}
        self.edit = lambda text: text

    def write(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        for name, content in {**self.files, "metadata.pkl": self.edit(pickle.dumps(self.root, 4))}.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as out:
                out.write(content)

    def stated(self, starts, sizes, within):
        """Boxes that the metadata states, the same for both ranks, instead of placements."""
        self.sharding["type"] = "default_tensor_v1"
        self.data.update(global_offsets=starts, local_sizes=sizes, local_offsets=within)


def older(c, ranks=None, paths=None):
    """The same as version 1.0 has it."""
    c.root = {"metadata": paths or {'["model", "w"]': [c.group]},
              "rank_to_layout_info_mappings": ranks or {rank: {"model": c.ranks[rank]} for rank in range(2)}}


def no_file(c, rank=1):
    del c.files["rank_%d/m.safetensors" % rank]


def share(c):
    """Many items of one dict of many ranks."""
    ranks = dict.fromkeys(range(200))
    c.root["metadata"] = {"i%d" % i: {**c.item, "rank_to_layout_info": ranks} for i in range(100)}


CASES = {
    "noted-nothing": lambda c: None,
    "metadata-cut": lambda c: setattr(c, "edit", lambda text: text[:-2]),
    "metadata-trailing": lambda c: setattr(c, "edit", lambda text: text + b"more"),
    "metadata-no-dict": lambda c: setattr(c, "root", [c.root]),
    "metadata-missing-key": lambda c: c.root.pop("metadata"),
    "version-3.0": lambda c: c.root.update(version="3.0"),
    "version-number": lambda c: c.root.update(version=2),
    "item-no-dict": lambda c: c.root.update(metadata={"model": 7}),
    "item-without-ranks": lambda c: c.item.pop("rank_to_layout_info"),
    "item-without-paths": lambda c: c.item.pop("nested_path_to_metadata"),
    "path-no-list": lambda c: c.paths.update({"w": c.paths.pop('["w"]')}),
    "path-cut": lambda c: c.paths.update({'["w"': c.paths.pop('["w"]')}),
    "path-too-long": lambda c: c.paths.update({json.dumps(["w" * 5000]): [c.group]}),
    "path-of-objects": lambda c: c.paths.update({'[{"w": 1}]': c.paths.pop('["w"]')}),
    "path-makes-long-name": lambda c: c.paths.update({json.dumps(["w" * 4092]): [c.group]}),
    "path-without-list": lambda c: c.paths.update({'["w"]': 7}),
    "paths-of-one-name": lambda c: c.paths.update({'["a.b"]': [c.group], '["a", "b"]': [c.group]}),
    "rank-no-number": lambda c: c.item.update(rank_to_layout_info={"0": c.ranks[0]}),
    "rank-negative": lambda c: c.item.update(rank_to_layout_info={-1: c.ranks[0]}),
    "layout-without-file": lambda c: c.ranks[1].pop("file_path"),
    "layout-without-format": lambda c: c.ranks[1].update(serialization_format=None),
    "noted-older": older,
    "older-without-ranks": lambda c: (older(c), c.root.pop("rank_to_layout_info_mappings")),
    "older-path-empty": lambda c: older(c, paths={"[]": [c.group]}),
    "older-path-of-number": lambda c: older(c, paths={'[7, "w"]': [c.group]}),
    "older-path-of-objects": lambda c: older(c, paths={'["model", {}]': [c.group]}),
    "noted-older-ranks-as-text": lambda c: older(c, {str(rank): {"model": c.ranks[rank]} for rank in range(2)}),
    "older-rank-with-sign": lambda c: older(c, {"0": {"model": c.ranks[0]}, " +1": {"model": c.ranks[1]}}),
    "older-rank-with-zero": lambda c: older(c, {"0": {"model": c.ranks[0]}, "01": {"model": c.ranks[1]}}),
    "older-rank-overflows": lambda c: older(c, {"0": {"model": c.ranks[0]}, "18446744073709551617": {}}),
    "older-rank-twice": lambda c: older(c, {"0": {"model": c.ranks[0]}, 0: {"model": c.ranks[1]}}),
    "files-shared": share,
    "file-twice": lambda c: c.ranks[1].update(file_path="rank_0/m.safetensors"),
    "file-is-metadata": lambda c: c.ranks[1].update(file_path="metadata.pkl"),
    "file-absolute": lambda c: c.ranks[1].update(file_path="/etc/passwd"),
    "file-escapes": lambda c: c.ranks[1].update(file_path="../../hf/config-broken/config.json"),
    "file-missing": no_file,
    "files-missing": lambda c: (no_file(c, 0), no_file(c, 1)),
    "file-truncated": lambda c: c.files.update({"rank_1/m.safetensors": c.files["rank_1/m.safetensors"][:-4]}),
    "file-of-other-shape": lambda c: c.files.update({"rank_1/m.safetensors": safetensors("w", [3, 3])}),
    "file-of-other-dtype": lambda c: c.files.update({"rank_1/m.safetensors": safetensors("w", [2, 3], "I32")}),
    "tensor-in-no-file": lambda c: c.paths.update({'["v"]': [c.group]}),
    "ranks-without-it": lambda c: c.group.update(ranks=(0,)),
    "sharding-unknown": lambda c: c.sharding.update(type="ThirdParty"),
    "sharding-without-shape": lambda c: c.data.pop("global_shape"),
    "shape-of-text": lambda c: c.data.update(global_shape="4, 3"),
    "shape-overflows": lambda c: c.data.update(global_shape=[1 << 63, 3]),
    "mesh-without-rank": lambda c: c.data["mesh_spec"].update(mesh_data=(0, 2)),
    "mesh-of-other-axes": lambda c: c.data["mesh_spec"].update(mesh_shape=(2, 1)),
    "mesh-missing": lambda c: c.data.pop("mesh_spec"),
    "placement-unknown": lambda c: c.data["placements"][0].update(type="Partial"),
    "placement-without-type": lambda c: c.data["placements"][0].pop("type"),
    "shard-without-axis": lambda c: c.data["placements"][0].pop("dim"),
    "shard-of-axis-2": lambda c: c.data["placements"][0].update(dim=2),
    "shard-strided": lambda c: c.data["placements"][0].update(type="StridedShard", split_factor=2),
    "boxes-two": lambda c: c.stated([[0, 0], [2, 0]], [[2, 3], [2, 3]], [[0, 0], [0, 0]]),
    "box-of-one-axis": lambda c: c.stated([[0]], [[2]], [[0]]),
    "box-within": lambda c: c.stated([[0, 0]], [[2, 3]], [[1, 0]]),
    "boxes-leave-hole": lambda c: c.stated([[0, 0]], [[2, 3]], [[0, 0]]),
    "box-outside": lambda c: c.stated([[3, 0]], [[2, 3]], [[0, 0]]),
}


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else ROOT
    for name, damage in CASES.items():
        checkpoint = Checkpoint()
        damage(checkpoint)
        checkpoint.write(os.path.join(root, name))


main()
