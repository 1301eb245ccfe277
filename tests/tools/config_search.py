"""Models by their config and tensors, and what `ckpt verify` says of them: golden cases that transformers judged.

config_search.py CKPT GOLDEN replays golden cases, as tests/interop/test_verify_config.py writes them. A line of the file
is a class with a config and the tensors of its own state dict, and edits of both. What transformers says of an edit is
true where it loads the folder and finds nothing missing, unexpected or mismatched.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1}


def safetensors(path, tensors):
    """Zeros, as nobody looks at values here."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape) in tensors.items():
        n = BYTES[dtype]
        for extent in shape:
            n *= extent
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + bytes(at))


def edited(config, tensors, edits):
    """Copies of both. An edit is [what, ...]: see the branches."""
    config, tensors = dict(config), dict(tensors)
    for what, name, *more in edits:
        if what == "set":
            config[name] = more[0]
        elif what == "unset":
            config.pop(name, None)
        elif what == "drop":
            tensors.pop(name, None)
        elif what == "add":
            tensors[name] = list(more)
        elif what == "prefix":  # all names lose one prefix and gain another
            tensors = {(more[0] + n[len(name):] if n.startswith(name) else n): t for n, t in tensors.items()}
        else:
            raise ValueError(what)
    return config, tensors


def write(folder, config, tensors):
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    safetensors(os.path.join(folder, "model.safetensors"), tensors)


def verdict(ckpt, folder):
    """Whether config is proven, and all that verify says."""
    done = subprocess.run([ckpt, "verify", folder, "--headers", "--json"], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise AssertionError("verify: exit %d: %s" % (done.returncode, done.stderr))
    said = json.loads(done.stdout)
    if (done.returncode == 0) != (said["status"] == "ok"):
        raise AssertionError("exit %d, and %s" % (done.returncode, said["status"]))
    is_proven = any(text.startswith("config:") for text in said["proven"])
    if is_proven and any(text.startswith("config:") for text in said["unproven"]):
        raise AssertionError("proven and not proven: %s" % said)
    return is_proven, said


def main(ckpt, golden):
    n, n_proven, failed = 0, 0, 0
    with tempfile.TemporaryDirectory() as folder, open(golden) as lines:
        for line in lines:
            base = json.loads(line)
            for edits, loads in base["cases"]:
                config, tensors = edited(base["config"], base["tensors"], edits)
                write(folder, config, tensors)
                is_proven, said = verdict(ckpt, folder)
                n += 1
                n_proven += is_proven
                if is_proven != loads:
                    failed += 1
                    print("%s %s: transformers says %s, verify says %s" % (config["architectures"], edits, loads, said))
    print("%d cases, %d of them proven, %d not as transformers has them" % (n, n_proven, failed))
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
