#!/usr/bin/env python3
"""Curves of the Trainer with PEFT's LoRA on the tiny models of make_training_curves.py, from an adapter that is not zero.

    make_training_lora.py [CASE...] writes tests/data/training/lora-*/ (adapters to start from) and lora.json

Made with torch 2.15, transformers 5.23 and peft 0.21.2 on CPU, in f32.
"""
import json
import os
import shutil
import sys
import tempfile

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, set_seed

from make_training_curves import ARGUMENTS, HERE, Keep, collate

N_STEPS = 12
CASES = {
    "llama": ("llama", dict(r=4, lora_alpha=8)),
    "llama-patterns": ("llama", dict(r=4, lora_alpha=6, use_rslora=True, target_modules="all-linear",
                                     rank_pattern={"layers.1.mlp.up_proj": 2, "k_proj": 3}, alpha_pattern={"o_proj": 16},
                                     modules_to_save=["lm_head"])),
    "gpt2": ("gpt2", dict(r=2, lora_alpha=4, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True)),
    "dora": ("llama", dict(r=4, lora_alpha=8, use_dora=True, target_modules=["q_proj", "down_proj"])),
    "dora-gpt2": ("gpt2", dict(r=2, lora_alpha=4, use_dora=True, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True)),
    "bias-gpt2": ("gpt2", dict(r=2, lora_alpha=4, target_modules=["c_fc"], fan_in_fan_out=True, bias="all")),
    "bias-qwen2": ("qwen2", dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"], bias="lora_only")),
    "bias-dora": ("qwen2", dict(r=2, lora_alpha=4, target_modules=["v_proj"], use_dora=True, bias="all",
                                modules_to_save=["norm"])),
    "bias-saved": ("gpt2", dict(r=2, lora_alpha=4, target_modules=["c_fc"], fan_in_fan_out=True, bias="all",
                                modules_to_save=["ln_f"])),  # whose bias PEFT writes twice, and the model's beside it
    "layers": ("llama", dict(r=2, lora_alpha=4, target_modules=["q_proj", "up_proj", "model.layers.0.mlp.down_proj"],
                             layers_to_transform=[1], layers_pattern="layers")),
    # models that tie head and embedding, of which one is trained, or both, each apart from the other
    "tied-both": ("qwen2", dict(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])),
    "tied-embedding": ("gpt2", dict(r=2, lora_alpha=4, target_modules=["c_attn"], fan_in_fan_out=True,
                                    modules_to_save=["wte"])),
    "tied-head": ("qwen2", dict(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["lm_head"])),
    "tied-target": ("qwen2", dict(r=2, lora_alpha=4, target_modules=["q_proj", "lm_head"])),
}


def train(case, name, options, data):
    set_seed(3)
    model = AutoModelForCausalLM.from_pretrained(os.path.join(HERE, name), attn_implementation="eager")
    model = get_peft_model(model, LoraConfig(init_lora_weights=False, task_type="CAUSAL_LM", **options))
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "lora_" in key:
                p.mul_(0.3)
    model.base_model.model.loss_type = "ForCausalLM"
    folder = os.path.join(HERE, "lora-" + case)
    shutil.rmtree(folder, ignore_errors=True)
    model.peft_config["default"].base_model_name_or_path = name  # no path of this machine
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "README.md"))
    keep = Keep()
    with tempfile.TemporaryDirectory() as out:
        arguments = TrainingArguments(output_dir=out, use_cpu=True, logging_steps=1, save_strategy="no", report_to=[],
                                      remove_unused_columns=False, **{**ARGUMENTS, "max_steps": N_STEPS})
        Trainer(model=model, args=arguments, train_dataset=data, data_collator=collate, callbacks=[keep]).train()
        model.save_pretrained(out + "/end")
        end = {key: value.double().norm().item() for key, value in
               load_file(out + "/end/adapter_model.safetensors").items()}
    return {"model": name, "steps": keep.logs, "norms": end}


def main():
    with open(os.path.join(HERE, "rows.jsonl"), encoding="utf-8") as file:
        data = [json.loads(line) for line in file]
    with open(os.path.join(HERE, "lora.json"), encoding="utf-8") as file:
        result = json.load(file)
    result.update({case: train(case, *CASES[case], data) for case in sys.argv[1:] or CASES})
    with open(os.path.join(HERE, "lora.json"), "w", encoding="utf-8") as file:
        json.dump(result, file, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
