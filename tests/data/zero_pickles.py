"""Pickles of torch and DeepSpeed without either: stand-ins of their classes, and torch.save."""
import io
import os
import pickle
import struct
import sys
import types
import zipfile
from collections import OrderedDict


def module_of(name):
    parts = name.split(".")
    for i in range(len(parts)):
        sys.modules.setdefault(".".join(parts[:i + 1]), types.ModuleType(".".join(parts[:i + 1])))
    return sys.modules[name]


def stand_in(module, name, **members):
    cls = type(name, (), dict(members, __module__=module, __qualname__=name))
    setattr(module_of(module), name, cls)
    return cls


def rebuild(*arguments):
    pass


rebuild.__module__, rebuild.__qualname__, rebuild.__name__ = "torch._utils", "_rebuild_tensor_v2", "_rebuild_tensor_v2"
module_of("torch._utils")._rebuild_tensor_v2 = rebuild
FloatStorage, HalfStorage = stand_in("torch", "FloatStorage"), stand_in("torch", "HalfStorage")
LongStorage, BoolStorage = stand_in("torch", "LongStorage"), stand_in("torch", "BoolStorage")
Size = stand_in("torch", "Size", __init__=lambda self, *axes: setattr(self, "axes", axes),
                __reduce__=lambda self: (Size, (self.axes,)))
Stage = stand_in("deepspeed.runtime.zero.config", "ZeroStageEnum", __init__=lambda self, value: setattr(self, "value", value),
                 __reduce__=lambda self: (Stage, (self.value,)))
Fragment = stand_in("deepspeed.utils.tensor_fragment", "fragment_address",
                    __init__=lambda self, numel=0, start=0: self.__dict__.update(numel=numel, start=start))


class Storage:
    def __init__(self, values, kind):
        self.values, self.kind = values, kind


class Tensor:
    pad = 0  # elements that a storage has at least

    def __init__(self, *shape, first=0.0, kind=FloatStorage):
        n = 1
        for axis in shape:
            n *= axis
        self.shape, self.storage = shape, Storage([first + i for i in range(max(n, Tensor.pad))], kind)

    def __reduce__(self):
        strides, step = [], 1
        for axis in reversed(self.shape):
            strides.insert(0, step)
            step *= axis
        return rebuild, (self.storage, 0, self.shape, tuple(strides), False, OrderedDict())


def pickled(value):
    """The pickle of a file, and its storages."""
    data, storages = io.BytesIO(), []

    class Pickler(pickle.Pickler):
        def persistent_id(self, item):
            if not isinstance(item, Storage):
                return None
            if item not in storages:
                storages.append(item)
            return "storage", item.kind, str(storages.index(item)), "cpu", len(item.values)

    Pickler(data, 2).dump(value)
    return data.getvalue(), storages


def save(path, value):
    """torch.save."""
    data, storages = pickled(value)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with zipfile.ZipFile(path, "w") as out:
        def put(name, content):
            out.writestr(zipfile.ZipInfo("archive/" + name), content)
        put("data.pkl", data)
        put("byteorder", "little")
        for i, storage in enumerate(storages):
            form = "<%d%s" % (len(storage.values), {FloatStorage: "f", HalfStorage: "e", LongStorage: "q", BoolStorage: "?"}[storage.kind])
            put("data/%d" % i, struct.pack(form, *map(int if storage.kind in (LongStorage, BoolStorage) else float, storage.values)))
        put("version", "3\n")
