#!/usr/bin/env python3
"""Curves of the real Trainer on tiny models: what ckpt-train has to follow.

    make_training_curves.py         writes tests/data/training/{gpt2,llama,mistral,qwen2}/, rows.jsonl and curves.json
    make_training_curves.py bf16           adds the curves of bf16 anew, from the folders as they are
    make_training_curves.py --smoothed     smoothed.json alone: label_smoothing_factor
    make_training_curves.py --padding      padding.json alone: rows that hold the config's pad_token_id

Rows come in the order of the file (train_sampling_strategy sequential); batches of 2, accumulated twice, the last ones of
an epoch uneven. GPT-2's loss type is given, since the Trainer otherwise counts its targets wrongly. Made with torch 2.15
and transformers 5.23 on CPU, in f32, and with bf16=True (autocast) for the curves of that name.
"""
import json
import os
import random
import shutil
import sys
import tempfile

import torch
from transformers import (AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Trainer,
                          TrainerCallback, TrainingArguments, set_seed)

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "training")
VOCABULARY, N_ROWS, N_STEPS = 96, 27, 40

SMALL = dict(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=32, bos_token_id=1, eos_token_id=2)
CONFIGS = {
    "gpt2": GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=4, n_positions=32, resid_pdrop=0.0,
                       embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2),
    "llama": LlamaConfig(**SMALL),
    "mistral": MistralConfig(**SMALL, sliding_window=None),
    "qwen2": Qwen2Config(**SMALL, tie_word_embeddings=True),
}
ARGUMENTS = dict(per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=N_STEPS, learning_rate=5e-3,
                 weight_decay=0.1, lr_scheduler_type="cosine", warmup_steps=4, adam_beta2=0.95, max_grad_norm=1.0,
                 train_sampling_strategy="sequential", seed=42)


def rows():
    generator = random.Random(5)
    made = []
    for _ in range(N_ROWS):
        n, start, stride = generator.randint(3, 20), generator.randrange(VOCABULARY), generator.randint(1, 4)
        made.append({"input_ids": [(start + i * stride) % VOCABULARY for i in range(n)]})
    made[4]["labels"] = [-100] * 2 + made[4]["input_ids"][2:]
    return made


def collate(batch):
    longest = max(len(row["input_ids"]) for row in batch)
    ids, labels, mask = [], [], []
    for row in batch:
        n, own = len(row["input_ids"]), row.get("labels", row["input_ids"])
        ids.append(row["input_ids"] + [0] * (longest - n))
        labels.append(own + [-100] * (longest - n))
        mask.append([1] * n + [0] * (longest - n))
    return {"input_ids": torch.tensor(ids), "labels": torch.tensor(labels), "attention_mask": torch.tensor(mask)}


class Keep(TrainerCallback):
    def __init__(self):
        self.logs = []

    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            self.logs.append({key: logs[key] for key in ("loss", "grad_norm", "learning_rate", "epoch")})


def train(name, config, data):
    set_seed(11)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for _, p in model.named_parameters():  # far from the initialization, so that every part shows
            p.add_(torch.randn_like(p) * 0.15)
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    return run(model, data)


def train_bf16(name, data):
    folder = os.path.join(HERE, name)
    return run(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager"), data,
               bf16=True)


def run(model, data, **more):
    model.loss_type = "ForCausalLM"
    keep = Keep()
    with tempfile.TemporaryDirectory() as out:
        arguments = TrainingArguments(output_dir=out, use_cpu=True, logging_steps=1, save_strategy="no", report_to=[],
                                      remove_unused_columns=False, **ARGUMENTS, **more)
        trainer = Trainer(model=model, args=arguments, train_dataset=data, data_collator=collate, callbacks=[keep])
        trainer.train()
        evaluation = trainer.evaluate(data[:11])
    return {"steps": keep.logs, "eval_loss": evaluation["eval_loss"]}


SMOOTHED = dict(label_smoothing_factor=0.1, max_steps=12)


def smoothed():
    wanted, out = os.path.join(HERE, "smoothed.json"), tempfile.mkdtemp()
    globals()["HERE"] = out
    ARGUMENTS.update(SMOOTHED)
    curves = {name: train(name, CONFIGS[name], rows()) for name in ("gpt2", "llama")}
    with open(wanted, "w", encoding="utf-8") as file:
        json.dump({"arguments": ARGUMENTS, "curves": curves}, file, indent=0)
        file.write("\n")
    shutil.rmtree(out)


def padding():
    """The folders as they are, with a pad_token_id that their rows hold: counted from the end, and of a tied table."""
    ARGUMENTS.update(max_steps=12)
    curves = {}
    for name, pad in (("llama", 39 - VOCABULARY), ("qwen2", 39)):
        set_seed(11)
        model = AutoModelForCausalLM.from_pretrained(os.path.join(HERE, name), dtype=torch.float32, pad_token_id=pad,
                                                     attn_implementation="eager")
        assert model.model.embed_tokens.padding_idx == 39
        curves[name] = dict(run(model, rows()), pad_token_id=pad)
    with open(os.path.join(HERE, "padding.json"), "w", encoding="utf-8") as file:
        json.dump({"arguments": ARGUMENTS, "curves": curves}, file, indent=0)
        file.write("\n")


def main():
    if sys.argv[1:] == ["--smoothed"]:
        smoothed()
        return
    if sys.argv[1:] == ["--padding"]:
        padding()
        return
    os.makedirs(HERE, exist_ok=True)
    data = rows()
    if sys.argv[1:] == ["bf16"]:
        with open(os.path.join(HERE, "curves.json"), encoding="utf-8") as file:
            curves = json.load(file)["curves"]
    else:
        curves = write_all(data)
    curves.update((name + "-bf16", train_bf16(name, data)) for name in ("gpt2", "llama"))
    with open(os.path.join(HERE, "curves.json"), "w", encoding="utf-8") as file:
        json.dump({"arguments": ARGUMENTS, "curves": curves}, file, indent=0)
        file.write("\n")


def write_all(data):
    for name, part in (("rows.jsonl", data), ("eval.jsonl", data[:11])):
        with open(os.path.join(HERE, name), "w", encoding="utf-8") as file:
            for row in part:
                file.write(json.dumps(row) + "\n")
    return {name: train(name, config, data) for name, config in CONFIGS.items()}


if __name__ == "__main__":
    main()
