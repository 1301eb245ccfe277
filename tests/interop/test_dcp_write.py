"""Folders that we write load in torch.distributed.checkpoint, bit for bit: plain, as one file, into FSDP2 on another
number of ranks, and whatever the dtype."""
import argparse
import collections
import io
import os
import socket
import time
import warnings

import command
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from command import ckpt, digest
from safetensors.torch import save_file
from torch.distributed.checkpoint._extension import ZStandard
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

warnings.simplefilter("ignore")
WORLDS = [1, 2, 3, 16]
DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float64", "float32", "float16",
          "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "complex64"]
SHAPES = [(), (1,), (0,), (3, 0, 2), (5,), (3, 7), (2, 3, 4, 5), (1, 1, 1, 1, 1), (16, 3), (70, 33)]


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor.reshape(-1)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))


def random_tensor(generator, dtype, shape):
    """Any bits; of a dtype whose every pattern is a value."""
    n = torch.empty(shape, dtype=dtype).numel() * torch.empty(0, dtype=dtype).element_size()
    raw = torch.randint(0, 2 if dtype == torch.bool else 256, (n,), dtype=torch.uint8, generator=generator)
    return raw.view(dtype).reshape(shape) if n else torch.empty(shape, dtype=dtype)


def expect(found, wanted):
    assert found.keys() == wanted.keys(), found.keys() ^ wanted.keys()
    for name, tensor in wanted.items():
        assert same(found[name], tensor), name


def write(source, folder, world, *options):
    out = os.path.join(folder, "world-%d" % world)
    ckpt("reshard", source, "-o", out, "--to", "dcp", "--world", world, *options)
    return out


def test_every_dtype_and_shape_loads_plainly(folder):
    generator = torch.Generator().manual_seed(5)
    tensors = {"%s.%d.\u00e9" % (dtype, i): random_tensor(generator, getattr(torch, dtype), shape)
               for dtype in DTYPES for i, shape in enumerate(SHAPES)}
    source = os.path.join(folder, "s.safetensors")
    save_file(tensors, source)
    for world in WORLDS:
        out = write(source, folder, world)
        found = {name: torch.zeros_like(t) for name, t in tensors.items()}
        dcp.load(found, checkpoint_id=out, no_dist=True)
        expect(found, tensors)
        dcp_to_torch_save(out, out + ".pt")
        expect(torch.load(out + ".pt", weights_only=True), tensors)
        assert digest(out) == digest(source)


def test_compressed_folders_load(folder):
    assert ZStandard.is_available(), "zstandard is missing (tests/interop/requirements.txt)"
    generator = torch.Generator().manual_seed(6)
    tensors = {"%s.%d" % (dtype, i): random_tensor(generator, getattr(torch, dtype), shape)
               for dtype in DTYPES for i, shape in enumerate(SHAPES)}
    tensors["large"] = torch.arange(3 << 20).reshape(3, -1) // 1000  # several blocks, several windows of level 1
    source = os.path.join(folder, "s.safetensors")
    save_file(tensors, source)
    for world, level in ((1, 1), (3, 3), (16, 19)):
        out = write(source, folder, world, "--zstd", level, "--memory", "512M")
        found = {name: torch.zeros_like(t) for name, t in tensors.items()}
        dcp.load(found, checkpoint_id=out, no_dist=True)
        expect(found, tensors)
        dcp_to_torch_save(out, out + ".pt")
        expect(torch.load(out + ".pt", weights_only=True), tensors)
        assert digest(out) == digest(source)
        ckpt("scan", out)
        size = sum(os.path.getsize(os.path.join(out, name)) for name in os.listdir(out))
        assert size < os.path.getsize(source) / 4, (size, os.path.getsize(source))


def test_lists_that_lose_tensors_load(folder):
    """torch has a list without tensors as one item, and looks for that."""
    model, path, out = {"w.a": torch.ones(3)}, os.path.join(folder, "in.pt"), os.path.join(folder, "out")
    for whole, arguments, wanted in [
            ({"model": model, "rng": [torch.ones(2), 5, "x"]}, ["--include", "model"], {"model": model, "rng": [None, 5, "x"]}),
            ({"model": model, "a": [torch.ones(1), 2], "b": (torch.ones(1), 2)}, ["--exclude", "a.0", "--exclude", "b.0"],
             {"model": model, "a": [None, 2], "b": [None, 2]}),
            ({"model": model, "a": [torch.ones(1), {}, (torch.ones(1), {}, [5])]}, ["--include", "model"], {"model": model, "a": [None, {}, [None, {}, [5]]]}),
            ({"model": model, "a": [[torch.ones(1), 2], {"k": 1}]}, ["--exclude", "a.0.0"], {"model": model, "a": [[None, 2], {"k": 1}]}),
            ({"model": model, "a": [torch.ones(1), 2]}, ["--rename", "s/w.a/w.b/"],
             {"model": {"w.b": model["w.a"]}, "a": [None, 2], "a.0": torch.ones(1)}),
            ([torch.ones(2), 5, "x"], [], {"model": {"0": torch.ones(2)}, "object": [None, 5, "x"]})]:
        torch.save(whole, path)
        ckpt("convert", path, "-o", out, "--to", "dcp", "--force", *arguments)
        dcp_to_torch_save(out, out + ".pt")
        found = torch.load(out + ".pt", weights_only=True)
        assert repr(sorted(found.items())) == repr(sorted(wanted.items())), (found, wanted)


def test_bytes_do_not_depend_on_threads_or_where_they_came_from(folder):
    source = os.path.join(folder, "s.safetensors")
    save_file({"b.%d" % i: torch.randn(40, 50 + i) for i in range(20)}, source)

    def contents(path):
        return {name: open(os.path.join(path, name), "rb").read() for name in os.listdir(path)}

    wanted = contents(write(source, folder, 4, "--threads", "1"))
    for threads in ("2", "7"):
        assert contents(write(source, folder, 4, "--threads", threads, "--force")) == wanted
    again = write(os.path.join(folder, "world-4"), folder, 3)
    assert contents(write(again, folder, 4, "--force")) == wanted


# ---- FSDP2 ----

def trained(seed, n_steps):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.LayerNorm(7), torch.nn.Linear(7, 3, bias=False))
    if dist.is_initialized():
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25 if seed == 1 else 0.1)
    for _ in range(n_steps):
        model(torch.ones(2, 5)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def full(states):
    if isinstance(states, dict):
        return {name: full(value) for name, value in states.items()}
    return states.full_tensor() if isinstance(states, DTensor) else states


def tensors_of(model, optimizer):
    weights, states = get_state_dict(model, optimizer)
    return {"model": full(weights), "state": full(states["state"])}


def save_worker(rank, world, port, path):
    model, optimizer = trained(1, 3)
    weights, states = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optim": states, "step": 7}, checkpoint_id=path)
    whole = tensors_of(model, optimizer)
    if rank == 0:
        torch.save(whole, path + ".pt")


def load_worker(rank, world, port, path, wanted):
    model, optimizer = trained(2, 1)
    weights, states = get_state_dict(model, optimizer)
    state = {"model": weights, "optim": states, "step": 0}
    dcp.load(state, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    assert state["step"] == 7 and optimizer.param_groups[0]["lr"] == 0.25, optimizer.param_groups
    found, wanted = tensors_of(model, optimizer), torch.load(wanted, weights_only=True)
    expect(found["model"], wanted["model"])
    assert found["state"].keys() == wanted["state"].keys()
    for name in wanted["state"]:
        expect(found["state"][name], wanted["state"][name])


def worker(rank, function, world, port, arguments):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", rank=rank, world_size=world)
    function(rank, world, port, *arguments)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # gloo's threads may abort what ends in the usual way


def spawn(function, world, *arguments):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, (function, world, port, arguments), nprocs=world)


def test_fsdp2_goes_on_with_another_number_of_ranks(folder):
    theirs = os.path.join(folder, "theirs")
    spawn(save_worker, 2, theirs)
    for world in (1, 3):
        ours = os.path.join(folder, "ours-%d" % world)
        ckpt("reshard", theirs, "-o", ours, "--to", "dcp", "--world", world)
        assert digest(ours, "--include", "all") == digest(theirs, "--include", "all")
        spawn(load_worker, 2, ours, theirs + ".pt")
    packed = os.path.join(folder, "packed")  # items of bytes, compressed too
    ckpt("reshard", theirs, "-o", packed, "--to", "dcp", "--world", 3, "--zstd", 3)
    assert digest(packed, "--include", "all") == digest(theirs, "--include", "all")
    ckpt("verify", packed)
    spawn(load_worker, 2, packed, theirs + ".pt")


# ---- an optimizer whose groups number its parameters: torch.save of optimizer.state_dict() ----

class Wrapper(torch.nn.Module):
    """As DistributedDataParallel: names begin with "module."."""

    def __init__(self, module):
        super().__init__()
        self.module = module


def adam(seed, n_steps, prefix=False, named=True):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 2, bias=False))
    whole = Wrapper(model) if prefix else model
    optimizer = torch.optim.Adam(whole.named_parameters() if named else whole.parameters(), lr=0.25 if seed == 1 else 0.1)
    for _ in range(n_steps):
        model(torch.rand(2, 3)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return whole, model, optimizer


def states_of(model, optimizer):
    return {name: optimizer.state[p] for name, p in model.named_parameters()}


def expect_states(found, wanted):
    assert found.keys() == wanted.keys()
    for name in wanted:
        expect(found[name], wanted[name])


def test_numbered_parameters_get_their_names(folder):
    for prefix in (False, True):
        whole, model, optimizer = adam(1, 3, prefix)
        source = os.path.join(folder, "numbered-%d.pt" % prefix)
        torch.save({"model": whole.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, source)
        out = os.path.join(folder, "numbered-%d" % prefix)
        ckpt("reshard", source, "-o", out, "--to", "dcp", "--world", 2)
        _, model2, optimizer2 = adam(2, 1)
        weights, states = get_state_dict(model2, optimizer2)
        state = {"model": weights, "optimizer": states}
        dcp.load(state, checkpoint_id=out, no_dist=True)
        set_state_dict(model2, optimizer2, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        expect_states(states_of(model2, optimizer2), states_of(model, optimizer))
        assert optimizer2.param_groups[0]["lr"] == 0.25


def test_numbered_parameters_come_back_from_dcp(folder):
    for named in (True, False):
        _, model, optimizer = adam(1, 3, named=named)
        source, back = os.path.join(folder, "s%d.pt" % named), os.path.join(folder, "back-%d.pt" % named)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, source)
        out = os.path.join(folder, "s%d" % named)
        ckpt("convert", source, "-o", out, "--to", "dcp")
        ckpt("convert", out, "-o", back)
        found = torch.load(back, weights_only=True)
        if named:  # what get_state_dict gives
            wanted = get_state_dict(model, optimizer)[1]
            expect_states(found["optimizer"]["state"], wanted["state"])
            assert found["optimizer"]["param_groups"] == wanted["param_groups"]
        _, model2, optimizer2 = adam(2, 1, named=named)
        model2.load_state_dict(found["model"])
        optimizer2.load_state_dict(found["optimizer"])
        expect_states(states_of(model2, optimizer2), states_of(model, optimizer))


def test_numbers_without_names_stay_numbers(folder):
    """An optimizer of model.parameters(), saved and loaded by state dicts: load_state_dict finds states by numbers."""
    def trained():
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        return model, optimizer
    model, optimizer = trained()
    source = os.path.join(folder, "source")
    dcp.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint_id=source, no_dist=True)
    found_model, found = trained()
    state = {"model": found_model.state_dict(), "optimizer": found.state_dict()}
    dcp.load(state, checkpoint_id=write(source, folder, 2), no_dist=True)
    found.load_state_dict(state["optimizer"])
    for ours, theirs in zip(found.param_groups[0]["params"], optimizer.param_groups[0]["params"]):
        assert same(found.state[ours]["exp_avg"], optimizer.state[theirs]["exp_avg"])


def test_containers_stay_what_they_are(folder):
    """DCP -> DCP, torch -> DCP and DCP -> torch, also with their stored names."""
    _, model, optimizer = adam(1, 3)
    weights, states = get_state_dict(model, optimizer)
    wholes = [{"app": {"model": weights, "optim": states, "step": 7}},
              {"state_dict": weights, "model": "resnet", "epoch": 3},
              {"model": weights, "optim": states, "list": [torch.ones(1), {"a.b": torch.zeros(2), "c": [1, 2]}], "none": {}},
              {"a.b": torch.ones(1), "c": {"d.e": torch.ones(2), "f": "text"}}]
    for i, whole in enumerate(wholes):
        source, theirs = os.path.join(folder, "k%d.pt" % i), os.path.join(folder, "k%d" % i)
        torch.save(whole, source)
        dcp.save(whole, checkpoint_id=theirs, no_dist=True)
        for given in (source, theirs):
            for names in ([], ["--names", "stored"]):
                out, back = (os.path.join(folder, n) for n in ("kept", "kept.pt"))
                ckpt("convert", given, "-o", out, "--to", "dcp", "--force", *names)
                assert_paths(out, theirs)
                ckpt("convert", out, "-o", back, "--force", *names)
                found = torch.load(back, weights_only=True)
                wanted = dict(whole)
                if given == theirs:
                    wanted.pop("none", None)  # torch does not save an empty dict
                assert alike(found, wanted), (found, wanted)


def test_integers_are_keys_as_torch_writes_them(folder):
    """dcp.save takes str(key), and so does dcp.load of the same dict."""
    whole = {0: torch.ones(2), -1: torch.zeros(3), 7: {5: torch.ones(1), 6: [torch.ones(2), {3: torch.ones(3)}]}}
    source, theirs, out = (os.path.join(folder, name) for name in ("ints.pt", "ints", "ints.ours"))
    torch.save(whole, source)
    dcp.save(whole, checkpoint_id=theirs, no_dist=True)
    ckpt("reshard", source, "-o", out, "--to", "dcp")
    assert_paths(out, theirs)
    loaded = {0: torch.zeros(2), -1: torch.ones(3), 7: {5: torch.zeros(1), 6: [torch.zeros(2), {3: torch.zeros(3)}]}}
    dcp.load(loaded, checkpoint_id=out, no_dist=True)
    assert alike(loaded, whole), loaded
    torch.save({"a": {(1, 2): 3}, True: torch.ones(2)}, source)
    ckpt("reshard", source, "-o", out + "2", "--to", "dcp", status=1)


def assert_paths(found, wanted):
    found, wanted = (dcp.FileSystemReader(path).read_metadata().planner_data for path in (found, wanted))
    assert {k: v for k, v in found.items() if k != "none"} == wanted, (found, wanted)


def alike(a, b):
    if isinstance(b, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(b, dict):
        return isinstance(a, dict) and a.keys() == b.keys() and all(alike(a[k], b[k]) for k in b)
    if isinstance(b, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(alike, a, b))
    return a == b


def test_states_that_are_numbers_stand_beside_tensors(folder):
    _, model, optimizer = adam(1, 3)
    state = optimizer.state_dict()
    for kinds in state["state"].values():
        kinds["step"] = 3  # as before PyTorch 1.12
    source, out, back = (os.path.join(folder, name) for name in ("n.pt", "n", "n.back.pt"))
    torch.save({"model": model.state_dict(), "optimizer": state}, source)
    ckpt("convert", source, "-o", out, "--to", "dcp")
    ckpt("convert", out, "-o", back)
    found = torch.load(back, weights_only=True)["optimizer"]["state"]
    assert {name: kinds["step"] for name, kinds in found.items()} == {name: 3 for name, _ in model.named_parameters()}
    assert all("exp_avg" in kinds for kinds in found.values())


def test_flattened_states_stay_flattened(folder):
    flat = StateDictOptions(flatten_optimizer_state_dict=True)
    _, model, optimizer = adam(1, 3)
    weights, states = get_state_dict(model, optimizer, options=flat)
    theirs, ours = os.path.join(folder, "theirs"), os.path.join(folder, "ours")
    dcp.save({"model": weights, "optim": states}, checkpoint_id=theirs, no_dist=True)
    ckpt("reshard", theirs, "-o", ours, "--to", "dcp", "--world", 3)
    _, model2, optimizer2 = adam(2, 1)
    weights, states = get_state_dict(model2, optimizer2, options=flat)
    state = {"model": weights, "optim": states}
    dcp.load(state, checkpoint_id=ours, no_dist=True)
    set_state_dict(model2, optimizer2, model_state_dict=state["model"], optim_state_dict=state["optim"], options=flat)
    expect_states(states_of(model2, optimizer2), states_of(model, optimizer))
    assert optimizer2.param_groups[0]["lr"] == 0.25


def test_items_are_what_weights_only_loading_takes(folder):
    values = {"size": torch.Size([1, 2]), "device": torch.device("cpu"), "dtype": torch.bfloat16, "complex": 1 + 2j,
              "bytes": bytearray(b"xy"), "set": {1, 2}, "number": 10 ** 500, "counter": collections.Counter("aab"),
              "tuple": (1, None, ("a", 0.5)), "ordered": [collections.OrderedDict(a=1)]}
    source, out = os.path.join(folder, "v.pt"), os.path.join(folder, "v")
    torch.save({"model": {"w": torch.ones(2)}, **values, "big": 10 ** 700}, source)
    ckpt("convert", source, "-o", out, "--to", "dcp")
    metadata = dcp.FileSystemReader(out).read_metadata()
    found = {}
    for index, info in metadata.storage_data.items():
        with open(os.path.join(out, info.relative_path), "rb") as f:
            f.seek(info.offset)
            found[index.fqn] = torch.load(io.BytesIO(f.read(info.length)), weights_only=True)
    del found["model.w"]
    values["ordered.0.a"] = values.pop("ordered")[0]["a"]  # lists with dicts are taken apart
    assert found == values, found


def test_a_namespace_is_an_item(folder):
    """As torch's planner saves it, and loads it: without weights_only. In a torch file it is one too."""
    args = argparse.Namespace(lr=0.5, inner=argparse.Namespace(a=1), none=argparse.Namespace())
    source, out, back = (os.path.join(folder, n) for n in ("s", "o", "b.pt"))
    dcp.save({"model": {"w": torch.arange(6.0)}, "args": args, "list": [args]}, checkpoint_id=source, no_dist=True)
    ckpt("reshard", source, "-o", out, "--to", "dcp", "--world", 2)
    found = {"model": {"w": torch.zeros(6)}, "args": None, "list": None}
    dcp.load(found, checkpoint_id=out, no_dist=True)
    assert found["args"] == args and found["list"] == [args] and torch.equal(found["model"]["w"], torch.arange(6.0)), found
    ckpt("convert", out, "-o", back)
    with torch.serialization.safe_globals([argparse.Namespace]):
        assert torch.load(back, weights_only=True)["args"] == args


def test_items_of_any_class_go_on(folder):
    """The dict that loads the input loads the output; and its items are the same bytes, but never those that run."""
    import datetime
    import pathlib
    import random
    import uuid
    point = time.struct_time(range(9))
    values = {"path": pathlib.PosixPath("/data"), "date": datetime.datetime(2026, 1, 2), "slice": slice(1, 2),
              "uuid": uuid.UUID(int=7), "tuple": (random.getstate(), torch.arange(9)), "function": torch.nn.functional.gelu,
              "namespace": argparse.Namespace(a=1, t=torch.ones(3)), "named": point,
              "nested": {"list": [pathlib.PosixPath("x"), 1]}}

    def items(path):
        found = {}
        for index, info in dcp.FileSystemReader(path).read_metadata().storage_data.items():
            if index.offset is None:
                with open(os.path.join(path, info.relative_path), "rb") as f:
                    f.seek(info.offset)
                    found[index.fqn] = f.read(info.length)
        return found

    source, evil = os.path.join(folder, "in"), os.path.join(folder, "evil")
    state = {"model": {"w": torch.arange(6.0)}, **values}
    dcp.save(state, checkpoint_id=source, no_dist=True)
    for verb in (["reshard", "--world", 2], ["reshard", "--world", 1, "--zstd", 3], ["convert"]):
        out = os.path.join(folder, "o%d%s" % (len(verb), verb[0]))
        ckpt(verb[0], source, "-o", out, "--to", "dcp", *verb[1:])
        found = {"model": {"w": torch.zeros(6)}, **dict.fromkeys(values), "nested": {"list": None}}
        dcp.load(found, checkpoint_id=out, no_dist=True)
        assert torch.equal(found.pop("model")["w"], torch.arange(6.0)) and repr(found) == repr(values), found
        if "--zstd" not in verb:
            assert items(out) == items(source), items(out).keys()
        assert "struct_time" in ckpt("verify", out, status=1)  # a class of no allowed module is a problem, there as here
        ckpt("diff", "--include", "all", source, out)
    again = os.path.join(folder, "again")  # items behind zstd go on behind it
    ckpt("reshard", os.path.join(folder, "o5reshard"), "-o", again, "--to", "dcp", "--world", 2)
    found = {"model": {"w": torch.zeros(6)}, **dict.fromkeys(values), "nested": {"list": None}}
    dcp.load(found, checkpoint_id=again, no_dist=True)
    del found["model"]
    assert repr(found) == repr(values), found
    cast = os.path.join(folder, "cast")  # what is no parameter keeps its dtype: the items stay as they are
    ckpt("convert", source, "-o", cast, "--to", "dcp", "--dtype", "bf16")
    assert items(cast) == items(source), items(cast).keys()

    class Evil:
        def __reduce__(self):
            return os.system, ("true",)

    dcp.save({"model": {"w": torch.ones(2)}, "x": Evil()}, checkpoint_id=evil, no_dist=True)
    ckpt("convert", evil, "-o", os.path.join(folder, "tame"), "--to", "dcp")
    assert not items(os.path.join(folder, "tame"))


def test_groups_follow_renamed_tensors(folder):
    """In DCP the state's keys are names; a torch file keeps its object, where they are numbers with names beside them."""
    _, model, optimizer = adam(1, 3)
    source = os.path.join(folder, "r.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, source)
    renamed = ["first.weight", "first.bias", "1.weight"]
    for to in ("dcp", "torch"):
        out, loaded = os.path.join(folder, to), os.path.join(folder, to + ".pt")
        ckpt("convert", source, "-o", out, "--to", to, "--rename", r"s/(^|state\.)0\./\1first./")
        if to == "dcp":
            dcp_to_torch_save(out, loaded)
        else:
            os.rename(out, loaded)
        found = torch.load(loaded, weights_only=True)["optimizer"]
        keys = renamed if to == "dcp" else [0, 1, 2]
        assert found["param_groups"][0]["params"] == keys, found["param_groups"]
        assert found["param_groups"][0]["param_names"] == renamed
        assert sorted(found["state"]) == sorted(keys), found["state"].keys()
    _, _, again = adam(1, 0)
    again.load_state_dict(torch.load(os.path.join(folder, "torch.pt"), weights_only=True)["optimizer"])


if __name__ == "__main__":
    command.main(globals())
