"""The command, for the tests beside this file; they run as `./dev interop` says (CKPT names it)."""
import json
import os
import subprocess
import sys
import tempfile
import traceback

CKPT = os.environ.get("CKPT", "ckpt")
TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")


def ckpt(*arguments, status=0):
    """Its standard output; fails where the exit status is another one."""
    done = subprocess.run([CKPT, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != status:
        raise AssertionError("ckpt %s: exit %d, expected %d: %s%s" % (" ".join(map(str, arguments)), done.returncode, status,
                                                                     done.stdout[-1000:], done.stderr))
    return done.stdout


def digest(path, *options):
    return ckpt("hash", path, *options).split()[0]


def reference_digest(path):
    """As tests/digest.py computes it."""
    done = subprocess.run([sys.executable, os.path.join(TESTS, "digest.py"), path], capture_output=True, text=True, check=True)
    return done.stdout.split()[0]


def names(path):
    return [t["name"] for t in json.loads(ckpt("ls", path, "--json"))["tensors"]]


def main(scope):
    """Runs every test_* of a module, each in a folder of its own."""
    failed = 0
    for name, test in list(scope.items()):
        if not name.startswith("test_") or (len(sys.argv) > 1 and name not in sys.argv[1:]):
            continue
        with tempfile.TemporaryDirectory(prefix="ckpt-interop-") as folder:
            try:
                test(folder)
            except Exception:
                failed += 1
                print("%s FAILED" % name)
                traceback.print_exc(limit=-3)
    sys.exit(1 if failed else 0)
