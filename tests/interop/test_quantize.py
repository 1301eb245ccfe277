"""Files that llama-quantize makes and ours are the same bytes: every preset, with and without importance.

LLAMA_CPP_BIN names the folder of llama.cpp's tools.
"""
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import command
from command import TESTS, ckpt

command.need("gguf", "numpy")
import gguf  # noqa: E402
import numpy as np  # noqa: E402

QUANTIZE = command.llama("llama-quantize")
spec = importlib.util.spec_from_file_location("presets", os.path.join(TESTS, "data/presets/make.py"))
presets = importlib.util.module_from_spec(spec)
spec.loader.exec_module(presets)
GOLDEN = os.path.join(TESTS, "data/gguf/tiny-llama-f16.gguf")
SLOW = {"IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S"}  # llama-quantize makes their tables anew in every run


def weights(generator, shape):
    """Like trained ones: mostly small, a few large."""
    x = generator.normal(0, 0.02, shape)
    return np.where(generator.random(shape) < 0.002, 12 * x, x)


def write_model(path, name, dtype):
    architecture, n_layers, n_experts, heads, kv_heads, tensors = presets.MODELS[name]
    generator = np.random.default_rng(7)
    writer = gguf.GGUFWriter(path, architecture)
    presets.add_keys(writer, n_layers, n_experts, heads, kv_heads)
    presets.add_counted(writer, name)
    for tensor, shape in tensors:
        values = weights(generator, shape).astype(np.float32)
        if len(shape) > 1 and dtype == "bf16":
            writer.add_tensor(tensor, (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8),
                              raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(tensor, values if len(shape) == 1 or dtype == "f32" else values.astype(np.float16))
    presets.finish(writer)


def write_imatrix(path, model, is_old):
    """Importance of every matrix of a model but its embedding, as llama-imatrix writes it."""
    generator = np.random.default_rng(8)
    entries = []
    for tensor in gguf.GGUFReader(model).tensors:
        shape = [int(n) for n in tensor.shape]  # ggml's order
        if len(shape) < 2 or tensor.name == "token_embd.weight" or "norm" in tensor.name:
            continue
        n_matrices = shape[2] if len(shape) > 2 else 1
        sums = generator.exponential(3.0, (n_matrices, shape[0])).astype(np.float32)
        counts = generator.integers(0 if n_matrices > 1 else 1, 50, (n_matrices, 1)).astype(np.float32)
        entries.append((tensor.name, sums, counts))
    if is_old:
        with open(path, "wb") as f:
            f.write(np.int32(len(entries)).tobytes())
            for name, sums, counts in entries:
                f.write(np.int32(len(name)).tobytes() + name.encode())
                f.write(np.array([counts[0, 0], sums.size], np.int32).tobytes() + sums.tobytes())
            f.write(np.array([5, 8], np.int32).tobytes() + b"wiki.txt")
        return
    writer = gguf.GGUFWriter(path, "")
    writer.add_type("imatrix")
    writer.add_array("imatrix.datasets", ["wiki.txt"])
    writer.add_uint32("imatrix.chunk_count", 5)
    writer.add_uint32("imatrix.chunk_size", 512)
    for name, sums, counts in entries:
        writer.add_tensor(name + ".in_sum2", sums)
        writer.add_tensor(name + ".counts", counts)
    presets.finish(writer)


def quantize(folder, source, preset, options):
    """llama-quantize's file, or None where it refuses. It runs in the folder: what it records of paths are names."""
    path = os.path.join(folder, "theirs.gguf")
    done = subprocess.run([QUANTIZE, *options, os.path.basename(source), "theirs.gguf", preset],
                          cwd=folder, capture_output=True)
    return pathlib.Path(path).read_bytes() if done.returncode == 0 else None


def compare(folder, source, preset, options):
    theirs = quantize(folder, source, preset, options)
    ours = os.path.join(folder, "ours.gguf")
    mine = [o if not o.endswith((".gguf", ".dat")) else os.path.join(folder, o) for o in options]
    arguments = ["quantize", source, "-o", ours, "--type", preset, "--allow-fallback", "--force", *mine]
    ckpt(*arguments, status=0 if theirs is not None else 1)
    if theirs is None:
        return
    found = pathlib.Path(ours).read_bytes()
    if found != theirs:
        at = next((i for i, (a, b) in enumerate(zip(found, theirs)) if a != b), min(len(found), len(theirs)))
        raise AssertionError("%s %s %s: %d bytes against %d, first difference at %d" %
                             (os.path.basename(source), preset, options, len(found), len(theirs), at))


def every_preset(folder, source, imatrix, but=()):
    for preset in presets.PRESETS:
        if preset in but:
            continue
        compare(folder, source, preset, [])
        compare(folder, source, preset, ["--imatrix", imatrix])


def test_every_preset_of_a_converted_model(folder):
    source = os.path.join(folder, "model.gguf")
    pathlib.Path(source).write_bytes(pathlib.Path(GOLDEN).read_bytes())
    write_imatrix(os.path.join(folder, "imatrix.gguf"), source, False)
    every_preset(folder, source, "imatrix.gguf")


def test_every_preset_of_other_shapes(folder):
    """Of plain matrices the types of slow presets are in tests/data/presets, their blocks those of the test before this."""
    for name, dtype, but in [("llama-experts8", "f16", ()), ("falcon", "bf16", SLOW), ("gpt2", "f32", SLOW),
                             ("qwen2-odd", "f16", ()), ("llama-odder", "f32", ())]:
        source = os.path.join(folder, name + ".gguf")
        write_model(source, name, dtype)
        write_imatrix(os.path.join(folder, "imatrix.gguf"), source, False)
        every_preset(folder, source, "imatrix.gguf", but)


def test_older_importance(folder):
    source = os.path.join(folder, "model.gguf")
    write_model(source, "llama-mha-tied", "f16")
    write_imatrix(os.path.join(folder, "imatrix.dat"), source, True)
    for preset in ["Q4_K_M", "Q2_K_S", "IQ4_XS", "Q5_1"]:
        compare(folder, source, preset, ["--imatrix", "imatrix.dat"])


def test_options(folder):
    source = os.path.join(folder, "model.gguf")
    write_model(source, "llama", "f16")
    for options in [["--pure"], ["--leave-output-tensor"], ["--output-tensor-type", "q8_0"],
                    ["--token-embedding-type", "q5_K"], ["--tensor-type", "attn_v=q8_0", "--tensor-type", "attn=nvfp4"],
                    ["--tensor-type", r"blk\.(0|1)\.ffn_down=f16"], ["--tensor-type", "ATTN_V=Q8_0"]]:
        compare(folder, source, "Q4_K_M", options)
    write_model(source, "llama-kept", "f16")  # has one embedding for every layer, which a pattern may name
    for options in [[], ["--tensor-type", "token_embd=q5_K"]]:
        compare(folder, source, "Q4_K_M", ["--token-embedding-type", "q8_0", *options])


def test_importance_that_is_zero(folder):
    """Types that ignore importance are written whatever it is; the others are refused by us (docs/quantization.md)."""
    source, generator = os.path.join(folder, "model.gguf"), np.random.default_rng(7)
    writer = gguf.GGUFWriter(source, "llama")
    presets.add_keys(writer, 1, 0, 8, 8)
    writer.add_tensor("blk.0.attn_q.weight", weights(generator, (4, 256)).astype(np.float32))
    presets.finish(writer)
    writer = gguf.GGUFWriter(os.path.join(folder, "imatrix.gguf"), "")
    writer.add_type("imatrix")
    writer.add_array("imatrix.datasets", ["wiki.txt"])
    writer.add_uint32("imatrix.chunk_count", 5)
    writer.add_uint32("imatrix.chunk_size", 512)
    writer.add_tensor("blk.0.attn_q.weight.in_sum2", np.zeros((1, 256), np.float32))
    writer.add_tensor("blk.0.attn_q.weight.counts", np.ones((1, 1), np.float32))
    presets.finish(writer)
    for preset in ["Q8_0", "TQ1_0", "TQ2_0", "Q2_0", "Q1_0", "MXFP4_MOE"]:
        compare(folder, source, preset, ["--imatrix", "imatrix.gguf"])
    ckpt("quantize", source, "-o", os.path.join(folder, "no.gguf"), "--type", "Q4_K_M", "--imatrix",
         os.path.join(folder, "imatrix.gguf"), status=1)


def test_again(folder):
    source = os.path.join(folder, "model.gguf")
    write_model(source, "llama", "f16")
    ckpt("quantize", source, "-o", os.path.join(folder, "q8.gguf"), "--type", "Q8_0")
    compare(folder, os.path.join(folder, "q8.gguf"), "Q4_K_M", ["--allow-requantize"])
    ckpt("quantize", os.path.join(folder, "q8.gguf"), "-o", os.path.join(folder, "no.gguf"), "--type", "Q4_K_M", status=1)


def test_shards(folder):
    """A model in several files quantizes to the same file as in one."""
    source = os.path.join(folder, "model.gguf")
    write_model(source, "llama", "f16")
    theirs = quantize(folder, source, "Q5_K_M", [])
    split = command.llama("llama-gguf-split")
    if split is None:
        return
    subprocess.run([split, "--split-max-tensors", "40", source,
                    os.path.join(folder, "part")], check=True, capture_output=True)
    first = sorted(f for f in os.listdir(folder) if f.startswith("part-"))[0]
    ckpt("quantize", os.path.join(folder, first), "-o", os.path.join(folder, "o.gguf"), "--type", "Q5_K_M")
    assert pathlib.Path(folder, "o.gguf").read_bytes() == theirs


def test_one_read_gives_what_three_give(folder):
    source, trace = os.path.join(folder, "model.gguf"), os.path.join(folder, "trace.jsonl")
    write_model(source, "llama", "f16")
    write_imatrix(os.path.join(folder, "imatrix.gguf"), source, False)
    imatrix = os.path.join(folder, "imatrix.gguf")
    for options, n_most in ([], os.path.getsize(source)), (["--imatrix", imatrix], os.path.getsize(source) + os.path.getsize(imatrix)):
        ckpt("quantize", source, "-o", os.path.join(folder, "m-{type}.gguf"), "--type", "Q8_0", "--type", "Q4_K", "--type", "F32",
             "--type", "BF16", "--force", "--trace", trace, *options)
        total = json.loads(pathlib.Path(trace).read_text().splitlines()[-1])["total"]
        os.unlink(trace)
        assert total["read"] <= n_most, (total, n_most)
        for preset in ["Q8_0", "Q4_K_M", "F32", "BF16"]:
            theirs = quantize(folder, source, preset, [os.path.basename(o) if o == imatrix else o for o in options])
            assert pathlib.Path(folder, "m-%s.gguf" % preset).read_bytes() == theirs, (preset, options)


def tokens(folder, model):
    """What llama.cpp's tokenizer, out of a file's metadata, makes of a text."""
    tool = command.llama("llama-tokenize")
    if tool is None:
        return None
    done = subprocess.run([tool, "-m", os.path.join(folder, model), "-p", "the quick brown fox", "--ids", "--log-disable"],
                          capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == 0 or done.returncode == -signal.SIGILL, (done.returncode, done.stderr[-3000:])
    return done.stdout


def test_tools_run_what_we_write(folder):
    """llama.cpp loads the three presets of `./dev demo`, from one read, and computes the same as with its own."""
    source = os.path.join(folder, "model.gguf")
    shutil.copy(GOLDEN, source)
    text = os.path.join(folder, "text")
    pathlib.Path(text).write_text("the quick brown fox jumps over the lazy dog " * 200)
    types = ["Q8_0", "Q6_K", "Q4_K_M"]
    ckpt("quantize", GOLDEN, "-o", os.path.join(folder, "m-{type}.gguf"), *(word for t in types for word in ("--type", t)))
    for preset in types:
        pathlib.Path(folder, "own.gguf").write_bytes(quantize(folder, source, preset, []))
        assert tokens(folder, "m-%s.gguf" % preset) == tokens(folder, "model.gguf")
        own, mine = (command.perplexity(os.path.join(folder, name), text, "-b", "64", "--chunks", "12")
                     for name in ("own.gguf", "m-%s.gguf" % preset))
        if own is None or mine is None:
            return
        n = min(len(own), len(mine))
        assert mine[:n] == own[:n], (preset, own, mine)


def test_one_dtype_is_what_the_converter_calls_outtype(folder):
    """`convert --dtype` is llama-quantize to F16, BF16 or F32, from floats and from blocks."""
    for name, stored in [("llama", "f16"), ("gpt2", "f32"), ("qwen2-odd", "bf16")]:
        source, blocks, ours = (os.path.join(folder, n) for n in ("model.gguf", "q8.gguf", "o.gguf"))
        write_model(source, name, stored)
        ckpt("quantize", source, "-o", blocks, "--type", "Q8_0", "--allow-fallback", "--force")
        for path, options in (source, []), (blocks, ["--allow-requantize"]):
            for dtype in ["f16", "bf16", "f32"]:
                ckpt("convert", path, "-o", ours, "--dtype", dtype, "--force")
                theirs = quantize(folder, path, dtype.upper(), options)
                assert pathlib.Path(ours).read_bytes() == theirs, (name, stored, dtype, options)


def test_axes_of_one(folder):
    """ggml does not write the slowest axes where they are 1, gguf-py does: token types of RoBERTa, a single expert."""
    source, made = os.path.join(folder, "model.gguf"), os.path.join(folder, "made.gguf")
    generator, writer = np.random.default_rng(7), gguf.GGUFWriter(source, "bert")
    presets.add_keys(writer, 1, 0, 8, 8)
    for name, shape in [("token_embd.weight", (8, 256)), ("token_types.weight", (1, 256)), ("cls.weight", (1, 1, 1, 256)),
                        ("blk.0.ffn_up.weight", (1, 2, 256)), ("blk.0.attn_norm.weight", (1, 256))]:
        writer.add_tensor(name, weights(generator, shape).astype(np.float32))
    writer.add_tensor("blk.0.attn_v.scale", np.array(0.5, dtype=np.float32))  # of no axes: ggml has one at least
    presets.finish(writer)
    write_imatrix(os.path.join(folder, "imatrix.gguf"), source, False)
    for options in [], ["--imatrix", "imatrix.gguf"]:
        for preset in ["Q4_K_M", "Q8_0", "F16"]:
            compare(folder, source, preset, options)
            pathlib.Path(made).write_bytes(quantize(folder, source, preset, options))
            imatrix = ["--imatrix", os.path.join(folder, "imatrix.gguf")] if options else []
            ckpt("diff", source, made, "--requantize", *imatrix)
    ckpt("diff", source, made, status=1)


def test_what_a_merge_leaves(folder):
    """llama-gguf-split --merge leaves split.count = 0 and the like; llama-quantize removes them."""
    split = command.llama("llama-gguf-split")
    if split is None:
        return
    source, merged = os.path.join(folder, "model.gguf"), os.path.join(folder, "merged.gguf")
    write_model(source, "llama", "f16")
    subprocess.run([split, "--split-max-tensors", "50", source, os.path.join(folder, "p")], check=True, capture_output=True)
    first = sorted(name for name in os.listdir(folder) if name.startswith("p-"))[0]
    subprocess.run([split, "--merge", os.path.join(folder, first), merged], check=True, capture_output=True)
    assert "split.count" in gguf.GGUFReader(merged).fields
    compare(folder, merged, "Q4_K_M", [])
    ckpt("convert", merged, "-o", os.path.join(folder, "cast.gguf"), "--dtype", "f16")  # one dtype is a preset
    assert pathlib.Path(folder, "cast.gguf").read_bytes() == quantize(folder, merged, "F16", [])
    ckpt("convert", merged, "-o", os.path.join(folder, "kept.gguf"))
    assert pathlib.Path(folder, "kept.gguf").read_bytes() == pathlib.Path(merged).read_bytes()


def test_layers_that_are_counted_otherwise(folder):
    """Mixtures go by llama.cpp's n_layer_all: loops over the layers (nanbeige), one for a router (graniteswitch)."""
    source = os.path.join(folder, "model.gguf")
    for name in presets.COUNTED:
        write_model(source, name, "f16")
        for preset in ["Q4_K_M", "Q4_K_S", "Q3_K_M", "Q2_K", "IQ4_XS"]:
            assert quantize(folder, source, preset, []) is not None, name
            compare(folder, source, preset, [])


def test_what_is_not_finite_is_refused(folder):
    """In what becomes blocks, what is cast and what stays as it is, as llama-quantize refuses it."""
    source = os.path.join(folder, "model.gguf")
    for bad in np.nan, -np.inf:
        for place, preset in [(0, "Q8_0"), (1, "Q8_0"), (1, "F16"), (1, "F32"), (0, "F16")]:
            values = [np.ones(256, np.float32), np.ones((4, 256), np.float32)]
            values[place].flat[3] = bad
            writer = gguf.GGUFWriter(source, "llama")
            presets.add_keys(writer, 1, 0, 8, 8)
            writer.add_tensor("output_norm.weight", values[0])
            writer.add_tensor("blk.0.attn_v.weight", values[1])
            presets.finish(writer)
            assert quantize(folder, source, preset, []) is None, (bad, place, preset)
            compare(folder, source, preset, [])


def test_a_file_of_llama_quantize_is_proven_from_its_source(folder):
    source, made = os.path.join(folder, "model.gguf"), os.path.join(folder, "made.gguf")
    write_model(source, "llama", "f16")
    write_imatrix(os.path.join(folder, "imatrix.gguf"), source, False)
    imatrix = ["--imatrix", os.path.join(folder, "imatrix.gguf")]
    for preset, options in ("Q4_K_M", []), ("Q5_K_S", imatrix), ("IQ2_XS", imatrix):
        pathlib.Path(made).write_bytes(quantize(folder, source, preset, options))
        ckpt("diff", source, made, "--requantize", *options)
    ckpt("diff", source, made, "--requantize", status=1)


if __name__ == "__main__":
    if QUANTIZE is None:
        sys.exit(command.SKIPPED)
    command.main(globals())
