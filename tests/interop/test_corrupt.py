"""Flipped bits in what torch writes: refused by name, and salvaged as torch itself reads them, which compares no CRC.

Ranks that save without collectives have values of their own: dcp.load gives each rank its own, and so does ckpt, as NAME@R.
"""
import logging
import os
import subprocess
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

import command  # noqa: E402


def run(*arguments):
    return subprocess.run([command.CKPT, *arguments], capture_output=True, text=True)


def flip(path, needle):
    """One bit in the middle of a value that the file has once."""
    data = bytearray(open(path, "rb").read())
    at = data.find(needle)
    assert at >= 0 and data.find(needle, at + 1) < 0
    data[at + len(needle) // 2] ^= 16
    with open(path, "wb") as out:
        out.write(data)


def bits(value):
    return value.contiguous().view(torch.uint8)


def check_salvage(load, path, base):
    """Refused by every verb; --allow-corrupt gives what torch's own reader gives, and says of which tensor."""
    out = os.path.join(base, "out.safetensors")
    for arguments in (["hash", path], ["convert", path, "-o", out], ["ls", "--stats", path], ["cat", path, "w"]):
        done = run(*arguments)
        assert done.returncode == 1 and "tensor 'w': record '" in done.stderr and "CRC-32" in done.stderr, done.stderr
        assert not os.path.exists(out)
    done = run("convert", path, "-o", out, "--allow-corrupt")
    assert done.stderr.count("ckpt: warning: ") == 1 and "tensor 'w'" in done.stderr, done.stderr
    salvaged, wanted = load_file(out), load()
    assert salvaged.keys() == wanted.keys()
    assert all(torch.equal(bits(salvaged[name]), bits(wanted[name])) for name in wanted)
    os.remove(out)


def test_torch_files(base):
    state = {"w": torch.arange(1000.0) + 0.5, "b": torch.arange(7)}
    path = os.path.join(base, "m.pt")
    torch.save(state, path)
    flip(path, state["w"].numpy().tobytes())
    check_salvage(lambda: torch.load(path), path, base)
    torch.serialization.set_crc32_options(False)
    torch.save(state, path)
    torch.serialization.set_crc32_options(True)
    flip(path, state["w"].numpy().tobytes())
    done = run("hash", path)
    assert done.returncode == 0 and "CRC" not in done.stderr, done.stderr  # it carries none: nothing is claimed


def test_dcp_folders(base):
    state = {"w": torch.arange(1000.0) + 0.5, "b": torch.arange(7)}
    path = os.path.join(base, "dcp")
    dcp.save(state, checkpoint_id=path, no_dist=True)
    flip(os.path.join(path, "__0_0.distcp"), state["w"].numpy().tobytes())

    def load():
        loaded = {name: torch.zeros_like(value) for name, value in state.items()}
        dcp.load(loaded, checkpoint_id=path, no_dist=True)
        return loaded
    check_salvage(load, path, base)


def save_local(rank, path):
    logging.disable()  # of the global metadata, which is not there
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29641", RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    state = {"w": torch.arange(12.0), "seen": torch.arange(4) + 10 * rank}
    dcp.save(state, checkpoint_id=path, use_collectives=False)
    loaded = {name: torch.zeros_like(value) for name, value in state.items()}
    dcp.load(loaded, checkpoint_id=path)
    torch.save(loaded, "%s.%d.pt" % (path, rank))
    dist.barrier()
    os._exit(0)


def test_values_of_ranks(base):
    path = os.path.join(base, "local")
    mp.spawn(save_local, (path,), nprocs=2)
    out = os.path.join(base, "local.safetensors")
    done = run("convert", path, "-o", out, "--include", "all", "--names", "stored")
    assert done.returncode == 0 and "values of their own" in done.stderr, done.stderr
    ranks, got = [torch.load("%s.%d.pt" % (path, rank)) for rank in range(2)], load_file(out)
    assert sorted(got) == ["seen", "seen@1", "w"], sorted(got)
    assert torch.equal(got["w"], ranks[0]["w"]) and torch.equal(got["w"], ranks[1]["w"])
    assert torch.equal(got["seen"], ranks[0]["seen"]) and torch.equal(got["seen@1"], ranks[1]["seen"])


if __name__ == "__main__":
    command.main(globals())
