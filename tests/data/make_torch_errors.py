"""Writes tests/golden-errors/torch/<case>.pt: PyTorch's archives and streams, each with one defect.

    python3.11 make_torch_errors.py [FOLDER]

messages.tsv beside them holds what is said of each (CKPT_BLESS=1 makes the test write it; read the difference). What
begins with "noted-" opens, with a remark. Pickles are of protocol 0, which can be read, but where an opcode is meant.
"""
import io
import os
import shutil
import struct
import sys
import tarfile
import zlib

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden-errors", "torch")

# ---- pickles ---------------------------------------------------------------------------------------------------------


def number(value):
    return b"I%s\n" % str(value).encode()


def text(value):
    return b"V%s\n" % value.encode()


def tuple_of(*items):
    return b"(" + b"".join(items) + b"t"


def sizes(values):
    return tuple_of(*(number(value) for value in values))


def name(module, qualname):
    return b"c%s\n%s\n" % (module.encode(), qualname.encode())


def call(function, *args):
    return name("torch._utils", function) + tuple_of(*args) + b"R"


def dict_of(items):
    return b"}(" + b"".join(text(key) + value for key, value in items.items()) + b"u"


def storage(kind="FloatStorage", key=text("0"), n=6, *more):
    return tuple_of(text("storage"), name("torch", kind), key, text("cpu"), number(n), *more) + b"Q"


def view(of=storage(), offset=0, shape=(6,), strides=(1,), *more):
    return call("_rebuild_tensor_v2", of, number(offset), sizes(shape), sizes(strides), b"I00\n", b"}", *more)


GOOD = dict_of({"w": view()}) + b"."
SIX = bytes(24)

# ---- archives --------------------------------------------------------------------------------------------------------


class Record:
    """A record; keywords that begin with local_ or central_ say other things in one of its two headers."""

    def __init__(self, path, content, **fields):
        self.path, self.content, self.fields = path if isinstance(path, bytes) else path.encode(), content, fields

    def header(self, which, payload, at):
        said = {"version": 20, "flags": 0, "method": 0, "crc": zlib.crc32(self.content), "stored": len(payload),
                "size": len(self.content), "path": self.path, "extra": b"", "at": at, "disk": 0, "comment": 0}
        for key, value in self.fields.items():
            place, _, field = key.partition("_")
            if field == "" or place == which:
                said[field or place] = value
        head = struct.pack("<HHHIIIIHH", said["version"], said["flags"], said["method"], 0, said["crc"], said["stored"],
                           said["size"], len(said["path"]), len(said["extra"]))
        if which == "local":
            return b"PK\3\4" + head + said["path"] + said["extra"]
        return (b"PK\1\2" + struct.pack("<H", 20) + head + struct.pack("<HHHII", said["comment"], said["disk"], 0, 0,
                                                                    said["at"]) +
                said["path"] + said["extra"])

    def payload(self):
        if self.fields.get("method") != 8:
            return self.content
        squeezed = zlib.compressobj(9, zlib.DEFLATED, -15)
        return squeezed.compress(self.content) + squeezed.flush()


def archive(records, end64=None, **ends):
    """The records, the directory, perhaps zip64's ends (end64: what they say otherwise), and the end."""
    out = directory = b""
    for record in records:
        payload = record.payload()
        directory += record.header("central", payload, len(out))
        out += record.header("local", payload, 0) + payload
    said = {"n": len(records), "bytes": len(directory), "at": len(out), "disk": 0, "comment": b"", **ends}
    if end64 is not None:
        long = {**said, "size": 44, "end_at": len(out) + len(directory), **end64}
        directory += b"PK\6\6" + struct.pack("<QHHIIQQQQ", long["size"], 20, 20, 0, 0, long["n"], long["n"], long["bytes"],
                                             long["at"])
        directory += b"PK\6\7" + struct.pack("<IQI", 0, long["end_at"], 1)
    end = struct.pack("<HHHHIIH", said["disk"], said["disk"], said["n"], said["n"], said["bytes"], said["at"],
                      len(said["comment"]))
    return out + directory + b"PK\5\6" + end + said["comment"]


def records(pickle=GOOD, data=SIX, **fields):
    """Those of one tensor; fields are said of its data."""
    return [Record("a/data.pkl", pickle), Record("a/data/0", data, **fields)]


def pickled(pickle):
    """An archive whose object this is; the tensor is there to be read."""
    return archive(records(pickle))


def deflated(pickle):
    return archive([Record("a/data.pkl", pickle, method=8)])


def tensor(*args):
    return pickled(dict_of({"w": view(*args)}) + b".")


def more(*others):
    return archive(records() + [Record(path, content) for path, content in others])


def inside():
    """A record whose header lies in the payload of another: what one reader sees the other does not."""
    hidden = Record("a/data/0", SIX)
    whole = hidden.header("local", SIX, 0) + SIX
    pickle = Record("a/data.pkl", GOOD)
    at = len(pickle.header("local", GOOD, 0) + GOOD)
    outer = Record("a/data/1", whole)
    n = len(outer.header("local", whole, 0))
    both = archive([pickle, outer])
    directory = both[at + n + len(whole):-22] + hidden.header("central", SIX, at + n)
    start = at + n + len(whole)
    return both[:start] + directory + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 3, 3, len(directory), start, 0)


ONES = 0xFFFFFFFF
good = archive(records())


def zip64(size, stored, at=None):
    values = [value for value in (size, stored, at) if value is not None]
    return struct.pack("<HH", 1, 8 * len(values)) + b"".join(struct.pack("<Q", value) for value in values)


ARCHIVES = {
    "archive-empty": archive([]),
    "archive-cut": good[:-1],
    "archive-cut-in-record": good[:200],
    "archive-followed": good + b"\0" * 9,
    "archive-preceded": b"#!/bin/sh\n" + good,
    "archive-of-other-files": archive([Record("word/document.xml", b"<x/>")]),
    "archive-without-root": archive([Record("data.pkl", GOOD), Record("data/0", SIX)]),
    "archive-without-pickle": archive(records()[1:]),
    "archive-pickle-in-other-root": archive([Record("a/version", b"3\n"), Record("b/data.pkl", GOOD)]),
    "archive-comment-lies": archive(records(), comment=b"x" * 8)[:-3],
    "archive-of-disks": archive(records(), disk=1),
    "archive-torchscript": more(("a/constants.pkl", b"N.")),
    "archive-code": more(("a/code/__torch__.py", b"")),
    "directory-elsewhere": archive(records(), at=10),
    "directory-longer": archive(records(), bytes=1 << 30),
    "directory-of-65535": archive(records(), n=65534),
    "directory-damaged": good.replace(b"PK\1\2", b"PK\1\3", 1),
    "name-twice": archive(records() + records()[1:]),
    "name-of-pickle-twice": archive(records()[:1] + records(b"N.")),
    "name-differs": archive(records(local_path=b"a/data/1")),
    "name-escapes": archive([Record("../a/data.pkl", GOOD), Record("../a/data/0", SIX)]),
    "name-absolute": archive([Record("/a/data.pkl", GOOD), Record("/a/data/0", SIX)]),
    "name-nul": more(("a/data\0/1", b"")),
    "name-empty": more(("", b"")),
    "name-too-long": more(("a/" + "n" * 4095, b"")),
    "name-not-utf8": archive(records() + [Record(b"a/\xff", b"", flags=1 << 11)]),
    "records-overlap": inside(),
    "records-share": archive(records() + [Record("a/data/1", SIX, central_at=0)]),
    "record-of-long-comment": archive(records(central_comment=65535)),
    "record-outside": archive(records(central_at=1 << 30)),
    "record-in-directory": archive(records(central_size=400, central_stored=400, local_size=400, local_stored=400)),
    "record-size-differs": archive(records(local_size=20, local_stored=20)),
    "record-size-lies": archive(records(size=1 << 30)),
    "record-crc-differs": archive(records(local_crc=7)),
    "record-encrypted": archive(records(flags=1)),
    "record-bzip2": archive(records(method=12)),
    "record-method-differs": archive(records(central_method=8)),
    "bomb-said": archive(records(method=8, size=1 << 31)),
    "bomb-of-nodes": deflated(b"(" + b"]" * 2000000 + b"t."),
    "bomb-of-depth": deflated(b"N" + b"\x85" * 2000000 + b"."),
    "bomb-of-opcodes": deflated(b"]0" * (3 << 20) + b"N."),
    "noted-object-deep": deflated(dict_of({"w": b"N" + b"\x85" * 100000}) + b"."),
    "zip64-outside": archive(records(), end64={"end_at": 1 << 62}, n=65535),
    "zip64-damaged": archive(records(), end64={"size": 43}, n=65535),
    "zip64-contradicts": archive(records(), end64={"at": 0}),
    "zip64-of-many": archive(records(), end64={"n": 1 << 40}, n=65535),
    "zip64-directory-overflows": archive(records(), end64={"at": (1 << 64) - 8}, at=ONES),
    "zip64-without-sizes": archive(records(size=ONES, stored=ONES)),
    "zip64-extra-cut": archive(records(size=ONES, stored=ONES, extra=zip64(24, 24)[:-1])),
    "zip64-size-lies": archive(records(size=ONES, stored=ONES, extra=zip64(1 << 62, 1 << 62))),
    "zip64-size-overflows": archive(records(size=ONES, stored=ONES, extra=zip64((1 << 64) - 1, (1 << 64) - 1))),
    "zip64-place-lies": archive(records(central_at=ONES, central_extra=struct.pack("<HHQ", 1, 8, 1 << 63))),
    "byteorder-middle": more(("a/byteorder", b"middle")),
    "byteorder-empty": more(("a/byteorder", b"")),
    "byteorder-long": more(("a/byteorder", b"little" * 100)),
}

# ---- objects ---------------------------------------------------------------------------------------------------------

f = storage()
laughs = b"(lp0\n" + view() + b"a" + b"".join(b"(lp%d\n" % i + b"g%d\na" % (i - 1) * 10 for i in range(1, 12)) + b"."

OBJECTS = {
    "storage-missing": tensor(storage(key=text("7"))),
    "storage-larger": tensor(storage(n=7)),
    "storage-smaller": tensor(storage(n=5), 0, (5,)),
    "storage-of-two-sizes": pickled(dict_of({"a": view(), "b": view(storage(n=5), 0, (5,))}) + b"."),
    "storage-negative": tensor(storage(n=-1)),
    "storage-overflows": tensor(storage("DoubleStorage", text("0"), (1 << 61) + 3)),
    "storage-key-number": tensor(storage(key=number(0))),
    "storage-key-empty": tensor(storage(key=text(""))),
    "storage-key-escapes": tensor(storage(key=text("../../../etc/passwd"))),
    "storage-key-absolute": tensor(storage(key=text("/etc/passwd"))),
    "view-outside": tensor(f, 1),
    "view-outside-by-stride": tensor(f, 0, (2, 2), (5, 1)),
    "view-offset-negative": tensor(f, -1),
    "view-shape-negative": tensor(f, 0, (-1,)),
    "view-stride-negative": tensor(f, 0, (2,), (-1,)),
    "view-shape-overflows": tensor(f, 0, (1 << 32, 1 << 32), (0, 0)),
    "view-reach-overflows": tensor(f, 0, (3, 3), ((1 << 63) - 1, (1 << 63) - 1)),
    "view-without-strides": tensor(f, 0, (2, 3), (1,)),
    "view-without-storage": tensor(b"N"),
    "view-without-arguments": pickled(dict_of({"w": call("_rebuild_tensor_v2", f)}) + b"."),
    "object-laughs": pickled(laughs),
    "noted-object-holds-itself": pickled(b"(lp0\n" + view() + b"ag0\na."),
    "noted-name-of-4096-bytes": pickled(dict_of({"n" * 4096: view()}) + b"."),
    "name-of-tensor-too-long": pickled(dict_of({"n" * 4097: view()}) + b"."),
    "name-of-tensor-nul": pickled(b"}" + b"X\3\0\0\0a\0b" + view() + b"s."),
    "noted-view-of-little": tensor(f, 0, (1 << 35,), (0,)),
    "noted-axes": tensor(f, 0, (1,) * 9, (1,) * 9),
    "noted-dtype": tensor(storage("ComplexHalfStorage")),
    "noted-storage-class": tensor(storage("WeirdStorage")),
    "noted-conjugate": pickled(dict_of({"w": view(f, 0, (6,), (1,), dict_of({"conj": b"I01\n"}))}) + b"."),
    "noted-negative": pickled(dict_of({"w": view(storage("IntStorage"), 0, (6,), (1,), dict_of({"neg": b"I01\n"}))}) + b"."),
    "noted-code-that-runs": pickled(dict_of({"w": view(), "x": name("posix", "system") + tuple_of(text("id")) + b"R"}) + b"."),
    "noted-class-unknown": pickled(dict_of({"w": view(), "x": name("app", "Config") + b")\x81"}) + b"."),
}

# ---- opcodes ---------------------------------------------------------------------------------------------------------

big = b"(" + b"N" * 20000 + b"lp1\n0"
PICKLES = {
    "pickle-empty": b"",
    "pickle-cut": GOOD[:-1],
    "pickle-cut-in-text": b"X\x09\0\0\0abc",
    "pickle-opcode-unknown": b"\x80\x02\xff.",
    "pickle-protocol-6": b"\x80\x06N.",
    "pickle-frame-past-end": b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"N.",
    "pickle-frame-crossed": b"\x80\x04\x95" + struct.pack("<Q", 4) + b"X\3\0\0\0abc.",
    "pickle-text-past-end": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 32) + b"x.",
    "pickle-text-over-limit": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"x.",
    "pickle-text-not-utf8": b"X\1\0\0\0\xff.",
    "pickle-string-negative": b"T\xff\xff\xff\xffx.",
    "pickle-long-over-limit": b"\x8b\0\0\0\x40.",
    "pickle-long-negative": b"\x8b\xff\xff\xff\xff.",
    "pickle-int-no-number": b"I1_0\n.",
    "pickle-float-no-number": b"Fnil\n.",
    "pickle-string-without-quotes": b"Sx\n.",
    "pickle-stack-empty": b".",
    "pickle-stack-below-mark": b"N(\x85t.",
    "pickle-mark-missing": b"Nt.",
    "pickle-memo-missing": b"h\7.",
    "pickle-memo-number-overflows": b"Np18446744073709551616\n.",
    "pickle-memo-bomb-of-numbers": b"N" + b"".join(b"r" + struct.pack("<I", (1 << 31) + i) for i in range(4097)) + b".",
    "pickle-memo-bomb-of-copies": big + (name("builtins", "set") + b"h\1\x85R0") * 40 + b"N.",
    "pickle-dict-odd": b"(Nd.",
    "pickle-setitem-on-list": b"]NNs.",
    "pickle-reduce-no-callable": b"N)R.",
    "pickle-reduce-no-tuple": name("a", "b") + b"NR.",
    "pickle-newobj-no-class": b"N)\x81.",
    "pickle-newobj-ex-no-dict": name("a", "b") + b")N\x92.",
    "pickle-build-on-number": b"I1\n}b.",
    "pickle-build-on-class": name("a", "b") + b"}b.",
    "pickle-build-twice": name("a", "b") + b")\x81}b}b.",
    "pickle-obj-empty": b"(o.",
    "pickle-stack-global-no-text": b"NN\x93.",
    "pickle-global-empty": b"c\na\n.",
    "pickle-global-long": name("m" * 1025, "a") + b".",
    "pickle-extension-zero": b"\x82\0.",
    "pickle-persistent-no-ascii": b"P\xff\n.",
    "pickle-out-of-band": b"\x80\x05\x97.",
    "noted-pickle-of-nothing": b"N.",
}

# ---- streams ---------------------------------------------------------------------------------------------------------

MAGIC = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."


def stream(pickle=GOOD, keys=b"(lV0\na.", version=1001, little=True, n=6, payload=SIX):
    system = dict_of({"protocol_version": number(1001), "little_endian": b"I0%d\n" % little}) + b"."
    return MAGIC + number(version) + b"." + system + pickle + keys + (struct.pack("<q", n) + payload) * keys.count(b"V")


def legacy(*args):
    return dict_of({"w": view(storage("FloatStorage", text("0"), 6, *args))}) + b"."


def tar():
    """What PyTorch wrote before 0.1.10, which its loader takes another way."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for path, content in (("sys_info", b"}."), ("pickle", b"N."), ("storages", b"I0\n."), ("tensors", b"I0\n.")):
            info = tarfile.TarInfo(path)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return out.getvalue()[:3072]


STREAMS = {
    "stream-of-tar": tar(),
    "stream-magic-only": MAGIC,
    "stream-version-1002": stream(version=1002),
    "stream-big-endian": stream(little=False),
    "stream-code-in-keys": stream(keys=b"cos\nsystem\n(Vls\ntR."),
    "stream-cut-in-object": stream()[:120],
    "stream-cut-before-keys": MAGIC + number(1001) + b"." + dict_of({}) + b"." + GOOD,
    "stream-cut-before-storage": stream()[:-30],
    "stream-cut-in-storage": stream()[:-1],
    "stream-keys-no-list": stream(keys=b"N."),
    "stream-key-no-text": stream(keys=b"(lI0\na."),
    "stream-key-unknown": stream(keys=b"(lV0\naV1\na."),
    "stream-key-twice": stream(keys=b"(lV0\naV0\na."),
    "stream-storage-missing": stream(keys=b"(l."),
    "stream-storage-longer": stream(n=7),
    "stream-storage-negative": stream(n=-1),
    "stream-storage-overflows": stream(n=(1 << 62) + 6),
    "stream-view-outside": stream(legacy(tuple_of(text("1"), number(4), number(3)))),
    "stream-view-no-numbers": stream(legacy(tuple_of(text("1"), text("4"), number(2)))),
    "stream-view-of-view-outside": stream(legacy(tuple_of(text("1"), number(4), number(2)))),
    "noted-stream-code": stream(dict_of({"w": view(), "x": name("os", "system") + tuple_of(text("id")) + b"R"}) + b"."),
}


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else ROOT
    cases = {**ARCHIVES, **OBJECTS, **{case: pickled(pickle) for case, pickle in PICKLES.items()}, **STREAMS}
    kept = os.path.join(root, "messages.tsv")
    table = open(kept).read() if os.path.exists(kept) else ""
    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(root)
    for case, content in cases.items():
        with open(os.path.join(root, case + ".pt"), "wb") as file:
            file.write(content)
    with open(kept, "w") as file:
        file.write(table)


if __name__ == "__main__":
    main()
