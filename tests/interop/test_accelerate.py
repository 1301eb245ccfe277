"""What accelerate saves of FSDP on 2 processes, sharded and gathered, of both versions: one checkpoint of model and
optimizer, with the bits of the run, which goes on from what is made of it."""
import importlib.util
import json
import os
import subprocess
import sys
import warnings

import command

command.need("accelerate")
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data"))
import make_fsdp  # noqa: E402

BESIDE = {"scheduler.bin": "scheduler", "random_states_0.pkl": "rng", "random_states_1.pkl": "rng"}


def check(folder, version, kind):
    saved = make_fsdp.write(folder, version, kind)
    reference = saved + ".safetensors"
    names = set(os.listdir(saved))
    parts = {"pytorch_model_fsdp_0", "optimizer_0"} if kind == "sharded" else {"pytorch_model_fsdp.bin", "optimizer.bin"}
    assert parts | set(BESIDE) == names, names
    command.ckpt("diff", "--include", "all", saved, reference)
    command.ckpt("verify", saved)
    listed = command.ckpt("ls", "--include", "all", saved)
    for name, role in BESIDE.items():
        assert any(line.split()[:3] == [name, "file", role] for line in listed.splitlines()), listed
    for name, argv in {"dcp": ["dcp", "--world", 3], "zero": ["zero", "--stage", 2, "--dp", 2], "universal": ["universal"]}.items():
        out = saved + "-" + name
        command.ckpt("reshard", saved, "-o", out, "--to", *argv)
        command.ckpt("verify", out)
        masters = [] if name == "dcp" else ["--exclude", "*.master"]  # DeepSpeed has masters besides
        command.ckpt("convert", out, "-o", out + ".safetensors", "--include", "all", *masters)
        command.ckpt("diff", "--include", "all", out + ".safetensors", reference)
    command.ckpt("consolidate", saved, "-o", saved + "-hf")
    command.ckpt("diff", saved + "-hf", reference)
    return saved


def test_fsdp1_full(folder):
    goes_on(check(folder, 1, "full"))


def test_fsdp2_full(folder):
    goes_on(check(folder, 2, "full"))


def test_fsdp1_sharded(folder):
    goes_on(check(folder, 1, "sharded"))


def test_fsdp2_sharded(folder):
    goes_on(check(folder, 2, "sharded"))


def goes_on(saved):
    """torch takes the moments by their names from the DCP folder that was made of it."""
    from safetensors.torch import load_file
    whole = load_file(saved + ".safetensors")
    again = {name: torch.full_like(value, -1) for name, value in whole.items()}
    model = {name: value for name, value in again.items() if not name.startswith("optimizer.")}
    dcp.load({"model": model, **{name: value for name, value in again.items() if name not in model}},
             checkpoint_id=saved + "-dcp", no_dist=True)
    for name, value in whole.items():
        assert torch.equal(again[name], value), name


def test_deepspeed_goes_on(folder):
    """From the folder of a sharded run of FSDP: with the next losses that FSDP has itself."""
    if importlib.util.find_spec("deepspeed") is None:
        command.skip("deepspeed is not installed")
        return
    script, out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fsdp_goes_on.py"), os.path.join(folder, "said.json")
    for version, targets in {1: [(1, 2), (3, 2)], 2: [(2, 4), (3, 1)]}.items():
        saved = os.path.join(folder, "saved%d" % version)
        done = subprocess.run([sys.executable, script, out, command.CKPT, saved, str(version), json.dumps(targets)],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
        with open(out) as file:
            wanted, *found = json.load(file)
        assert len(set(wanted["losses"])) == 3, "losses that do not change prove nothing"
        for target, said in zip(targets, found, strict=True):
            for key in wanted:
                for a, b in zip(wanted[key], said[key], strict=True):
                    assert abs(a - b) <= 1e-6 * abs(a), (version, target, wanted, said)


def test_ranks_apart(folder):
    """Saved without DCP, each rank's part in a file of its own: named, not read as a model."""
    saved = os.path.join(folder, "saved")
    os.makedirs(saved)
    for rank in 0, 1:
        torch.save({"w": torch.ones(2)}, os.path.join(saved, "pytorch_model_fsdp_0_rank%d.bin" % rank))
    done = subprocess.run([command.CKPT, "ls", saved], capture_output=True, text=True)
    assert done.returncode == 1, done
    said = done.stderr
    for rank in 0, 1:
        assert "pytorch_model_fsdp_0_rank%d.bin is a PyTorch file" % rank in said, said
    assert "(name the file)" in said, said


if __name__ == "__main__":
    command.main(globals())
