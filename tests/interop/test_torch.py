"""What torch.save writes in the run, in every protocol and both containers, read with the bits that were saved.

Older releases are tried where CKPT_OLD_PYTHON names Pythons that have them, separated by colons:
    python3 -m venv F && F/bin/pip install torch==2.4.1 numpy
They run this file to write, and this Python compares.
"""
import os
import pickle
import subprocess
import sys
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402

DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16",
          "float32", "float64", "complex64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
          "float8_e8m0fnu"]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(5, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.head = torch.nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.norm(self.embed(x)))


def trained():
    torch.manual_seed(3)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.arange(5)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def dtypes():
    bits = torch.arange(96, dtype=torch.uint8)
    tensors = {name: (bits % 2 == 0) if name == "bool" else bits.view(getattr(torch, name)).clone()
               for name in DTYPES if hasattr(torch, name)}
    return tensors, tensors


def views():
    base = torch.arange(60.0).reshape(3, 4, 5)
    tensors = {"base": base, "row": base[1], "column": base[:, :, 2], "every": base[::2, 1::2],
               "turned": base.permute(2, 0, 1), "expanded": torch.arange(3.0)[:, None].expand(3, 4),
               "scalar": base[1, 2, 3], "empty": base[:, :0],
               "late": torch.arange(1000)[990:], "diagonal": base[0].diagonal(),
               "last": torch.arange(16.0).reshape(1, 2, 2, 4).to(memory_format=torch.channels_last)}
    return tensors, tensors


def tied():
    model, _ = trained()
    state = model.state_dict()
    wanted = dict(state)
    del wanted["head.weight"]  # the same tensor as embed.weight
    return state, wanted


def parameters():
    state = {"p": torch.nn.Parameter(torch.arange(6.0).reshape(2, 3)), "b": torch.nn.Buffer(torch.ones(2))
             if hasattr(torch.nn, "Buffer") else torch.ones(2), "frozen": torch.nn.Parameter(torch.ones(3), False)}
    return state, {name: value.detach() for name, value in state.items()}


def training():
    model, optimizer = trained()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3,
             "scheduler": {"last_epoch": 3, "_last_lr": [0.1]}, "rng": torch.get_rng_state()}
    wanted = {name: value for name, value in model.state_dict().items() if name != "head.weight"}
    for number, values in optimizer.state_dict()["state"].items():
        for kind, value in values.items():
            wanted["optimizer.state.%d.%s" % (number, kind)] = value
    return state, dict(wanted, rng=state["rng"])


def nested():
    state = {"list": [torch.arange(3), (torch.ones(2), {"deep": torch.zeros(1)})], "text": "t", "none": None}
    return state, {"list.0": state["list"][0], "list.1.0": torch.ones(2), "list.1.1.deep": torch.zeros(1)}


def single():
    return torch.arange(7.0), {"tensor": torch.arange(7.0)}


def sparse():
    coo = torch.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)).coalesce()
    csr = torch.sparse_csr_tensor([0, 1, 2], [2, 0], [5.0, 6.0], (2, 3))
    return {"coo": coo, "csr": csr}, {
        "coo.indices": coo.indices(), "coo.values": coo.values(), "csr.crow_indices": csr.crow_indices(),
        "csr.col_indices": csr.col_indices(), "csr.values": csr.values()}


def quantized():
    """Three tensors each; those of a tensor with one scale are numbers in the pickle."""
    q = torch.quantize_per_tensor(torch.arange(4.0), 0.5, 1, torch.quint8)
    c = torch.quantize_per_channel(torch.arange(6.0).reshape(2, 3), torch.tensor([0.5, 1.0]).double(),
                                   torch.tensor([0, 1]), 0, torch.qint32)
    return {"q": q, "c": c, "w": torch.arange(3.0)}, {
        "w": torch.arange(3.0), "q.values": q.int_repr(), "q.scales": torch.tensor(q.q_scale(), dtype=torch.float64),
        "q.zero_points": torch.tensor(q.q_zero_point()), "c.values": c.int_repr(), "c.scales": c.q_per_channel_scales(),
        "c.zero_points": c.q_per_channel_zero_points()}


CASES = [dtypes, views, tied, parameters, training, nested, single, sparse, quantized]


def is_loaded(path):
    """Whether torch itself can: with protocol 0 it cannot, whose persistent ids are text."""
    try:
        torch.load(path, weights_only=False)
        return True
    except Exception:
        return False


def write_all(root):
    """Files, and expected.pickle: {file: {name: (dtype, shape, bytes)}}."""
    expected = {}
    for case in CASES:
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            for is_zip in (True, False):
                state, wanted = case()
                file = "%s-%d-%s.pt" % (case.__name__, protocol, "zip" if is_zip else "legacy")
                path = os.path.join(root, file)
                try:
                    torch.save(state, path, pickle_protocol=protocol, _use_new_zipfile_serialization=is_zip)
                except Exception:  # a dtype that this protocol or container of this release has not
                    continue
                expected[file] = {name: (str(value.dtype), tuple(value.shape),
                                         value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
                                  for name, value in wanted.items()} if is_loaded(path) else None
    with open(os.path.join(root, "expected.pickle"), "wb") as out:
        pickle.dump(expected, out)


def held(path):
    from safetensors.torch import load_file
    return {name: (str(value.dtype), tuple(value.shape), value.reshape(-1).view(torch.uint8).numpy().tobytes())
            for name, value in load_file(path).items()}


def check_all(root):
    from command import CKPT, ckpt
    with open(os.path.join(root, "expected.pickle"), "rb") as file:
        expected = pickle.load(file)
    problems, n = [], 0
    for file, wanted in expected.items():
        path, out = os.path.join(root, file), os.path.join(root, "out.safetensors")
        if wanted is None:  # torch does not read its own file: neither a wrong result nor a crash
            done = subprocess.run([CKPT, "verify", path], capture_output=True, text=True)
            if done.returncode < 0:
                problems.append("%s: signal %d" % (file, -done.returncode))
            continue
        n += 1
        try:
            ckpt("convert", path, "-o", out, "--include", "all", "--force")
            found = held(out)
            if found != wanted:
                problems.append("%s: %s" % (file, sorted(
                    name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))[:8]))
            notes = ckpt("inspect", path).count("not read: ")
            if notes != 0:
                problems.append("%s: %d notes of what is not read" % (file, notes))
        except AssertionError as error:
            problems.append("%s: %s" % (file, error))
    assert not problems, "\n".join(problems)
    assert n >= 60, "only %d files" % n


def test_every_protocol_and_container(folder):
    write_all(folder)
    check_all(folder)


def test_folder_bit(folder):
    """What the folder bit of DOS in one entry does: PyTorch passes the content by without a word, verify does not."""
    from command import ckpt
    path = os.path.join(folder, "a.pt")
    kept = torch.arange(1, 4097, dtype=torch.float32)
    torch.save({"w": kept}, path)
    with open(path, "rb") as file:
        data = bytearray(file.read())
    ckpt("verify", path)
    at = data.rindex(b"/data/0")
    start = data.rindex(b"PK\1\2", 0, at)
    data[start + 38] |= 0x10
    with open(path, "wb") as file:
        file.write(data)
    assert "gives uninitialised memory" in ckpt("verify", path, status=1)
    assert not torch.equal(torch.load(path, weights_only=True)["w"], kept)


def test_older_releases(folder):
    from command import skip
    pythons = list(filter(None, os.environ.get("CKPT_OLD_PYTHON", "").split(":")))
    if not pythons:
        skip("CKPT_OLD_PYTHON names no Python with an older torch")
    for i, python in enumerate(pythons):
        root = os.path.join(folder, str(i))
        os.mkdir(root)
        subprocess.run([python, "-B", os.path.abspath(__file__), "--write", root], check=True)
        check_all(root)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write_all(sys.argv[2])
    else:
        import command
        command.main(globals())
