"""Writes scan/bad/*: files that run a command when they are loaded, each hidden in another way. Loads none of them.

    python3.11 make_scan.py [FOLDER]

Every one names os.system (or what finds it) with the command `true`; nothing here or in the tests ever unpickles them.
The ways are those by which scanners have been evaded (CVE-2025-10155, -10156, -10157 and their kin), and torch's own.
"""
import gzip
import io
import os
import pickle
import struct
import sys
import tarfile
import zipfile
import zlib

here = os.path.dirname(os.path.abspath(__file__))
out = os.path.join(sys.argv[1] if len(sys.argv) > 1 else here, "scan", "bad")
os.makedirs(out, exist_ok=True)

TEXT = b"X\x04\x00\x00\x00true"
CALL = b"cposix\nsystem\n(" + TEXT + b"tR."
DATED = (2020, 1, 1, 0, 0, 0)


def write(name, data):
    path = os.path.join(out, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def archive(records, method=zipfile.ZIP_STORED):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as zip_file:
        for name, content in records.items():
            zip_file.writestr(zipfile.ZipInfo(name, DATED), content, method)
    return data.getvalue()


def torch_file(evil, method=zipfile.ZIP_STORED, **more):
    records = {"archive/data.pkl": evil, "archive/byteorder": b"little", "archive/data/0": bytes(64),
               "archive/version": b"3\n"}
    return archive({**records, **more}, method)


# Each opcode that calls.
for protocol in range(6):
    write(f"reduce{protocol}.pkl", (b"\x80" + bytes([protocol]) if protocol >= 2 else b"") + CALL)
write("inst.pkl", b"(S'true'\niposix\nsystem\n.")
write("obj.pkl", b"(cposix\nsystem\n" + TEXT + b"o.")
write("newobj.pkl", b"\x80\x02cposix\nsystem\n(" + TEXT + b"t\x81.")
write("newobj_ex.pkl", b"\x80\x04\x8c\x05posix\x8c\x06system\x93(" + TEXT + b"t}\x92.")
write("build.pkl", b"\x80\x02cmine\nLoader\n)R}X\x01\x00\x00\x00aK\x01sb.")
write("extension.pkl", b"\x80\x02\x82\x07(" + TEXT + b"tR.")
write("memo.pkl", b"\x80\x04\x8c\x06system\x94\x8c\x05posix\x940h\x01h\x00\x93(" + TEXT + b"tR.")
write("value.pkl", b"\x80\x02cbuiltins\ngetattr\n(cos\npath\nX\x02\x00\x00\x00ostR(" + TEXT + b"tR.")

# Names that look good.
write("submodule.pkl", b"\x80\x02casyncio.unix_events\n_UnixSubprocessTransport._start\n(tR.")
write("torch_sys.pkl", b"\x80\x04\x8c\x0ctorch._utils\x8c\x0asys.setrec\x93)R.")
write("hand_over.pkl", b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n(cmine\nrun\ncmine\nType\n(" + TEXT + b"t}tR.")
write("load_from_bytes.pkl", b"\x80\x03ctorch.storage\n_load_from_bytes\nC" + bytes([len(CALL)]) + CALL + b"\x85R.")

# Known names that call a method of what they are handed, or of what they are built from.
def space(key):
    return b"cargparse\nNamespace\n)\x81}X" + struct.pack("<I", len(key)) + key + b"cmine\nrun\nsb"


write("method_keys.pkl", b"\x80\x02cbuiltins\ndict\n" + space(b"keys") + b"\x85R.")
write("method_detach.pkl", b"\x80\x02ctorch._utils\n_rebuild_parameter\n(" + space(b"detach") + b"\x88}tR.")
write("method_get.pkl", b"\x80\x02ctorch.optim.adamw\nAdamW\n)\x81}(X\x05\x00\x00\x00state" + space(b"get") +
      b"X\x0c\x00\x00\x00param_groups]}X\x06\x00\x00\x00params]" + TEXT + b"asaX\x08\x00\x00\x00defaults}ub.")

# Broken, or stricter than Python is here.
write("truncated.pkl", b"\x80\x02" + CALL[:-1])
write("hex_integer.pkl", b"I0x10\n0" + CALL)
write("hex_integer2.pkl", b"\x80\x02I0x10\n0" + CALL)
write("frame.pkl", b"\x80\x04\x95" + struct.pack("<Q", 3) + CALL)
write("second.pkl", b"\x80\x02N." + CALL)

# Where no suffix says so.
write("model.safetensors", b"\x80\x02" + CALL)
write("notes.txt", CALL)
write("payload.pkl.gz", gzip.compress(b"\x80\x02" + CALL, mtime=0))
write("payload.joblib", zlib.compress(b"\x80\x02" + CALL))
write("payload.7z", b"7z\xbc\xaf\x27\x1c" + bytes(26))
header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"\x80\x03" + CALL
write("objects.npy", npy)
write("objects.npz", archive({"a.npy": npy}, zipfile.ZIP_DEFLATED))
tar = io.BytesIO()
with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as tar_file:
    for name, data in (("sys_info", pickle.dumps({"little_endian": True}, 2)), ("pickle", b"\x80\x02" + CALL)):
        info = tarfile.TarInfo(name)
        info.size = len(data)
        tar_file.addfile(info, io.BytesIO(data))
write("very_old.pt", tar.getvalue()[:4096])

# Torch archives.
evil = b"\x80\x02" + CALL
good = b"\x80\x02}."
write("torch.pt", torch_file(evil))
write("deflated.pt", torch_file(evil, zipfile.ZIP_DEFLATED))
write("other_record.pt", torch_file(good, **{"archive/data/1": evil}))
write("nested.zip", archive({"models/inner.pt": torch_file(evil)}))
write("nested_deflated.zip", archive({"models/inner.pt": torch_file(evil)}, zipfile.ZIP_DEFLATED))
zipped = torch_file(evil)


def patched(data, at, value):
    return data[:at] + value + data[at + len(value):]


central = zipped.index(b"PK\x01\x02")
write("broken_crc.pt", patched(patched(zipped, 14, b"\1\2\3\4"), central + 16, b"\1\2\3\4"))
write("crc_differs.pt", patched(zipped, central + 16, b"\1\2\3\4"))
write("name_differs.pt", patched(zipped, 30, b"archive/other"))
write("encrypted_flag.pt", patched(patched(zipped, 6, b"\x01\0"), central + 8, b"\x01\0"))
write("no_directory.pt", zipped[:central])
write("trailing.pt", zipped + b"more")
write("size_zero.pt", patched(zipped, central + 20, bytes(8)))
write("before_zip.pt", b"\x80\x02" + CALL + torch_file(good))
write("behind_safetensors.safetensors", struct.pack("<Q", 2) + b"{}" + zipped)
write("two_archives.pt", torch_file(good) + zipped)
write("gap.pt", torch_file(good) + zipped[:central] + torch_file(good))

# Legacy streams: the magic number, 1001, the system, and then something in the place of the keys.
magic = pickle.dumps(0x1950A86A20F9469CFC6C, 2)
stream = magic + pickle.dumps(1001, 2) + pickle.dumps({"little_endian": True}, 2)
write("legacy.pt", stream + evil + pickle.dumps([], 2))
write("legacy_keys.pt", stream + pickle.dumps({}, 2) + evil)
write("legacy_broken.pt", stream + b"\x80\x02}q")

# A DCP folder whose metadata is honest, and one that is not.
write("dcp/__0_0.distcp", torch_file(good) + zipped + torch_file(good))
write("dcp/.metadata", b"\x80\x02}.")
write("dcp_metadata/.metadata", evil)


# More than 256 MiB that do nothing, and then a call, in an archive of one deflated record.
def idle():
    """The record deflated, its CRC-32, its bytes."""
    chunk, packed, crc = (b"g" + b"0" * 100_000 + b"\n0") * 10, zlib.compressobj(9, zlib.DEFLATED, -15), 0
    parts = [b"Np0\n", *[chunk] * 280, CALL]
    for part in parts:
        crc = zlib.crc32(part, crc)
    return b"".join([*map(packed.compress, parts), packed.flush()]), crc, sum(map(len, parts))


def packed_archive(name, deflated, crc, n_bytes):
    """Such an archive; zipfile would take minutes."""
    head = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 0x21, crc, len(deflated), n_bytes, len(name), 0)
    local = b"PK\3\4" + head + name + deflated
    central = b"PK\1\2" + struct.pack("<H", 20) + head + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    return local + central + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)


write("idle.pt", packed_archive(b"archive/data.pkl", *idle()))

# Where our reader is stricter than Python is: a name before that, two million opcodes or a long line behind it.
write("stricter_name.pkl", b"cmine\nrun\nI0x10\n0(" + TEXT + b"tR.")
write("stricter_idle.pkl.gz", gzip.compress(b"I0x10\n0" + b"N0" * 1_000_000 + CALL, mtime=0))
write("stricter_line.pkl.gz", gzip.compress(b"I" + b"0" * 5000 + b"1\n0" + CALL, mtime=0))


# Tar archives that no 'ustar' says to be ones, that begin with zeros, or that readers go through differently.
def tar_header(name, n_bytes, kind=b"0"):
    head = bytearray(name.ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + b"%011o\0" % n_bytes + b"00000000000\0"
                     + b" " * 8 + kind).ljust(512, b"\0")
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def tar_member(name, data, kind=b"0"):
    return tar_header(name, len(data), kind) + data + bytes(-len(data) % 512)


write("v7_tar.pt", tar_member(b"sys_info", good[:4], b"\0") + tar_member(b"pickle", evil, b"\0") + bytes(1024))
write("zeros_tar.pt", bytes(1024) + tar_member(b"pickle", evil, b"\0") + bytes(1024))
write("no_name_tar.pt", tar_member(b"", evil) + bytes(1024))
write("link_tar.pt", tar_header(b"link", 1024, b"2") + tar_member(b"pickle", evil) + bytes(1024))
write("folder_tar.pt", tar_header(b"folder/", 1024, b"\0") + tar_member(b"pickle", evil) + bytes(1024))
write("extended_tar.pt", tar_member(b"pax", b"10 size=0\n", b"x") + tar_header(b"a", 1536) + bytes(512)
      + tar_member(b"pickle", evil) + bytes(1024))


# Numpy arrays of objects, however that is spelled.
def npy_of(descr, content, version=1):
    header = (b"{'descr': " + descr + b", 'fortran_order': False, 'shape': (1,), }").ljust(117) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(header)) + header + content


for name, descr in {"escape": b"'|\\x4f'", "octal": b"'\\117'", "unicode": b"'|\\u004f'",
                    "named": b"'\\N{LATIN CAPITAL LETTER O}'", "object": b"'object'", "object_": b"'object_'",
                    "list": b"'f4,O'", "field": b"[('a','\\x4f')]", "twice": b"'<f4', 'descr': 'O'",
                    "joined": b"'' 'O'"}.items():
    write(f"npy/{name}.npy", npy_of(descr, b"\x80\x03" + CALL))
write("npy/escape.npz", archive({"a.npy": npy_of(b"'|\\x4f'", b"\x80\x03" + CALL)}))
write("npy/escape2.npy", npy_of(b"'|\\x4f'", b"\x80\x03" + CALL, 2))

# What zipfile opens, whatever stands before it and behind it.
for name, before in {"numbers.npy": npy_of(b"'<f4'", bytes(4)), "config.json": b'{"a": 1}\n', "image.png": b"\x89PNG\r\n\x1a\n",
                     "program": b"\x7fELF" + bytes(60), "model.gguf": b"GGUF" + bytes(20),
                     "model.safetensors": struct.pack("<Q", 2) + b"{}", "members.tar": tar_member(b"a", b"b"),
                     "numbers.gz": gzip.compress(bytes(100), mtime=0)}.items():
    write(f"zip_behind/{name}", before + zipped)
    write(f"zip_behind/more_{name}", before + zipped + b"\n\n\n")

# zstd behind a frame that decoders skip; a record that no directory lists.
raw_frame = b"\x28\xb5\x2f\xfd\x20" + bytes([len(evil)]) + struct.pack("<I", len(evil) << 3 | 1)[:3] + evil
write("skipped_frame.zst", b"\x50\x2a\x4d\x18\x04\0\0\0more" + b"\x5f\x2a\x4d\x18\0\0\0\0" + raw_frame)
hidden = archive({"archive/data.pkl": evil})
hidden = hidden[:hidden.index(b"PK\x01\x02")]
whole = torch_file(good)
at, end = whole.index(b"PK\x01\x02"), len(whole) - 22
write("unlisted.pt", whole[:at] + hidden + whole[at:end + 16] + struct.pack("<I", at + len(hidden)) + whole[end + 20:])

# The calls of getattr that are fine, and what is not.
get = b"\x80\x02cbuiltins\ngetattr\nq\0"
own = b"(ctorch.optim.lr_scheduler\nCyclicLR\nX\x14\0\0\0_triangular_scale_fntR"
sharded, state = b"ctorch.distributed._shard.sharded_tensor.api\nShardedTensor\n", b"X\x11\0\0\0ProcessGroupState"
inner = b"(" + sharded + state + b"tR"
for name, rest in {"other": own + b"h\0(cmine\nThing\nX\x01\0\0\0xtR\x86.", "handed": own + b"h\0\x86.",
                   "called": own + b")R.", "attribute": own.replace(b"_triangular", b"__init__ple") + b".",
                   "state": inner + b")\x81}X\x09\0\0\0__class__cmine\nThing\nsb.", "constructor": inner + b"K\1\x85R.",
                   "method": b"(" + sharded + b"X\x08\0\0\0__init__tR)R.", "default": inner[:-2] + b"cmine\nThing\ntR.",
                   "dotted": b"(" + sharded + state.replace(b"\x11", b"\x1a") + b".__init__tR)R.",
                   "owner": b"(cmine\nShardedTensor\n" + state + b"tR)\x81.", "twice": b"(h\0" + inner + state + b"tR)\x81.",
                   "instance": b"(" + sharded + b")\x81" + state + b"tR)\x81.", "later": inner + b"0h\0(cos\npath\n" +
                   b"X\x02\0\0\0ostR.", "module": b"(ctorch\nnn\nX\x06\0\0\0LineartR)\x81.",
                   "system": b"(cos\npath\nX\x02\0\0\0ostRq\x010h\0(h\1X\x06\0\0\0systemtR(" + TEXT + b"tR."}.items():
    write(f"getattr/{name}.pkl", get + rest)
