"""Writes golden-errors/gguf/: one hostile GGUF file or set of files per defect.

messages.tsv beside them holds what is said of each (CKPT_BLESS=1 makes the test write it; read the difference).
    python make_gguf_errors.py
"""
import os
import struct
import sys

here = os.path.dirname(os.path.abspath(__file__))
out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "golden-errors", "gguf")

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
F32_TENSOR, Q4_K = 0, 12


def u32(n):
    return struct.pack("<I", n)


def u64(n):
    return struct.pack("<Q", n)


def text(s):
    s = s if isinstance(s, bytes) else s.encode()
    return u64(len(s)) + s


def pair(key, kind, value):
    return text(key) + u32(kind) + value


def array(kind, n, elements=b""):
    return u32(kind) + u64(n) + elements


def tensor(name="a", shape=(8,), kind=F32_TENSOR, offset=0, n_axes=None):
    axes = b"".join(u64(n) for n in shape)
    return text(name) + u32(len(shape) if n_axes is None else n_axes) + axes + u32(kind) + u64(offset)


def file(pairs=(), tensors=(), payload=b"\0" * 32, version=3, n_pairs=None, n_tensors=None, alignment=32):
    head = b"GGUF" + u32(version) + u64(len(tensors) if n_tensors is None else n_tensors)
    head += u64(len(pairs) if n_pairs is None else n_pairs) + b"".join(pairs) + b"".join(tensors)
    return head + b"\0" * (-len(head) % alignment) + payload


def part(number, count, tensors=(), n=2, extra=()):
    pairs = [pair("split.no", U16, struct.pack("<H", number)), pair("split.tensors.count", I32, u32(n)),
             pair("split.count", U16, struct.pack("<H", count)), *extra]
    return file(pairs, tensors)


ONE = [tensor()]
MANY = 2**61
FILES = {
    "magic-alone": b"GGUF",
    "version-cut": b"GGUF\3\0",
    "version-0": file(version=0),
    "version-1": file(version=1),
    "version-4": file(version=4),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(32),
    "counts-missing": b"GGUF" + u32(3),
    "tensors-lie": file(n_tensors=2**63),
    "tensors-overflow": file(n_tensors=2**64 - 1),
    "keys-lie": file(n_pairs=1000),
    "keys-overflow": file(n_pairs=2**64 - 1),
    "tensors-missing": file(tensors=ONE, n_tensors=2, payload=b"\0" * 32),
    "key-empty": file([pair("", U8, b"\1")]),
    "key-too-long": file([pair("k" * 65536, U8, b"\1")]),
    "key-past-end": file([u64(2**40) + b"key"]),
    "key-nul": file([pair("a\0b", U8, b"\1")]),
    "key-not-utf8": file([pair(b"\xff", U8, b"\1")]),
    "key-twice": file([pair("general.name", STRING, text("a")), pair("b", U8, b"\1"),
                       pair("general.name", STRING, text("a"))]),
    "type-unknown": file([pair("a", 13, b"\0" * 8)]),
    "type-huge": file([pair("a", 2**32 - 1, b"\0" * 8)]),
    "string-past-end": file([pair("a", STRING, u64(100) + b"text")], payload=b""),
    "string-overflows": file([pair("a", STRING, u64(2**64 - 1) + b"text")]),
    "value-cut": b"GGUF" + u32(3) + u64(0) + u64(1) + pair("abcdef", U64, b"\1\2\3"),
    "array-of-arrays": file([pair("a", ARRAY, array(ARRAY, 1, array(U8, 1, b"\1")))]),
    "array-type-unknown": file([pair("a", ARRAY, array(99, 1, b"\1"))]),
    "array-past-end": file([pair("a", ARRAY, array(U32, 1000, b"\0" * 8))]),
    "array-overflows": file([pair("a", ARRAY, array(U64, MANY))]),
    "array-of-strings-past-end": file([pair("a", ARRAY, array(STRING, 3, text("x") + text("y") + u64(2**50)))]),
    "array-of-strings-lies": file([pair("a", ARRAY, array(STRING, 2**60))]),
    "alignment-0": file([pair("general.alignment", U32, u32(0))], ONE),
    "alignment-3": file([pair("general.alignment", U32, u32(3))], ONE),
    "alignment-of-u64": file([pair("general.alignment", U64, u64(32))], ONE),
    "alignment-text": file([pair("general.alignment", STRING, text("32"))], ONE),
    "alignment-past-end": file([pair("general.alignment", U32, u32(2**31))], ONE),
    "name-empty": file(tensors=[tensor("")]),
    "name-nul": file(tensors=[tensor("a\0b")]),
    "name-not-utf8": file(tensors=[tensor(b"\xc3")]),
    "name-too-long": file(tensors=[tensor("n" * 4097)]),
    "name-long-for-ggml": file(tensors=[tensor("n" * 64)]),
    "name-past-end": file(tensors=[u64(2**33) + b"name" + b"\0" * 40]),
    "name-twice": file(tensors=[tensor("a"), tensor("a", offset=32)], payload=b"\0" * 64),
    "axes-5": file(tensors=[tensor(shape=(1,) * 5)]),
    "axes-huge": file(tensors=[tensor(n_axes=2**32 - 1)]),
    "axis-negative": file(tensors=[tensor(shape=(2**64 - 8,))]),
    "axes-overflow": file(tensors=[tensor(shape=(2**32, 2**32))]),
    "axes-overflow-past-zero": file(tensors=[tensor(shape=(2**62, 2**62, 0))]),
    "axes-overflow-to-small": file(tensors=[tensor(shape=(2**33, 2**31, 1))]),
    "bytes-overflow": file(tensors=[tensor(shape=(2**62,))]),
    "padding-overflows": file(tensors=[tensor(shape=(2**63 - 1,), kind=24)]),
    "dtype-removed": file(tensors=[tensor(kind=4)]),
    "dtype-unknown": file(tensors=[tensor(kind=1000)]),
    "rows-cut-blocks": file(tensors=[tensor(shape=(8, 32), kind=Q4_K)], payload=b"\0" * 144),
    "scalar-of-blocks": file(tensors=[tensor(shape=(), kind=Q4_K)], payload=b"\0" * 144),
    "payload-missing": file(tensors=ONE, payload=b""),
    "payload-truncated": file(tensors=[tensor(shape=(100,))], payload=b"\0" * 100),
    "offset-past-end": file(tensors=[tensor(offset=2**40)]),
    "offset-overflows": file(tensors=[tensor(offset=2**64 - 32)]),
    "overlap": file(tensors=[tensor("first", (16,)), tensor("second", offset=32)], payload=b"\0" * 64),
    "overlap-same": file(tensors=[tensor("first"), tensor("second")], payload=b"\0" * 64),
    "noted-gap": file(tensors=[tensor("first"), tensor("second", offset=64)], payload=b"\0" * 96),
    "noted-order": file(tensors=[tensor("first", offset=32), tensor("second")], payload=b"\0" * 64),
    "noted-unaligned": file(tensors=[tensor("first", (7,)), tensor("second", offset=28)], payload=b"\0" * 64),
    "noted-trailing": file(tensors=ONE, payload=b"\0" * 40),
    "noted-no-padding": file(tensors=[tensor(shape=(7,))], payload=b"\0" * 28),
    "noted-nothing": file(tensors=ONE),
    "noted-no-tensors": file(),
    "split-in-one": part(0, 2, ONE),
    "split-no-past-count": part(2, 2, ONE),
    "split-without-no": file([pair("split.count", U16, b"\2\0")], ONE),
    "split-count-of-u32": file([pair("split.count", U32, u32(2))], ONE),
}
SETS = {
    "set-missing": {"m-00001-of-00003.gguf": part(0, 3, ONE), "m-00003-of-00003.gguf": part(2, 3, [tensor("b")])},
    "set-without-first": {"m-00002-of-00002.gguf": part(1, 2, ONE)},
    "set-of-wrong-number": {"m-00001-of-00002.gguf": part(0, 2, ONE), "m-00002-of-00002.gguf": part(0, 2, ONE)},
    "set-of-wrong-count": {"m-00001-of-00002.gguf": part(0, 2, ONE), "m-00002-of-00002.gguf": part(1, 3, ONE)},
    "set-count-of-tensors": {"m-00001-of-00002.gguf": part(0, 2, ONE, 9),
                             "m-00002-of-00002.gguf": part(1, 2, [tensor("b")], 9)},
    "set-name-twice": {"m-00001-of-00002.gguf": part(0, 2, ONE), "m-00002-of-00002.gguf": part(1, 2, ONE)},
    "set-part-no-gguf": {"m-00001-of-00002.gguf": part(0, 2, ONE), "m-00002-of-00002.gguf": b"no GGUF file at all"},
    "set-part-truncated": {"m-00001-of-00002.gguf": part(0, 2, ONE),
                           "m-00002-of-00002.gguf": part(1, 2, [tensor("b")])[:-20]},
    "set-part-with-keys": {"m-00001-of-00002.gguf": part(0, 2, ONE),
                           "m-00002-of-00002.gguf": part(1, 2, [tensor("b")], extra=[pair("own", U8, b"\1")])},
    "two-models": {"a.gguf": file(tensors=ONE), "b.gguf": file(tensors=ONE)},
    "two-sets": {"a-00001-of-00002.gguf": part(0, 2, ONE), "b-00001-of-00002.gguf": part(0, 2, ONE)},
    "renamed": {"model.gguf": part(0, 2, ONE)},
}

os.makedirs(out, exist_ok=True)
for name, content in FILES.items():
    with open(os.path.join(out, name + ".gguf"), "wb") as f:
        f.write(content)
for folder, files in SETS.items():
    os.makedirs(os.path.join(out, folder), exist_ok=True)
    for name, content in files.items():
        with open(os.path.join(out, folder, name), "wb") as f:
            f.write(content)
