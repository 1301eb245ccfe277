#!/usr/bin/env python3
"""Writes what PyTorch's casts give, for tests/kernels/cast/cast_golden_test.cc: one <source>.gz per source dtype.

Made with torch 2.15.0 on an x86-64 processor with AVX-512 (older levels drop the payload of some NaN).
A file holds the source codes, then for each target in TARGETS, less the source itself, the codes it becomes. Each
array is stored as planes, all first (lowest) bytes, then all second bytes and so on, which compress far better.
Sources of 8 and 16 bits are complete. f32 and f64 hold edges: every exponent with mantissas at, just below and just
above each tie. f64 has f32 as its only target: the others PyTorch reaches through f32, rounding twice.

    python make_casts.py [folder]
"""
import gzip
import pathlib
import sys

import numpy as np
import torch

TARGETS = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "f8_e4m3": torch.float8_e4m3fn, "f8_e5m2": torch.float8_e5m2, "f8_e8m0": torch.float8_e8m0fnu,
    "f8_e4m3fnuz": torch.float8_e4m3fnuz, "f8_e5m2fnuz": torch.float8_e5m2fnuz,
}
UINT = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
INT = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def edges(n_mantissa, first_tie, exponents):
    """Codes with the tie in every bit from first_tie up, and beside all leading four bits; every third is negative."""
    mantissas = {0, 1, (1 << n_mantissa) - 1}
    for lead in range(16):
        mantissas |= {max((lead << n_mantissa - 4) + beside, 0) for beside in (-1, 0, 1)}
    for k in range(first_tie, n_mantissa):
        mantissas |= {(1 << k) - 1, 1 << k, (1 << k) + 1, 3 << k, (3 << k) - 1}
    mantissas = sorted(m for m in mantissas if m < 1 << n_mantissa)
    codes = [e << n_mantissa | m for e in exponents for m in mantissas]
    sign = 1 << (31 if n_mantissa == 23 else 63)
    codes = [c | (sign if i % 3 == 0 else 0) for i, c in enumerate(codes)]
    return codes + codes[: -len(codes) % 64]  # whole vectors: the rest of a tensor meets other code in PyTorch


def sources():
    for name, dtype in TARGETS.items():
        width = torch.empty(0, dtype=dtype).element_size()
        if width <= 2:
            yield name, dtype, np.arange(1 << 8 * width).astype(UINT[width]), TARGETS
    yield "f32", torch.float32, np.array(edges(23, 12, range(256)), np.uint32), TARGETS
    f64_exponents = [0, 1, 2046, 2047, *range(1023 - 152, 1023 - 124), *range(1023 + 126, 1023 + 130), 1023]
    yield "f64", torch.float64, np.array(edges(52, 26, f64_exponents), np.uint64), {"f32": torch.float32}


def cast(codes, src, dst):
    x = torch.from_numpy(codes.view(f"i{codes.itemsize}").copy()).view(src)
    y = x.to(dst)
    is_nan = torch.isnan(x.to(torch.float64))
    y = y.view(INT[y.element_size()]).numpy().copy()
    if dst == torch.bfloat16:  # its vector code gives 0xffff, its scalar code and all other levels 0x7fc0
        y[is_nan.numpy()] = 0x7FC0
    return planes(y)


def planes(codes):
    return codes.view(np.uint8).reshape(-1, codes.itemsize).T.tobytes()


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    torch.set_num_threads(1)
    assert torch.backends.cpu.get_cpu_capability() == "AVX512"
    for name, dtype, codes, targets in sources():
        data = planes(codes) + b"".join(cast(codes, dtype, d) for n, d in targets.items() if n != name)
        (folder / f"{name}.gz").write_bytes(gzip.compress(data, 9, mtime=0))


main()
