"""What torch pickles: the machine and Python's own reader (with names for classes) describe the same, and the table of
names knows every name that torch's own weights-only unpickler allows, and all that its checkpoints hold."""
import argparse
import io
import os
import random
import struct
import subprocess
import sys
import zipfile

import command
import numpy
import torch
import torch.distributed.checkpoint
from torch import _weights_only_unpickler as allowed

sys.path.insert(0, os.path.join(command.TESTS, "data"))
import pickle_reference  # noqa: E402

TENSOR_DATA, KNOWN = 0, 1  # verdicts: a Namespace and a path are classes of no framework's tensors, and known
PRINTER = os.path.join(os.path.dirname(command.CKPT), "pickle_print")


def printed(data):
    """(status, verdict, bytes read, text) of a pickle."""
    done = subprocess.run([PRINTER], input=struct.pack("<I", len(data)) + data, stdout=subprocess.PIPE, check=True)
    status, judged, _, n = struct.unpack("<BBBQ", done.stdout[:11])
    return status, judged, n, done.stdout[15:].decode("utf-8", "surrogatepass")


def check(data, verdict=TENSOR_DATA):
    status, judged, n, text = printed(data)
    assert status == 0, text
    assert judged == verdict, (judged, text[:1000])
    graph, n_read, _ = pickle_reference.read(data)
    assert n == n_read and text == pickle_reference.show(graph), (text[:1000], pickle_reference.show(graph)[:1000])
    return n


def pickle_of(value, protocol):
    file = io.BytesIO()
    torch.save(value, file, pickle_protocol=protocol)
    with zipfile.ZipFile(file) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))


def training_state():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    return {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
        "args": argparse.Namespace(lr=1e-3, dtype=torch.bfloat16),
        "rng": (torch.get_rng_state(), random.getstate(), numpy.random.get_state()),
        "parameter": torch.nn.Parameter(torch.ones(2)), "float8": torch.ones(2).to(torch.float8_e4m3fn),
        "sparse": torch.eye(2).to_sparse(), "quantized": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        "array": numpy.ones(2), "scalar": numpy.float32(1), "meta": torch.empty(3, device="meta"),
        "conjugate": torch.ones(2, dtype=torch.complex64).conj(), "view": torch.arange(6.0).reshape(2, 3).t(),
    }


def test_every_protocol(_folder):
    state = training_state()
    for protocol in range(2, 6):
        check(pickle_of(state, protocol), KNOWN)


def test_legacy_streams(_folder):
    file = io.BytesIO()
    torch.save(training_state()["model"], file, _use_new_zipfile_serialization=False)
    data = file.getvalue()
    for _ in range(5):  # magic, protocol, system, object, keys
        data = data[check(data):]
    assert len(data) == sum(8 + 4 * n for n in (12, 3, 3, 3)), len(data)


def test_dcp_metadata(folder):
    state = training_state()
    torch.distributed.checkpoint.save({"model": state["model"], "optimizer": state["optimizer"], "bytes": b"abc"},
                                      checkpoint_id=folder, no_dist=True)
    with open(os.path.join(folder, ".metadata"), "rb") as file:
        check(file.read(), KNOWN)


def test_allowed_by_torch(_folder):
    for name in allowed._get_allowed_globals():
        module, _, name = name.rpartition(".")
        _, judged, _, _ = printed(f"c{module}\n{name}\n.".encode())
        assert judged == TENSOR_DATA, f"{module} {name}: {judged}"


command.main(globals())
