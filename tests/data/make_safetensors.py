"""Writes safetensors/*.safetensors with the reference library: what ours must write byte for byte.

Made with safetensors 0.8.0:  python make_safetensors.py
"""
import ctypes
import os
import sys

from safetensors import TensorSpec, serialize

here = os.path.dirname(os.path.abspath(__file__))
out = os.path.join(sys.argv[1] if len(sys.argv) > 1 else here, "safetensors")
os.makedirs(out, exist_ok=True)

# name in `serialize`, bits per element
DTYPES = [("bool", 8), ("float4_e2m1fn_x2", 4), ("float6_e2m3", 6), ("float6_e3m2", 6), ("uint8", 8), ("int8", 8),
          ("float8_e5m2", 8), ("float8_e4m3fn", 8), ("float8_e8m0fnu", 8), ("float8_e4m3fnuz", 8),
          ("float8_e5m2fnuz", 8), ("int16", 16), ("uint16", 16), ("float16", 16), ("bfloat16", 16), ("int32", 32),
          ("uint32", 32), ("float32", 32), ("complex64", 64), ("float64", 64), ("int64", 64), ("uint64", 64)]


def data(n, seed):
    return bytes((seed * 37 + i * 11) % 251 for i in range(n))


kept = []  # TensorSpec only borrows its bytes


def tensor(dtype, bits, shape, seed):
    n = bits
    for extent in shape:
        n *= extent
    buffer = ctypes.create_string_buffer(data(n // 8, seed), max(n // 8, 1))
    kept.append(buffer)
    shape = list(shape)
    if bits == 4:  # as torch counts: pairs
        shape[-1] //= 2
    return TensorSpec(dtype=dtype, shape=shape, data_ptr=ctypes.addressof(buffer), data_len=n // 8)


def save(name, tensors, metadata=None):
    while True:  # the reference orders metadata at random; ours sorts it
        text = serialize(tensors, metadata)
        places = [text.find(b'"%s":' % key.encode()) for key in sorted(metadata or {})]
        if places == sorted(places):
            break
    with open(os.path.join(out, name + ".safetensors"), "wb") as f:
        f.write(text)


supported = []
for dtype, bits in DTYPES:
    try:
        serialize({"x": tensor(dtype, bits, (4,), 0)}, None)
        supported.append((dtype, bits))
    except Exception as error:  # what Python's wrapper has no name for
        print("not in serialize():", dtype, error)

save("every-dtype", {f"{i}.{dtype}": tensor(dtype, bits, (2, 4), i) for i, (dtype, bits) in enumerate(supported)},
     {"format": "pt"})
save("shapes", {"scalar": tensor("float32", 32, (), 1), "empty": tensor("float32", 32, (0,), 2),
                "empty.inside": tensor("int64", 64, (3, 0, 2), 3), "rank8": tensor("uint8", 8, (1, 2, 1, 2, 1, 2, 1, 2), 4),
                "b": tensor("float32", 32, (5,), 5), "a": tensor("float32", 32, (5,), 6),
                "odd": tensor("int8", 8, (3,), 7)})
save("names", {"quote\"back\\slash": tensor("uint8", 8, (1,), 1), "tab\tline\nbell\u0007\u001f\u007f": tensor("uint8", 8, (1,), 2),
               "\u00e9\u20ac\U0001F600": tensor("uint8", 8, (1,), 3), "slash/": tensor("uint8", 8, (1,), 4),
               "B": tensor("uint8", 8, (1,), 5), "a": tensor("uint8", 8, (1,), 6), "a.b": tensor("uint8", 8, (1,), 7)},
     {"z": "last", "a": "\u00e9\"\n", "format": "pt", "empty": ""})
save("no-tensors", {}, {"format": "pt"})
save("nothing", {})
for n in range(8):  # every length of padding
    save(f"pad-{n}", {"x" * (n + 1): tensor("uint8", 8, (2,), n)})
