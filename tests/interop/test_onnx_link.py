"""ONNX models whose data stand in files of other formats: ONNX Runtime computes with them what it computes with the models
that these weights came from, and what it refuses to follow is refused before it is written.
"""
import os
import shutil
import subprocess

import command
from command import ckpt, digest

command.need("onnx", "onnxruntime", "numpy")
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

DATA = os.path.join(command.TESTS, "data", "onnx")
MODELS = ["dynamo.onnx", "legacy.onnx", "external/model.onnx", "qdq.onnx", "matmulnbits.onnx"]
onnxruntime.set_default_logger_severity(3)


def outputs(path):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    rng, feeds = np.random.default_rng(3), {}
    for i in session.get_inputs():
        shape = [d if isinstance(d, int) else 3 for d in i.shape]
        feeds[i.name] = rng.integers(0, 50, shape) if "int64" in i.type else rng.standard_normal(shape).astype("f4")
    return session.run(None, feeds)


def same_outputs(a, b):
    for x, y in zip(outputs(a), outputs(b), strict=True):
        assert x.tobytes() == y.tobytes()


def locations(path):
    """Of each initializer outside: file and offset."""
    model = onnx.load(path, load_external_data=False)
    said = {t.name: {e.key: e.value for e in t.external_data} for t in model.graph.initializer if t.external_data}
    return {name: (e["location"], int(e["offset"])) for name, e in said.items()}


def large_model(path, n=1024):
    """Of 4 MiB: three matrices and a small constant, as a graph and with its weights inside."""
    rng = np.random.default_rng(5)
    weights = [numpy_helper.from_array(rng.standard_normal((n // 4, n), dtype="f4") / 40, "layer.%d.weight" % i) for i in range(4)]
    nodes = [helper.make_node("MatMul", ["x", weights[0].name], ["y0"])]
    for i in range(1, 4):
        nodes.append(helper.make_node("Gemm", ["y%d" % (i - 1), weights[i].name], ["g%d" % i], transB=1))
        nodes.append(helper.make_node("MatMul", ["g%d" % i, weights[i].name], ["y%d" % i]))
    graph = helper.make_graph(nodes, "large", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", n // 4])],
                              [helper.make_tensor_value_info("y3", TensorProto.FLOAT, ["n", n])], initializer=weights)
    onnx.save_model(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)


def test_a_model_of_kilobytes(folder):
    """Over shards of safetensors, in their folder and above it; onnx, which follows no link, passes it too."""
    model, weights = os.path.join(folder, "model.onnx"), os.path.join(folder, "weights")
    large_model(model)
    ckpt("convert", model, "-o", weights + "/", "--shard-size", "2MB")
    assert len([name for name in os.listdir(weights) if name.endswith(".safetensors")]) > 1
    before = {name: os.path.getmtime(os.path.join(weights, name)) for name in os.listdir(weights)}
    for out in (os.path.join(weights, "linked.onnx"), os.path.join(folder, "linked.onnx")):
        ckpt("convert", weights, "--graph", model, "-o", out, "--link")
        assert os.path.getsize(out) < 4096
        assert len(locations(out)) == 4 and all(".safetensors" in place for place, _ in locations(out).values())
        onnx.checker.check_model(out, full_check=True)
        same_outputs(model, out)
        assert digest(out) == digest(model)
        ckpt("verify", out)
        ckpt("diff", out, model)
    assert before == {name: os.path.getmtime(os.path.join(weights, name)) for name in before}


def test_real_models(folder):
    """Of both exporters and ONNX Runtime's quantizers, over safetensors, and over what torch.save writes."""
    for n, name in enumerate(MODELS):
        model = os.path.join(DATA, name)
        for suffix in ("safetensors", "pt"):
            weights, out = (os.path.join(folder, "%d%s.%s" % (n, suffix, end)) for end in (suffix, "onnx"))
            ckpt("convert", model, "-o", weights)
            done = subprocess.run([command.CKPT, "convert", weights, "--graph", model, "-o", out, "--link"], capture_output=True, text=True)
            if done.returncode != 0:  # nothing in it is large
                assert "there is nothing to link" in done.stderr, done.stderr
                assert all(len(t.raw_data) < 1024 for t in onnx.load(model).graph.initializer), name
                continue
            same_outputs(model, out)
            assert digest(out) == digest(model)


def test_what_onnx_runtime_refuses(folder):
    """Each of these is refused by ckpt; made by hand, ONNX Runtime or onnx refuse it."""
    model, inside, outside = (os.path.join(folder, name) for name in ("model.onnx", "in", "out"))
    large_model(model)
    for path in (inside, outside):
        os.mkdir(path)
    weights = os.path.join(outside, "w.safetensors")
    ckpt("convert", model, "-o", weights)
    ckpt("convert", weights, "--graph", model, "-o", os.path.join(outside, "good.onnx"), "--link")

    def refused_by_us(source, why):
        done = subprocess.run([command.CKPT, "convert", source, "--graph", model, "-o", os.path.join(inside, "a.onnx"), "--link"],
                              capture_output=True, text=True)
        assert done.returncode == 1 and why in done.stderr, done.stderr
        assert not os.path.exists(os.path.join(inside, "a.onnx"))

    def refused_by_them(location):
        made = onnx.load(os.path.join(outside, "good.onnx"), load_external_data=False)
        for t in made.graph.initializer:
            for entry in t.external_data:
                if entry.key == "location":
                    entry.value = location
        path = os.path.join(inside, "made.onnx")
        with open(path, "wb") as file:
            file.write(made.SerializeToString())
        for check in (outputs, lambda p: onnx.checker.check_model(p), lambda p: onnx.load(p)):
            try:
                check(path)
            except Exception:  # noqa: BLE001: each has errors of its own
                return True
        return False

    refused_by_us(weights, "does not lie below")
    assert refused_by_them("../out/w.safetensors")
    assert refused_by_them(weights)
    os.symlink("../out/w.safetensors", os.path.join(inside, "w.safetensors"))
    refused_by_us(os.path.join(inside, "w.safetensors"), "")
    assert refused_by_them("w.safetensors")
    os.remove(os.path.join(inside, "w.safetensors"))
    shutil.copy(weights, os.path.join(inside, "w.safetensors"))
    os.link(os.path.join(inside, "w.safetensors"), os.path.join(folder, "another"))
    refused_by_us(os.path.join(inside, "w.safetensors"), "hard links")
    assert refused_by_them("w.safetensors")


command.main(globals())
