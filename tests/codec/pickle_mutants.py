"""Random mutants of pickles.tsv, read by Python's own reader with names for classes and by the pickle machine.

    pickle_mutants.py PRINTER [N] [SEED]      PRINTER: build/bin/pickle_print

Where Python accepts, the machine must describe the same, or refuse with one of STRICTER; where Python refuses, the
machine may do either, but must answer. Exit 1 at any difference, which is printed as hexadecimal.
"""
import collections
import os
import random
import re
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data"))
sys.dont_write_bytecode = True
import pickle_reference  # noqa: E402

# What Python takes and no pickler writes.
STRICTER = [
    "is no decimal integer", "is no memo number", "is no decimal number", "a frame of", "memo numbers larger",
    "(the limit is 1024 bytes)", "copies of the same values", "changes .* itself",
]


def pickles():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "pickles.tsv")
    with open(path, encoding="utf-8", errors="surrogatepass") as file:
        rows = [bytes.fromhex(line.split("\t")[1]) for line in file]
    return [row for row in rows if len(row) < 2000]


def mutant(pool, random):
    data = bytearray(random.choice(pool))
    opcodes = bytes(pickle_reference.Reader.dispatch)
    for _ in range(random.choice((1, 1, 1, 2, 3, 5))):
        at, kind = random.randrange(len(data)), random.randrange(7)
        if kind == 0:
            data[at] = random.randrange(256)
        elif kind == 1:
            data[at] = random.choice(opcodes)
        elif kind == 2:
            data.insert(at, random.choice(opcodes))
        elif kind == 3:
            del data[at:at + random.choice((1, 1, 2, 4, 9))]
        elif kind == 4:
            end = at + random.randrange(1, 16)
            data[at:at] = data[at:end]
        elif kind == 5:
            other = random.choice(pool)
            start = random.randrange(len(other))
            data[at:at] = other[start:start + random.randrange(1, 24)]
        else:
            data[at:at + 1] = random.choice((b"0", b"2", b"h\x00", b"h\x01", b"q\x02", b"(", b"t", b"\x94", b")R", b"}b"))
        if not data:
            data = bytearray(b".")
    return bytes(data)


def by_python(data):
    """(what it describes, bytes read), or (None, why)"""
    try:
        graph, n, _ = pickle_reference.read(data)
        try:
            text = pickle_reference.show(graph)
        except pickle_reference.TooLong:
            text = ""
    except (Exception, RecursionError) as error:  # whatever a broken pickle makes Python raise
        return None, repr(error)
    return text, n


def main(printer, n_mutants, seed):
    pool, chance, counts = pickles(), random.Random(seed), collections.Counter()
    process = subprocess.Popen([printer], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for _ in range(n_mutants):
        data = mutant(pool, chance)
        process.stdin.write(struct.pack("<I", len(data)) + data)
        process.stdin.flush()
        head = process.stdout.read(14)
        if len(head) < 14:
            print("died of", data.hex())
            return 1
        status, _, n, size = struct.unpack("<BBQI", head)
        text = process.stdout.read(size).decode("utf-8", "surrogatepass")
        wanted, why = by_python(data)
        if wanted == "" and not status and n == why:
            counts["too long to compare"] += 1
        elif wanted is None:
            counts["both refuse" if status else "only Python refuses"] += 1
        elif status and any(re.search(pattern, text) for pattern in STRICTER):
            counts["stricter"] += 1
        elif (text, n) == (wanted, why) and not status:
            counts["both describe the same"] += 1
        else:
            print("differs:", data.hex(), "\n  machine", status, n, text[:300], "\n  python ", why, wanted[:300])
            return 1
    process.stdin.close()
    print(f"seed {seed}:", ", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20000,
                  int(sys.argv[3]) if len(sys.argv) > 3 else 1))
