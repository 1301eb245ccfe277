"""Runs docs/examples/ckpt.py and compares every array with the bytes that a few lines of Python find in the files.

    ckpt_py.py TESTS_DATA
"""
import glob
import json
import os
import struct
import sys

import numpy as np

import ckpt

data = sys.argv[1]
WIDER = {"BF16": lambda raw: (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")}
PLAIN = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1",
         "U16": "<u2", "U32": "<u4", "U64": "<u8", "BOOL": "?", "C64": "<c8"}


def stored(folder):
    """(name, dtype, shape, bytes) of all tensors of a folder of safetensors files, or of one file."""
    for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))) or [folder]:
        with open(path, "rb") as file:
            n_header = struct.unpack("<Q", file.read(8))[0]
            header = json.loads(file.read(n_header))
            header.pop("__metadata__", None)
            for name, entry in header.items():
                begin, end = entry["data_offsets"]
                file.seek(8 + n_header + begin)
                yield name, entry["dtype"], entry["shape"], file.read(end - begin)


n_compared = 0
for path in ("llama-tiny", "gpt2-tiny", "safetensors/shapes.safetensors", "safetensors/every-dtype.safetensors"):
    path = os.path.join(data, path)
    state, names = ckpt.load(path), set()
    for name, dtype, shape, raw in stored(path):
        names.add(name)
        array = state[name]
        assert array.shape == tuple(shape), (name, array.shape, shape)
        if dtype in WIDER or dtype in PLAIN:
            expected = WIDER[dtype](raw) if dtype in WIDER else np.frombuffer(raw, PLAIN[dtype])
            assert array.dtype == expected.dtype and array.tobytes() == expected.tobytes(), name
            n_compared += 1
        else:
            assert array.dtype == np.float32, (name, array.dtype)
    shared = {name for name in state if name not in names}  # names of tied tensors, which the file stores once
    assert all(any(state[name] is state[other] for other in names) for name in shared), shared

bits = ckpt.load(os.path.join(data, "llama-tiny"), bits=True)
for name, dtype, shape, raw in stored(os.path.join(data, "llama-tiny")):
    assert bits[name].dtype == np.uint16 and bits[name].tobytes() == raw, name
quantized = os.path.join(data, "gguf/every-type.gguf")
floats, bits = ckpt.load(quantized), ckpt.load(quantized, bits=True)
assert any(bits[name].dtype == np.uint8 and floats[name].dtype == np.float32 for name in bits)
with open(quantized, "rb") as file:
    content = file.read()
assert all(array.tobytes() in content for array in bits.values())
for path, bad in (("nothing there", {}), ("safetensors/every-dtype.safetensors", {"bits": True})):
    try:
        ckpt.load(os.path.join(data, path), **bad)
    except OSError as error:
        print(f"refused, as expected: {str(error).replace(data, 'tests/data')}")
    else:
        sys.exit(f"{path} was not refused")
assert n_compared > 80, n_compared
print(f"{n_compared} arrays are equal to the bytes of their files")
