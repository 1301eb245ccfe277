"""What we write is loaded by older releases of PyTorch: `.pt` files with weights_only=True, DCP folders by dcp_to_torch_save.

CKPT_OLD_PYTHON names Pythons that have them, separated by colons: they run this file to load, this Python compares.
"""
import hashlib
import json
import os
import subprocess
import sys

import torch

# Those of the oldest release that has all of DCP's own tools; bits that every one of them takes for values.
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float64", "float32", "float16", "bfloat16", "float8_e4m3fn",
          "float8_e5m2", "complex64"]


def plain(value):
    """An object as JSON can hold it: of a tensor its dtype, shape and the digest of its bytes."""
    if isinstance(value, torch.Tensor):
        raw = value.detach().contiguous().reshape(-1)
        raw = bytes(raw.view(torch.uint8).tolist()) if raw.numel() else b""
        return [str(value.dtype), list(value.shape), hashlib.sha256(raw).hexdigest()]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def knows_zstd():
    try:
        from torch.distributed.checkpoint._extension import ZStandard
    except ImportError:
        return False
    return ZStandard.is_available()


def load(folder):
    """Writes what this release reads of each output to found.json."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    found = {"torch": plain(torch.load(os.path.join(folder, "out.pt"), weights_only=True))}
    for name in ["dcp-1", "dcp-3"] + ["dcp-zstd"] * knows_zstd():
        dcp_to_torch_save(os.path.join(folder, name), os.path.join(folder, "again.pt"))
        found[name] = plain(torch.load(os.path.join(folder, "again.pt"), weights_only=True))
    with open(os.path.join(folder, "found.json"), "w") as f:
        json.dump(found, f)


def checkpoint():
    """A model after a step of AdamW, with states by name as DCP has them, and a tensor of each dtype and of shapes that ranks share unevenly."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.LayerNorm(7), torch.nn.Linear(7, 3, bias=False))
    optimizer = torch.optim.AdamW(model.named_parameters(), lr=0.1)
    model(torch.ones(2, 5)).sum().backward()
    optimizer.step()
    weights = dict(model.state_dict())
    for i, dtype in enumerate(DTYPES):
        raw = torch.randint(0, 2 if dtype == "bool" else 256, ((i + 1) * 48,), dtype=torch.uint8)
        weights["of.%s" % dtype] = raw.view(getattr(torch, dtype)).reshape(i + 1, -1)
    weights["scalar"], weights["empty"] = torch.tensor(2.5), torch.empty(0, 4)
    weights["tied"] = weights["0.weight"]
    return {"model": weights, "optimizer": get_optimizer_state_dict(model, optimizer), "epoch": 4, "note": "kept"}


def differing(a, b, path=""):
    """Paths at which two such objects differ."""
    if not isinstance(a, dict) or not isinstance(b, dict):
        return [] if a == b else [(path, a, b)]
    return [place for key in sorted(a.keys() | b.keys())
            for place in differing(a.get(key), b.get(key), "%s/%s" % (path, key))]


def test_what_we_write_is_loaded(folder):
    pythons = list(filter(None, os.environ.get("CKPT_OLD_PYTHON", "").split(":")))
    if not pythons:
        skip("CKPT_OLD_PYTHON names no Python with an older torch")
    state, source = checkpoint(), os.path.join(folder, "source.pt")
    torch.save(state, source)
    ckpt("convert", source, "-o", os.path.join(folder, "out.pt"), "--include", "all")
    for name, *options in (("dcp-1", 1), ("dcp-3", 3), ("dcp-zstd", 2, "--zstd", 3)):
        ckpt("reshard", source, "-o", os.path.join(folder, name), "--to", "dcp", "--world", *options)
    wanted = plain(state)
    for python in [sys.executable, *pythons]:
        subprocess.run([python, "-B", os.path.abspath(__file__), "load", folder], check=True)
        with open(os.path.join(folder, "found.json")) as f:
            found = json.load(f)
        os.remove(os.path.join(folder, "found.json"))
        assert len(found) >= 3, found.keys()
        for name, value in found.items():
            assert not differing(value, json.loads(json.dumps(wanted))), (python, name, differing(value, wanted))


if __name__ == "__main__":
    if sys.argv[1:2] == ["load"]:
        load(sys.argv[2])
    else:
        import command
        from command import ckpt, skip
        command.main(globals())
