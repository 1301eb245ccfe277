#!/usr/bin/env python3
"""Asks llama-quantize which type each tensor of some models gets in every preset, with and without importance matrix.

    make.py LLAMA_QUANTIZE [NAME...]      writes NAME.txt beside this file, of all models or of these

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


def named(*names, shape=(2, 256)):
    return [(name, shape) for name in names]


# What a model of 70B gives more bits, by its number of layers.
VALUES = model(named(*(f"blk.{i}.attn_v.weight" for i in range(4))))
# Names that are never quantized, each by one rule, and some beside them.
KEPT = named(
    "blk.0.attn_q_norm.weight", "blk.0.ffn_gate_inp.weight", "blk.0.ffn_gate_tid2eid.weight", "blk.0.altup_proj.weight",
    "blk.0.laurel_l.weight", "per_layer_model_proj.weight", "blk.0.ssm_conv1d.weight", "blk.0.shortconv.conv.weight",
    "blk.0.indexer.k_proj.weight", "blk.0.indexer.q_proj.weight",
    *(f"blk.0.time_mix_{part}.weight" for part in ("first w0 w1 w2 v0 v1 v2 a0 a1 a2 g1 g2 decay_w1 decay_w2 "
                                                   "lerp_fused").split()),
    "blk.0.attn_rel_b.weight", "v.position_embd.weight", "sam.pos_embd.weight", "sam.neck.0.weight", "sam.net_2.weight",
    "v.rel_pos.weight", "v.patch_embd.weight", "mm.patch_merger.weight", "a.rvq.codebook.weight", "mm.a.code_embd.weight",
    "position_embd.weight", "token_types.weight", "blk.0.attn_q.scale",
    "per_layer_token_embd.weight", "blk.0.per_layer_proj.weight", "blk.0.shortconv.in_proj.weight",
    "blk.0.indexer.v_proj.weight", "blk.0.time_mix_key.weight", "mm.a.other.weight")
# The same of glm5-next alone, what it has no fewer than 8 bits of, and some beside them.
KEPT_GLM5 = named(
    *(f"blk.0.{part}.weight" for part in (
        "hc_attn indexer.attn_q_b indexer.attn_k indexer.proj indexer_compressor_gate indexer_compressor_ape ssm_f_a ssm_f_b "
        "ssm_g_a ssm_g_b ssm_beta attn_kv_a_mqa attn_k_b attn_v_b attn_q_a attn_q_b nextn.eh_proj attn_q attn_v attn_output "
        "ffn_down ssm_in indexer.other").split())) + named("blk.0.ffn_up_exps.weight", shape=(4, 2, 256))
BAILING = named("blk.0.attn_q.weight", "blk.0.ffn_up.weight") + named(
    *(f"blk.0.{part}.weight" for part in "attn_k_b attn_v_b ffn_gate_exps ffn_up_exps ffn_down_exps".split()), shape=(4, 2, 256))

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
    "llama-kept": ("llama", 1, 0, 8, 2, model(KEPT)),
    "glm5-next": ("glm5-next", 1, 4, 8, 8, model(KEPT_GLM5)),
    "llama-glm5": ("llama", 1, 4, 8, 8, model(KEPT_GLM5)),
    "bailingmoe3": ("bailingmoe3", 1, 4, 8, 8, model(BAILING)),
    "llama-65b": ("llama", 80, 0, 8, 8, VALUES),
    "qwen2-70b": ("qwen2", 80, 0, 8, 4, VALUES),
    "deci-70b": ("deci", 80, 0, 8, 4, VALUES),
    "olmo-70b": ("olmo", 80, 0, 8, 8, VALUES),
    "jais2-70b": ("jais2", 68, 0, 8, 4, VALUES),
    "jais2": ("jais2", 80, 0, 8, 4, VALUES),
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


def add_hybrid(writer, architecture):
    """What llama.cpp asks of two architectures before it loads them."""
    numbers = ("attention.q_lora_rank attention.kv_lora_rank attention.key_length_mla attention.value_length_mla ssm.conv_kernel "
               "kda.head_dim expert_feed_forward_length expert_shared_count expert_gating_func attention.indexer.head_count "
               "attention.indexer.key_length attention.indexer.top_k hyper_connection.count "
               "hyper_connection.sinkhorn_iterations").split()
    for key in numbers:
        writer.add_uint32(f"{architecture}.{key}", {"expert_shared_count": 1, "expert_gating_func": 2}.get(key, 4))
    writer.add_uint32(f"{architecture}.leading_dense_block_count", 0)
    writer.add_uint32(f"{architecture}.attention.indexer.kpool", 2)
    writer.add_float32(f"{architecture}.kda.gate_lower_bound", -1.0)
    writer.add_float32(f"{architecture}.hyper_connection.epsilon", 1e-5)


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
    if architecture in ("glm5-next", "bailingmoe3"):
        add_hybrid(writer, architecture)
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
    quantize, only = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        imatrix = folder / "imatrix.gguf"
        write_imatrix(imatrix)
        for name, (architecture, n_layers, n_experts, heads, kv_heads, tensors) in MODELS.items():
            if only and name not in only:
                continue
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
