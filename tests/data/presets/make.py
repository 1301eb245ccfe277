#!/usr/bin/env python3
"""Asks llama-quantize which type each tensor of some models gets in every preset, with and without importance matrix.

    make.py LLAMA_QUANTIZE      writes NAME.txt beside this file

Needs the gguf package. The models are shapes only: a few rows each, no values that matter. Lines of a NAME.txt:
`model ARCHITECTURE LAYERS EXPERTS HEADS KV_HEADS`, `key KEY NUMBER` of the file where the layers are not its block_count,
`tensor NAME DTYPE SHAPE` (row-major), and per preset `PRESET TYPES` or `PRESET+imatrix TYPES`: a letter per tensor, A the first type of the line `types`, or `refused`.
Written with llama.cpp as llama-cpp-python 0.3.36 carries it.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

import gguf
import numpy as np

TYPES = (
    "f32 f16 bf16 q8_0 q6_K q5_K q5_1 q5_0 q4_K q4_1 q4_0 iq4_nl iq4_xs mxfp4 q3_K iq3_s iq3_xxs q2_K iq2_s iq2_xs "
    "iq2_xxs q2_0 tq2_0 tq1_0 iq1_m iq1_s q1_0"
).split()
HERE = pathlib.Path(__file__).resolve().parent
PRESETS = (
    "F32 F16 BF16 Q8_0 Q6_K Q5_K_M Q5_K_S Q5_1 Q5_0 Q4_K_M Q4_K_S Q4_1 Q4_0 IQ4_NL IQ4_XS MXFP4_MOE Q3_K_L Q3_K_M "
    "Q3_K_S IQ3_M IQ3_S IQ3_XS IQ3_XXS Q2_K Q2_K_S IQ2_M IQ2_S IQ2_XS IQ2_XXS Q2_0 TQ2_0 TQ1_0 IQ1_M IQ1_S Q1_0"
).split()


def layers(n, parts, width=256):
    """Tensors of n layers: (name below blk.N., row length, experts or 0)."""
    out = []
    for i in range(n):
        for name, columns, experts in parts:
            shape = (experts, 2, columns) if experts else (2, columns)
            out.append((f"blk.{i}.{name}.weight", shape))
        out.append((f"blk.{i}.attn_norm.weight", (width,)))
    return out


def dense(width=256, inner=512):
    return [("attn_q", width, 0), ("attn_k", width, 0), ("attn_v", width, 0), ("attn_output", width, 0),
            ("ffn_gate", width, 0), ("ffn_up", width, 0), ("ffn_down", inner, 0)]


def experts(n, width=256, inner=512):
    return [("attn_q", width, 0), ("attn_k", width, 0), ("attn_v", width, 0), ("attn_output", width, 0),
            ("ffn_gate_inp", width, 0), ("ffn_gate_exps", width, n), ("ffn_up_exps", width, n),
            ("ffn_down_exps", inner, n)]


def fused(width=256, inner=512):
    return [("attn_qkv", width, 0), ("attn_output", width, 0), ("ffn_up", width, 0), ("ffn_down", inner, 0)]


def model(tensors, tied=False, width=256):
    ends = [("token_embd.weight", (8, width)), ("output_norm.weight", (width,))]
    return ends + ([] if tied else [("output.weight", (8, width))]) + tensors


# name: architecture, layers, experts, heads, kv heads, tensors
MODELS = {
    "llama": ("llama", 16, 0, 8, 2, model(layers(16, dense()))),
    "llama-mha-tied": ("llama", 9, 0, 4, 4, model(layers(9, dense()), tied=True)),
    "llama-70b": ("llama", 80, 0, 8, 1, model(layers(80, [("attn_v", 256, 0)]))),
    "llama-experts8": ("llama", 12, 8, 8, 2, model(layers(12, experts(8)))),
    "llama-experts4": ("llama", 8, 4, 4, 4, model(layers(8, experts(4)))),
    "qwen2-odd": ("qwen2", 8, 0, 14, 2, model(layers(8, dense(896, 4864), 896), tied=True, width=896)),
    "llama-odder": ("llama", 4, 0, 2, 2, model(layers(4, dense(96, 200), 96), width=96)),
    "falcon": ("falcon", 32, 0, 71, 1, model(layers(32, fused()))),
    "gpt2": ("gpt2", 12, 0, 4, 4,
             model(layers(12, fused())) + [("position_embd.weight", (4, 256))]),
    "nanbeige": ("nanbeige", 8, 0, 8, 2, model(layers(8, dense()))),
    "nanbeige-next": ("nanbeige", 9, 0, 8, 2, model(layers(9, dense()))),
    "graniteswitch": ("graniteswitch", 7, 0, 8, 2, model(layers(7, dense()))),
}
# name: layers that llama.cpp counts (n_layer_all), and the numbers that make it so: loops over the layers, layers that
# predict further tokens, one for a router
COUNTED = {
    "nanbeige": (16, {"nanbeige.num_loops": 2}),
    "nanbeige-next": (16, {"nanbeige.num_loops": 2, "nanbeige.nextn_predict_layers": 1}),
    "graniteswitch": (8, {}),
}


def add_keys(writer, n_layers, n_experts, heads, kv_heads):
    writer.add_block_count(n_layers)
    writer.add_context_length(512)
    writer.add_embedding_length(heads * 64)
    writer.add_feed_forward_length(512)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_layer_norm_eps(1e-5)
    writer.add_vocab_size(8)
    if n_experts:
        writer.add_expert_count(n_experts)
        writer.add_expert_used_count(2)


def add_counted(writer, name):
    for key, number in COUNTED.get(name, (0, {}))[1].items():
        writer.add_uint32(key, number)
    if name == "graniteswitch":
        writer.add_uint32("graniteswitch.adapters.count", 1)
        writer.add_uint32("graniteswitch.adapters.lora_rank", 8)
        writer.add_array("graniteswitch.adapters.token_ids_activate", [1])
        writer.add_array("graniteswitch.adapters.token_ids_substitute", [2])
        writer.add_float32("graniteswitch.logit_scale", 1.0)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_model(path, name):
    architecture, n_layers, n_experts, heads, kv_heads, tensors = MODELS[name]
    writer = gguf.GGUFWriter(path, architecture)
    add_keys(writer, n_layers, n_experts, heads, kv_heads)
    add_counted(writer, name)
    for name, shape in tensors:
        writer.add_tensor(name, np.zeros(shape, np.float32 if len(shape) == 1 else np.float16))
    finish(writer)


def write_imatrix(path):
    writer = gguf.GGUFWriter(path, "")
    writer.add_type("imatrix")
    writer.add_array("imatrix.datasets", ["none"])
    writer.add_uint32("imatrix.chunk_count", 1)
    writer.add_uint32("imatrix.chunk_size", 512)
    writer.add_tensor("none.in_sum2", np.ones((1, 256), np.float32))
    writer.add_tensor("none.counts", np.ones((1, 1), np.float32))
    finish(writer)


def ask(quantize, path, preset, imatrix):
    options = ["--imatrix", str(imatrix)] if imatrix else []
    result = subprocess.run([quantize, "--dry-run", *options, str(path), preset], capture_output=True, text=True)
    text = result.stdout + result.stderr
    if "no tensor type fallback" in text:
        return None
    if result.returncode != 0:
        raise SystemExit(f"{path.name} {preset}: {text[-600:]}")
    chosen = {}
    line = re.compile(r"\[ *\d+/ *\d+\] (\S+) +- \[[^]]*\], type = +(\S+),(.*?size = [^\n]*)", re.S)
    for name, stored, rest in line.findall(text):
        last = re.search(r"-> [^(]*\(([^)]*)\)\s*$", rest)
        chosen[name] = last.group(1) if last else stored
    return chosen


def main():
    quantize = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        imatrix = folder / "imatrix.gguf"
        write_imatrix(imatrix)
        for name, (architecture, n_layers, n_experts, heads, kv_heads, tensors) in MODELS.items():
            path = folder / f"{name}.gguf"
            write_model(path, name)
            n_counted, keys = COUNTED.get(name, (n_layers, {}))
            lines = [f"model {architecture} {n_counted} {n_experts} {heads} {kv_heads}"]
            if name in COUNTED:
                lines += [f"key {key} {number}" for key, number in {f"{architecture}.block_count": n_layers, **keys}.items()]
            for tensor, shape in tensors:
                dtype = "f32" if len(shape) == 1 else "f16"
                lines.append(f"tensor {tensor} {dtype} {'x'.join(map(str, shape))}")
            lines.append("types " + " ".join(TYPES))
            for preset in PRESETS:
                for weights in (None, imatrix):
                    chosen = ask(quantize, path, preset, weights)
                    letters = "".join(chr(65 + TYPES.index(chosen[tensor])) for tensor, _ in tensors) if chosen else ""
                    lines.append(f"{preset}{'+imatrix' if weights else ''} {letters or 'refused'}")
            (HERE / f"{name}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
