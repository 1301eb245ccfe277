"""Writes tests/golden-errors/imatrix/<case>.dat: importance matrices of the older form, each with one defect.

    python3.11 make_imatrix_errors.py [FOLDER]
"""
import os
import struct
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden-errors", "imatrix")


def i32(*values):
    return struct.pack("<%di" % len(values), *values)


def entry(name=b"a.weight", n_calls=2, values=(1.0, 2.0), n_name=None, n_values=None):
    n_name = len(name) if n_name is None else n_name
    n_values = len(values) if n_values is None else n_values
    return i32(n_name) + name + i32(n_calls, n_values) + struct.pack("<%df" % len(values), *values)


A, B = entry(), entry(b"b.weight")
HUGE = 2**31 - 1
CASES = {
    "noted-nothing": i32(2) + A + B + i32(3, 4) + b"text",
    "entries-missing": i32(3) + A + B,
    "entry-cut-in-name": i32(2) + A + B[:8],
    "entry-cut-in-counts": i32(2) + A + B[:14],
    "entry-cut-in-values": i32(2) + A + B[:-4],
    "name-empty": i32(2) + A + entry(b""),
    "name-huge": i32(2) + A + entry(b"b", n_name=HUGE),
    "name-negative": i32(2) + A + entry(b"b", n_name=-1),
    "name-too-long": i32(2) + A + entry(b"b" * 1025),
    "name-of-spaces": i32(2) + A + entry(b"b c"),
    "name-nul": i32(2) + A + entry(b"b\0c"),
    "name-twice": i32(2) + A + A,
    "values-none": i32(2) + A + entry(b"b", values=()),
    "values-huge": i32(2) + A + entry(b"b", n_values=HUGE),
    "values-negative": i32(2) + A + entry(b"b", n_values=-1),
    "calls-negative": i32(2) + A + entry(b"b", n_calls=-1),
    "chunks-cut": i32(1) + A + b"\1\0",
    "dataset-cut": i32(1) + A + i32(3, 9) + b"text",
    "dataset-huge": i32(1) + A + i32(3, HUGE) + b"text",
    "dataset-negative": i32(1) + A + i32(3, -1) + b"text",
    "dataset-too-long": i32(1) + A + i32(3, 65537) + b"t" * 65537,
    "entries-none": i32(0) + A,
    "entries-too-many": i32(1000001) + A,
    "first-entry-too-long": i32(1) + entry(b"a" * 1025),
}


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else ROOT
    os.makedirs(root, exist_ok=True)
    for name, content in CASES.items():
        with open(os.path.join(root, name + ".dat"), "wb") as out:
            out.write(content)


main()
