#!/usr/bin/env python3
"""Adapters that PEFT saved, and what PEFT's own merge of each gives: tests/data/adapters.

Made with torch 2.15.0, transformers 5.23.0 and peft 0.21.2:  python3 tests/data/make_adapters.py tests/data/adapters
Every folder has base/ (a model of 2 layers), adapter/ and merged.safetensors (the tensors that the merge changed, f32).
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def llama():
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False, attention_bias=True))


def gpt2():
    return GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=4, n_positions=32))


def mixtral():
    return MixtralForCausalLM(MixtralConfig(
        vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=3, max_position_embeddings=32))


class Layers(torch.nn.Module):
    """What has no family: convolutions and an attention of torch's own."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv1d(4, 6, 3)
        self.conv2 = torch.nn.Conv2d(4, 6, (2, 3))
        self.conv3 = torch.nn.Conv3d(4, 6, 2)
        self.point = torch.nn.Conv2d(4, 6, 1)
        self.attention = torch.nn.MultiheadAttention(8, 2)

    def save_pretrained(self, folder):
        folder.mkdir(parents=True)
        save_file(self.state_dict(), folder / "model.safetensors")


KINDS = {
    "linear": (llama, dict(r=4, lora_alpha=8, target_modules=LINEARS)),
    "rslora": (llama, dict(r=4, lora_alpha=8, use_rslora=True, target_modules=["q_proj", "down_proj"])),
    "patterns": (llama, dict(r=4, lora_alpha=8, target_modules=LINEARS, rank_pattern={"q_proj": 2, r"layers\.1\.mlp\..*": 3},
                             alpha_pattern={r"model.layers.0.self_attn.k_proj": 5, "v_proj|o_proj": 3})),
    "dora": (llama, dict(r=4, lora_alpha=8, use_dora=True, target_modules=LINEARS)),
    "embedding": (llama, dict(r=4, lora_alpha=8, target_modules=["embed_tokens", "lm_head", "q_proj"])),
    "saved": (llama, dict(r=4, lora_alpha=8, target_modules=["q_proj"], modules_to_save=["lm_head", "norm"], bias="all")),
    "bias": (llama, dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_bias=True)),
    "gpt2": (gpt2, dict(r=4, lora_alpha=8, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)),
    "gpt2_dora": (gpt2, dict(r=4, lora_alpha=8, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True,
                             use_dora=True)),
    "embedding_dora": (llama, dict(r=4, lora_alpha=8, target_modules=["embed_tokens"], use_dora=True)),
    "rows": (llama, dict(r=4, lora_alpha=8, target_modules=["q_proj"],
                         trainable_token_indices={"embed_tokens": [7, 0, 39], "lm_head": [5]})),
    "experts": (mixtral, dict(r=2, lora_alpha=8, target_modules=["q_proj"],
                              target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])),
    "layers": (Layers, dict(r=2, lora_alpha=8, target_modules=["conv1", "conv2", "conv3", "point", "attention"])),
    "layers_dora": (Layers, dict(r=2, lora_alpha=8, target_modules=["conv1", "conv2", "conv3"], use_dora=True)),
}


def as_saved(model):
    """Under the names that the files have."""
    if isinstance(model, Layers):
        return model.state_dict()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(folder + "/model.safetensors")


def main():
    out = Path(sys.argv[1])
    shutil.rmtree(out, ignore_errors=True)
    for seed, (kind, (make, config)) in enumerate(KINDS.items()):
        torch.manual_seed(seed)
        folder = out / kind
        base = make()
        for parameter in base.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        base.save_pretrained(folder / "base")
        wrapped = get_peft_model(base, LoraConfig(**config))
        for name, parameter in wrapped.named_parameters():
            if parameter.requires_grad:
                with torch.no_grad():
                    parameter.add_(torch.randn_like(parameter) * 0.1)
        wrapped.save_pretrained(folder / "adapter")
        (folder / "adapter" / "README.md").unlink(missing_ok=True)
        path = folder / "adapter" / "adapter_config.json"
        text = json.loads(path.read_text())
        text["base_model_name_or_path"] = "base"
        path.write_text(json.dumps(text, indent=2) + "\n")
        merged = as_saved(wrapped.merge_and_unload())
        before = load_file(folder / "base" / "model.safetensors")
        changed = {name: merged[name].clone() for name in before if not torch.equal(before[name], merged[name])}
        save_file(changed, folder / "merged.safetensors")


main()
