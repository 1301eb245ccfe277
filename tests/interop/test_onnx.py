"""ONNX models of onnx, both exporters of PyTorch and ONNX Runtime's quantizers are read and written again as models that
onnx's checker passes and that ONNX Runtime computes the same numbers with.
"""
import glob
import hashlib
import json
import os
import shutil

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
                        ("external/model.onnx", ["*bias=f64"]), ("qdq.onnx", ["f16"])):
        before, after = os.path.join(DATA, name), os.path.join(folder, "after.onnx")
        ckpt("convert", before, "-o", after, "--force", *[o for c in casts for o in ("--dtype", c)])
        check(after)
        for x, y in zip(outputs(before), outputs(after), strict=True):
            assert np.abs(x - y).max() < 0.02 * np.abs(x).max(), (name, casts)


def transformer():
    """A tiny causal one with everything that exporters make constants of: norms, a scale, a mask, gelu."""
    import torch

    class Tiny(torch.nn.Module):
        def __init__(self, d=32, n=50):
            super().__init__()
            self.emb, self.pos = torch.nn.Embedding(n, d), torch.nn.Parameter(torch.randn(16, d) / 8)
            self.qkv, self.o, self.head = torch.nn.Linear(d, 3 * d), torch.nn.Linear(d, d), torch.nn.Linear(d, n, bias=False)
            self.norm1, self.norm2 = torch.nn.LayerNorm(d), torch.nn.LayerNorm(d)
            self.up, self.down = torch.nn.Linear(d, 4 * d), torch.nn.Linear(4 * d, d)

        def forward(self, ids):
            x = self.emb(ids) + self.pos[:ids.shape[1]]
            b, t, d = x.shape
            q, k, v = [y.view(b, t, 4, d // 4).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1)]
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(y.transpose(1, 2).reshape(b, t, d))
            return self.head(x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x)))))

    torch.manual_seed(0)
    return Tiny().eval(), (torch.randint(0, 50, (2, 8)),)


def test_exported_models_are_cast(folder):
    """What torch.onnx.export writes gets f16 weights: constants in nodes stay what the graph works with, and are named."""
    command.need("torch", "onnxscript")
    import torch

    model, example = transformer()
    # the mask of the new exporter holds the lowest f32, which no f16 is
    for kind, options, casts in (("new", {"dynamo": True, "external_data": False}, ["val_*=f32", "f16"]),
                                 ("old", {"dynamo": False, "opset_version": 17}, ["f16"]),
                                 ("older", {"dynamo": False, "opset_version": 14, "do_constant_folding": False}, ["f16"])):
        before, after = (os.path.join(folder, kind + end) for end in (".onnx", "16.onnx"))
        torch.onnx.export(model, example, before, input_names=["ids"], **options)
        said = ckpt("convert", before, "-o", after, "--json", *[o for c in casts for o in ("--dtype", c)])
        assert ("as the graph works with them" in said) == (kind != "new"), said
        check(after)
        kinds = {t.name: t.data_type for t in onnx.load(after).graph.initializer}
        assert kinds["emb.weight:ckpt-cast"] == TensorProto.FLOAT16, kinds
        for x, y in zip(outputs(before), outputs(after), strict=True):
            assert 0 < np.abs(x - y).max() < 0.02 * np.abs(x).max(), kind


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


def like_tf2onnx(path):
    """As tf2onnx writes a Keras model: names of TensorFlow with ':0' and '/', NHWC turned to NCHW around each convolution,
    shapes as int64 constants, folded constants, a branch with weights of its own, two sets of operators, typed values."""
    rng = np.random.default_rng(9)

    def weight(name, *shape):
        return numpy_helper.from_array(rng.standard_normal(shape, dtype="f4") / 8, name)

    conv, dense = "StatefulPartitionedCall/model/conv2d/Conv2D", "StatefulPartitionedCall/model/dense/MatMul"
    bias = weight("StatefulPartitionedCall/model/conv2d/BiasAdd/ReadVariableOp:0", 8)
    typed = helper.make_tensor("const_fold_opt__31", TensorProto.FLOAT, [8], rng.standard_normal(8))  # float_data
    initializers = [weight("const_fold_opt__29", 8, 3, 3, 3), bias, typed,
                    helper.make_tensor("new_shape__20", TensorProto.INT64, [2], [-1, 8 * 16 * 16]),  # int64_data
                    weight(dense + "/ReadVariableOp:0", 8 * 16 * 16, 10),
                    helper.make_tensor("slice_axes__7", TensorProto.INT32, [1], [1])]
    then = helper.make_graph([helper.make_node("Add", ["logits:0", "cond/then/add/y:0"], ["cond/then/Identity:0"])], "then", [],
                             [helper.make_tensor_value_info("cond/then/Identity:0", TensorProto.FLOAT, ["unk__36", 10])],
                             initializer=[weight("cond/then/add/y:0", 1, 10)])
    other = helper.make_graph([helper.make_node("Constant", [], ["cond/else/mul/y:0"], name="cond/else/mul/y", value=weight("", 10)),
                               helper.make_node("Mul", ["logits:0", "cond/else/mul/y:0"], ["cond/else/Identity:0"])], "else", [],
                              [helper.make_tensor_value_info("cond/else/Identity:0", TensorProto.FLOAT, ["unk__36", 10])])
    nodes = [helper.make_node("Transpose", ["input_1:0"], [conv + "__6:0"], name=conv + "__6", perm=[0, 3, 1, 2]),
             helper.make_node("Conv", [conv + "__6:0", "const_fold_opt__29", bias.name], [conv + ":0"], name=conv, pads=[1, 1, 1, 1],
                              kernel_shape=[3, 3]),
             helper.make_node("Mul", [conv + ":0", "const_fold_reshape:0"], ["scaled:0"], name="scaled"),
             helper.make_node("Transpose", ["scaled:0"], ["nhwc:0"], name="nhwc", perm=[0, 2, 3, 1]),
             helper.make_node("Reshape", ["nhwc:0", "new_shape__20"], ["flat:0"], name="flat"),
             helper.make_node("MatMul", ["flat:0", dense + "/ReadVariableOp:0"], ["logits:0"], name=dense),
             helper.make_node("ReduceSum", ["logits:0"], ["sum:0"], name="sum", keepdims=0),
             helper.make_node("Constant", [], ["zero:0"], name="zero", value=helper.make_tensor("", TensorProto.FLOAT, [], [0.0])),
             helper.make_node("Greater", ["sum:0", "zero:0"], ["cond:0"], name="cond"),
             helper.make_node("If", ["cond:0"], ["output_1:0"], name="cond/If", then_branch=then, else_branch=other)]
    nodes.insert(0, helper.make_node("Constant", [], ["shape__9:0"], value=helper.make_tensor("", TensorProto.INT64, [4], [1, 8, 1, 1])))
    nodes.insert(1, helper.make_node("Reshape", ["const_fold_opt__31", "shape__9:0"], ["const_fold_reshape:0"]))
    graph = helper.make_graph(nodes, "tf2onnx", [helper.make_tensor_value_info("input_1:0", TensorProto.FLOAT, ["unk__35", 16, 16, 3])],
                              [helper.make_tensor_value_info("output_1:0", TensorProto.FLOAT, ["unk__36", 10])], initializer=initializers,
                              doc_string="test for model")
    model = helper.make_model(graph, producer_name="tf2onnx", producer_version="1.16.1 15c810", ir_version=8,
                              opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)])
    onnx.save_model(model, path)


def test_models_like_those_of_tf2onnx(folder):
    before, after, there, back, half = (os.path.join(folder, name + ".onnx") for name in ("before", "after", "there", "back", "half"))
    like_tf2onnx(before)
    check(before)
    ckpt("convert", before, "-o", after)
    with open(before, "rb") as a, open(after, "rb") as b:
        assert a.read() == b.read()  # typed values and all
    ckpt("convert", before, "-o", there, "--external-data")
    check(there)
    assert os.path.getsize(there) < 8192 and os.path.getsize(there + ".data") > 80000
    ckpt("convert", there, "-o", back)
    same_outputs(before, there)
    same_outputs(before, back)
    assert digest(before) == digest(there) == digest(back)
    weights = os.path.join(folder, "w.safetensors")
    ckpt("convert", before, "-o", weights)
    assert "StatefulPartitionedCall/model/dense/MatMul/ReadVariableOp:0" in command.names(weights)
    assert "output_1:0:then_branch/cond/then/add/y:0" in command.names(weights)
    for more in (["--external-data"], ["--link"], []):
        ckpt("convert", weights, "--graph", before, "-o", half, "--force", *more)
        check(half)
        same_outputs(before, half)
    ckpt("convert", before, "-o", half, "--force", "--dtype", "const_fold_opt*=f16", "--dtype", "*ReadVariableOp:0=f16")
    check(half)
    for x, y in zip(outputs(before), outputs(half), strict=True):
        assert np.abs(x - y).max() < 0.02 * np.abs(x).max()


def rewritten(folder, before):
    """A model written plainly, with data outside and back, and with f16 weights."""
    after, there, back, half = (os.path.join(folder, name + ".onnx") for name in ("after", "there", "back", "half"))
    ckpt("convert", before, "-o", after)
    ckpt("convert", before, "-o", there, "--external-data")
    ckpt("convert", there, "-o", back)
    for path in (after, there, back):
        check(path)
        assert digest(path) == digest(before), path
        same_outputs(before, path)
    with open(before, "rb") as a, open(after, "rb") as b:
        assert a.read() == b.read()
    said = ckpt("convert", before, "-o", half, "--dtype", "f16", "--json")
    check(half)
    for x, y in zip(outputs(before), outputs(half), strict=True):
        assert 0 < np.abs(x - y).max() < 0.02 * np.abs(x).max()
    return after, there, half, said


def test_a_recurrent_model(folder):
    """An LSTM of two directions and layers, whose weights the exporter stacks; and a GRU."""
    command.need("torch", "onnxscript")
    import torch

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(16, 24, num_layers=2, bidirectional=True)
            self.gru = torch.nn.GRU(48, 8)

        def forward(self, x):
            return self.gru(self.lstm(x)[0])[0]

    torch.manual_seed(0)
    before = os.path.join(folder, "before.onnx")
    torch.onnx.export(Both().eval(), (torch.randn(5, 3, 16),), before, dynamo=False, opset_version=17, input_names=["x"])
    assert {"LSTM", "GRU"} <= {node.op_type for node in onnx.load(before).graph.node}
    _, there, half, _ = rewritten(folder, before)
    assert sum(t.data_location == TensorProto.EXTERNAL for t in onnx.load(there, load_external_data=False).graph.initializer) >= 6
    casts = [node for node in onnx.load(half).graph.node if node.input and node.input[0].endswith(":ckpt-cast")]
    assert len(casts) >= 9 and all(node.op_type == "Cast" for node in casts)


def with_control_flow(path):
    """A loop whose body has a branch: weights in both, and of the graph around them, which they take from there."""
    rng, info, node = np.random.default_rng(5), helper.make_tensor_value_info, helper.make_node

    def weight(name, *shape):
        return numpy_helper.from_array(rng.standard_normal(shape, dtype="f4") / 8, name)

    def branch(name, out, nodes, *weights):
        return helper.make_graph(nodes, name, [], [info(out, TensorProto.FLOAT, [4, 32])], initializer=weights)

    then = branch("then", "then_out", [node("MatMul", ["h", "then_w"], ["then_h"]), node("Add", ["then_h", "outer_b"], ["then_out"])],
                  weight("then_w", 32, 32))
    other = branch("else", "else_out", [node("MatMul", ["h", "outer_w"], ["else_h"]), node("Add", ["else_h", "else_b"], ["else_out"])],
                   weight("else_b", 1, 32))
    body = helper.make_graph(
        [node("Constant", [], ["half"], value=numpy_helper.from_array(np.asarray([0.5], "f4"), "")),
         node("MatMul", ["state", "body_w"], ["turned"]), node("MatMul", ["turned", "outer_w"], ["h"]),
         node("ReduceMean", ["h"], ["mean"], keepdims=0), node("Greater", ["mean", "zero"], ["is_more"]),
         node("If", ["is_more"], ["chosen"], then_branch=then, else_branch=other),
         node("Mul", ["chosen", "half"], ["next"]), node("Identity", ["go_on"], ["goes_on"])],
        "body", [info("i", TensorProto.INT64, []), info("go_on", TensorProto.BOOL, []), info("state", TensorProto.FLOAT, [4, 32])],
        [info("goes_on", TensorProto.BOOL, []), info("next", TensorProto.FLOAT, [4, 32])],
        initializer=[weight("body_w", 32, 32), numpy_helper.from_array(np.asarray(0, "f4"), "zero")])
    times = [numpy_helper.from_array(np.asarray(3, "i8"), "times"), numpy_helper.from_array(np.asarray(True), "begins")]
    graph = helper.make_graph([node("Loop", ["times", "begins", "x"], ["y"], body=body)], "g", [info("x", TensorProto.FLOAT, [4, 32])],
                              [info("y", TensorProto.FLOAT, [4, 32])], initializer=[weight("outer_w", 32, 32), weight("outer_b", 1, 32), *times])
    onnx.save_model(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)


def test_a_model_of_branches_and_loops(folder):
    before, weights = os.path.join(folder, "before.onnx"), os.path.join(folder, "w.safetensors")
    with_control_flow(before)
    check(before)
    after, there, half, said = rewritten(folder, before)
    assert "as the graph works with them" in said and "y:body/half" in said, said
    names = command.names(before)
    assert {"outer_w", "y:body/body_w", "y:body/chosen:then_branch/then_w", "y:body/half"} <= set(names), names
    assert [t.name for t in onnx.load(half).graph.initializer if t.data_type == TensorProto.FLOAT16] == ["outer_w:ckpt-cast", "outer_b:ckpt-cast"]
    body = onnx.load(there, load_external_data=False).graph.node[0].attribute[0].g
    assert body.initializer[0].data_location == TensorProto.EXTERNAL and os.path.getsize(there + ".data") >= 3 * 4096
    ckpt("convert", before, "-o", weights)
    for more in ([], ["--external-data"], ["--link"]):
        ckpt("convert", weights, "--graph", before, "-o", after, "--force", *more)
        check(after)
        same_outputs(before, after)


def test_graphs_that_protobuf_merges(folder):
    """A model whose graph stands in it in two pieces, weights last: one graph to whoever parses it."""
    model, before = onnx.load(os.path.join(DATA, "legacy.onnx")), os.path.join(folder, "before.onnx")
    first, second = onnx.ModelProto(), onnx.ModelProto()
    first.CopyFrom(model)
    second.graph.initializer.extend(model.graph.initializer)
    del first.graph.initializer[:]
    with open(before, "wb") as file:
        file.write(first.SerializeToString() + second.SerializeToString())
    assert onnx.load(before) == model
    rewritten(folder, before)


def test_texts_stay(folder):
    """Tensors of texts are not read, and stay in the model: as an initializer, a constant, and in a branch."""
    words = helper.make_tensor("words", TensorProto.STRING, [3], ["a".encode(), "\u00fc\u4e2d".encode(), b""])
    constant = helper.make_node("Constant", [], ["more"], value=helper.make_tensor("", TensorProto.STRING, [2, 1], [b"x" * 3000, b"y"]))
    scale = numpy_helper.from_array(np.arange(512, dtype="f4"), "scale")
    nodes = [constant, helper.make_node("Identity", ["words"], ["out"]), helper.make_node("Concat", ["more", "more"], ["wide"], axis=1),
             helper.make_node("Mul", ["x", "scale"], ["y"])]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "texts", [info("x", TensorProto.FLOAT, [512])],
                              [info("out", TensorProto.STRING, [3]), info("wide", TensorProto.STRING, [2, 2]), info("y", TensorProto.FLOAT, [512])],
                              initializer=[words, scale])
    before, after, there = (os.path.join(folder, name + ".onnx") for name in ("before", "after", "there"))
    onnx.save_model(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), before)
    ckpt("convert", before, "-o", after)
    ckpt("convert", before, "-o", there, "--external-data")
    expected = outputs(before)
    for path in (after, there):
        check(path)
        for x, y in zip(expected, outputs(path), strict=True):
            assert x.dtype == y.dtype and x.tolist() == y.tolist()
    assert command.names(before) == ["scale"]


def test_every_type_in_every_place(folder):
    """Raw and typed, as an initializer and as a constant: the same bytes when written, the same values outside."""
    kinds = [k for k in range(1, 27) if k != TensorProto.STRING and k in TensorProto.DataType.values()]
    assert len(kinds) == 25
    rng, initializers, nodes = np.random.default_rng(17), [], []
    for kind in kinds:
        values = rng.integers(0, 2, 4096)
        typed = helper.make_tensor("typed.%d" % kind, kind, [64, 64], values)
        raw = numpy_helper.from_array(values.reshape(64, 64).astype(helper.tensor_dtype_to_np_dtype(kind)), "raw.%d" % kind)
        assert raw.HasField("raw_data") and not typed.HasField("raw_data") and raw.data_type == kind
        initializers += [typed, raw]
        nodes.append(helper.make_node("Constant", [], ["constant.%d" % kind], value=typed))
    graph = helper.make_graph(nodes, "g", [], [], initializer=initializers)
    before, after, there = (os.path.join(folder, name + ".onnx") for name in ("before", "after", "there"))
    onnx.save_model(helper.make_model(graph, ir_version=13, opset_imports=[helper.make_opsetid("", 25)]), before)
    ckpt("convert", before, "-o", after)
    with open(before, "rb") as a, open(after, "rb") as b:
        assert a.read() == b.read()
    ckpt("convert", before, "-o", there, "--external-data")
    check(there)
    assert tensors(there) == tensors(before)
    assert digest(there) == digest(before)
    for t in onnx.load(there, load_external_data=False).graph.initializer:
        assert t.data_location == TensorProto.EXTERNAL, t.name
        assert int({e.key: e.value for e in t.external_data}["offset"]) % 256 == 0


def test_receipts_of_graphs(folder):
    """A receipt names the model that the graph came from, and a replay sees that its tensors have changed."""
    graph, weights, out, receipt = (os.path.join(folder, name) for name in ("g.onnx", "w.safetensors", "o.onnx", "r.json"))
    shutil.copy(os.path.join(DATA, "dynamo.onnx"), graph)
    ckpt("convert", graph, "-o", weights, "--exclude", "val_*")
    for options in ([], ["--external-data"], ["--link"]):
        ckpt("convert", weights, "--graph", graph, "--partial", "-o", out, "--receipt", receipt, "--force", *options)
        assert "run again from its inputs gives the same content" in ckpt("verify", out, "--receipt", receipt)
    model = onnx.load(graph)
    for t in model.graph.initializer:
        t.raw_data = (numpy_helper.to_array(t) + np.float32(1)).tobytes()
    onnx.save_model(model, graph)
    assert "the tensors of the graph's model have changed" in ckpt("verify", out, "--receipt", receipt, status=1)


def test_checksums_of_files_outside(folder):
    """SHA-1 of the whole file, as onnx.proto has it: verify compares it, and what is written has none."""
    path, data, out = (os.path.join(folder, name) for name in ("m.onnx", "m.data", "o.onnx"))
    model = onnx.load(os.path.join(DATA, "dynamo.onnx"))
    onnx.save_model(model, path, save_as_external_data=True, location="m.data", size_threshold=1024)
    with open(data, "rb") as file:
        sha1 = hashlib.sha1(file.read()).hexdigest()
    model = onnx.load(path, load_external_data=False)
    for t in model.graph.initializer:
        if t.external_data:
            entry = t.external_data.add()
            entry.key, entry.value = "checksum", sha1
    with open(path, "wb") as file:
        file.write(model.SerializeToString())
    same_outputs(os.path.join(DATA, "dynamo.onnx"), path)
    said = ckpt("verify", path)
    assert "proven: files: SHA-1 of 1 file of external data is what the model states" in said, said
    assert "not all of them have a checksum" in said, said
    ckpt("convert", path, "-o", out, "--external-data")
    assert b"checksum" not in open(out, "rb").read()
    with open(data, "ab") as file:
        file.write(b"x")
    assert "its SHA-1 is " in ckpt("verify", path, status=1)


def test_weights_alone_are_no_model(folder):
    weights, model = os.path.join(folder, "w.safetensors"), os.path.join(folder, "w.onnx")
    ckpt("convert", os.path.join(DATA, "dynamo.onnx"), "-o", weights)
    said = json.loads(ckpt("convert", weights, "-o", model, "--json", status=1))
    assert "has no graph" in said["error"]["message"], said
    assert not os.path.exists(model)


def test_tuned_weights_in_exported_graphs(folder):
    """Of both exporters: what they store transposed under names of their own is found, and the numbers are torch's."""
    command.need("torch", "onnxscript", "safetensors")
    import torch
    from safetensors.torch import save_file

    model, (few,) = transformer()
    with torch.no_grad():  # as trained: of equal weights an exporter stores one
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 10)
    ids = torch.randint(0, 50, (2, 16))  # as many as there are positions: fewer and the exporter stores a slice of them
    old, tuned = (os.path.join(folder, name + ".safetensors") for name in ("old", "tuned"))
    graphs = {"new": {"dynamo": True, "external_data": False}, "old": {"dynamo": False, "opset_version": 17}}
    for kind, options in graphs.items():
        torch.onnx.export(model, (ids,), os.path.join(folder, kind + ".onnx"), input_names=["ids"], **options)
    save_file(model.state_dict(), old)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5).add_(torch.randn_like(parameter) / 50)
        wanted = model(ids).numpy()
    save_file(model.state_dict(), tuned)
    cut = os.path.join(folder, "cut.onnx")
    torch.onnx.export(model, (few,), cut, input_names=["ids"], **graphs["new"])
    options = ["--graph", cut, "--graph-weights", old, "-o", cut + ".out.onnx", "--json"]
    assert json.loads(ckpt("convert", tuned, *options, status=1))["error"]["tensor"] is not None
    for kind in graphs:
        graph, out = os.path.join(folder, kind + ".onnx"), os.path.join(folder, kind + "-tuned.onnx")
        said = json.loads(ckpt("convert", tuned, "--graph", graph, "-o", out, "--json", status=1))["error"]["message"]
        assert "would keep the values that the graph has" in said and "--graph-weights" in said, said
        ckpt("convert", tuned, "--graph", graph, "--graph-weights", old, "-o", out)
        check(out)
        session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
        found = session.run(None, {"ids": ids.numpy()})[0]
        assert np.abs(found - wanted).max() < 1e-5 * np.abs(wanted).max(), kind


def test_folded_norms_are_not_refilled(folder):
    """An exporter may fold a norm into the weight before it, or its statistics into constants of other shapes."""
    command.need("torch", "onnxscript", "safetensors")
    import torch
    from safetensors.torch import save_file

    class Norm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(6, 6)
            self.register_buffer("running_mean", torch.randn(6))
            self.register_buffer("running_var", torch.rand(6) + 0.5)

        def forward(self, x):
            return self.a((x - self.running_mean.view(1, 6, 1).squeeze(-1)) / self.running_var[None])

    folded = torch.nn.Sequential(torch.nn.Conv1d(3, 4, 2), torch.nn.BatchNorm1d(4, affine=False)).eval()
    folded[1].running_var.fill_(2)
    kinds = {"folded": (folded, torch.randn(1, 3, 8), {"dynamo": True, "external_data": False}),
             "constants": (Norm().eval(), torch.randn(1, 6), {"dynamo": False})}
    for kind, (model, example, options) in kinds.items():
        graph, weights, out = (os.path.join(folder, kind + end) for end in (".onnx", ".safetensors", ".out.onnx"))
        torch.onnx.export(model, (example,), graph, **options)
        save_file(model.state_dict(), weights)
        for more in ([], ["--graph-weights", weights]):
            ckpt("convert", weights, "--graph", graph, *more, "-o", out, status=1)
            assert not os.path.exists(out), (kind, more)


command.main(globals())
