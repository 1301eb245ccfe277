"""What PyTorch saved beside plain tensors comes through torch -> torch as it was, or is named."""
import collections
import fractions
import json
import os
import random

import command
import numpy
import torch
import torch.distributed.checkpoint as dcp
from command import ckpt, digest
from test_torch_write import equal, load, read
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save


def through(folder, whole, *classes):
    """Written by PyTorch and by us, the second time byte for byte: what it is then, and what the command said."""
    path, out, again = (os.path.join(folder, n) for n in ("a.pt", "b.pt", "c.pt"))
    torch.save(whole, path)
    said = ckpt("convert", path, "-o", out, "--force", "--json")
    ckpt("convert", out, "-o", again, "--force")
    assert read(out) == read(again)
    return load(out, *classes), said


def marked(tensor, **attributes):
    for name, value in attributes.items():
        setattr(tensor, name, value)
    return tensor


def test_attributes_stay(folder):
    tied, plain = torch.arange(3.), torch.ones(2)
    for tensor in [marked(torch.ones(2), note=1), marked(torch.ones(2), scale=torch.zeros(3)), marked(torch.ones(2), t=tied),
                   marked(torch.ones(2), nested={"a": [torch.zeros(1), (tied, None)], "b": 2}),
                   marked(torch.nn.Parameter(torch.ones(2)), partition_dim=0, scale=tied),
                   marked(torch.ones(2, requires_grad=True), note=1), marked(torch.ones(2, dtype=torch.float8_e4m3fn), note=1),
                   marked(torch.ones(2), inner=marked(torch.zeros(1), note=[tied])),
                   marked(plain[:1], whole=plain), marked(torch.ones(()), note=b"x")]:
        for whole in [{"w": tensor, "args": {"lr": 1}}, tensor, [[tensor], {"t": tied}, tensor, 3], {"a.w": tensor, "a.b": tied},
                      {"model": {"l.w": tensor, "l.w.scale": torch.ones(4), "l.b": tied}, "args": {"lr": 1}},
                      {"state": {0: {"step": tensor, "exp_avg": tied}}, "param_groups": [{"params": [0], "lr": 0.1}]}]:
            found, said = through(folder, whole)
            assert equal(found, whole), (found, whole)
            assert json.loads(said)["dropped"] == [] or "memory that tensors share" in said, said
    found, said = through(folder, {"w": marked(torch.ones(2), a=1, b=fractions.Fraction(1, 2)), "args": {"lr": 1}})
    assert vars(found["w"]) == {"a": 1} and found["args"] == {"lr": 1} and "fractions.Fraction at w.b (no plain data)" in said


Named = collections.namedtuple("Named", "a b")


class Own(collections.OrderedDict):
    pass


def test_collections_stay(folder):
    """Those of Python, with tensors in them; weights-only loading has to be told of them, as a note says."""
    t, k = torch.ones(2), torch.zeros(1)
    told = [collections.defaultdict, collections.deque, frozenset, dict, list, int, str, set]
    for x in [collections.defaultdict(dict, {"a": {"b": t}}), collections.defaultdict(list, {"a": [t], 3: [k]}),
              collections.defaultdict(None, {"a": t}), collections.defaultdict(int), collections.defaultdict(str, a=t),
              collections.deque([t, 1, [k]], maxlen=5), collections.deque([t]), collections.deque(maxlen=2),
              collections.Counter({"a": t}), {frozenset([1, (2, "x")]): t}, frozenset([1]), {torch.float32: t, 10 ** 30: k},
              {(1, "a"): t, None: k}, collections.OrderedDict({"a": collections.deque([collections.defaultdict(set, z=t)])})]:
        for whole, part in [({"w": torch.ones(1), "x": x}, lambda found: found["x"]), (x, lambda found: found),
                            ({"model": {"w": t}, "x": [x, x]}, lambda found: found["x"][1])]:
            found, said = through(folder, whole, *told)
            assert equal(found, whole), (found, whole)
            assert json.loads(said)["dropped"] == [], said
            for name in ("default_factory", "maxlen"):
                assert getattr(part(found), name, None) is getattr(x, name, None), x
    for x, where in [(Named(t, 1), "Named at x.0"), (Own(a=t), "Own at x.0"), ({Named(1, 2): t}, "Named, a key of x.0"),
                     (collections.defaultdict(torch.Tensor, a=t), "collections.defaultdict at x.0")]:
        said = through(folder, {"w": torch.ones(1), "x": [x]})[1]
        assert where + ", which is no plain data" in said, said
    said = through(folder, {"w": torch.ones(1), "x": [Named(1, 2), Named(3, 4)]})[1]
    assert "Named at x.0 (no plain data, 2 times)" in said, said


def odd():
    """Tensors that torch pickles as calls of their own: quantized, sparse, meta."""
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(4, 3, generator=generator)
    return {"q": torch.quantize_per_tensor(x, 0.1, 2, torch.quint8),
            "rows": torch.quantize_per_channel(x, torch.rand(4) + 0.1, torch.arange(4), 0, torch.qint8),
            "packed": torch.quantize_per_tensor(x, 0.125, 1, torch.quint4x2),
            "coo": torch.eye(3).to_sparse(), "csr": torch.eye(3).to_sparse_csr(),
            "meta": torch.empty(3, 4, device="meta")}


def values(tensor):
    if tensor.is_meta:
        return tensor.shape, tensor.stride(), tensor.dtype
    if not tensor.is_quantized:
        return tensor.layout, tensor.to_dense().tolist()
    return bytes(tensor.untyped_storage()), tensor.dtype, tensor.qscheme(), tensor.dequantize().tolist()


def test_attributes_of_tensors_that_are_calls(folder):
    tied = torch.arange(3.)
    for kind in ("plain", "marked", "parameter", "marked parameter"):
        whole = {"w": torch.ones(2), "tied": tied}
        for name, tensor in odd().items():
            if "parameter" in kind:
                tensor = torch.nn.Parameter(tensor, requires_grad=name == "meta")
            whole[name] = marked(tensor, note=[1, "x"], scale=tied) if "marked" in kind else tensor
        whole["again"] = whole["coo"]
        found, said = through(folder, whole)
        assert json.loads(said)["dropped"] == [], (kind, said)
        assert list(found) == list(whole)
        for name in odd():
            a, b = whole[name], found[name]
            assert type(a) is type(b) and a.requires_grad == b.requires_grad, (kind, name)
            assert values(a.detach()) == values(b.detach()), (kind, name)
            assert equal(vars(a), vars(b)), (kind, name)
            if "marked" in kind:
                assert b.scale is found["tied"], (kind, name)
    q = marked(odd()["q"], deep=[torch.ones(1)], bad=[fractions.Fraction(1, 2)])
    found, said = through(folder, {"w": torch.ones(2), "q": q})
    assert list(vars(found["q"])) == ["deep", "bad"] and found["q"].bad == [None] and "fractions.Fraction at q.bad.0 (no" in said


def test_conjugates_and_negatives(folder):
    """Values that torch sees, from both forms of torch files: one digest as DCP's, and torch loads them again."""
    z, r = torch.randn(5, 3, 2, dtype=torch.complex64), torch.randn(4, 3, dtype=torch.float64)
    whole = {"conj": z.conj(), "mH": z.mH, "permuted": z.conj().permute(2, 0, 1), "neg": torch._neg_view(r),
             "negT": torch._neg_view(r).t(), "both": torch._neg_view(z.conj()), "imag": z.clone().conj().imag,
             "half": torch._neg_view(r.half()), "row": z.conj()[3, 1], "plain": z,
             "parameter": torch.nn.Parameter(torch.randn(3, dtype=torch.complex128).conj(), requires_grad=False)}
    dcp.save(whole, checkpoint_id=os.path.join(folder, "dcp"), no_dist=True)
    wanted = digest(os.path.join(folder, "dcp"))
    for is_zip in (True, False):
        path, out = (os.path.join(folder, f"{name}-{is_zip}.pt") for name in ("signs", "out"))
        torch.save(whole, path, _use_new_zipfile_serialization=is_zip)
        assert digest(path) == wanted, is_zip
        assert "the conjugate or negative bit of 10 tensors" in ckpt("convert", path, "-o", out, "--json")
        found = torch.load(out)
        assert all(torch.equal(found[name], tensor) for name, tensor in whole.items()), is_zip


def test_attributes_in_dcp(folder):
    """As torch saves: the tensors. One that is an attribute alone, or too, is not the model's by that name."""
    path, out = os.path.join(folder, "a.pt"), os.path.join(folder, "dcp")
    tied = torch.arange(3.)
    torch.save({"w": marked(torch.ones(2), t=tied, u=torch.zeros(1)), "z": [[tied]], "args": {"lr": 1}}, path)
    said = json.loads(ckpt("convert", path, "-o", out, "--to", "dcp", "--include", "all", "--json"))
    assert any("attributes of 1 tensor" in note for note in said["notes"]) and said["digest"] == digest(out) == digest(path), said


def test_tuples_in_items_of_dcp(folder):
    """An item of DCP with a tensor in it is for what it would be for in a torch file, and goes on as it lies."""
    saved, out, path = (os.path.join(folder, name) for name in ("saved", "out", "saved.pt"))
    whole = {"w": torch.ones(4, 2), "x": (torch.arange(2.), 1)}
    dcp.save(whole, checkpoint_id=saved, no_dist=True)
    torch.save(whole, path)
    ckpt("reshard", saved, "--to", "dcp", "--world", "2", "-o", out)
    found = {"w": torch.zeros(4, 2), "x": (torch.zeros(2), 0)}
    dcp.load(found, checkpoint_id=out, no_dist=True)
    assert equal(found, whole), found
    assert digest(out) == digest(saved) == digest(path)


def lists(value):
    """With tuples that hold tensors as the lists that our DCP folders have of them."""
    if isinstance(value, dict):
        return {k: lists(v) for k, v in value.items()}
    is_list = isinstance(value, list) or (isinstance(value, tuple) and any(isinstance(v, (torch.Tensor, dict)) for v in value))
    return [lists(v) for v in value] if is_list else value


def same_keys(a, b):
    """In any order of keys."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_keys(a[k], b[k]) for k in a)
    return equal(a, b)


def test_dcp_dicts_stay(folder):
    """To a torch file as dcp_to_torch_save gives them, and to DCP so that it gives them."""
    w, v = torch.ones(2), torch.arange(3.)
    for i, whole in enumerate([
            {"net": {"w": w, "b": v}}, {"net": {"a.w": w, "b.w": v}}, {"gen": {"w": w}, "disc": {"w": v}}, {"a": {"b": {"c": w}}},
            {"l": [w, v]}, {"t": (w, v), "x": {"w": v}}, {"l": [(w, 2), v], "args": {"lr": 1}}, {"l": [(w, 2)]},
            {"a": {"b": [[(w, "x")]]}, "w": v}, {"a": ({"w": w}, 2), "w": v}, {"a": [(1, 2), (3, 4)], "w": v}, {"": w, "w": v},
            {"m": {"": w, "w": v}}, {"": {"w": w}, "v": v}, {"": 3, "w": w}, {"": w}, {"s": {0: w, 1: v}}, {"rng": w, "net": {"w": v}}]):
        names = ("dcp%d", "wanted%d.pt", "ours%d.pt", "in%d.pt", "ours%d", "back%d.pt")
        saved, wanted, ours, given, written, back = (os.path.join(folder, n % i) for n in names)
        dcp.save(whole, checkpoint_id=saved, no_dist=True)
        dcp_to_torch_save(saved, wanted)
        wanted = torch.load(wanted, weights_only=True)
        ckpt("convert", saved, "-o", ours, "--include", "all")
        assert equal(load(ours), wanted), (load(ours), wanted)
        torch.save(whole, given)
        ckpt("convert", given, "-o", written, "--to", "dcp", "--include", "all")
        dcp_to_torch_save(written, back)
        found = torch.load(back, weights_only=True)
        assert same_keys(found, lists(wanted)), (found, wanted)


def test_random_states_of_the_trainer(folder):
    """Loaded as transformers' Trainer loads them; every array of numbers as it was, what is not named."""
    whole = {"python": random.getstate(), "numpy": numpy.random.get_state(), "cpu": torch.random.get_rng_state()}
    found, said = through(folder, whole, *safe_globals())
    wanted, state = numpy.random.get_state(), found["numpy"]
    assert found["python"] == whole["python"] and torch.equal(found["cpu"], whole["cpu"]) and json.loads(said)["dropped"] == []
    assert type(state) is tuple and (state[0], *state[2:]) == (wanted[0], *wanted[2:]) and numpy.array_equal(state[1], wanted[1])
    numpy.random.set_state(state)
    arrays = [numpy.arange(6).astype(code).reshape(2, 3) for code in ("?", "i1", "u2", ">i4", "i8", "f2", "f4", "f8", "g", "c8", "c16")]
    arrays += [numpy.asfortranarray(arrays[4]), numpy.array(1.5), numpy.zeros((0, 2)), numpy.float32(2), numpy.bool_(True)]
    for protocol in (2, 5):  # with 5 an array is a call of _frombuffer
        torch.save({"arrays": arrays, "w": torch.ones(1)}, os.path.join(folder, "a.pt"), pickle_protocol=protocol)
        ckpt("convert", os.path.join(folder, "a.pt"), "-o", os.path.join(folder, "b.pt"), "--force")
        read_again = [torch.load(os.path.join(folder, n), weights_only=False)["arrays"] for n in ("a.pt", "b.pt")]
        for a, b in zip(*read_again, strict=True):
            assert type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), (a, b)
            assert not hasattr(a, "flags") or a.flags.writeable == b.flags.writeable, (a, b)
    for odd in [numpy.array(["a"]), numpy.array([None]), numpy.zeros(1, dtype=[("a", "i4")]), numpy.datetime64(1, "s")]:
        found, said = through(folder, {"odd": odd, "w": torch.ones(1)})
        assert list(found) == ["w"] and "numpy" in json.loads(said)["dropped"][0]


def safe_globals():
    from transformers.trainer_pt_utils import safe_globals as of_transformers
    with of_transformers():
        return torch.serialization.get_safe_globals()


if __name__ == "__main__":
    command.main(globals())
