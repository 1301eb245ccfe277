"""Checkpoints that torch.distributed writes in the run, on 2 and 4 processes, read with the bits that these had.

Each case saves a state dict and gathers its tensors; what `ckpt convert` makes of the checkpoint has to be those, under
the names of docs/formats/dcp.md and with the same bytes. Older releases (2.4 and later, with safetensors) are tried
where CKPT_OLD_PYTHON names Pythons that have them, as in test_torch.py: they run this file to write, and this Python
compares.
"""
import logging
import os
import socket
import subprocess
import sys
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch.distributed.checkpoint.filesystem import FileSystemWriter  # noqa: E402
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module  # noqa: E402

try:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
except ImportError:  # before 2.6, where fully_shard wants a GPU
    fully_shard = None
    from torch.distributed._tensor import DTensor, Replicate, Shard, distribute_tensor

KINDS = {"momentum_buffer": "momentum"}


class Block(torch.nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, hidden)
        self.down = torch.nn.Linear(hidden, width, bias=False)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x):
        return x + self.scale * self.down(torch.relu(self.up(self.norm(x))))


def full(value):
    value = value.full_tensor() if isinstance(value, DTensor) else value
    return value.detach().clone().contiguous()


def wrap_not(model):
    """The same on every process."""


def wrap_fsdp(model, mesh=None):
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def wrap_hsdp(model):
    wrap_fsdp(model, init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "shard")))


def wrap_tensor_parallel(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    for block in model:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    wrap_fsdp(model, mesh["dp"])


def trained(wrap, width, hidden, optimizer_class, flatten, **settings):
    """The state dicts of a model after two steps, and what their full tensors are called."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(Block(width, hidden), Block(width, hidden))
    wrap(model)
    optimizer = optimizer_class(model.parameters(), lr=0.1, **settings)
    for step in range(2):
        model(torch.linspace(-1, 1 + step, 2 * width).reshape(2, width)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    weights, states = get_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=flatten))
    tensors = {name: full(value) for name, value in weights.items()}
    rows = states.items() if flatten else [("state.%s.%s" % (name, kind), value) for name, state in
                                           states["state"].items() for kind, value in state.items()]
    for name, value in rows:
        if name.startswith("state.") and isinstance(value, torch.Tensor):
            stem, kind = name.rsplit(".", 1)
            tensors["optimizer.%s.%s" % (stem, KINDS.get(kind, kind))] = full(value)
    return weights, states, tensors


def save_training(folder, wrap, width=6, hidden=10, optimizer=torch.optim.AdamW, flatten=False, key="optim",
                  settings=(), writer=None):
    weights, states, tensors = trained(wrap, width, hidden, optimizer, flatten, **dict(settings))
    state = {"model": weights, key: states, "step": 2}
    if writer is None:
        dcp.save(state, checkpoint_id=folder)
    else:
        dcp.save(state, storage_writer=FileSystemWriter(folder, **writer))
    return tensors


def save_accelerate(folder, wrap):
    """In two folders, under the keys that accelerate gives them."""
    weights, states, tensors = trained(wrap, 6, 10, torch.optim.AdamW, False)
    dcp.save({"model": weights}, checkpoint_id=os.path.join(folder, "pytorch_model_fsdp_0"))
    dcp.save({"optimizer": states}, checkpoint_id=os.path.join(folder, "optimizer_0"))
    return tensors


def save_placements(folder):
    """Every placement of a 2-D mesh, uneven and with empty shards, of several dtypes."""
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("dp", "tp"))
    shapes = {"even": (8, 4), "uneven": (7, 5), "few": (1, 3), "deep": (3, 2, 5), "line": (9,), "none": (0, 4)}
    dtypes = [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.float64]
    choices = [Replicate(), Shard(0), Shard(1)]
    state, tensors = {}, {}
    for i, (name, shape) in enumerate(shapes.items()):
        for a in choices:
            for b in choices:
                if max(getattr(p, "dim", 0) for p in (a, b)) >= len(shape):
                    continue
                n = torch.Size(shape).numel()
                whole = (torch.arange(n).reshape(shape) * 3 % 251).to(dtypes[i])
                label = "%s.%s.%s" % (name, getattr(a, "dim", "r"), getattr(b, "dim", "r"))
                state[label], tensors[label] = distribute_tensor(whole, mesh, [a, b]), whole
    dcp.save({"model": state}, checkpoint_id=folder)
    return tensors


def save_plain(folder):
    """Tensors that are whole on every process, strided ones, scalars; without collectives."""
    tensors = {"w": torch.arange(12.0).reshape(3, 4), "t": torch.arange(12.0).reshape(3, 4).t(), "s": torch.tensor(3),
               "b": torch.tensor([True, False]), "c": torch.arange(24.0).reshape(1, 2, 3, 4)}
    tensors["c"] = tensors["c"].to(memory_format=torch.channels_last)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state = dict(tensors, sharded=distribute_tensor(tensors["w"], mesh, [Shard(0)]))
    dcp.save(state, checkpoint_id=folder, use_collectives=False)
    return {name: full(value) for name, value in state.items()}


def save_compressed(folder):
    """zstd around archives of tensors that are not row-major: columns of what is stored by columns, permuted axes."""
    from torch.distributed.checkpoint._extension import ZStandard
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = torch.randn(300, 70)
    dist.broadcast(whole, 0)
    state = {"columns": distribute_tensor(whole, mesh, [Shard(0)]).t(), "t": whole.t(), "part": whole[:, 3:50],
             "permuted": whole.reshape(3, 100, 70).permute(2, 0, 1), "rows": distribute_tensor(whole, mesh, [Shard(0)])}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder, _extensions=[ZStandard()]))
    return {name: full(value) for name, value in state.items()}


def save_safetensors(folder, width):
    """Rows and columns of several dtypes in storage of safetensors: by FileSystemWriter, or as Hugging Face's shards."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = {"rows": torch.arange(3.0 * width).reshape(width, 3), "columns": torch.arange(4.0 * width).reshape(4, width).bfloat16(),
             "few": torch.arange(width)[:1], "counts": torch.arange(7)}
    cut = {"rows": [Shard(0)], "columns": [Shard(1)], "few": [Shard(0)]}
    state = {name: distribute_tensor(value, mesh, cut[name]) if name in cut else value for name, value in whole.items()}
    if os.path.basename(folder).startswith("hf"):
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
        del state["counts"], whole["counts"]  # which each rank would write
        writer = HuggingFaceStorageWriter(folder, save_distributed=True)
    else:
        from torch.distributed.checkpoint.filesystem import SerializationFormat
        writer = FileSystemWriter(folder, serialization_format=SerializationFormat.SAFETENSORS)
    dcp.save(state, storage_writer=writer)
    return whole


CASES = {
    "whole-2": (2, save_training, dict(wrap=wrap_not)),
    "whole-2-flat": (2, save_training, dict(wrap=wrap_not, flatten=True, key="optimizer")),
    "fsdp2-2": (2, save_training, dict(wrap=wrap_fsdp)),
    "fsdp2-4": (4, save_training, dict(wrap=wrap_fsdp, width=5, hidden=3)),
    "fsdp2-4-flat": (4, save_training, dict(wrap=wrap_fsdp, flatten=True, key="optimizer")),
    "fsdp2-2-sgd": (2, save_training, dict(wrap=wrap_fsdp, optimizer=torch.optim.SGD, settings={"momentum": 0.9})),
    "fsdp2-2-files": (2, save_training, dict(wrap=wrap_fsdp, writer={"single_file_per_rank": False})),
    "fsdp2-2-threads": (2, save_training, dict(wrap=wrap_fsdp, writer={"thread_count": 3})),
    "hsdp-4": (4, save_training, dict(wrap=wrap_hsdp)),
    "tensor-parallel-4": (4, save_training, dict(wrap=wrap_tensor_parallel, width=8, hidden=12)),
    "tensor-parallel-2": (2, save_training, dict(wrap=wrap_tensor_parallel, width=8, hidden=12, flatten=True)),
    "accelerate-2": (2, save_accelerate, dict(wrap=wrap_fsdp)),
    "placements-4": (4, save_placements, {}),
    "placements-2": (2, save_placements, {}),
    "plain-2": (2, save_plain, {}),
}
try:
    from torch.distributed.checkpoint._extension import ZStandard
    if ZStandard.is_available():
        CASES["compressed-2"] = (2, save_compressed, {})
    import torch.distributed.checkpoint.hf_storage  # noqa: F401
    for world in (2, 4):
        CASES["safetensors-%d" % world] = (world, save_safetensors, {"width": 2 * world + 1})
        CASES["hf-%d" % world] = (world, save_safetensors, {"width": 2 * world + 1})
except ImportError:  # before torch 2.7
    pass


if fully_shard is None:
    CASES = {name: case for name, case in CASES.items() if case[2].get("wrap") in (None, wrap_not)}


def worker(rank, world, port, root, names):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    for name in names:
        _, save, options = CASES[name]
        try:
            tensors = save(os.path.join(root, name), **options)
        except TypeError as error:  # an argument that this release has not
            assert "unexpected keyword" in str(error), error
            continue
        if rank == 0:
            save_file(tensors, os.path.join(root, name + ".safetensors"))
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort what ends in the usual way


def same_bytes(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and \
        torch.equal(a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8))


def compare(found, wanted, name):
    found, wanted = load_file(found), load_file(wanted)
    assert found.keys() == wanted.keys(), "%s: only one has %s" % (name, sorted(found.keys() ^ wanted.keys())[:6])
    different = [key for key in wanted if not same_bytes(found[key], wanted[key])]
    assert not different, "%s: %s" % (name, different[:6])


def save_all(root):
    for world in sorted({case[0] for case in CASES.values()}):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        names = [name for name in CASES if CASES[name][0] == world]
        mp.spawn(worker, (world, port, root, names), nprocs=world)


def check_all(root, n_least):
    from command import ckpt, digest
    problems, n = [], 0
    for name in CASES:
        path = os.path.join(root, name)
        if not os.path.exists(path + ".safetensors"):
            continue
        n += 1
        try:
            out = path + ".ours.safetensors"
            ckpt("convert", path, "-o", out, "--include", "all")
            compare(out, path + ".safetensors", name)
            assert digest(path, "--include", "all") == digest(path + ".safetensors", "--include", "all"), "digest"
            if "fsdp2" in name or "hsdp" in name or "parallel" in name:
                text = ckpt("inspect", path)
                assert "optimizer.param_groups   [{" in text and "step          2\n" in text, text
        except AssertionError as error:
            problems.append("%s: %s" % (name, error))
    assert not problems, "\n".join(problems)
    assert n >= n_least, "only %d cases" % n


def test_what_torch_writes_in_the_run(folder):
    save_all(folder)
    check_all(folder, len(CASES))


def test_dtypes_that_are_not_read(folder):
    """One tensor of such a dtype is refused, or left out by its name; its bytes are verified all the same."""
    from command import ckpt
    path = os.path.join(folder, "c32")
    halves = torch.tensor([[1.5, 2.5], [3.5, 4.5]], dtype=torch.float16)
    dcp.save({"model": {"l.w": torch.arange(6.0).reshape(2, 3), "l.c": torch.view_as_complex(halves)}, "n": 5},
             checkpoint_id=path, no_dist=True)
    ckpt("convert", path, "-o", path + ".safetensors", status=1)
    ckpt("convert", path, "-o", path + ".safetensors", "--exclude", "l.c")
    assert load_file(path + ".safetensors").keys() == {"l.w"}
    assert "1 tensor is not read (l.c)" in ckpt("verify", path)
    data = os.path.join(path, "__0_0.distcp")
    with open(data, "r+b") as file:
        file.seek(file.read().index(halves.numpy().tobytes()))
        file.write(b"\1")
    assert "CRC" in ckpt("verify", path, status=1)


def test_conjugates_and_negatives(folder):
    """Bits beside the bytes: the values are those that torch loads, compressed and in any order of axes, too."""
    from command import ckpt
    z, r = torch.randn(5, 3, 2, dtype=torch.complex64), torch.randn(4, 3, dtype=torch.float64)
    tensors = {"conj": z.conj(), "mH": z.mH, "permuted": z.conj().permute(2, 0, 1), "neg": torch._neg_view(r),
               "negT": torch._neg_view(r).t(), "both": torch._neg_view(z.conj()), "imag": z.conj().imag,
               "half": torch._neg_view(r.half()), "rows": torch._neg_view(r)[1:3], "plain": z}
    for name in ("bits", "bits-zstd") if "compressed-2" in CASES else ("bits",):
        path = os.path.join(folder, name)
        writer = dcp.FileSystemWriter(path, **({"_extensions": [ZStandard()]} if "zstd" in name else {}))
        dcp.save(tensors, storage_writer=writer, no_dist=True)
        loaded = {key: torch.zeros(value.shape, dtype=value.dtype) for key, value in tensors.items()}
        dcp.load(loaded, checkpoint_id=path)
        ckpt("convert", path, "-o", path + ".pt")
        for key, value in torch.load(path + ".pt", weights_only=True).items():
            assert torch.equal(value, loaded[key]) and torch.equal(value, tensors[key]), (name, key)


def test_what_metadata_does_not_name(folder):
    """A place without a tensor, and an object that is too large to be looked at: verify says both, the rest is read."""
    import pickle
    from command import ckpt
    from torch.distributed.checkpoint.metadata import MetadataIndex
    path = os.path.join(folder, "ghost")
    dcp.save({"a": torch.ones(3), "b": torch.zeros(2)}, checkpoint_id=path, no_dist=True)
    assert "problem" not in ckpt("verify", path)
    with open(os.path.join(path, ".metadata"), "rb") as file:
        metadata = pickle.load(file)
    metadata.storage_data[MetadataIndex("ghost", torch.Size([0]))] = next(iter(metadata.storage_data.values()))
    with open(os.path.join(path, ".metadata"), "wb") as file:
        pickle.dump(metadata, file)
    told = ckpt("verify", path, status=1)
    assert "places for 1 item of which state_dict_metadata says nothing (ghost)" in told, told
    ckpt("hash", path)
    if "compressed-2" not in CASES:
        return
    path = os.path.join(folder, "large")
    dcp.save({"a": torch.ones(3), "large": b"x" * (70 << 20)}, no_dist=True,
             storage_writer=dcp.FileSystemWriter(path, _extensions=[ZStandard()]))
    ckpt("convert", path, "-o", path + ".safetensors")
    assert load_file(path + ".safetensors").keys() == {"a"}
    assert "not read: large (" in ckpt("inspect", path, "--json")
    assert "1 tensor is not read (large)" in ckpt("verify", path, "--json")


def test_older_releases(folder):
    from command import skip
    pythons = list(filter(None, os.environ.get("CKPT_OLD_PYTHON", "").split(":")))
    if not pythons:
        skip("CKPT_OLD_PYTHON names no Python with an older torch")
    for i, python in enumerate(pythons):
        root = os.path.join(folder, str(i))
        os.mkdir(root)
        subprocess.run([python, "-B", os.path.abspath(__file__), "--write", root], check=True)
        check_all(root, 4)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        save_all(sys.argv[2])
    else:
        import command
        command.main(globals())
