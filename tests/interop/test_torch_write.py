"""What we write as torch files is loaded by PyTorch, weights_only=True: bits, ties, objects; and by transformers."""
import argparse
import collections
import json
import os
import pickle
import random
import types
import zipfile

import command
import numpy
import torch
from command import ckpt, digest
from safetensors.torch import load_file, save_file

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
          torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.bool, torch.uint8, torch.uint16, torch.uint32,
          torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64, torch.complex64]
SHAPES = [(), (1,), (0,), (3, 0, 2), (5,), (3, 7), (2, 3, 4, 5), (1, 1, 1, 1, 1), (1000, 33)]
DATA = os.path.join(command.TESTS, "data", "torch")


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor.reshape(-1)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))


def random_tensors(seed):
    """Of every dtype and shape, with any bits."""
    chooser, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    tensors = {}
    for i, dtype in enumerate(2 * DTYPES):
        shape = chooser.choice(SHAPES)
        n = torch.Size(shape).numel() * torch.empty(0, dtype=dtype).element_size()
        raw = torch.randint(0, 2 if dtype == torch.bool else 256, (n,), dtype=torch.uint8, generator=generator)
        tensors["%s.%d\u00e9" % (dtype, i)] = raw.view(dtype).reshape(shape) if n else torch.empty(shape, dtype=dtype)
    return tensors


def load(path, *classes):
    """Accepted by weights-only loading that was told of these classes, and no checksum is wrong."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = [i.filename for i in archive.infolist()]
        assert names[:4] == ["archive/data.pkl", "archive/.format_version", "archive/.storage_alignment", "archive/byteorder"]
        assert names[-2:] == ["archive/version", "archive/.data/serialization_id"]
        with open(path, "rb") as f:
            for info in archive.infolist():
                f.seek(info.header_offset + 26)
                head = f.read(4)
                start = info.header_offset + 30 + int.from_bytes(head[:2], "little") + int.from_bytes(head[2:], "little")
                assert start % 64 == 0, info
    with torch.serialization.safe_globals(classes):
        return torch.load(path, weights_only=True)


NUMPY = [numpy._core.multiarray._reconstruct, numpy._core.multiarray.scalar, numpy.ndarray, numpy.dtype,
         *(type(numpy.dtype(code)) for code in ("u4", "i4", "f8", "i2"))]


def read(path):
    with open(path, "rb") as f:
        return f.read()


def equal(a, b):
    """Of nested objects: types, values, bits."""
    if isinstance(a, torch.Tensor):
        if a.layout != torch.strided:
            return a.layout == b.layout and torch.equal(a.to_dense(), b.to_dense())
        alike = type(a) is type(b) and a.requires_grad == b.requires_grad and same(a.detach(), b.detach())
        return alike and equal(vars(a), vars(b))
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[k], b[k]) for k in a) and equal(vars(a) if hasattr(a, "__dict__") else None,
                                                                                  vars(b) if hasattr(b, "__dict__") else None)
    if isinstance(a, (list, tuple, collections.deque)):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, (argparse.Namespace, types.SimpleNamespace)):
        return equal(vars(a), vars(b))
    return a == b


def test_every_dtype_is_loaded(folder):
    for seed in range(4):
        first, out, back = (os.path.join(folder, n % seed) for n in ("a%d.safetensors", "b%d.pt", "c%d.safetensors"))
        tensors = random_tensors(seed)
        save_file(tensors, first)
        ckpt("convert", first, "-o", out, "--threads", 1 + seed)
        found = load(out)
        assert found.keys() == tensors.keys() and all(same(found[n], t) for n, t in tensors.items())
        ckpt("convert", out, "-o", back)
        assert digest(first) == digest(out) == digest(back)


def test_pairs_of_four_bits_and_large_complex(folder):
    path, out = os.path.join(folder, "a.pt"), os.path.join(folder, "b.pt")
    tensors = {"f4": torch.arange(12, dtype=torch.uint8).reshape(3, 4).view(torch.float4_e2m1fn_x2),
               "c": torch.randn(3, dtype=torch.complex128)}
    torch.save(tensors, path)
    ckpt("convert", path, "-o", out)
    found = load(out)
    assert found["f4"].dtype == torch.float4_e2m1fn_x2
    assert torch.equal(found["f4"].view(torch.uint8), tensors["f4"].view(torch.uint8)) and torch.equal(found["c"], tensors["c"])


def test_the_same_bytes_with_any_threads(folder):
    first = os.path.join(folder, "a.safetensors")
    save_file({"w%d" % i: torch.randn(300 + i, 1000) for i in range(30)}, first)
    for threads in (1, 2, 5):
        ckpt("convert", first, "-o", os.path.join(folder, "%d.pt" % threads), "--threads", threads)
    assert read(os.path.join(folder, "1.pt")) == read(os.path.join(folder, "2.pt")) == read(os.path.join(folder, "5.pt"))


def test_records_are_those_of_pytorch(folder):
    """Names, order, flags, contents, and the ends; but for the pickle, whose memo is another."""
    first, ours, theirs = (os.path.join(folder, n) for n in ("a.safetensors", "o.pt", "archive.pt"))
    save_file({"a": torch.arange(100.), "b": torch.empty(0), "c": torch.tensor(3)}, first)
    ckpt("convert", first, "-o", ours)
    torch.save(load(ours), theirs)
    found = []
    for path in (ours, theirs):
        with zipfile.ZipFile(path) as archive:
            found.append([(i.filename, i.flag_bits, i.compress_type, i.create_version, i.extract_version, i.external_attr, i.date_time,
                           i.extra, archive.read(i) if i.file_size < 40 or "data/" in i.filename and "id" not in i.filename else None)
                          for i in archive.infolist()])
    assert found[0] == found[1], found
    assert read(ours)[-98:-74] == read(theirs)[-98:-74]


def test_ties_share_a_storage(folder):
    path, out = os.path.join(folder, "a.pt"), os.path.join(folder, "b.bin")
    w = torch.randn(4, 3)
    torch.save({"embed.weight": w, "other.weight": torch.ones(2), "head.weight": w}, path)
    ckpt("convert", path, "-o", out)
    found = load(out)
    assert found["embed.weight"].data_ptr() == found["head.weight"].data_ptr() and set(found) == {"embed.weight", "other.weight",
                                                                                                  "head.weight"}
    assert os.path.getsize(out) < os.path.getsize(path) + 200


def views():
    base = torch.randn(6, 4)
    alone = torch.randn(3, 4).t()
    whole = torch.randn(20)
    return {"base": base, "columns": base[:, 1:3], "nested": {"t": base.t(), "list": [base.flatten()[1::5], base[1].expand(3, 4)]},
            "one": base[3:4, 1:2], "alone": alone, "left": whole[:12], "right": whole[8:]}


def test_views_of_one_storage_stay_views(folder):
    path, out = os.path.join(folder, "a.pt"), os.path.join(folder, "b.pt")
    saved = views()
    torch.save(saved, path)
    told = ckpt("convert", path, "-o", out, "--receipt", os.path.join(folder, "r.json"), "--json")
    found = load(out)
    of_base = lambda tree: [tree["base"], tree["columns"], tree["nested"]["t"], *tree["nested"]["list"], tree["one"]]
    for a, b in zip(of_base(saved), of_base(found)):
        assert torch.equal(a, b) and a.storage_offset() == b.storage_offset()
        assert all(x == y for x, y, n in zip(a.stride(), b.stride(), a.shape) if n > 1), (a.stride(), b.stride())
        assert b.untyped_storage().data_ptr() == found["base"].untyped_storage().data_ptr()
    found["base"].zero_()
    assert not found["nested"]["t"].any()
    for name in ("alone", "left", "right"):
        assert torch.equal(saved[name], found[name]) and found[name].is_contiguous(), name
    assert "memory that tensors share: each of 2 is written for itself (left, right)" in told, told
    assert "strides of 1 tensor, written row-major (alone)" in told, told
    ckpt("verify", out, "--receipt", os.path.join(folder, "r.json"))
    assert digest(path) == digest(out)
    told = ckpt("convert", path, "-o", out, "--dtype", "bf16", "--force", "--json")
    assert "memory that tensors share: each of 8 is written for itself" in told, told
    assert torch.equal(load(out)["nested"]["t"], saved["base"].t().bfloat16())


def trained():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_the_whole_object_is_kept(folder):
    model, optimizer = trained()
    path, out = os.path.join(folder, "a.pt"), os.path.join(folder, "b.pt")
    shared = [1, 2]
    whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "loss": 0.5, "none": None, "big": 1 << 90,
             "negative": -(1 << 40), "bytes": b"\x00\xff\x80", "text": "\u00e9\U0001f600", "tuple": (1, (2.0, "x"), ()),
             "shared": [shared, shared], "set": {1, 2}, "size": torch.Size([2, 3]), "dtype": torch.bfloat16, "complex": 1 + 2j,
             "ordered": collections.OrderedDict(b=1, a=torch.ones(2)), "rng": torch.get_rng_state(), "device": torch.device("cpu"),
             "many": list(range(3000)), "parameter": torch.nn.Parameter(torch.ones(3)),
             "sparse": torch.eye(3).to_sparse(), "nan": float("inf"), "bytearray": bytearray(b"\x01\xfe")}
    torch.save(whole, path)
    ckpt("convert", path, "-o", out)
    found = load(out)
    assert equal(found, torch.load(path, weights_only=True)), found
    assert found["shared"][0] is found["shared"][1]
    assert found["model"]._metadata == whole["model"]._metadata
    optimizer.load_state_dict(found["optimizer"])
    model.load_state_dict(found["model"])
    again = os.path.join(folder, "c.pt")
    ckpt("convert", out, "-o", again)
    ckpt("verify", again)
    assert read(out) == read(again)


def test_namespaces_stay(folder):
    """As Megatron's args, by attribute; weights-only loading takes them when told to, and without one as ever."""
    classes = argparse.Namespace, types.SimpleNamespace
    inner = [argparse.Namespace(a=1), types.SimpleNamespace(b=(2, None))]
    args = argparse.Namespace(lr=0.1, dtype=torch.bfloat16, mask=torch.ones(3), empty=argparse.Namespace(), list=inner)
    for i, (said, whole) in enumerate([
            ([], {"w": torch.ones(2), "args": {"lr": 0.1}}),
            (classes[:1], argparse.Namespace(lr=1)),
            (classes[:1], argparse.Namespace(state_dict={"a.w": torch.ones(2)}, lr=1)),
            (classes[1:], {"w": torch.ones(2), "args": types.SimpleNamespace(lr=0.1, empty=types.SimpleNamespace())}),
            (classes, {"model": {"w": torch.ones(2)}, "iteration": 3, "args": args})]):
        path, out, again, receipt = (os.path.join(folder, n % i) for n in ("a%d.pt", "b%d.pt", "c%d.pt", "r%d.json"))
        torch.save(whole, path, pickle_protocol=2 + 3 * (i % 2))
        told = json.loads(ckpt("convert", path, "-o", out, "--receipt", receipt, "--json"))
        names = ["%s.%s" % (c.__module__, c.__name__) for c in said]
        holds = "holds %s: torch.load(weights_only=True) takes it after torch.serialization.add_safe_globals([%s])"
        assert told["dropped"] == [] and told["notes"][-len(said):] == [holds % (n, n) for n in names] or not said, told
        assert equal(load(out, *said), whole) and equal(torch.load(out, weights_only=False), whole), whole
        if said:
            try:
                load(out)
            except pickle.UnpicklingError as e:
                assert "Namespace" in str(e), e
            else:
                raise AssertionError("loaded")
        ckpt("verify", out, "--receipt", receipt)
        ckpt("scan", out)
        if json.loads(ckpt("ls", path, "--include", "all", "--json"))["tensors"]:  # else there is nothing to hash
            assert digest(out, "--include", "all") == digest(path, "--include", "all")
        ckpt("convert", out, "-o", again)
        assert read(out) == read(again)


def test_what_flat_dicts_and_lone_tensors_are(folder):
    """Parameters, gradients, ordered dicts, a tensor or a list as the whole object."""
    wanted = [{"a": torch.nn.Parameter(torch.ones(2)), "b": torch.nn.Parameter(torch.ones(2), requires_grad=False)},
              {"i": torch.nn.Parameter(torch.ones(2, dtype=torch.int8), requires_grad=False), "w": torch.ones(3)},
              {"a": torch.ones(2, requires_grad=True), "b": torch.ones(2)}, torch.ones(3), torch.nn.Parameter(torch.ones(3)),
              collections.OrderedDict(b=torch.ones(1), a=torch.zeros(1)), [torch.ones(1), (torch.zeros(2),)]]
    for i, whole in enumerate(wanted):
        path, out, again = (os.path.join(folder, n % i) for n in ("a%d.pt", "b%d.pt", "c%d.pt"))
        torch.save(whole, path)
        ckpt("convert", path, "-o", out)
        assert equal(load(out), whole), whole
        ckpt("convert", out, "-o", again)
        assert read(out) == read(again)


def test_what_is_not_written_is_said(folder):
    model, optimizer = trained()
    inner = [torch.ones(1)]
    inner.append((inner,))
    cases = [({"w": torch.ones(1), "l": inner[1]}, "an object within itself"),
             ({"w": torch.ones(1), "s": torch.arange(4.).untyped_storage()}, "a storage without a tensor"),
             ({"w": torch.ones(1), "s": torch.arange(4.).storage()}, "a storage without a tensor"),
             ({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "the optimizer's param_groups")]
    for i, (whole, said) in enumerate(cases):
        path, out = (os.path.join(folder, n % i) for n in ("a%d.pt", "b%d.pt"))
        torch.save(whole, path)
        text = ckpt("convert", path, "-o", out, "--json", "--include", "model" if "optimizer" in whole else "all")
        assert said in text, text
        assert "optimizer" not in load(out)


def test_modules_saved_whole_become_state_dicts(folder):
    """What load_state_dict takes, for the module itself is code."""
    model, path, out = trained()[0], os.path.join(folder, "a.pt"), os.path.join(folder, "b.pt")
    torch.save(model, path)
    assert "Sequential, which is no plain data" in ckpt("convert", path, "-o", out, "--json")
    model.load_state_dict(load(out))
    assert equal(load(out), dict(model.state_dict()))


def test_a_run_goes_on_whose_module_was_saved_whole(folder):
    """PyTorch loads states under keys that are no parameters' numbers without a word, and begins anew."""
    path, out = os.path.join(folder, "a.pt"), os.path.join(folder, "b.pt")
    model, optimizer = trained()
    torch.save({"model": model, "ema": None, "optimizer": optimizer.state_dict(), "opt": {"lr0": 0.01}}, path)
    ckpt("convert", path, "-o", out, "--include", "all")
    loaded, again = load(out), trained()[0]
    again.load_state_dict(loaded["model"])
    resumed = type(optimizer)(again.parameters())
    resumed.load_state_dict(loaded["optimizer"])
    assert loaded["opt"] == {"lr0": 0.01}
    assert all(parameter in resumed.state for parameter in again.parameters())
    for m, o in ((model, optimizer), (again, resumed)):
        o.zero_grad()
        sum((parameter ** 2).sum() for parameter in m.parameters()).backward()
        o.step()
    assert equal(dict(model.state_dict()), dict(again.state_dict()))


def test_quantized_tensors_stay_quantized(folder):
    q = torch.quantize_per_tensor(torch.randn(4, 6), 0.1, 3, torch.qint8)
    c = torch.quantize_per_channel(torch.randn(4, 6), torch.rand(4) + 0.1, torch.arange(4), 0, torch.quint8)
    f = torch.quantize_per_channel(torch.randn(4, 6), torch.rand(6) + 0.1, torch.rand(6), 1, torch.quint8)
    whole = {"q": q, "part": q[1:3, 2:], "turned": q.t(), "again": q, "c": [c, f], "w": torch.ones(2), "n": 1,
             "big": torch.quantize_per_tensor(torch.randn(3), 2.0 ** -30, -7, torch.qint32)}
    path, out = os.path.join(folder, "a.pt"), os.path.join(folder, "b.pt")
    torch.save(whole, path)
    assert json.loads(ckpt("convert", path, "-o", out, "--include", "all", "--json"))["dropped"] == []
    found = load(out)
    assert list(found) == list(whole) and found["n"] == 1 and torch.equal(found["w"], whole["w"])
    for key in ("q", "part", "turned", "again", "big"):
        a, b = whole[key], found[key]
        assert (a.q_scale(), a.q_zero_point(), a.stride()) == (b.q_scale(), b.q_zero_point(), b.stride()), key
        assert a.dtype == b.dtype and torch.equal(a.int_repr(), b.int_repr()), key
    assert found["part"].untyped_storage().data_ptr() == found["q"].untyped_storage().data_ptr()
    for a, b in zip(whole["c"], found["c"]):
        assert a.qscheme() == b.qscheme() and torch.equal(a.int_repr(), b.int_repr())
        assert torch.equal(a.q_per_channel_scales(), b.q_per_channel_scales())
        assert torch.equal(a.q_per_channel_zero_points(), b.q_per_channel_zero_points())
        assert a.q_per_channel_axis() == b.q_per_channel_axis()
    assert digest(out, "--include", "all") == digest(path, "--include", "all")


def test_packed_values_stay_packed(folder):
    """quint4x2 and quint2x4: their bytes and what they are quantized with; nothing of them is the model's elsewhere."""
    x, whole = torch.randn(3, 5), {"w": torch.ones(2)}
    for dtype in (torch.quint4x2, torch.quint2x4):
        whole["rows %s" % dtype] = torch.quantize_per_channel(x, torch.rand(3) + 0.1, torch.rand(3), 0, dtype)
        whole["all %s" % dtype] = torch.quantize_per_tensor(x, 0.125, 1, dtype)
    path, out, flat = (os.path.join(folder, n) for n in ("a.pt", "b.pt", "c.safetensors"))
    torch.save(whole, path)
    assert json.loads(ckpt("convert", path, "-o", out, "--json"))["dropped"] == []
    found = load(out)
    assert list(found) == list(whole)
    for name in list(whole)[1:]:
        a, b = whole[name], found[name]
        assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride() and a.qscheme() == b.qscheme(), name
        assert bytes(a.untyped_storage()) == bytes(b.untyped_storage()), name
        assert torch.equal(a.dequantize(), b.dequantize()), name
    assert "4 tensors are not" in ckpt("convert", path, "-o", flat, "--json", status=1)
    rest = "--exclude", "rows *", "--exclude", "all *"
    ckpt("convert", path, "-o", flat, *rest)
    assert set(load_file(flat)) == {"w"} and digest(flat) == digest(path, *rest) == digest(out, *rest)
    assert json.loads(ckpt("verify", path, "--json"))["status"] == "ok" and "status" in ckpt("scan", path, "--json")
    ckpt("convert", path, "-o", out, "--dtype", "bf16", "--force")  # what is not read is not cast
    cast = load(out)
    assert cast["w"].dtype == torch.bfloat16
    assert all(torch.equal(cast[name].dequantize(), whole[name].dequantize()) for name in list(whole)[1:])


def test_goldens_are_loaded(folder):
    for name in sorted(os.listdir(DATA)):
        if name.endswith(".pt") and name != "script.pt":
            out = os.path.join(folder, name)
            unread = ("bits", "complex32", "meta", "wide") if name == "refused.pt" else ()
            rest = [word for one in unread for word in ("--exclude", one)]
            ckpt("convert", os.path.join(DATA, name), "-o", out, *rest[-2:])  # the others are carried as they are
            load(out, argparse.Namespace, *NUMPY)
            include = "model" if name.startswith("dtensor") else "all"  # of two names in two dicts either may come first
            one = digest(out, "--include", include, *rest[:-2])  # the output has no "wide"
            assert one == digest(os.path.join(DATA, name), "--include", include, *rest), name


def test_a_part_and_a_cast(folder):
    model, optimizer = trained()
    path = os.path.join(folder, "a.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, path)
    ckpt("convert", path, "-o", os.path.join(folder, "b.pt"), "--include", "model", "--dtype", "bf16")
    found = load(os.path.join(folder, "b.pt"))
    assert found["epoch"] == 3 and "optimizer" not in found  # no groups without their states
    assert found["model"]["0.weight"].dtype == torch.bfloat16
    assert torch.equal(found["model"]["0.weight"], model[0].weight.detach().bfloat16())


def test_what_runs_is_not_written(folder):
    path, out = os.path.join(folder, "a.pt"), os.path.join(folder, "b.pt")

    class Evil:
        def __reduce__(self):
            return (os.system, ("true",))

    torch.save({"w": torch.ones(2), "evil": Evil(), "list": [1, Evil()]}, path)
    text = ckpt("convert", path, "-o", out, "--json")
    assert "system" in text and b"system" not in read(out)
    assert load(out)["list"] == [1, None]


def test_transformers_loads_our_folder(folder):
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         vocab_size=64)
    model = LlamaForCausalLM(config)
    first, out = os.path.join(folder, "first"), os.path.join(folder, "out")
    model.save_pretrained(first)
    os.mkdir(out)
    config.save_pretrained(out)
    ckpt("convert", first, "-o", os.path.join(out, "pytorch_model.bin"))
    again = LlamaForCausalLM.from_pretrained(out, use_safetensors=False)
    wanted = model.state_dict()
    assert all(torch.equal(bits(t), bits(wanted[n])) for n, t in again.state_dict().items()) and len(again.state_dict()) == len(wanted)


if __name__ == "__main__":
    command.main(globals())
