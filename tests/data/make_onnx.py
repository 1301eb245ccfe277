"""Writes onnx/: models of both exporters of PyTorch and of onnx's own helpers, and what onnx reads in each.

legacy.onnx       torch.onnx.export(dynamo=False), opset 17: transposed weights under names of its own, Constant nodes
dynamo.onnx       torch.onnx.export(dynamo=True), opset 18; paths in its stack traces are taken out
weights.safetensors  the state dict that both were exported from
external/         the same by onnx.save_model with all data in weights.data
types.onnx        an initializer of every type as raw_data, another in its typed field
nested.onnx       Constant nodes, If branches with initializers and constants, a function, ConstantOfShape,
                  a sparse initializer and a sparse constant, texts
matmulnbits.onnx  a com.microsoft MatMulNBits of 4 bits, as ONNX Runtime's quantizer writes it
qdq.onnx          QuantizeLinear and DequantizeLinear around a MatMul, of onnxruntime.quantization
tensors.tsv       of each file its tensors: name, type, shape and bytes (of many their CRC-32), as onnx.numpy_helper and the raw data give them

Made with torch 2.15.0, onnx 1.23.2, onnxscript, onnxruntime 1.31.1:
    python make_onnx.py [FOLDER]
"""
import os
import re
import shutil
import sys
import tempfile
import zlib

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import save_file

here = os.path.dirname(os.path.abspath(__file__))
out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "onnx")
os.makedirs(os.path.join(out, "external"), exist_ok=True)

NAMES = {1: "f32", 2: "u8", 3: "i8", 4: "u16", 5: "i16", 6: "i32", 7: "i64", 9: "bool", 10: "f16", 11: "f64",
         12: "u32", 13: "u64", 14: "c64", 15: "c128", 16: "bf16", 17: "f8_e4m3", 18: "f8_e4m3fnuz", 19: "f8_e5m2",
         20: "f8_e5m2fnuz", 21: "u8", 22: "u8", 23: "f4_e2m1", 24: "f8_e8m0", 25: "u8", 26: "u8"}
PACKED = {21: 2, 22: 2, 25: 4, 26: 4}
BITS = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = torch.nn.Embedding(50, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.fc = torch.nn.Linear(16, 32)
        self.out = torch.nn.Linear(32, 50)
        self.register_buffer("scale", torch.tensor([2.0]))

    def forward(self, x):
        return self.out(torch.nn.functional.gelu(self.fc(self.norm(self.emb(x))) * self.scale))


def scrub(model):
    for node in model.graph.node:
        for prop in node.metadata_props:
            prop.value = re.sub(r'"/[^"]*/', '"', prop.value)
    return model


def save(model, name):
    with open(os.path.join(out, name), "wb") as file:
        file.write(model.SerializeToString())


def torch_models():
    torch.manual_seed(1)
    model, x = Model().eval(), torch.randint(0, 50, (2, 7))
    save_file(model.state_dict(), os.path.join(out, "weights.safetensors"))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        torch.onnx.export(model, (x,), path, dynamo=False, opset_version=17, input_names=["x"], output_names=["y"],
                          dynamic_axes={"x": {0: "b", 1: "s"}})
        shutil.copyfile(path, os.path.join(out, "legacy.onnx"))
        dynamic = torch.export.Dim.DYNAMIC
        torch.onnx.export(model, (x,), dynamo=True, opset_version=18, input_names=["x"], output_names=["y"],
                          dynamic_shapes=({0: dynamic, 1: dynamic},)).save(path, external_data=False)
        dynamo = scrub(onnx.load(path))
    save(dynamo, "dynamo.onnx")
    for path in os.listdir(os.path.join(out, "external")):
        os.unlink(os.path.join(out, "external", path))
    onnx.save_model(dynamo, os.path.join(out, "external", "model.onnx"), save_as_external_data=True,
                    location="weights.data", size_threshold=0)
    os.chmod(os.path.join(out, "external", "weights.data"), 0o644)


def types():
    tensors = []
    for kind in NAMES:
        name = TensorProto.DataType.Name(kind).lower()
        n = 12 if kind in BITS else 6
        # bit patterns, none of them a NaN
        raw = bytes(range(1, 1 + n * BITS[kind] // 8)) if kind in BITS else np.arange(1, 7).astype(
            {9: bool, 14: "c8", 15: "c16"}.get(kind, helper.tensor_dtype_to_np_dtype(kind))).tobytes()
        shape = [3, n // 3]
        tensors.append(TensorProto(name=name + ".raw", data_type=kind, dims=shape, raw_data=raw))
        typed = TensorProto(name=name + ".typed", data_type=kind, dims=shape)
        if kind in (1, 14):
            typed.float_data.extend(np.frombuffer(raw, "f4"))
        elif kind in (11, 15):
            typed.double_data.extend(np.frombuffer(raw, "f8"))
        elif kind == 7:
            typed.int64_data.extend(np.frombuffer(raw, "i8"))
        elif kind in (12, 13):
            typed.uint64_data.extend(np.frombuffer(raw, "u4" if kind == 12 else "u8"))
        else:
            size = len(raw) // 6 if kind not in BITS else 1
            signed = kind in (3, 5, 6)
            typed.int32_data.extend(np.frombuffer(raw, f"{'i' if signed else 'u'}{size}").astype("i4"))
        tensors.append(typed)
    tensors += [helper.make_tensor("negative", TensorProto.INT32, [3], [-1, -(2**31), 2**31 - 1]),
                helper.make_tensor("scalar", TensorProto.FLOAT, [], [2.5]),
                helper.make_tensor("empty", TensorProto.FLOAT, [0, 4], []),
                TensorProto(name="int4.odd", data_type=22, dims=[3, 3], raw_data=bytes([0x21, 0x43, 0x65, 0x87, 0x09])),
                TensorProto(name="float4.odd", data_type=23, dims=[5], raw_data=bytes([0x21, 0x43, 0x05]))]
    graph = helper.make_graph([], "types", [], [], initializer=tensors)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13), "types.onnx")


def nested():
    def array(name, *values, dtype="f4"):
        return numpy_helper.from_array(np.array(values, dtype), name)

    def constant(name, tensor):
        return helper.make_node("Constant", [], [name], value=tensor)

    def branch(name, add):
        inner = helper.make_graph([constant("k", array("", add)), helper.make_node("Add", ["w", "k"], ["r"])], name + "2",
                                  [], [helper.make_tensor_value_info("r", 1, [1])], initializer=[array("w", add + 1)])
        outer = [constant("c", array("", True, dtype=bool)),
                 helper.make_node("If", ["c"], [name + "_out"], then_branch=inner, else_branch=inner)]
        return helper.make_graph(outer, name, [], [helper.make_tensor_value_info(name + "_out", 1, [1])])

    sparse = helper.make_sparse_tensor(array("sparse", 1, 2), array("", 1, 5, dtype="i8"), [3, 4])
    inner = helper.make_sparse_tensor(array("", 3), array("", 0, dtype="i8"), [2])
    function = helper.make_function("local", "Twice", ["a"], ["b"],
                                    [constant("two", array("", 2)), helper.make_node("Mul", ["a", "two"], ["b"])],
                                    [helper.make_opsetid("", 17)])
    nodes = [constant("cond", array("", True, dtype=bool)),
             helper.make_node("If", ["cond"], ["chosen"], then_branch=branch("then", 1), else_branch=branch("else", 5)),
             helper.make_node("Twice", ["chosen"], ["y"], domain="local"),
             helper.make_node("ConstantOfShape", ["shape"], ["zeros"], value=array("", 7)),
             helper.make_node("Constant", [], ["dense"], sparse_value=inner),
             helper.make_node("Constant", [], ["words"], value=helper.make_tensor("", TensorProto.STRING, [2], ["a", "b"]))]
    graph = helper.make_graph(nodes, "nested", [], [helper.make_tensor_value_info("y", 1, [1])],
                              initializer=[array("shape", 2, dtype="i8")], sparse_initializer=[sparse])
    model = helper.make_model(graph, functions=[function], ir_version=8, producer_name="tests", producer_version="1.0",
                              opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("local", 1)])
    helper.set_model_props(model, {"author": "tests", "empty": ""})
    save(model, "nested.onnx")


def quantized():
    from onnxruntime.quantization import CalibrationDataReader, quantize_static
    rng = np.random.default_rng(7)
    w = rng.standard_normal((32, 8)).astype("f4")
    x = [helper.make_tensor_value_info("x", 1, ["n", 32])]
    y = [helper.make_tensor_value_info("y", 1, ["n", 8])]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "float", x, y,
                              initializer=[numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])

    class Reader(CalibrationDataReader):
        left = [{"x": rng.standard_normal((4, 32)).astype("f4")} for _ in range(3)]

        def get_next(self):
            return self.left.pop() if self.left else None

    with tempfile.TemporaryDirectory() as folder:
        before, after = os.path.join(folder, "before.onnx"), os.path.join(folder, "after.onnx")
        onnx.save_model(model, before)
        quantize_static(before, after, Reader(), per_channel=True)
        save(onnx.load(after), "qdq.onnx")
    packed = rng.integers(0, 256, (8, 1, 16), "u1")
    node = helper.make_node("MatMulNBits", ["x", "w.packed", "w.scales"], ["y"], domain="com.microsoft", K=32, N=8, bits=4,
                            block_size=32)
    graph = helper.make_graph([node], "int4", x, y, initializer=[
        numpy_helper.from_array(packed, "w.packed"), numpy_helper.from_array(rng.random(8, "f4"), "w.scales")])
    save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21),
                                                                helper.make_opsetid("com.microsoft", 1)]),
         "matmulnbits.onnx")


def bytes_of(t):
    """The elements as raw data, from what onnx's own reader makes of them."""
    if t.HasField("raw_data"):
        return t.raw_data
    if t.data_type in BITS:
        return bytes(t.int32_data)
    return numpy_helper.to_array(t).tobytes()


def row(name, t):
    shape, n = list(t.dims), int(np.prod(t.dims, dtype=np.int64))
    kind, packed = NAMES[t.data_type], PACKED.get(t.data_type, 2 if t.data_type == 23 and n % 2 else 0)
    if packed:
        kind = "u8"
        shape = shape[:-1] + [shape[-1] // packed] if shape[-1] % packed == 0 else [-(-n // packed)]
    raw = bytes_of(t)
    return [name, kind, ",".join(map(str, shape)), raw.hex() if len(raw) <= 64 else f"crc32 {zlib.crc32(raw):08x}"]


def rows(graph, scope=""):
    for t in graph.initializer:
        yield row(scope + t.name, t)
    for s in graph.sparse_initializer:
        yield row(scope + s.values.name + ".values", s.values)
        yield row(scope + s.values.name + ".indices", s.indices)
    yield from node_rows(graph.node, scope)


def node_rows(nodes, scope):
    for node in nodes:
        for a in node.attribute:
            at = scope + node.output[0] + ("" if a.name == "value" else ":" + a.name)
            if a.HasField("t") and a.t.data_type != TensorProto.STRING:
                yield row(at, a.t)
            if a.HasField("sparse_tensor"):
                yield row(at + ".values", a.sparse_tensor.values)
                yield row(at + ".indices", a.sparse_tensor.indices)
            if a.HasField("g"):
                yield from rows(a.g, at + "/")


def table():
    with open(os.path.join(out, "tensors.tsv"), "w") as file:
        for name in ("dynamo.onnx", "external/model.onnx", "legacy.onnx", "matmulnbits.onnx", "nested.onnx", "qdq.onnx",
                     "types.onnx"):
            model = onnx.load(os.path.join(out, name))
            all_rows = list(rows(model.graph))
            for function in model.functions:
                all_rows += node_rows(function.node, f"{function.domain}.{function.name}/")
            for fields in sorted(all_rows):
                file.write("\t".join([name] + fields) + "\n")


torch_models()
types()
nested()
quantized()
table()
