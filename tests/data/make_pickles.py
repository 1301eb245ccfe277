"""Writes tests/data/pickles.tsv: a pickle per line, as name, bytes in hexadecimal, what it describes, names with offsets.

    python3.11 make_pickles.py

A zoo of values in every protocol, malicious ones (never loaded, and harmless if they were), and hand-made ones with
opcodes that no pickler writes. What they describe is what Python's own reader says (pickle_reference.py).
"""
import argparse
import collections
import datetime
import decimal
import enum
import os
import pathlib
import pickle
import struct
import sys
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pickle_reference  # noqa: E402

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pickles.tsv")


def module_of(name, **members):
    """A module with these classes, so that they pickle under its name."""
    sys.modules.setdefault(name.split(".")[0], types.ModuleType(name.split(".")[0]))
    module = sys.modules.setdefault(name, types.ModuleType(name))
    for key, value in members.items():
        value.__module__, value.__qualname__ = name, key
        setattr(module, key, value)
    return module


class Plain:
    pass


class Slots:
    __slots__ = ("a", "b")


class Keywords:
    def __new__(cls, *args, **keywords):
        return object.__new__(cls)

    def __getnewargs_ex__(self):
        return (1, "two"), {"three": 3}


class ListOf(list):
    pass


class DictOf(dict):
    pass


class Color(enum.Enum):
    RED = 1


class Size(tuple):
    def __reduce__(self):
        return Size, (tuple(self),)


class Tensor:
    def __init__(self, key, shape):
        self.key, self.shape = key, shape

    def __reduce__(self):
        storage = Storage(self.key)
        return _rebuild_tensor_v2, (storage, 0, self.shape, (self.shape[1], 1), False, collections.OrderedDict())


class Storage:
    def __init__(self, key):
        self.key = key


def _rebuild_tensor_v2(*args):
    raise AssertionError("not called")


class FloatStorage:
    pass


module_of("a.module", Plain=Plain, Slots=Slots, Keywords=Keywords, ListOf=ListOf, DictOf=DictOf, Color=Color)
module_of("torch", Size=Size, FloatStorage=FloatStorage)
module_of("torch._utils", _rebuild_tensor_v2=_rebuild_tensor_v2)


class Pickler(pickle._Pickler):
    def persistent_id(self, value):
        if isinstance(value, Storage):
            return ("storage", FloatStorage, value.key, "cpu", 6)
        return None


def dump(value, protocol):
    import io
    file = io.BytesIO()
    Pickler(file, protocol).dump(value)
    return file.getvalue()


def made(cls, *args, **attributes):
    value = cls(*args)
    for key, attribute in attributes.items():
        setattr(value, key, attribute)
    return value


def zoo():
    shared = [1]
    loop = []
    loop.append(loop)
    state = collections.OrderedDict([("w", Tensor("0", (2, 3))), ("b", Tensor("1", (6, 1))), ("tied", Tensor("0", (2, 3)))])
    state._metadata = collections.OrderedDict([("", {"version": 1})])
    slots = made(Slots, a=1)
    yield "constants", [None, True, False]
    yield "ints", [0, 1, -1, 255, 256, 65535, 65536, 2**31 - 1, -2**31, 2**31, 2**63 - 1, -2**63, -129, 10**9, 10**18]
    yield "longs", [2**63, -2**63 - 1, 2**64, 10**40, -10**40, 2**255, -2**255, 2**2040 - 1, 10**27, 999999999 * 10**9]
    yield "floats", [0.0, -0.0, 1.5, 0.1, 1e300, 5e-324, float("inf"), float("-inf"), float("nan"), 1e16, 123456789.0]
    yield "texts", ["", "a", "caf\u00e9 \u20ac \U0001F600", "\\ \\u0041 \n \r \0 \x1a 'q' \"", "\ud800x", "x" * 300]
    yield "bytes", [b"", b"\x00\xff\x80", b"y" * 300, bytearray(b"ab\xe9"), bytearray()]
    yield "containers", [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [1], [[2], 3], {}, {"k": {"n": (None,)}}]
    yield "keys", {1: "a", 2.5: "b", None: "c", (1, "x"): "d", True: "e", "s\"q": "f"}
    yield "sets", [set(), {7}, frozenset(), frozenset([(1, 2)])]
    yield "shared", [shared, shared, (shared, shared)]
    yield "loop", loop
    yield "batches", [list(range(1001)), {i: 0 for i in range(1001)}]
    yield "ordered", collections.OrderedDict([("b", 1), ("a", 2)])
    yield "state-dict", state
    yield "size", {"s": Size((3, 4)), "dtype": Size}
    yield "numbers", [complex(1, -2), decimal.Decimal("1.50"), slice(1, None, 2)]
    yield "paths", [pathlib.PurePosixPath("/a/b"), datetime.date(2026, 1, 2)]
    yield "collections", [collections.defaultdict(list, {"a": [1]}), collections.Counter("aab"), collections.deque([1, 2])]
    yield "namespace", argparse.Namespace(lr=0.1, name="n")
    yield "objects", [made(Plain, x=1, y=[2]), Plain(), made(ListOf, [1, 2], note="n"), made(DictOf, {"a": 1}, note="n")]
    yield "enum", Color.RED
    yield "classes", [Plain, int, len]
    yield "slots", slots
    yield "keywords", Keywords()


def text(value):
    return struct.pack("<BB", 0x8C, len(value)) + value.encode()


# Harmless if they ran (true(1), or nothing at all), and named as what they imitate.
MALICIOUS = {
    "os-system": b"cos\nsystem\n(S'true'\ntR.",
    "posix-reduce": b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R.",
    "stack-global": b"\x80\x04" + text("os") + text("system") + b"\x93" + text("true") + b"\x85R.",
    "stack-global-memo": b"\x80\x04" + text("system") + b"\x94" + text("os") + b"\x94" + b"0" + b"0"
                         + b"h\x01h\x00\x93" + text("true") + b"\x85R.",
    "inst": b"(S'true'\nios\nsystem\n.",
    "obj": b"(cos\nsystem\nS'true'\no.",
    "newobj": b"\x80\x02ca.module\nPlain\n)\x81cbuiltins\neval\nX\x01\x00\x00\x001\x85Rb.",
    "newobj-ex": b"\x80\x04cbuiltins\neval\n" + text("1") + b"\x85}\x92.",
    "getattr": b"c__builtin__\ngetattr\n(cos.path\nsep\nS'upper'\ntR(tR.",
    "dotted": b"\x80\x04" + text("torch._utils") + text("sys.modules") + b"\x93.",
    "submodule": b"ctorch.utils.collect_env\nrun\n(S'true'\ntR.",
    "load-from-bytes": b"ctorch.storage\n_load_from_bytes\n(C\x00tR.",
    "popped": b"cos\nsystem\n(S'true'\ntR0N.",
    "after-payload": b"(dS'k'\ncos\nsystem\n(S'true'\ntRs.X",
    "in-state": b"\x80\x02ca.module\nPlain\n)\x81}X\x01\x00\x00\x00xcbuiltins\nexec\nX\x00\x00\x00\x00\x85Rsb.",
    "ext": b"\x80\x02\x82\x05)R.",
    "nested": b"\x80\x02ccollections\nOrderedDict\n)R}X\x01\x00\x00\x00acsubprocess\nPopen\nX\x04\x00\x00\x00true\x85Rsb.",
}

# No pickler writes these; every reader takes them.
HAND_MADE = {
    "int-bool": b"(I00\nI01\nI-5\nI+7\nI000\nl.",
    "long-line": b"(L5L\nL-5\nL123456789012345678901234567890L\nL-9223372036854775808L\nL9223372036854775808\nt.",
    "long-odd": b"\x80\x02(\x8a\x00\x8a\x01\xff\x8a\x03\xff\xff\xff\x8a\x09" + b"\x00" * 8 + b"\x80"
                b"\x8b\x02\x00\x00\x00\x00\x80\x8a\x09" + b"\xff" * 9 + b"\x8a\x10" + b"\x00" * 15 + b"\x80t.",
    "float-line": b"(F1\nF-1.5e3\nFinf\nF-inf\nFnan\nF.5\nFInfinity\nl.",
    "string-line": b"(S'a\\'b\\x41\\101\\n\\q\\\\'\nS\"d\"\nS'\\377'\nS'\\8'\nl.",
    "unicode-line": b"(V\\u0041\\\\u0041\\U0001f600\xe9\\\nV\nV\\ud83d\\ude00\nl.",
    "binstring": b"(T\x02\x00\x00\x00abU\x03\xff\xfe\xfdU\x00l.",
    "persid": b"(Pa b\nU\x01xQl.",
    "memo": b"(lp7\n(lp0\nI1\nag7\n0h\x00r\xff\xff\xff\xff\x940j\xff\xff\xff\xff.",
    "pops": b"I1\n(I2\n01(0I5\n(I3\nI4\n10.",
    "dup": b"]2\x86.",
    "dict-odd-keys": b"\x80\x02}(]K\x01}K\x02]K\x03u.",
    "ext": b"\x80\x02(\x82\x01\x83\x00\x02\x84\x01\x00\x00\x00t.",
    "frame-then-operand": b"\x80\x04\x95\x03\x00\x00\x00\x00\x00\x00\x00](K\x01e.",
    "frame-then-text": b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00X\x03\x00\x00\x00abc.",
    "frame-empty": b"\x80\x04\x95" + b"\x00" * 8 + b"N.",
    "proto-later": b"N\x80\x05\x80\x02.",
    "left": b"K\x01K\x02K\x03.",
    "bytes8": b"\x80\x04(\x8e\x02\x00\x00\x00\x00\x00\x00\x00ab\x8d\x01\x00\x00\x00\x00\x00\x00\x00c"
              b"\x96\x01\x00\x00\x00\x00\x00\x00\x00dt.",
    "ordered-pairs": b"ccollections\nOrderedDict\n((lp0\n(S'a'\nI1\ntatR.",
    "codecs-other": b"c_codecs\nencode\n(V\\u20ac\nVlatin1\ntR.",
    "codecs-past-latin1": b"c_codecs\nencode\n(V\\u0100\nVlatin1\ntR.",
    "items-after-state": b"\x80\x02ccollections\nOrderedDict\n)R}K\x09K\x08sb(K\x01K\x02K\x03K\x04uK\x05K\x06s.",
    "ordered-new": b"\x80\x02ccollections\nOrderedDict\n)\x81K\x01K\x02s.",
    "reconstructor-odd": b"ccopy_reg\n_reconstructor\n(ca.module\nPlain\nc__builtin__\nobject\nI5\ntR.",
    "reconstructor-base": b"ccopy_reg\n_reconstructor\n(ca.module\nPlain\nc__builtin__\nint\nNtR.",
    "keywords-state": b"\x80\x04ca.module\nPlain\nK\x01\x85}K\x02K\x03s\x92}b(K\x04e(K\x05K\x06u.",
    "codecs-nul": b"c_codecs\nencode\n(Va\nVlatin1\\u0000\ntR.",
    "call-of-call": b"ca.module\nPlain\n(tR(I1\ntR.",
    "instance-list": b"\x80\x02ca.module\nPlain\n)\x81(K\x01K\x02e(K\x03K\x04uK\x05a}b.",
    "loop": b"]q\x00(h\x00e.",
    "deep": b"N" + b"\x85" * 200 + b".",
    "frozen-loop": b"\x80\x04(]\x94(h\x00e\x85\x91.",
}


def rows():
    for name, value in zoo():
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            try:
                yield f"{name}-{protocol}", dump(value, protocol)
            except (TypeError, ValueError, pickle.PicklingError) as error:
                if name not in ("slots", "keywords", "numbers"):
                    raise error
    for name, data in MALICIOUS.items():
        yield f"malicious-{name}", data
    for name, data in HAND_MADE.items():
        yield f"hand-{name}", data


def describe(data):
    graph, n, found = pickle_reference.read(data)
    names, places = {}, pickle_reference.positions(data[:n]) if found else []
    assert len(found) == len(places), (found, places)
    for name, at in zip(found, places):
        names.setdefault(name, at)
    return pickle_reference.show(graph), n, " ".join(f"{name.replace(' ', '_')}@{at}" for name, at in names.items())


def main():
    with open(PATH, "w", encoding="utf-8", errors="surrogatepass") as file:
        n_rows = 0
        for name, data in rows():
            text_of, n, names = describe(data)
            file.write(f"{name}\t{data.hex()}\t{n}\t{text_of}\t{names}\n")
            n_rows += 1
    print(n_rows, "pickles")


if __name__ == "__main__":
    main()
