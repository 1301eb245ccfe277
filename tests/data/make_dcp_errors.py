"""Writes tests/golden-errors/dcp/<case>/: folders of torch.distributed.checkpoint, each with one defect.

    python3.11 make_dcp_errors.py [FOLDER]

The classes are stand-ins of the same names, so that no torch is needed; what they pickle to is what PyTorch's do.
"""
import io
import json
import os
import pickle
import shutil
import sys
import types
import zipfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden-errors", "dcp")


def module_of(name):
    parts = name.split(".")
    for i in range(len(parts)):
        sys.modules.setdefault(".".join(parts[:i + 1]), types.ModuleType(".".join(parts[:i + 1])))
    return sys.modules[name]


def stand_in(module, name, **members):
    """A class of this name, whose instances have attributes."""
    members.setdefault("__init__", lambda self, **fields: self.__dict__.update(fields))
    cls = type(name, (), dict(members, __module__=module, __qualname__=name))
    setattr(module_of(module), name, cls)
    return cls


class Global:
    """Pickles as the name itself: torch.float32."""

    def __init__(self, name):
        self.name = name

    def __reduce__(self):
        return self.name


METADATA = "torch.distributed.checkpoint.metadata"
Metadata = stand_in(METADATA, "Metadata")
TensorStorageMetadata = stand_in(METADATA, "TensorStorageMetadata")
ChunkStorageMetadata = stand_in(METADATA, "ChunkStorageMetadata")
BytesStorageMetadata = stand_in(METADATA, "BytesStorageMetadata")
MetadataIndex = stand_in(METADATA, "MetadataIndex", __hash__=lambda self: id(self))
TensorProperties = stand_in(METADATA, "TensorProperties", __getstate__=lambda self: (
    (self.dtype, None, False, None, False) + getattr(self, "strides", ())))
StorageInfo = stand_in("torch.distributed.checkpoint.filesystem", "_StorageInfo")
Size = stand_in("torch", "Size", __init__=lambda self, *axes: setattr(self, "axes", axes),
                __reduce__=lambda self: (Size, (self.axes,)))
Foreign = stand_in("bytecheckpoint.checkpointer.meta_type", "Metadata")


def archive(payload, n, start=b"K\0", pickle=None):
    """What torch.save writes of a tensor of n elements."""
    data = io.BytesIO()
    pickle = pickle or b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(P0\n%sK%c\x85K\1\x85\x89}tR." % (start, n)
    with zipfile.ZipFile(data, "w") as out:
        for name, content in (("data.pkl", pickle), ("byteorder", b"little"), ("data/0", payload), ("version", b"3\n")):
            info = zipfile.ZipInfo("archive/" + name)
            out.writestr(info, content)
    return data.getvalue()


def safetensors(name, shape, dtype="F32", metadata=None):
    n_bytes = 4
    for axis in shape:
        n_bytes *= axis
    header = {name: {"dtype": dtype, "shape": shape, "data_offsets": [0, n_bytes]}}
    if metadata is not None:
        header["__metadata__"] = metadata
    header = json.dumps(header).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + bytes(n_bytes)


def shard(start, shape=(3,), dtype="F32"):
    """What HuggingFaceStorageWriter writes of a chunk that begins at start."""
    return safetensors("w", list(shape), dtype, {"DCP_SHARDING_INFO": json.dumps({"w": {"saved_offsets": start}})})


def archive_of_number():
    """What torch.save writes of 7."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as out:
        out.writestr(zipfile.ZipInfo("archive/data.pkl"), b"\x80\x02K\x07.")
    return data.getvalue()


class Checkpoint:
    """Tensor w of 6 float32 in two chunks of two ranks, and an object; change() damages it."""

    def __init__(self):
        self.files = {"__0_0.distcp": archive(bytes(12), 3) + archive_of_number(), "__1_0.distcp": archive(bytes(12), 3)}
        n = len(self.files["__1_0.distcp"])
        self.chunks = [self.chunk(0, 3), self.chunk(3, 3)]
        self.places = [[MetadataIndex(fqn="w", index=i, offset=Size(3 * i)),
                        StorageInfo(relative_path="__%d_0.distcp" % i, offset=0, length=n)] for i in range(2)]
        self.places.append([MetadataIndex(fqn="o", index=None),
                            StorageInfo(relative_path="__0_0.distcp", offset=n, length=len(archive_of_number()))])
        self.tensor = TensorStorageMetadata(properties=TensorProperties(dtype=Global("torch float32")), size=Size(6),
                                            chunks=self.chunks)
        self.items = {"w": self.tensor, "o": BytesStorageMetadata()}
        self.metadata = Metadata(state_dict_metadata=self.items, planner_data={"w": ("w",), "o": ("o",)})
        self.cut = None
        self.name = ".metadata"

    @staticmethod
    def chunk(start, count):
        return ChunkStorageMetadata(offsets=Size(start), sizes=Size(count))

    def write(self, folder):
        os.makedirs(folder)
        if isinstance(self.metadata, Metadata) and not hasattr(self.metadata, "storage_data"):
            self.metadata.storage_data = {key: info for key, info in self.places}
        for name, content in self.files.items():
            if content is not None:
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(content)
        if self.name is not None:
            with open(os.path.join(folder, self.name), "wb") as file:
                file.write(dump(self.metadata)[:self.cut])


class Pickler(pickle._Pickler):
    """Names of modules that do not exist."""

    def save_global(self, obj, name=None):
        if name is not None and " " in name:
            module, name = name.split(" ")
            self.save(module)
            self.save(name)
            self.write(pickle.STACK_GLOBAL)
            self.memoize(obj)
        else:
            super().save_global(obj, name)


def dump(value):
    out = io.BytesIO()
    Pickler(out, 4).dump(value)
    return out.getvalue()


def info(c, i=1):
    return c.places[i][1]


def share(c, n):
    """Many tensors of one list of empty chunks."""
    chunks = [c.chunk(0, 0)] * n
    for i in range(n):
        c.items["e%d" % i] = TensorStorageMetadata(properties=c.tensor.properties, size=Size(0), chunks=chunks)


def bomb(c):
    """The object is a zstd stream of blocks that repeat a byte: 2 KB that are 64 MiB and more."""
    blocks = [(last | 1 << 1 | (128 << 10) << 3).to_bytes(3, "little") + b"\0" for last in [0] * 512 + [1]]
    stream = b"\x28\xb5\x2f\xfd\0\x38" + b"".join(blocks)
    c.files["__0_0.distcp"] = archive(bytes(12), 3) + stream
    info(c, 2).length, info(c, 2).transform_descriptors = len(stream), ["stream.zstd/1"]


def window(c):
    """The object is a zstd stream whose frame asks its reader to hold 128 MiB."""
    bomb(c)
    c.files["__0_0.distcp"] = c.files["__0_0.distcp"].replace(b"\x28\xb5\x2f\xfd\0\x38", b"\x28\xb5\x2f\xfd\0\x88")


def rename(c, name):
    c.items[name] = c.items.pop("w")
    for place in c.places[:2]:
        place[0].fqn = name


def two(c, damage):
    """Tensor v of 5 elements beside w, both damaged."""
    c.items["v"] = TensorStorageMetadata(properties=c.tensor.properties, size=Size(5), chunks=[])
    for name in "vw":
        damage(c.items[name])


def strided(c, second=archive(bytes(12), 3)):
    """The metadata says strides, so that chunks' own are read."""
    c.tensor.properties.strides = ((2,),)
    c.files["__1_0.distcp"] = second
    info(c).length = len(second)


def of_safetensors(c, first, second):
    """Files of SerializationFormat.SAFETENSORS, and no object."""
    c.items.pop("o"), c.places.pop()
    c.files = {"__0_0.distcp": first, "__1_0.distcp": second}


def of_shards(c, shards):
    c.name = None
    c.files = {"shard-%05d-model-00001-of-00001.safetensors" % number: content for number, content in shards.items()}


CASES = {
    "noted-nothing": lambda c: None,
    "noted-empty-chunk-without-place": lambda c: c.chunks.append(c.chunk(6, 0)),
    "noted-replica": lambda c: c.chunks.append(c.chunk(3, 3)),
    "noted-object-damaged": lambda c: setattr(info(c, 2), "length", 6),
    "object-bomb": bomb,
    "object-window": window,
    "noted-file-of-another-save": lambda c: c.files.update({"__9_0.distcp": archive(bytes(12), 3)}),
    "noted-file-without-items": lambda c: c.files.update({"__9_0.distcp": b""}),
    "empty-chunk-past-end": lambda c: (c.chunks.append(c.chunk(6, 0)), c.places.append(
        [MetadataIndex(fqn="w", index=2, offset=Size(6)),
         StorageInfo(relative_path="__1_0.distcp", offset=len(c.files["__1_0.distcp"]), length=200)])),
    "noted-path-too-long": lambda c: setattr(c.metadata, "planner_data", {"w": ("",) * 1000}),
    "chunks-shared": lambda c: share(c, 300),
    "noted-name-of-4096-bytes": lambda c: rename(c, "n" * 4096),
    "noted-strides": strided,
    "strided-chunk-of-other-shape": lambda c: strided(c, archive(bytes(12), 2)),
    "strided-chunk-of-fewer-bytes": lambda c: strided(c, archive(bytes(8), 3)),
    "strided-chunk-past-storage": lambda c: strided(c, archive(bytes(12), 3, b"\x8a\x08" + (1 << 62).to_bytes(8, "little"))),
    "strided-chunk-no-tensor": lambda c: strided(c, archive(bytes(12), 3, pickle=b"\x80\x02K\7.")),
    "noted-safetensors": lambda c: of_safetensors(c, safetensors("w", [3]), safetensors("w", [3])),
    "safetensors-of-one-name": lambda c: (of_safetensors(c, safetensors("w", [3]), b""),
                                          setattr(info(c), "relative_path", "__0_0.distcp")),
    "safetensors-of-other-name": lambda c: of_safetensors(c, safetensors("w", [3]), safetensors("v", [3])),
    "safetensors-of-other-shape": lambda c: of_safetensors(c, safetensors("w", [3]), safetensors("w", [4])),
    "noted-shards": lambda c: of_shards(c, {1: shard([0]), 2: shard([3])}),
    "shards-from-0": lambda c: of_shards(c, {0: shard([0]), 1: shard([3])}),
    "shards-missing": lambda c: of_shards(c, {1: shard([0]), 3: shard([3])}),
    "shard-without-places": lambda c: of_shards(c, {1: shard([0]), 2: safetensors("w", [3])}),
    "shard-at-two-axes": lambda c: of_shards(c, {1: shard([0]), 2: shard([3, 0])}),
    "shard-at-no-number": lambda c: of_shards(c, {1: shard([0]), 2: shard(["3"])}),
    "shard-at-overflow": lambda c: of_shards(c, {1: shard([0]), 2: shard([(1 << 64) - 2])}),
    "shard-of-other-dtype": lambda c: of_shards(c, {1: shard([0]), 2: shard([3], dtype="I32")}),
    "shard-of-other-rank": lambda c: of_shards(c, {1: shard([0]), 2: shard([3, 0], (3, 1))}),
    "name-too-long": lambda c: c.items.update({"n" * 4097: c.items.pop("w")}),
    "path-too-long": lambda c: setattr(info(c), "relative_path", "p" * 4097),
    "state-of-many-attributes": lambda c: info(c).__dict__.update({"a%d" % i: i for i in range(70)}),
    "metadata-missing": lambda c: setattr(c, "name", None),
    "metadata-empty": lambda c: setattr(c, "cut", 0),
    "metadata-cut": lambda c: setattr(c, "cut", 300),
    "metadata-other-class": lambda c: setattr(c, "metadata", ChunkStorageMetadata()),
    "metadata-no-class": lambda c: setattr(c, "metadata", {"state_dict_metadata": {}}),
    "metadata-without-items": lambda c: delattr(c.metadata, "state_dict_metadata"),
    "metadata-without-storage": lambda c: setattr(c.metadata, "storage_data", None),
    "bytecheckpoint": lambda c: setattr(c, "metadata", Foreign(all_tensor_metadata={})),
    "file-missing": lambda c: c.files.pop("__1_0.distcp"),
    "files-missing": lambda c: c.files.clear(),
    "file-truncated": lambda c: c.files.update({"__1_0.distcp": c.files["__1_0.distcp"][:-1]}),
    "length-past-end": lambda c: setattr(info(c), "length", 1 << 40),
    "length-negative": lambda c: setattr(info(c), "length", -1),
    "offset-text": lambda c: setattr(info(c), "offset", "0"),
    "object-past-end": lambda c: setattr(info(c, 2), "length", 1000),
    "path-escapes": lambda c: setattr(info(c), "relative_path", "../noted-nothing/__1_0.distcp"),
    "path-absolute": lambda c: setattr(info(c), "relative_path", "/etc/passwd"),
    "path-empty": lambda c: setattr(info(c), "relative_path", ""),
    "path-no-text": lambda c: setattr(info(c), "relative_path", 7),
    "place-missing": lambda c: c.places.pop(1),
    "place-of-other-offset": lambda c: setattr(c.places[1][0], "offset", Size(2)),
    "key-without-name": lambda c: setattr(c.places[1][0], "fqn", None),
    "chunks-overlap": lambda c: (setattr(c.chunks[1], "offsets", Size(2)), setattr(c.places[1][0], "offset", Size(2))),
    "chunks-leave-hole": lambda c: setattr(c.chunks[1], "sizes", Size(2)),
    "chunk-outside": lambda c: setattr(c.chunks[1], "sizes", Size(4)),
    "chunk-overflows": lambda c: setattr(c.chunks[1], "sizes", Size((1 << 63) - 1)),
    "chunk-of-other-rank": lambda c: setattr(c.chunks[1], "sizes", Size(3, 1)),
    "chunk-negative": lambda c: setattr(c.chunks[1], "offsets", Size(-3)),
    "chunks-of-two-without-list": lambda c: two(c, lambda t: setattr(t, "chunks", None)),
    "chunks-of-two-missing": lambda c: two(c, lambda t: setattr(t, "chunks", [])),
    "chunks-missing": lambda c: c.chunks.clear(),
    "chunks-no-list": lambda c: setattr(c.tensor, "chunks", None),
    "shape-of-text": lambda c: setattr(c.tensor, "size", "6"),
    "shape-too-many-axes": lambda c: setattr(c.tensor, "size", Size(*[1] * 9)),
    "shape-overflows": lambda c: setattr(c.tensor, "size", Size(1 << 40, 1 << 40)),
    "dtype-quantized": lambda c: setattr(c.tensor.properties, "dtype", Global("torch qint8")),
    "dtype-missing": lambda c: delattr(c.tensor, "properties"),
    "name-nul": lambda c: (c.items.update({"a\0b": c.items.pop("w")})),
    "name-no-text": lambda c: c.items.update({7: c.items.pop("w")}),
    "extension-rot13": lambda c: setattr(info(c), "transform_descriptors", ["stream.rot13/1"]),
    "extension-zstd-2": lambda c: setattr(info(c), "transform_descriptors", ["stream.zstd/2"]),
    "extensions-two": lambda c: setattr(info(c), "transform_descriptors", ["stream.zstd/1", "stream.zstd/1"]),
    "ranks-incomplete": lambda c: setattr(c, "name", "__1.metadata"),
}


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else ROOT
    kept = os.path.join(root, "messages.tsv")
    table = open(kept).read() if os.path.exists(kept) else ""
    shutil.rmtree(root, ignore_errors=True)
    for name, change in CASES.items():
        checkpoint = Checkpoint()
        change(checkpoint)
        checkpoint.write(os.path.join(root, name))
    with open(kept, "w") as file:
        file.write(table)


if __name__ == "__main__":
    main()
