"""A Mixtral folder with the names that its own state dict has since transformers 5: experts joined, the router renamed.

join_experts.py IN OUT [KEEP]    KEEP: a name that stays beside the tensor that joins it
"""
import json
import os
import re
import shutil
import struct
import sys

EXPERT = re.compile(r"(.*)\.block_sparse_moe\.experts\.(\d+)\.(w[123])\.weight$")


def read(path):
    with open(path, "rb") as file:
        n, = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(n)), file.read()
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def join(tensors):
    joined, experts = {}, {}
    for name, tensor in tensors.items():
        match = EXPERT.match(name)
        if match:
            layer, expert, part = match.groups()
            experts.setdefault(layer, {})[int(expert), part] = tensor
        else:
            joined[name.replace(".block_sparse_moe.gate.", ".mlp.gate.")] = tensor
    for layer, parts in experts.items():
        n = len(parts) // 3
        dtype, (rows, columns), _ = parts[0, "w1"]
        gate_up = b"".join(parts[e, part][2] for e in range(n) for part in ("w1", "w3"))
        joined[layer + ".mlp.experts.gate_up_proj"] = dtype, [n, 2 * rows, columns], gate_up
        joined[layer + ".mlp.experts.down_proj"] = (dtype, [n, columns, rows],
                                                    b"".join(parts[e, "w2"][2] for e in range(n)))
    return joined


def write(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def main(source, target, keep=None):
    shutil.copytree(source, target)
    tensors = {}
    for name in sorted(os.listdir(target)):
        if ".safetensors" in name:
            if name.endswith(".safetensors"):
                tensors.update(read(os.path.join(target, name)))
            os.remove(os.path.join(target, name))
    joined = join(tensors)
    if keep:
        joined[keep] = tensors[keep]
    write(os.path.join(target, "model.safetensors"), joined)


if __name__ == "__main__":
    main(*sys.argv[1:])
