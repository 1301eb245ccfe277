"""The command, for the tests beside this file; they run as `./dev interop` says (CKPT names it).

A script ends with 1 where a test failed, else with 77 where something was not tried, which it says.
"""
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback

CKPT = os.environ.get("CKPT", "ckpt")
TRAIN = os.path.join(os.path.dirname(os.path.abspath(CKPT)), "ckpt-train")
TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SKIPPED = 77
skips = []
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


def seeds(default):
    """Of a test with random cases: CKPT_TEST_SEED is the first, CKPT_TEST_SEEDS how many."""
    first = int(os.environ.get("CKPT_TEST_SEED", 0))
    return range(first, first + int(os.environ.get("CKPT_TEST_SEEDS", default)))


def same_gradients(path, wanted):
    """Of a file of --dump-grads and float64 tensors by the same names; None there stands for zeros."""
    from safetensors.torch import load_file
    found = load_file(path)
    assert found.keys() == wanted.keys(), found.keys() ^ wanted.keys()
    largest = max(gradient.abs().max().item() for gradient in wanted.values() if gradient is not None)
    for name, gradient in wanted.items():
        error = (found[name].double() if gradient is None else found[name] - gradient).abs().max().item()
        own = 0 if gradient is None else gradient.abs().max().item()
        assert error <= 3e-4 * own + 2e-6 * largest, (name, error, own)


def names(path, *options):
    return [t["name"] for t in json.loads(ckpt("ls", path, "--json", *options))["tensors"]]


def skip(why):
    print("SKIPPED: %s" % why)
    skips.append(why)


def need(*packages):
    """Ends the script where one of these is not there."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            skip("%s is not installed" % package)
            sys.exit(SKIPPED)


def llama(tool):
    """Path of a tool of llama.cpp; None, which is said, where LLAMA_CPP_BIN names no folder with it."""
    folder = os.environ.get("LLAMA_CPP_BIN")
    if folder and os.path.exists(os.path.join(folder, tool)):
        return os.path.abspath(os.path.join(folder, tool))
    skip("LLAMA_CPP_BIN names no folder with %s" % tool)
    return None


def perplexity(model, text, *options):
    """The perplexity up to each chunk, as llama.cpp computes it; None, which is said, where it is not there or cannot run.

    Its last lines may be lost when it ends, on a busy machine all of them: then it runs again.
    """
    tool = llama("llama-perplexity")
    for _ in range(5 if tool else 0):
        # repacked weights may go to AMX, which ends with SIGSEGV where the kernel does not lend its tiles
        done = subprocess.run([tool, "-m", model, "-f", text, "-c", "64", "-t", "1", "--no-repack", *options],
                              capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
        if done.returncode == -signal.SIGILL:
            skip("llama-perplexity is built for another processor (-DGGML_NATIVE=OFF)")
            return None
        assert done.returncode == 0, (done.returncode, done.stdout[-1000:], done.stderr[-3000:])
        found = re.findall(r"\[\d+\]([\d.]+),", done.stdout + done.stderr)
        if len(found) >= 3:
            return found
    assert not tool, "llama-perplexity says nothing: %s" % done.stderr[-3000:]
    return None


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
    sys.exit(1 if failed else SKIPPED if skips else 0)
