#!/usr/bin/env python3
"""Writes a small safetensors file: tiny.py OUT 'NAME DTYPE SHAPE VALUES'...

SHAPE is like 2,3 or - for a scalar; VALUES are numbers (nan, inf, -0.0), the last one repeated to fill the shape, or
0x and hexadecimal bytes. Standard library only: these are the inputs of tests/tools/cases.
"""
import json
import math
import struct
import sys

CODES = {"F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "U8": "B", "BOOL": "B", "U64": "Q", "C64": "f"}

header, payload = {}, b""
for spec in sys.argv[2:]:
    name, dtype, shape, values = spec.split(" ")
    shape = [] if shape == "-" else [int(n) for n in shape.split(",")]
    n = math.prod(shape) * (2 if dtype == "C64" else 1)
    if values.startswith("0x"):
        data = bytes.fromhex(values[2:])
    else:
        parse = float if CODES[dtype] in "dfe" else int
        numbers = [parse(v) for v in values.split(",")]
        numbers = (numbers + [numbers[-1]] * n)[:n]
        data = struct.pack("<%d%s" % (n, CODES[dtype]), *numbers)
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(payload), len(payload) + len(data)]}
    payload += data
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(sys.argv[1], "wb") as out:
    out.write(struct.pack("<Q", len(text)) + text + payload)
