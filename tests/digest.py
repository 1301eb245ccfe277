# The digest ckpt1 of safetensors files: docs/digest.md as a program, with nothing but Python's standard library.
import hashlib, json, struct, sys

def sha256(*parts): return hashlib.sha256(b"".join(parts)).digest()
def u64(*numbers): return struct.pack("<%dQ" % len(numbers), *numbers)

def ckpt1(path):
    rows = []
    with open(path, "rb") as file:
        n_header = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(n_header))
        header.pop("__metadata__", None)
        for name, entry in sorted((name.encode(), entry) for name, entry in header.items()):
            start, end = entry["data_offsets"]
            file.seek(8 + n_header + start)
            leaves = [sha256(file.read(min(1 << 20, end - at))) for at in range(start, end, 1 << 20)]
            dtype = {"F4": "f4_e2m1"}.get(entry["dtype"], entry["dtype"].lower()).encode()
            shape = u64(len(entry["shape"]), *entry["shape"])
            rows += [u64(len(name)), name, sha256(b"ckpt1 tensor\n", dtype, b"\n", shape, u64(end - start), *leaves)]
    return "ckpt1:" + sha256(b"ckpt1 model\n", u64(len(header)), *rows).hex()

for path in sys.argv[1:]: print(ckpt1(path) + "  " + path)
