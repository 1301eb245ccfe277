"""Random mutants of pickles.tsv, read by Python's own reader with names for classes and by the pickle machine.

    mutants.py PRINTER [N] [SEED]      PRINTER: build/bin/pickle_print

Where Python accepts, the machine must describe the same, or refuse with one of STRICTER; where Python refuses, the
machine may do either, but must answer. Then random programs, read by Python's own readers, in C and in Python, with
classes that only record: what is called there is never silent here (ckpt_pickle_skim). Exit 1 at any difference, which
is printed as hexadecimal.
"""
import collections
import io
import os
import pickle
import random
import re
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "data"))
sys.dont_write_bytecode = True
import pickle_reference  # noqa: E402

# What Python takes and no pickler writes.
STRICTER = [
    "is no decimal integer", "is no memo number", "is no decimal number", "a frame of", "memo numbers larger",
    "(the limit is 1024 bytes)", "copies of the same values", "changes .* itself",
]


def pickles():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "data", "pickles.tsv")
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


# What programs are made of: values, containers, names, and what Python takes that no pickler writes.
PIECES = [
    b"N", b"K\x01", b"I1\n", b"I0x1\n", b"F1_0\n", b"L0x1L\n", b"]", b"}", b")", b"\x8f", b"(", b"(", b"\x88", b"0", b"0",
    b"2", b"t", b"l", b"\x85", b"\x86", b"\x91", b"e", b"a", b"u", b"s", b"\x90", b"b", b"b", b"R", b"R", b"\x81", b"\x92",
    b"o", b"cm\nn\n", b"im\nn\n", b"\x8c\x01m\x8c\x01n", b"\x93", b"\x94", b"q\x00", b"q\x01", b"h\x00", b"h\x01",
    b"g 0\n", b"p1\n", b"\x96\x01\0\0\0\0\0\0\0a", b"C\x01a", b"Ns", b"K\0Ns", b"NNb", b"N(e", b"\x80\x05",
    b"\x95\x02\0\0\0\0\0\0\0", b"S'm'\n", b"Vn\n", b"\x8c\x01\xff", b"I\n", b"Ix\n",
]


def recorder(called):
    """A class for every name: instances of it, and all that is done with them, are noted."""

    class Thing:
        def __new__(cls, *args, **keywords):
            called.append("new")
            return super().__new__(cls)

        def __init__(self, *args, **keywords):
            pass

        def __setstate__(self, state):
            called.append("built")

    return Thing


def is_called(data, base):
    """Whether a reader of Python's calls or builds something by a name, before it ends or refuses."""
    called = []
    thing = recorder(called)

    class Reader(base):
        def find_class(self, module, name):
            return thing

    try:
        Reader(io.BytesIO(data)).load()
    except Exception:  # whatever a broken pickle makes Python raise
        pass
    return bool(called)


def ask(process, data):
    """(status, whether calls are said, bytes read, text); None where it died."""
    process.stdin.write(struct.pack("<I", len(data)) + data)
    process.stdin.flush()
    head = process.stdout.read(15)
    if len(head) < 15:
        print("died of", data.hex())
        return None
    status, _, is_said, n, size = struct.unpack("<BBBQI", head)
    return status, is_said, n, process.stdout.read(size).decode("utf-8", "surrogatepass")


def check_programs(process, n_programs, chance, counts):
    for _ in range(n_programs):
        start, end = chance.choice((
            (b"\x80\x04", b""), (b"\x8c\x01mq\x000\x8c\x01nq\x010", b"h\x00h\x01\x93)R"), (b"cm\nn\nq\x050", b"h\x05)R"),
            (b"cm\nn\nq\x050", b"(h\x05o"), (b"", b"cm\nn\n)\x81"), (b"S'm'\nq\x000Vn\nq\x010", b"h\x00h\x01\x93]R")))
        data = start + b"".join(chance.choice(PIECES) for _ in range(chance.randrange(1, 8))) + end + b"."
        answer = ask(process, data)
        if answer is None:
            return False
        called = [base for base in (pickle.Unpickler, pickle._Unpickler) if is_called(data, base)]
        counts["programs that call" if called else "programs that do not"] += 1
        if called and not answer[1]:
            print("silent:", data.hex(), "\n  machine", answer[0], answer[3][:300], "\n  python ", called)
            return False
    return True


def main(printer, n_mutants, seed):
    pool, chance, counts = pickles(), random.Random(seed), collections.Counter()
    process = subprocess.Popen([printer], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for _ in range(n_mutants):
        data = mutant(pool, chance)
        answer = ask(process, data)
        if answer is None:
            return 1
        status, _, n, text = answer
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
    if not check_programs(process, n_mutants, chance, counts):
        return 1
    process.stdin.close()
    print(f"seed {seed}:", ", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20000,
                  int(sys.argv[3]) if len(sys.argv) > 3 else 1))
