"""Writes golden-errors/onnx/: one hostile ONNX model per defect, by the bytes of protobuf.

messages.tsv beside them holds what is said of each (CKPT_BLESS=1 makes the test write it; read the difference). Links
cannot be committed: tests/formats/onnx/onnx_test.cc makes them.
    python make_onnx_errors.py
"""
import os
import struct
import sys

here = os.path.dirname(os.path.abspath(__file__))
out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "golden-errors", "onnx")


def varint(n):
    n &= (1 << 64) - 1
    text = b""
    while n >= 0x80:
        text += bytes([n & 0x7F | 0x80])
        n >>= 7
    return text + bytes([n])


def number(field, n):
    return varint(field << 3) + varint(n)


def data(field, content):
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def entry(key, value):
    return data(13, data(1, key) + data(2, str(value)))


FLOATS = struct.pack("<2f", 1, 2)


def tensor(name="w", dims=(2,), kind=1, raw=FLOATS, more=b""):
    message = b"".join(number(1, n) for n in dims)
    message += number(2, kind) if kind is not None else b""
    message += data(8, name) if name is not None else b""
    return message + (data(9, raw) if raw is not None else b"") + more


def external(*entries, dims=(2,), more=b"", location=1):
    return tensor(dims=dims, raw=None, more=b"".join(entry(*e) for e in entries) + number(14, location) + more)


def graph(*tensors, more=b""):
    return more + data(2, "g") + b"".join(data(5, t) for t in tensors)


def model(*tensors, more=b"", head=number(1, 8), tail=data(8, data(1, "") + number(2, 17)), graph_more=b""):
    return head + data(2, "tests") + data(7, graph(*tensors, more=graph_more)) + tail + more


def node(attribute, output="y"):
    return data(1, data(2, output) + data(4, "If") + data(5, attribute))


def bomb(n):
    """Branches within branches."""
    inner = data(5, tensor())
    for _ in range(n):
        inner = node(data(1, "then_branch") + data(6, inner))
    return inner


HERE = "accepted.onnx"  # a file that is there
files = {
    "accepted": model(tensor()),
    "texts": model(tensor(kind=8, dims=(1,), raw=None, more=data(6, "text")), tensor("v")),
    "nine-axes": model(tensor(dims=(1,) * 8 + (2,)), tensor("v")),
    # data outside
    "location-parent": model(external(("location", "../gguf/messages.tsv"))),
    "location-parent-later": model(external(("location", "a/../../gguf/messages.tsv"))),
    "location-absolute": model(external(("location", "/etc/passwd"))),
    "location-empty": model(external(("location", ""))),
    "location-nul": model(external(("location", "accepted.onnx\0.data"))),
    "location-no-text": model(tensor(raw=None, more=data(13, data(1, "location") + data(2, b"\xff\xfe")) + number(14, 1))),
    "location-long": model(external(("location", "a" * 5000))),
    "location-missing-file": model(external(("location", "nowhere.data"))),
    "location-folder": model(external(("location", "."))),
    "location-memory": model(external(("location", "*/_ORT_MEM_ADDR_/*"), ("offset", 140000000), ("length", 8))),
    "no-location": model(external(("offset", 0))),
    "two-locations": model(external(("location", HERE), ("location", "../x"))),
    "key-injected": model(external(("location", HERE), ("__class__", "x"))),
    "checksum-no-text": model(external(("location", HERE), ("checksum", "a\0b"))),
    "key-basepath": model(external(("location", HERE), ("basepath", "/"))),
    "offset-negative": model(external(("location", HERE), ("offset", -8))),
    "offset-text": model(external(("location", HERE), ("offset", "0x10"))),
    "offset-empty": model(external(("location", HERE), ("offset", ""))),
    "offset-past-end": model(external(("location", HERE), ("offset", 1 << 40))),
    "offset-overflows": model(external(("location", HERE), ("offset", 1 << 64))),
    "offset-at-end": model(external(("location", HERE), ("offset", (1 << 63) - 1))),
    "length-petabyte": model(external(("location", HERE), ("length", 1 << 50))),
    "length-and-shape-petabyte": model(external(("location", HERE), ("length", 1 << 50), dims=(1 << 48,))),
    "length-short": model(external(("location", HERE), ("length", 4))),
    "location-and-raw": model(external(("location", HERE), more=data(9, FLOATS))),
    "location-2": model(external(("location", HERE), location=2)),
    "too-many-entries": model(external(*[("offset", 0)] * 6000)),
    # shapes and types
    "dim-negative": model(tensor(dims=(-2,))),
    "dims-negative-product": model(tensor(dims=(-1, -2))),
    "dims-overflow": model(tensor(dims=(1 << 62, 4))),
    "dims-petabyte": model(tensor(dims=(1 << 50,))),
    "no-type": model(tensor(kind=None)),
    "type-0": model(tensor(kind=0)),
    "type-99": model(tensor(kind=99)),
    "type-negative": model(tensor(kind=-1)),
    # values
    "raw-short": model(tensor(dims=(3,))),
    "raw-long": model(tensor(dims=(1,))),
    "raw-twice": model(tensor(more=data(9, FLOATS))),
    "raw-and-typed": model(tensor(more=data(4, FLOATS))),
    "no-values": model(tensor(raw=None)),
    "typed-field": model(tensor(raw=None, more=data(7, varint(1) + varint(2)))),
    "typed-count": model(tensor(raw=None, more=data(4, FLOATS + FLOATS))),
    "typed-varint-cut": model(tensor(kind=7, raw=None, more=data(7, varint(1) + b"\x80"))),
    "typed-half": model(tensor(raw=None, more=data(4, FLOATS[:6]))),
    "typed-pieces": model(tensor(kind=7, dims=(5000,), raw=None, more=number(7, 1) * 5000)),
    "segment": model(tensor(more=data(3, number(1, 0) + number(2, 1)))),
    # names
    "name-twice": model(tensor(), tensor()),
    "names": model(tensor(more=data(8, "other"))),
    "name-empty": model(tensor(name="")),
    "name-nul": model(tensor(name="a\0b")),
    "name-no-text": model(tensor(name=b"\xff")),
    "name-long": model(tensor(name="n" * 5000)),
    # messages
    "depth-bomb": model(graph_more=bomb(33)),
    "depth-bomb-9000": model(graph_more=bomb(3000)),
    "group": model(tensor(), graph_more=varint(50 << 3 | 3) + varint(50 << 3 | 4)),
    "field-0": model(tensor(), graph_more=varint(0) + varint(1)),
    "graph-is-a-number": number(1, 8) + data(2, "tests") + number(7, 5) + data(8, number(2, 17)),
    "tensor-is-a-number": model(graph_more=number(5, 7)),
    "length-lies": number(1, 8) + data(2, "tests") + varint(7 << 3 | 2) + varint(1 << 40) + graph(tensor()),
    "length-of-2-64": number(1, 8) + data(2, "tests") + varint(7 << 3 | 2) + varint(-1) + graph(tensor()),
    "varint-long": number(1, 8) + data(7, data(2, "g") + b"\x08" + b"\xff" * 11),
    "truncated": model(tensor())[:25],
    "no-opset": model(tensor(), tail=b""),
    "no-ir": model(tensor(), head=b""),
    "no-model": b"this is no model at all",
    "git-lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
    "download-page": b"<html><body>404</body></html>",
}
os.makedirs(out, exist_ok=True)
for name in os.listdir(out):
    if name != "messages.tsv":
        os.unlink(os.path.join(out, name))
for name, content in files.items():
    with open(os.path.join(out, name + ".onnx"), "wb") as file:
        file.write(content)
