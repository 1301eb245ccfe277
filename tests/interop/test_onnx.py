"""ONNX models of onnx, both exporters of PyTorch and ONNX Runtime's quantizers are read and written again as models that
onnx's checker passes and that ONNX Runtime computes the same numbers with.
"""
import glob
import os

import command
from command import ckpt, digest

command.need("onnx", "onnxruntime", "numpy")
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

DATA = os.path.join(command.TESTS, "data", "onnx")
RUNNABLE = ["dynamo.onnx", "legacy.onnx", "external/model.onnx", "qdq.onnx", "matmulnbits.onnx"]
onnxruntime.set_default_logger_severity(3)


def outputs(path):
    """What ONNX Runtime computes from the same random inputs."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(3)
    feeds = {}
    for i in session.get_inputs():
        shape = [d if isinstance(d, int) else 3 for d in i.shape]
        feeds[i.name] = (rng.integers(0, 50, shape) if "int64" in i.type else rng.standard_normal(shape).astype("f4"))
    return session.run(None, feeds)


def same_outputs(a, b):
    for x, y in zip(outputs(a), outputs(b), strict=True):
        assert x.tobytes() == y.tobytes()


def check(path):
    if not any(node.domain for node in onnx.load(path, load_external_data=False).graph.node):
        onnx.checker.check_model(path, full_check=True)


def tensors(path):
    """Of a model's graph: name to type, shape and values, wherever these stand."""
    model = onnx.load(path)
    return {t.name: (t.data_type, tuple(t.dims), numpy_helper.to_array(t).tobytes()) for t in model.graph.initializer}


def test_rewritten_models_run_the_same(folder):
    for n, name in enumerate(RUNNABLE):
        before, after = os.path.join(DATA, name), os.path.join(folder, "%d.onnx" % n)
        ckpt("convert", before, "-o", after)
        check(after)
        assert digest(before) == digest(after), name
        assert tensors(before) == tensors(after), name
        same_outputs(before, after)
        ckpt("diff", before, after)
        ckpt("verify", after)


def test_data_outside(folder):
    for n, name in enumerate(RUNNABLE):
        before, there, back = os.path.join(DATA, name), *(os.path.join(folder, "%s%d.onnx" % (w, n)) for w in ("a", "b"))
        ckpt("convert", before, "-o", there, "--external-data")
        check(there)
        assert digest(before) == digest(there), name
        assert tensors(before) == tensors(there), name
        same_outputs(before, there)
        ckpt("convert", there, "-o", back)
        same_outputs(before, back)
    both = os.path.join(folder, "both")
    ckpt("convert", os.path.join(DATA, "dynamo.onnx"), "-o", both + "/", "-o", both + "/model.onnx", "--external-data")
    same_outputs(os.path.join(DATA, "dynamo.onnx"), both + "/model.onnx")


def test_a_graph_gets_other_weights(folder):
    """The values of a model of the same shapes, from a file of safetensors and from PyTorch's own."""
    model, weights, out = os.path.join(DATA, "dynamo.onnx"), os.path.join(folder, "w.safetensors"), os.path.join(folder, "o.onnx")
    changed = onnx.load(model)
    for t in changed.graph.initializer:
        t.raw_data = (numpy_helper.to_array(t) * np.float32(0.5)).tobytes()
    onnx.save_model(changed, os.path.join(folder, "changed.onnx"))
    ckpt("convert", os.path.join(folder, "changed.onnx"), "-o", weights)
    ckpt("convert", weights, "--graph", model, "-o", out)
    check(out)
    same_outputs(os.path.join(folder, "changed.onnx"), out)
    ckpt("convert", weights, "-o", os.path.join(folder, "w.pt"))
    ckpt("convert", os.path.join(folder, "w.pt"), "--graph", model, "-o", os.path.join(folder, "p.onnx"), "--external-data")
    same_outputs(out, os.path.join(folder, "p.onnx"))


def test_casts(folder):
    """A model with f16 or bf16 weights and Cast nodes passes the checker and computes nearly the same."""
    for name, casts in (("dynamo.onnx", ["f16"]), ("dynamo.onnx", ["bf16"]), ("legacy.onnx", ["*.weight=f16", "onnx::*=bf16"]),
                        ("external/model.onnx", ["*bias=f64"])):
        before, after = os.path.join(DATA, name), os.path.join(folder, "after.onnx")
        ckpt("convert", before, "-o", after, "--force", *[o for c in casts for o in ("--dtype", c)])
        check(after)
        for x, y in zip(outputs(before), outputs(after), strict=True):
            assert np.abs(x - y).max() < 0.02 * np.abs(x).max(), (name, casts)


def test_the_skeleton_is_the_model(folder):
    """But for where values stand, the message is the one that onnx reads."""
    for path in sorted(glob.glob(os.path.join(DATA, "*.onnx"))):
        after = os.path.join(folder, os.path.basename(path))
        ckpt("convert", path, "-o", after)
        a, b = onnx.load(path), onnx.load(after)
        for model in (a, b):
            strip(model)
        assert a == b, path


def strip(model):
    def visit(message):
        if isinstance(message, TensorProto) and message.data_type != TensorProto.STRING:
            for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
                message.ClearField(field)
        for field, value in message.ListFields():
            if field.message_type is not None:
                for item in value if hasattr(value, "__len__") else [value]:
                    visit(item)
    visit(model)


def test_random_models(folder):
    rng = np.random.default_rng(11)
    kinds = [k for k in range(1, 27) if k != TensorProto.STRING and k in TensorProto.DataType.values()]
    for n in range(20):
        arrays = []
        for i in range(int(rng.integers(1, 12))):
            kind = int(rng.choice(kinds))
            shape = [int(d) for d in rng.integers(0 if rng.random() < 0.1 else 1, 7, int(rng.integers(0, 5)))]
            values = rng.integers(0, 2, int(np.prod(shape, dtype=int)))
            if rng.random() < 0.5:
                arrays.append(helper.make_tensor("t%d" % i, kind, shape, values))
            else:
                typed = values.reshape(shape).astype(helper.tensor_dtype_to_np_dtype(kind))
                arrays.append(numpy_helper.from_array(typed, "t%d" % i))
        graph = helper.make_graph([], "g", [], [], initializer=arrays)
        model = helper.make_model(graph, ir_version=13, opset_imports=[helper.make_opsetid("", 25)])
        before, after = os.path.join(folder, "before%d.onnx" % n), os.path.join(folder, "after%d.onnx" % n)
        onnx.save_model(model, before)
        ckpt("convert", before, "-o", after)
        check(after)
        assert tensors(before) == tensors(after)


def test_weights_alone_are_a_model_that_onnx_reads(folder):
    weights, model = os.path.join(folder, "w.safetensors"), os.path.join(folder, "w.onnx")
    ckpt("convert", os.path.join(DATA, "dynamo.onnx"), "-o", weights)
    ckpt("convert", weights, "-o", model)
    check(model)
    assert tensors(model) == tensors(os.path.join(DATA, "dynamo.onnx"))
    assert digest(weights) == digest(model)
    with open(model, "rb") as file:
        assert onnx.load(model).SerializeToString() == file.read()



command.main(globals())
