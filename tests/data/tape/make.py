#!/usr/bin/env python3
"""Tiny random models of the families that run, with logits and gradients of transformers: tests/data/tape/<case>/
and <case>.golden.safetensors.

    make.py FOLDER [CASE...]        (written with torch 2.15.0 and transformers 5.23.0, on a CPU)

Weights are random bf16 values, so that they are small on disk and loading has to cast. Everything is computed in f64
with eager attention. In a golden file stand, for each batch: <batch>.ids, .logits (f32), and what it has of
.mask, .positions, .documents; and of the batch `train` .targets, .loss (f64), and gradient.<name> of the sum of losses.
"""
import json
import os
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

V = 61
COMMON = dict(vocab_size=V, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-5)
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
CASES = {
    "llama": dict(model_type="llama", **COMMON, rope_parameters=LLAMA3),
    "llama-bias": dict(model_type="llama", **{**COMMON, "num_key_value_heads": 4}, head_dim=12, attention_bias=True,
                       mlp_bias=True, tie_word_embeddings=True,
                       rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0)),
    "mistral": dict(model_type="mistral", **{**COMMON, "num_key_value_heads": 1}, head_dim=10, sliding_window=7),
    "qwen2": dict(model_type="qwen2", **COMMON, tie_word_embeddings=True, use_sliding_window=True, sliding_window=5,
                  max_window_layers=1),
    "gpt2": dict(model_type="gpt2", vocab_size=V, n_positions=160, n_embd=24, n_layer=2, n_head=3,
                 resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    "gpt2-exact": dict(model_type="gpt2", vocab_size=V, n_positions=32, n_embd=16, n_inner=24, n_layer=2, n_head=2,
                       activation_function="gelu", scale_attn_by_inverse_layer_idx=True, tie_word_embeddings=False,
                       resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    "gpt2-dropout": dict(model_type="gpt2", vocab_size=V, n_positions=32, n_embd=18, n_layer=2, n_head=3,
                         resid_pdrop=0.25, embd_pdrop=0.125, attn_pdrop=0.4),
    "llama-dropout": dict(model_type="llama", **COMMON, attention_dropout=0.3),
}
DROPOUT_KEY, FIRST_ROW = 0x0123456789ABCDEF, 5


def philox(key, counter):
    """Philox4x32-10: four words."""
    k, c, low = [key & 0xFFFFFFFF, key >> 32], list(counter), 0xFFFFFFFF
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & low, (a >> 32) ^ c[3] ^ k[1], a & low]
        k = [(k[0] + 0x9E3779B9) & low, (k[1] + 0xBB67AE85) & low]
    return c


class Dropout:
    """Stands for torch's dropout: draws by counter, sites in the order of the model's calls (a head takes one each)."""

    def __init__(self):
        self.site = 0

    def __call__(self, x, p=0.5, training=True, inplace=False):
        if not training or p == 0:
            return x
        heads = x.shape[1] if x.dim() == 4 else 1
        y = x if x.dim() == 4 else x[:, None]
        keeps = torch.zeros(y.shape, dtype=torch.float64)
        for row in range(y.shape[0]):
            for head in range(heads):
                for position in range(y.shape[2]):
                    for column in range(y.shape[3]):
                        words = philox(DROPOUT_KEY, (column // 4, position, FIRST_ROW + row, self.site + head))
                        keeps[row, head, position, column] = words[column % 4] >= int(p * 2**32)
        self.site += heads
        return x * (keeps / (1 - p)).reshape(x.shape)


def window_of(config, layer):
    """How far back a layer sees; None: all the way."""
    if config.model_type == "mistral":
        return config.sliding_window
    types = getattr(config, "layer_types", None)
    return config.sliding_window if types and types[layer] == "sliding_attention" else None


def bias_of(sees):
    return torch.zeros(sees.shape, dtype=torch.float64).masked_fill(~sees, torch.finfo(torch.float64).min)


def masks_of(config, documents, mask):
    """What each kind of layer may see, as an additive mask of four axes."""
    n = documents.shape[1]
    i, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
    sees = (j <= i)[None] & (documents[:, :, None] == documents[:, None, :]) & (mask[:, None, :] != 0)
    sees = sees | torch.eye(n, dtype=torch.bool)  # a padding token sees itself: what comes of it is not compared
    full = bias_of(sees[:, None])
    window = getattr(config, "sliding_window", None)
    if window is None:
        return full
    narrow = bias_of((sees & ((i - j) < window)[None])[:, None])
    if config.model_type == "mistral":
        return narrow
    return {"full_attention": full, "sliding_attention": narrow} if config.model_type == "qwen2" else full


def run(model, ids, positions=None, documents=None, mask=None):
    extra = {}
    if documents is not None or mask is not None:
        masks = masks_of(model.config, documents if documents is not None else torch.zeros_like(ids),
                         mask if mask is not None else torch.ones_like(ids))
        extra["attention_mask"] = masks
    if positions is not None:
        extra["position_ids"] = positions
    return model(input_ids=ids, use_cache=False, **extra).logits


def make(folder, name, options):
    torch.manual_seed(sum(map(ord, name)))
    options = dict(options)
    config = AutoConfig.for_model(options.pop("model_type"), **options)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * (0.25 if p.dim() > 1 else 0.1) + (1 if "norm" in key or "ln_" in key else 0)
                    * (key.endswith("weight")))
    model = model.to(torch.bfloat16)
    path = os.path.join(folder, name)
    model.save_pretrained(path)
    for extra in ("generation_config.json",):
        if os.path.exists(os.path.join(path, extra)):
            os.remove(os.path.join(path, extra))
    # loaded anew: .to(bfloat16) has rounded the frequencies of rope too
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64, attn_implementation="eager").eval()
    golden = {}

    def batch(label, ids, **arrays):
        logits = run(model, ids, **arrays)
        golden[f"{label}.ids"] = ids.to(torch.int32)
        golden[f"{label}.logits"] = logits.detach().to(torch.float32).contiguous()
        for key, value in arrays.items():
            golden[f"{label}.{key}"] = value.to(torch.uint8 if key == "mask" else torch.int32)
        return logits

    short = 20
    with torch.no_grad():
        batch("plain", torch.randint(0, V, (2, short)))
        lengths = [short - 6, short]
        mask = torch.tensor([[int(i >= short - n) for i in range(short)] for n in lengths])
        batch("padded", torch.randint(0, V, (2, short)), mask=mask, positions=(mask.cumsum(1) - 1).clamp(min=0))
        cuts = [0] * 4 + [1] * 9 + [2] * 7
        places = list(range(4)) + list(range(9)) + list(range(7))
        batch("packed", torch.randint(0, V, (1, short)), documents=torch.tensor([cuts]),
              positions=torch.tensor([places]))
        if config.model_type != "gpt2" or config.n_positions > 150:
            batch("long", torch.randint(0, V, (1, 150)))
    ids = torch.randint(0, V, (3, short))
    targets = torch.cat([ids[:, 1:], torch.full((3, 1), -100)], 1)
    targets[1, 3:9] = -100
    if "dropout" in name:
        torch.nn.functional.dropout = Dropout()
        model.train()
    logits = batch("train", ids)
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, V), targets.reshape(-1), ignore_index=-100,
                                             reduction="sum")
    loss.backward()
    golden["train.targets"] = targets.to(torch.int32)
    golden["train.loss"] = loss.detach().reshape(1)
    for key, p in model.named_parameters():
        golden[f"gradient.{key}"] = p.grad.to(torch.float32).contiguous()
    save_file(golden, path + ".golden.safetensors")


def main():
    for name, options in CASES.items():
        if len(sys.argv) < 3 or name in sys.argv[2:]:
            make(sys.argv[1], name, options)


if __name__ == "__main__":
    main()
