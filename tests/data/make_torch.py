"""Writes torch/*.pt with PyTorch, and beside each the same tensors as torch/*.safetensors, under the names that ckpt gives.

Made with torch 2.15, safetensors 0.8.0:  python make_torch.py [FOLDER]
What torch cannot write today (deflated records, big-endian storages) is made of what it wrote. Nothing here is random.
"""
import argparse
import collections
import ctypes
import io
import os
import sys
import warnings
import zipfile

import numpy
import torch
from safetensors import TensorSpec, serialize

warnings.filterwarnings("ignore")
here = os.path.dirname(os.path.abspath(__file__))
out = os.path.join(sys.argv[1] if len(sys.argv) > 1 else here, "torch")
os.makedirs(out, exist_ok=True)

NAMES = {torch.bool: "bool", torch.uint8: "uint8", torch.int8: "int8", torch.int16: "int16", torch.uint16: "uint16",
         torch.int32: "int32", torch.uint32: "uint32", torch.int64: "int64", torch.uint64: "uint64",
         torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32", torch.float64: "float64",
         torch.complex64: "complex64", torch.float8_e4m3fn: "float8_e4m3fn", torch.float8_e5m2: "float8_e5m2",
         torch.float8_e8m0fnu: "float8_e8m0fnu", torch.float8_e4m3fnuz: "float8_e4m3fnuz",
         torch.float8_e5m2fnuz: "float8_e5m2fnuz", torch.float4_e2m1fn_x2: "float4_e2m1fn_x2"}


def path(name):
    return os.path.join(out, name)


def raw(tensor):
    """Row-major bytes of any tensor, which not every dtype can be made contiguous for."""
    tensor = tensor.detach()
    if tensor.numel() == 0:
        return b""
    plain = tensor.view(torch.uint8) if tensor.dtype == torch.float4_e2m1fn_x2 else tensor.contiguous()
    return plain.contiguous().flatten().view(torch.uint8).numpy().tobytes()


def attributes():
    """Tensors with attributes, as Megatron and tensor subclasses give them: on parameters, tied, tensors among them."""
    plain, parameter, tied = numbers(2), torch.nn.Parameter(numbers(3)), numbers(4)
    plain.note, plain.scale = {"axes": [0, 1]}, numbers(1)
    parameter.partition_dim, parameter.scales = 0, [numbers(1, 1), (numbers(2, 1), None)]
    marked = {"a": plain, "p": parameter, "z": [[plain, {"t": tied}]], "args": {"lr": 1}}
    save("attributes", marked, {"a": plain, "a.scale": numbers(1), "z.0.1.t": tied, "p": parameter,
                                "p.scales.0": numbers(1, 1), "p.scales.1.0": numbers(2, 1)})


def signs():
    """Conjugates and negatives: a bit beside the bytes, alone and with views of what others are views of too."""
    z, r = torch.complex(numbers(2, 3), -numbers(2, 3)), numbers(3, 2)
    views = {"plain": z, "conj": z.conj(), "mH": z.mH, "both": torch._neg_view(z.conj()), "row": z.conj()[1],
             "imag": torch.complex(numbers(2), numbers(2)).conj().imag, "neg": torch._neg_view(r),
             "column": torch._neg_view(r).t()[1], "half": torch._neg_view(numbers(3).half()),
             "double": torch._neg_view(numbers(2).double())}
    values = {name: view.resolve_conj().resolve_neg() for name, view in views.items()}
    save("signs", views, values)
    save("signs-legacy", views, values, _use_new_zipfile_serialization=False)
    repacked("signs-deflated", "signs", lambda name, data: data, zipfile.ZIP_DEFLATED)
    expect("signs-deflated", values)


def random_states():
    """As transformers' Trainer saves them, with numpy's own state; and what else numpy's numbers are pickled as."""
    states = {"python": (3, (1, 2, 3), None), "numpy": numpy.random.RandomState(1).get_state(), "cpu": numbers(2),
              "more": [numpy.zeros((2, 3), dtype=">i4"), numpy.float64(1.5), numpy.dtype("int16")]}
    save("random-states", states, {"cpu": numbers(2)})


def expect(name, tensors):
    specs, kept = {}, []
    for key, tensor in tensors.items():
        data = raw(tensor)
        buffer = ctypes.create_string_buffer(data, max(len(data), 1))
        kept.append(buffer)
        specs[key] = TensorSpec(dtype=NAMES[tensor.dtype], shape=list(tensor.shape),
                                data_ptr=ctypes.addressof(buffer), data_len=len(data))
    with open(path(name + ".safetensors"), "wb") as file:
        file.write(serialize(specs, None))


def save(name, value, tensors, **options):
    torch.save(value, path(name + ".pt"), **options)
    expect(name, tensors)


def numbers(*shape, dtype=torch.float32, start=0):
    n = 1
    for extent in shape:
        n *= extent
    return (torch.arange(n, dtype=torch.float64) * 0.5 + start).reshape(shape).to(dtype)


def repacked(name, source, change, method=zipfile.ZIP_STORED):
    """source's archive with every record changed."""
    with zipfile.ZipFile(path(source + ".pt")) as given, zipfile.ZipFile(path(name + ".pt"), "w", method) as made:
        for info in given.infolist():
            record = zipfile.ZipInfo(info.filename, (1980, 1, 1, 0, 0, 0))
            record.compress_type = method
            made.writestr(record, change(info.filename, given.read(info.filename)))


def views():
    """A state dict of a real module: ties, views of one storage, a Parameter, expanded and strided axes."""
    big = numbers(6, 4)
    state = collections.OrderedDict()
    state["embed.weight"] = torch.nn.Parameter(big)
    state["head.weight"] = state["embed.weight"]
    state["head.copy"] = big.view(6, 4)
    state["rows"] = big[2:4]
    state["columns"] = big[:, 1:3]
    state["transposed"] = big.t()
    state["steps"] = big.flatten()[1:24:5]
    state["expanded"] = torch.tensor([7.0]).expand(3, 2)
    state["row.expanded"] = big[1].expand(3, 4)
    state["deep"] = numbers(2, 3, 2, 2).permute(3, 1, 0, 2)
    state["scalar"] = torch.tensor(2.5)
    state["empty"] = torch.empty(3, 0, 2)
    state["one"] = big[3:4, 1:2]
    state._metadata = collections.OrderedDict({"": {"version": 1}})
    return state


def named(state, *leave):
    """Tensors by the first of their names in byte order."""
    return {key: value for key, value in state.items() if key not in leave}


def dtypes():
    state = {str(dtype)[6:]: numbers(2, 3).to(dtype) for dtype in NAMES
             if dtype not in (torch.float4_e2m1fn_x2, torch.float8_e8m0fnu)}
    state["float8_e8m0fnu"] = torch.arange(120, 126, dtype=torch.uint8).reshape(2, 3).view(torch.float8_e8m0fnu)
    state["float4_e2m1fn_x2"] = torch.arange(16, 22, dtype=torch.uint8).reshape(2, 3).view(torch.float4_e2m1fn_x2)
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        state["scalar." + str(dtype)[6:]] = torch.ones((), dtype=dtype)
    return state


def training():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    for i, parameter in enumerate(model.parameters()):
        parameter.data = numbers(*parameter.shape, start=i)
    adam = torch.optim.AdamW(model.named_parameters(), lr=0.01)
    sgd = torch.optim.SGD([model[0].weight], lr=0.1, momentum=0.9)
    model(torch.ones(4, 3)).sum().backward()
    adam.step()
    sgd.step()
    value = {"model": model.state_dict(), "optimizer": adam.state_dict(), "second": sgd.state_dict(), "epoch": 3,
             "global_step": 12, "lr_scheduler": {"last_epoch": 3, "_last_lr": [0.01]},
             "args": argparse.Namespace(lr=0.01, layers=[1, 2], mask=torch.tensor([1, 0])),
             "rng": torch.arange(8, dtype=torch.uint8)}
    tensors = dict(model.state_dict())
    for name, parameter in model.named_parameters():
        for kind, tensor in adam.state[parameter].items():
            tensors[f"optimizer.state.{name}.{kind}"] = tensor
    tensors["second.state.0.momentum"] = sgd.state[model[0].weight]["momentum_buffer"]
    tensors["args.mask"] = value["args"].mask
    tensors["rng"] = value["rng"]
    return value, tensors


def spellings():
    """One run as trainers of other habits save it: their names of its parts, their objects and their own tensors."""
    model = torch.nn.Linear(3, 2)
    for i, parameter in enumerate(model.parameters()):
        parameter.data = numbers(*parameter.shape, start=i)
    adam = torch.optim.AdamW(model.named_parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(adam, 3)
    model(torch.ones(4, 3)).sum().backward()
    adam.step()
    tensors = dict(model.state_dict())
    for name, parameter in model.named_parameters():
        for kind, tensor in adam.state[parameter].items():
            tensors[f"optimizer.state.{name}.{kind}"] = tensor
    save("training-tutorial", {
        "model_state_dict": model.state_dict(), "optimizer_state_dict": adam.state_dict(), "loss": 0.25,
        "scheduler_state_dict": schedule.state_dict(), "best.loss": 0.5, "none": None, "trainer": {"seed": 3},
        "torch": {"version": "2.15"},
        "rng": {"python": (3, [1, 2]), "torch": torch.arange(8, dtype=torch.uint8)},
        "ema": {"decay": 0.9, "weight": numbers(2)},
    }, {**tensors, "rng.torch": torch.arange(8, dtype=torch.uint8), "ema.weight": numbers(2)})
    save("training-below", {"app": {"model": model.state_dict(), "optim": adam.state_dict(), "epoch": 4,
                                    "extra": {"a": [1]}}, "step": 3, "beside": {"b": 2}, "epoch": 5}, tensors)
    save("training-lightning", {
        "state_dict": model.state_dict(), "optimizer_states": [adam.state_dict()], "epoch": 2, "global_step": 7,
        "lr_schedulers": [schedule.state_dict()], "callbacks": {"stop": {"wait": 3, "best": numbers(1)}},
        "loops": {"fit_loop": {"state_dict": {}}}, "hyper_parameters": {"lr": 0.01},
    }, {**tensors, "callbacks.stop.best": numbers(1)})


def module_training(module):
    """A module itself beside its optimizer's states and a trainer's arguments, as YOLO's trainers save them."""
    adam = torch.optim.AdamW(module.parameters(), lr=0.01)
    sum((parameter * 2).sum() for parameter in module.parameters()).backward()
    adam.step()
    states = {f"optimizer.state.{i}.{kind}": state for i, of in adam.state_dict()["state"].items()
              for kind, state in of.items()}
    save("module-training", {"epoch": 3, "model": module, "ema": None, "optimizer": adam.state_dict(),
                             "args": argparse.Namespace(lr=0.01, out=[1, "x"])}, {**module.state_dict(), **states})


def dtensor():
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29617", RANK="0", WORLD_SIZE="1")
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (1,))
    weight = distribute_tensor(numbers(2, 3), mesh, [Shard(0)])
    bias = distribute_tensor(numbers(4), mesh, [Shard(0)])
    value = {"weight": weight, "bias": torch.nn.Parameter(bias), "plain": numbers(2)}
    save("dtensor", value, {"weight": weight.to_local(), "bias": bias.to_local(), "plain": value["plain"],
                            "bias._spec.mesh._rank_map": torch.zeros(1, dtype=torch.int32)})
    weight = torch.nn.Parameter(weight)
    adam = torch.optim.AdamW([("weight", weight)], lr=0.01)
    sgd = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    (weight * 2).sum().backward()
    adam.step()
    sgd.step()
    states = {"optimizer.state.weight." + kind: state for kind, state in adam.state[weight].items()}
    states.update({"weight": weight, "second.state.0.momentum": sgd.state[weight]["momentum_buffer"]})
    tensors = {name: value.to_local() if hasattr(value, "to_local") else value for name, value in states.items()}
    tensors["optimizer.state.weight.exp_avg._spec.mesh._rank_map"] = torch.zeros(1, dtype=torch.int32)
    save("dtensor-training", {"model": {"weight": weight.detach()}, "optimizer": adam.state_dict(),
                              "second": sgd.state_dict()}, tensors)
    dist.destroy_process_group()


def parts():
    """What rank 0 of 2 has: parts of two DTensors and a sharded tensor, a summand, and the whole of one."""
    import torch.distributed as dist
    from torch.distributed._shard import sharded_tensor, sharding_spec
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    cut = DTensor.from_local(numbers(3, 3), mesh, [Shard(0)], run_check=False, shape=(5, 3), stride=(3, 1))
    columns = DTensor.from_local(numbers(2, 2), mesh, [Shard(1)], run_check=False)
    spec = [sharding_spec.ShardMetadata([2 * rank, 0], [2, 4], f"rank:{rank}/cpu") for rank in (0, 1)]
    properties = sharded_tensor.TensorProperties(dtype=torch.float32)
    sharded = sharded_tensor.ShardedTensor._init_from_local_shards_and_global_metadata(
        [sharded_tensor.Shard(numbers(2, 4), spec[0])],
        sharded_tensor.ShardedTensorMetadata(spec, torch.Size([4, 4]), properties))
    torch.save({"cut": cut, "columns": columns, "sharded": sharded,
                "whole": DTensor.from_local(numbers(2), mesh, [Replicate()], run_check=False)}, path("parts.pt"))
    torch.save({"sum": DTensor.from_local(numbers(2), mesh, [Partial()], run_check=False)}, path("summand.pt"))
    dist.destroy_process_group()


def wrapped():
    """A subclass that wraps two tensors, as torchao's do."""
    from torch.testing._internal.two_tensor import TwoTensor
    torch.save({"fc.weight": TwoTensor(numbers(2, 3), numbers(2, 3) + 1), "fc.bias": numbers(2),
                "out.weight": TwoTensor(numbers(2), numbers(2) + 1)}, path("wrapped.pt"))


def main():
    torch.manual_seed(0)
    save("views", views(), named(views(), "head.copy", "head.weight"))
    save("dtypes", dtypes(), dtypes())
    torch.save({"c": torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex128)}, path("complex128.pt"))
    torch.save({"fc.weight": torch.quantize_per_tensor(numbers(2, 3), 0.5, 3, torch.qint8), "fc.bias": numbers(2),
                "fc._packed_params": (numbers(2), None), "meta": (numbers(2), None)}, path("flat-quantized.pt"))
    torch.save({"state_dict": {"fc.weight": numbers(2, 3)}, "ema.decay": numbers(1)}, path("beside-dotted.pt"))
    save("training", *training())
    spellings()
    small = {"a": numbers(2, 2), "b": {"c": [torch.tensor([1, 2]), (numbers(3), None)]}}
    tensors = {"a": small["a"], "b.c.0": small["b"]["c"][0], "b.c.1.0": small["b"]["c"][1][0]}
    for protocol in (2, 3, 4, 5):
        save(f"protocol{protocol}", small, tensors, pickle_protocol=protocol)
        save(f"legacy{protocol}", small, tensors, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    save("legacy", views(), named(views(), "head.copy", "head.weight"), _use_new_zipfile_serialization=False)
    save("list", [numbers(2), numbers(3)], {"0": numbers(2), "1": numbers(3)})
    save("tensor", numbers(2, 2), {"tensor": numbers(2, 2)})
    save("empty-key", {"tensor": numbers(2), "": numbers(3)}, {"tensor": numbers(2), "tensor~2": numbers(3)})
    attributes()
    random_states()
    indices, values = torch.tensor([[0, 1], [1, 0]]), numbers(2)
    rows = torch.eye(2).to_sparse_csr()
    save("sparse", {"s": torch.sparse_coo_tensor(indices, values, (2, 3)), "r": rows},
         {"s.indices": indices, "s.values": values, "r.crow_indices": rows.crow_indices(),
          "r.col_indices": rows.col_indices(), "r.values": rows.values()})
    refused = {"half": numbers(2),
               "bits": torch.zeros(2, dtype=torch.uint8).view(torch.bits8),
               "complex32": torch.zeros(2, dtype=torch.complex32), "meta": torch.ones(2, device="meta"),
               "conj": torch.ones(2, dtype=torch.complex64).conj(),
               "wide": torch.zeros(1, 1, 1, 1, 1, 1, 1, 1, 1)}
    save("refused", refused, {"half": numbers(2), "bits.storage": torch.zeros(2, dtype=torch.uint8),
                              "complex32.storage": torch.zeros(8, dtype=torch.uint8),
                              "conj": torch.ones(2, dtype=torch.complex64).conj().resolve_conj()})
    signs()
    by_rows = torch.quantize_per_channel(torch.arange(12.0).reshape(4, 3), torch.tensor([0.5, 1.0, 2.0, 4.0]).double(),
                                         torch.tensor([0, 1, 2, 3]), 0, torch.qint8)
    by_columns = torch.quantize_per_channel(torch.arange(6.0).reshape(2, 3), torch.tensor([0.5, 1.0, 2.0]),
                                            torch.tensor([0.0, 0.5, 1.0]), 1, torch.quint8)
    whole = torch.quantize_per_tensor(torch.arange(6.0).reshape(2, 3), 0.1, 3, torch.quint8)
    save("quantized", {"w": by_rows, "layer": {"v": by_columns}, "half": numbers(2), "p": whole, "tied": whole},
         {"p.values": whole.int_repr(), "p.scales": torch.tensor(whole.q_scale(), dtype=torch.float64),
          "p.zero_points": torch.tensor(whole.q_zero_point()),
          "w.values": by_rows.int_repr(), "w.scales": by_rows.q_per_channel_scales(),
          "w.zero_points": by_rows.q_per_channel_zero_points(), "layer.v.values": by_columns.int_repr(),
          "layer.v.scales": by_columns.q_per_channel_scales(),
          "layer.v.zero_points": by_columns.q_per_channel_zero_points(), "half": numbers(2)})
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    module[0].weight.data, module[0].bias.data = numbers(2, 2), numbers(2)
    save("module", module, module.state_dict())
    save("module-legacy", {"model": module, "epoch": 1}, module.state_dict(), _use_new_zipfile_serialization=False)
    module_training(module)
    dtensor()
    parts()
    wrapped()
    repacked("deflated", "views", lambda name, data: data, zipfile.ZIP_DEFLATED)
    expect("deflated", named(views(), "head.copy", "head.weight"))

    def swap(name, data):
        if name.endswith("byteorder"):
            return b"big"
        if "/data/" not in name or "/.data/" in name:
            return data
        tensor = list(dtypes().values())[int(name.rsplit("/", 1)[1])]
        n = tensor.element_size() // 2 if tensor.is_complex() else tensor.element_size()
        return b"".join(data[i:i + n][::-1] for i in range(0, len(data), n))
    repacked("big-endian", "dtypes", swap)
    expect("big-endian", dtypes())
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), buffer)
    with open(path("script.pt"), "wb") as file:
        file.write(buffer.getvalue())


main()
