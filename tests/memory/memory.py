#!/usr/bin/env python3
"""The memory rule: peak RSS is at most --memory, the index and 32 MiB, and does not grow with the checkpoint.

    memory.py CKPT

Sparse safetensors files (their bytes are holes) are hashed, cast and converted at several --memory; the peak is what
the kernel counted for the process. With CKPT_TEST_FULL: 20 GB, 500,000 tensors, and the limit of 1,000,000.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

CKPT = sys.argv[1]
FULL = "CKPT_TEST_FULL" in os.environ
MIB, GB = 1 << 20, 10**9
ALLOWED = 32 * MIB  # beside --memory and the index
SAME = 6 * MIB  # noise between two runs
BYTES_PER_TENSOR, BYTES_PER_TENSOR_OPENING = 400, 1200
problems = []


def write_sparse(path, n_tensors, n_bytes, dtype="F32"):
    """A file of n_bytes of zeros in n_tensors tensors."""
    item = {"F32": 4, "BF16": 2, "U8": 1}[dtype]
    each = n_bytes // n_tensors // item // 64 * 64 * item or item
    shape = "[%d,64]" % (each // item // 64) if each > item else "[1]"
    header = ["{"]
    for i in range(n_tensors):
        header.append('%s"t%d":{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}'
                      % ("," if i else "", i, dtype, shape, i * each, (i + 1) * each))
    text = "".join(header + ["}"]).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + n_tensors * each)


def run(*arguments):
    """Peak RSS of a run in bytes (at least what this script has: a child begins as its copy), status and messages."""
    with tempfile.TemporaryFile() as said:
        started = time.monotonic()
        process = subprocess.Popen([CKPT, *arguments], stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        message = said.read().decode()
    return usage.ru_maxrss * 1024, process.returncode, message, time.monotonic() - started


def measure(what, limit, *arguments):
    """The peak of a run that has to succeed below limit."""
    peak, status, message, seconds = run(*arguments)
    print("%-44s %6.1f MiB%s, %4.1f s" % (what, peak / MIB, " of %.0f" % (limit / MIB), seconds))
    if status != 0:
        problems.append("%s: exit %d: %s" % (what, status, message))
    elif peak > limit:
        problems.append("%s: %d MiB, at most %d MiB are allowed" % (what, peak // MIB, limit // MIB))
    return peak


def check_budgets(base):
    """--memory is obeyed, for one large tensor and for many."""
    for n_tensors in (1, 300):
        path, out = os.path.join(base, "budget.safetensors"), os.path.join(base, "out.safetensors")
        write_sparse(path, n_tensors, 300 * 1000**2)
        for memory in (16, 64, 128):
            limit = memory * MIB + ALLOWED + n_tensors * BYTES_PER_TENSOR
            name = "300 MB in %d, --memory %dM: " % (n_tensors, memory)
            measure(name + "hash", limit, "hash", path, "--memory", "%dM" % memory)
            measure(name + "cast", limit, "convert", path, "-o", out, "--dtype", "f8_e4m3", "--memory", "%dM" % memory,
                    "--quiet")
            os.remove(out)
        os.remove(path)


def check_growth(base):
    """The peak does not depend on the size."""
    sizes = (1, 20) if FULL else (1, 4)
    peaks = {}
    for size in sizes:
        path, out = os.path.join(base, "large.safetensors"), os.path.join(base, "out.safetensors")
        write_sparse(path, 20, size * GB)
        limit = 128 * MIB + ALLOWED
        peaks["hash", size] = measure("%d GB: hash" % size, limit, "hash", path)
        convert = ["convert", path, "-o", out, "--quiet", "--dtype", "f8_e4m3"]
        if not FULL:  # a quarter of it is written, and a disk may be slow
            convert += ["--match", "t[0-4]"]
        if shutil.disk_usage(base).free > size * GB:
            peaks["cast", size] = measure("%d GB: cast" % size, limit, *convert)
            os.remove(out)
        os.remove(path)
    for verb in ("hash", "cast"):
        a, b = (peaks.get((verb, size), 0) for size in sizes)
        if b > a + SAME:
            problems.append("%s: %d MiB at %d GB, %d MiB at %d GB" % (verb, a // MIB, sizes[0], b // MIB, sizes[1]))


def check_tensors(base):
    """Many tensors: the index is what it may cost, and the limit of their number holds."""
    path = os.path.join(base, "many.safetensors")
    for n in (500_000, 1_000_000) if FULL else (50_000,):
        write_sparse(path, n, n, "U8")
        opening = n * BYTES_PER_TENSOR_OPENING + ALLOWED
        measure("%d tensors: ls" % n, opening, "ls", path)
        measure("%d tensors: hash" % n, opening + 128 * MIB, "hash", path)
    if FULL:
        write_sparse(path, 1_000_001, 1_000_001, "U8")
        peak, status, message, _ = run("ls", path)
        if status != 1 or "1,000,000" not in message and "1000000" not in message:
            problems.append("1,000,001 tensors: exit %d: %s" % (status, message))


def check_refusal(base):
    """What cannot fit is refused before anything is written."""
    path = os.path.join(base, "small.safetensors")
    write_sparse(path, 2, 1000**2)
    _, status, message, _ = run("convert", path, "-o", os.path.join(base, "never.safetensors"), "--memory", "100K")
    if status not in (1, 2) or not re.search(r"memory", message) or os.path.exists(os.path.join(base, "never.safetensors")):
        problems.append("--memory 100K: exit %d: %s" % (status, message))


def main():
    with tempfile.TemporaryDirectory(prefix="ckpt-memory-") as base:
        for part in (check_budgets, check_growth, check_tensors, check_refusal):
            part(base)
    for problem in problems:
        print(problem.strip())
    print(json.dumps({"problems": len(problems)}))
    return 1 if problems else 0


sys.exit(main())
