"""Writes tests/data/dcp/<case>/: checkpoints of torch.distributed.checkpoint, and beside each what it holds.

    python make_dcp.py [FOLDER]        (torch 2.15.0, safetensors; zstandard for the case `zstd`)

Each <case>.safetensors holds the full tensors, gathered in the run that wrote the checkpoint, under the names that ckpt
gives them. The older generations of `.metadata` are the new one, pickled under the names and with the fields of then.
"""
import os
import pickle
import shutil
import sys
import types

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter, SerializationFormat
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dcp")


def full(value):
    value = value.full_tensor() if isinstance(value, DTensor) else value
    return value.detach().clone().contiguous()


def keep(case, tensors):
    if not dist.is_initialized() or dist.get_rank() == 0:
        save_file(tensors, os.path.join(ROOT, case + ".safetensors"))


def trained(width, shard):
    """A small model after two steps of AdamW, and what its full tensors are called."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.ReLU(), torch.nn.Linear(width, 2, bias=False))
    if shard:
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    weights, states = get_state_dict(model, optimizer)
    tensors = {name: full(value) for name, value in weights.items()}
    for parameter, state in states["state"].items():
        for leaf, value in state.items():
            tensors["optimizer.state.%s.%s" % (parameter, leaf)] = full(value)
    return weights, states, tensors


def fsdp(case, width):
    weights, states, tensors = trained(width, True)
    state = {"model": weights, "optim": states, "step": 2, "note": "kept as it is"}
    dcp.save(state, checkpoint_id=os.path.join(ROOT, case))
    keep(case, tensors)


def app(case):
    """All below one key, as PyTorch's own recipe does; the optimizer's state as torch.optim gives it."""
    weights, states, tensors = trained(5, True)
    dcp.save({"app": {"model": weights, "optim": states}}, checkpoint_id=os.path.join(ROOT, case))
    keep(case, tensors)


def state_dicts(case):
    """Under the keys that torch.save's tutorial gives them."""
    weights, states, tensors = trained(4, False)
    state = {"model_state_dict": weights, "optimizer_state_dict": states, "epoch": 3}
    dcp.save(state, checkpoint_id=os.path.join(ROOT, case), no_dist=True)
    keep(case, tensors)


def flat(case):
    """A bare state dict, wrapped by DDP and compile, and without collectives."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = {"module._orig_mod.a": torch.arange(21.0).reshape(7, 3), "module._orig_mod.b": torch.arange(2.0)}
    state = {name: distribute_tensor(value, mesh, [Shard(0)]) for name, value in whole.items()}
    state["module._orig_mod.c"] = whole["module._orig_mod.c"] = torch.arange(4, dtype=torch.int16)
    dcp.save(state, checkpoint_id=os.path.join(ROOT, case), use_collectives=False)
    keep(case, {name[len("module._orig_mod."):]: value for name, value in whole.items()})


def mesh(case):
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    whole = {"both": torch.arange(35.0).reshape(5, 7), "columns": torch.arange(30.0).reshape(2, 3, 5).bfloat16(),
             "once": torch.arange(6).reshape(2, 3), "few": torch.arange(3.0)}
    placed = {"both": [Shard(0), Shard(1)], "columns": [Replicate(), Shard(2)], "once": [Replicate(), Replicate()],
              "few": [Shard(0), Shard(0)]}
    state = {name: distribute_tensor(value, grid, placed[name]) for name, value in whole.items()}
    dcp.save({"state_dict": state}, checkpoint_id=os.path.join(ROOT, case))
    keep(case, whole)


def safetensors(case):
    grid = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = {"w": torch.arange(15.0).reshape(5, 3), "b": torch.arange(3)}
    state = {"w": distribute_tensor(whole["w"], grid, [Shard(0)]), "b": whole["b"]}
    writer = FileSystemWriter(os.path.join(ROOT, case), serialization_format=SerializationFormat.SAFETENSORS)
    dcp.save(state, storage_writer=writer)
    keep(case, whole)


def hf_shards(case):
    grid = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = {"w": torch.arange(15.0).reshape(5, 3).bfloat16(), "v": torch.arange(12.0).reshape(2, 6)}
    state = {"w": distribute_tensor(whole["w"], grid, [Shard(0)]), "v": distribute_tensor(whole["v"], grid, [Shard(1)])}
    dcp.save(state, storage_writer=HuggingFaceStorageWriter(os.path.join(ROOT, case), save_distributed=True))
    keep(case, whole)


def parts(case):
    """Of a planner that does not flatten, what one rank has of a model and of an optimizer, as FSDP2 cuts them."""
    grid = init_device_mesh("cpu", (dist.get_world_size(),))
    cut = distribute_tensor(torch.arange(15.0).reshape(5, 3), grid, [Shard(0)])
    state = {"w": {"step": torch.tensor(2.0), "exp_avg": cut + 1}}
    saved = {"model": {"w": cut, "b": distribute_tensor(torch.arange(3.0), grid, [Replicate()])},
             "optimizer": {"state": state, "param_groups": [{"lr": 0.5, "params": ["w"]}]}, "epoch": 3}
    dcp.save(saved, checkpoint_id=os.path.join(ROOT, case), planner=DefaultSavePlanner(flatten_state_dict=False))


def worker(rank, world, port, function, arguments):
    global ROOT
    ROOT = "."
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    globals()[function](*arguments)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # gloo's threads may abort what ends in the usual way


def spawn(port, world, function, *arguments):
    print(function, *arguments, flush=True)
    mp.spawn(worker, (world, port, function, arguments), nprocs=world)


# ---- one process ----


def dtypes():
    names = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float64", "float32",
             "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "complex64"]
    bits = torch.arange(96, dtype=torch.uint8)
    tensors = {name: bits.view(getattr(torch, name)).clone() for name in names if name != "bool"}
    tensors["bool"] = bits % 2 == 0
    state = dict(tensors, scalar=torch.tensor(7.0), empty=torch.empty(0, 3), view=torch.arange(10)[3:5],
                 transposed=torch.arange(12.0).reshape(3, 4).t(),
                 channels=torch.arange(48.0).reshape(2, 3, 4, 2).to(memory_format=torch.channels_last),
                 some_bytes=b"bytes", nested={"list": [torch.ones(2), 1], "int": 3})
    dcp.save(state, checkpoint_id=os.path.join(ROOT, "dtypes"), no_dist=True)
    for name in ("scalar", "empty", "view", "transposed", "channels"):
        tensors[name] = full(state[name])
    keep("dtypes", dict(tensors, **{"nested.list.0": torch.ones(2)}))


def signs():
    """Views with the conjugate and the negative bit, which torch.save keeps: the bytes are those of the others."""
    complexes = torch.arange(1.0, 31.0).reshape(5, 3, 2).view(torch.complex64).squeeze(-1)
    reals = torch.arange(1.0, 13.0).reshape(4, 3)
    state = {"conj": complexes.conj(), "mH": complexes.mH, "both": torch._neg_view(complexes.conj()),
             "part": complexes.conj()[1:3], "imag": complexes.conj().imag, "scalar": complexes.conj()[0, 0],
             "transposed": torch._neg_view(reals).t(), "plain": complexes}
    state.update({str(dtype)[6:]: torch._neg_view(reals.to(dtype)) for dtype in (torch.float16, torch.bfloat16,
                                                                                 torch.float32, torch.float64)})
    dcp.save(state, checkpoint_id=os.path.join(ROOT, "signs"), no_dist=True)
    keep("signs", {name: value.resolve_conj().resolve_neg().contiguous() for name, value in state.items()})


def zstd():
    from torch.distributed.checkpoint._extension import ZStandard
    state = {"model": {"w": torch.arange(3000.0).reshape(50, 60), "s": torch.tensor(3)}, "epoch": 4}
    writer = FileSystemWriter(os.path.join(ROOT, "zstd"), _extensions=[ZStandard()])
    dcp.save(state, storage_writer=writer, no_dist=True)
    keep("zstd", state["model"])


def zstd_strided(case):
    """Compressed chunks whose archives are not row-major: columns of what is stored by columns, and permuted axes."""
    from torch.distributed.checkpoint._extension import ZStandard
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = torch.arange(60.0).reshape(6, 10)
    state = {"columns": distribute_tensor(whole, mesh, [Shard(0)]).t(), "transposed": whole.t(),
             "permuted": torch.arange(24, dtype=torch.int16).reshape(2, 3, 4).permute(2, 0, 1), "part": whole[:, 2:5],
             "channels": torch.arange(96.0).reshape(2, 3, 4, 4).bfloat16().to(memory_format=torch.channels_last)}
    writer = FileSystemWriter(os.path.join(ROOT, case), _extensions=[ZStandard()])
    dcp.save(state, storage_writer=writer)
    keep(case, {name: full(value) for name, value in state.items()})


# ---- older generations ----


def module_of(name):
    """A module of this name, made with its parents where it is not there."""
    parts = name.split(".")
    for i in range(len(parts)):
        sys.modules.setdefault(".".join(parts[:i + 1]), types.ModuleType(".".join(parts[:i + 1])))
    return sys.modules[name]


def old(case, packages, change):
    """A copy of `app` whose .metadata says what earlier releases said: classes by `packages`, fields by `change`."""
    source = os.path.join(ROOT, "app")
    shutil.copytree(source, os.path.join(ROOT, case))
    tensors = load_file(source + ".safetensors")
    if case == "mcore":  # without paths names stay
        tensors = {("app." + name).replace("app.optimizer", "app.optim") if name.startswith("optimizer.")
                   else "app.model." + name: value for name, value in tensors.items()}
    save_file(tensors, os.path.join(ROOT, case + ".safetensors"))
    path = os.path.join(ROOT, case, ".metadata")
    with open(path, "rb") as file:
        metadata = pickle.load(file)
    classes, undo = set(), []
    for row in metadata.state_dict_metadata.values():
        classes.update(type(part) for part in (row, getattr(row, "properties", None)) if part is not None)
    classes.update((dcp.metadata.ChunkStorageMetadata, dcp.metadata.MetadataIndex, dcp.metadata.Metadata,
                    dcp.metadata._MEM_FORMAT_ENCODING, dcp.filesystem._StorageInfo))
    for cls in classes:
        undo.append((cls, cls.__module__, cls.__qualname__))
        name = packages.get(cls.__name__, (cls.__module__, cls.__qualname__))
        cls.__module__, cls.__qualname__ = name
        setattr(module_of(name[0]), name[1], cls)
    properties = dcp.metadata.TensorProperties
    state = properties.__getstate__
    properties.__getstate__ = lambda self: state(self)[:5]
    change(metadata)
    with open(path, "wb") as file:
        pickle.dump(metadata, file, protocol=3 if case == "old-1.12" else 4)
    properties.__getstate__ = state
    for cls, module, name in undo:
        cls.__module__, cls.__qualname__ = module, name


def old_112(metadata):
    del metadata.storage_meta, metadata.version


class LocalPlans(list):
    """Stands for the planner's classes that Megatron keeps."""


def mcore(metadata):
    del metadata.version
    metadata.planner_data = {}
    metadata.mcore_data = {"w": {"nd_reformulated_orig_global_shape": (5, 3)}}
    metadata.all_local_plans = LocalPlans([LocalPlans([1, 2]), {"key": LocalPlans()}])


def generations():
    shard = "torch.distributed._shard.checkpoint."
    names = ("Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata", "MetadataIndex")
    packages = {name: (shard + "metadata", name) for name in names}
    packages["_StorageInfo"] = (shard + "filesystem", "_StorageInfo")
    of_tensor = "torch.distributed._shard.sharded_tensor.metadata"
    packages["TensorProperties"] = (of_tensor, "TensorProperties")
    packages["_MEM_FORMAT_ENCODING"] = (of_tensor, "MEM_FORMAT_ENCODING")
    old("old-1.12", packages, old_112)
    only = {name: packages[name] for name in ("TensorProperties", "_MEM_FORMAT_ENCODING")}
    old("old-2.2", only, old_112)
    strategy = "megatron.core.dist_checkpointing.strategies.torch"
    LocalPlans.__module__ = strategy
    module_of(strategy).LocalPlans = LocalPlans
    old("mcore", {"Metadata": (strategy, "MCoreMetadata")}, mcore)


def main():
    global ROOT
    if len(sys.argv) > 1:
        ROOT = sys.argv[1]
    shutil.rmtree(ROOT, ignore_errors=True)
    os.makedirs(ROOT)
    os.chdir(ROOT)  # what stands in StorageMeta is then no path of this machine
    ROOT = "."
    dtypes()
    signs()
    state_dicts("state-dicts")
    if "zstd" not in os.environ.get("SKIP", ""):
        zstd()
    spawn(29611, 4, "fsdp", "fsdp4", 5)
    spawn(29613, 2, "app", "app")
    spawn(29614, 3, "flat", "no-collectives")
    spawn(29615, 4, "mesh", "mesh")
    spawn(29616, 2, "safetensors", "safetensors")
    spawn(29617, 2, "hf_shards", "hf-shards")
    spawn(29619, 2, "parts", "parts")
    if "zstd" not in os.environ.get("SKIP", ""):
        spawn(29618, 2, "zstd_strided", "zstd-strided")
    generations()


if __name__ == "__main__":
    main()
