"""What DeepSpeed saves in the run, at other numbers of ranks than the files of tests/data/zero, read with the bits that
were gathered in it; and what its own converters make of the same folders.

The engine needs gloo on the CPU, and compiles a helper of its own when it runs for the first time (minutes).
"""
import os
import subprocess
import sys

from command import ckpt, main, need, skip

need("deepspeed", "safetensors", "torch")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "data"))
import make_zero  # noqa: E402  (sets what DeepSpeed goes by)

ENVIRONMENT = dict(os.environ, DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")


def saved(folder, case, *row):
    """A checkpoint of a case of make_zero, with another number of ranks where a row is given."""
    code = "import sys, make_zero\nmake_zero.CASES[%r] = %r\nif __name__ == '__main__': make_zero.main()" % (
        case, row or make_zero.CASES[case])
    script = os.path.join(folder, "write.py")
    with open(script, "w") as out:
        out.write(code)
    done = subprocess.run([sys.executable, script, folder, case], capture_output=True, text=True,
                          env=dict(ENVIRONMENT, PYTHONPATH=os.path.join(HERE, "..", "data")))
    if done.returncode != 0:
        raise AssertionError(done.stderr[-2000:])
    return os.path.join(folder, case)


def check(path):
    ckpt("diff", path, path + ".safetensors", "--include", "all")
    ckpt("verify", path)
    ckpt("scan", path)


def test_stage_1_on_two_ranks(folder):
    check(saved(folder, "stage1", 2, 1, "bf16", {}, {}))


def test_stage_2_on_five_ranks(folder):
    check(saved(folder, "stage2", 5, 2, "fp32", {}, {}))


def test_round_robin_on_four_ranks(folder):
    check(saved(folder, "round", 4, 2, "bf16", {"round_robin_gradients": True, "parameter_alignment": True}, {}))


def test_stage_3_on_five_ranks(folder):
    """Five ranks have more than some parameters have elements for: their parts are empty or padding."""
    check(saved(folder, "stage3", 5, 3, "bf16", {"sub_group_size": 7}, {}))


def test_zero_to_fp32(folder):
    """DeepSpeed's own script, in the cases that it does right: the same bits. In stage 1 it loses frozen parameters."""
    import torch
    from safetensors.torch import load_file
    for case in ("stage1", "stage2-bf16", "stage3", "stage3-bf16"):
        path, out = os.path.join(HERE, "..", "data", "zero", case), os.path.join(folder, case)
        module = "import sys; sys.path[0:0] = [%r]; from deepspeed.utils.zero_to_fp32 import *; " % HERE
        code = module + "convert_zero_checkpoint_to_fp32_state_dict(%r, %r, safe_serialization=False)" % (path, out)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT)
        if done.returncode != 0:
            skip("zero_to_fp32 of %s: %s" % (case, done.stderr.strip().splitlines()[-1][:200]))
            continue
        theirs = torch.load(os.path.join(out, "pytorch_model.bin"), weights_only=True)
        ckpt("consolidate", path, "-o", out + ".safetensors", "--dtype", "f32")
        ours = load_file(out + ".safetensors")
        lost = {"fixed.weight", "fixed.bias"} if case == "stage1" else set()
        assert set(ours) - set(theirs) == lost, (case, sorted(set(ours) ^ set(theirs)))
        for name in set(ours) - lost:
            assert torch.equal(ours[name].double(), theirs[name].double()), (case, name)


if __name__ == "__main__":
    main(globals())
