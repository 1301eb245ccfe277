#!/usr/bin/env python3
"""Goldens of the trainer's formulas, made by transformers' schedules and torch's AdamW and clipping.

    make_training_goldens.py        writes tests/data/training/{schedules,plateau,adamw}.json

Made with torch 2.15 and transformers 5.23.
"""
import json
import os

import torch
from transformers import get_scheduler

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "training")

SCHEDULES = [
    ("linear", {}, 3, 20), ("linear", {}, 0, 7), ("cosine", {}, 3, 20), ("cosine", {"num_cycles": 1.5}, 2, 20),
    ("cosine_with_restarts", {"num_cycles": 3}, 2, 20), ("polynomial", {"power": 2.0, "lr_end": 1e-6}, 3, 20),
    ("polynomial", {}, 3, 15), ("constant", {}, 0, 5), ("constant_with_warmup", {}, 4, 10), ("inverse_sqrt", {}, 4, 20),
    ("inverse_sqrt", {"timescale": 10}, 4, 20), ("cosine_with_min_lr", {"min_lr": 1e-5}, 3, 20),
    ("cosine_with_min_lr", {"min_lr_rate": 0.1}, 3, 20),
    ("cosine_warmup_with_min_lr", {"min_lr_rate": 0.1}, 3, 20),
    ("cosine_warmup_with_min_lr", {"min_lr_rate": 0.1, "warmup_lr_rate": 0.2}, 3, 20),
    ("warmup_stable_decay", {"num_decay_steps": 6}, 4, 20),
    ("warmup_stable_decay", {"num_decay_steps": 6, "num_stable_steps": 5, "min_lr_ratio": 0.1, "warmup_type": "cosine",
                             "decay_type": "1-sqrt"}, 4, 20),
    ("warmup_stable_decay", {"num_decay_steps": 6, "warmup_type": "1-sqrt", "decay_type": "linear"}, 4, 20),
]


def schedules():
    rows = []
    for name, kwargs, warmup, total in SCHEDULES:
        weight = torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.AdamW([weight], lr=1e-3)
        scheduler = get_scheduler(name, optimizer, warmup, total, scheduler_specific_kwargs=dict(kwargs))
        rates = []
        for _ in range(total + 2):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        rows.append({"name": name, "kwargs": kwargs, "warmup": warmup, "total": total, "rates": rates})
    return rows


PLATEAU = [
    {"patience": 1}, {"patience": 0, "factor": 0.5, "cooldown": 2, "min_lr": 2e-4}, {"patience": 2, "mode": "max"},
    {"patience": 1, "threshold": 0.05, "threshold_mode": "abs"}, {"patience": 1, "threshold": 0.1, "threshold_mode": "rel"},
    {"patience": 0, "mode": "max", "threshold": 0.2, "threshold_mode": "abs", "eps": 5e-5},
]


def plateau():
    generator = torch.Generator().manual_seed(3)
    metrics = (2 / torch.arange(1, 31) + torch.rand(30, generator=generator) / 4).tolist()
    metrics[9] = float("nan")
    rows = []
    for kwargs in PLATEAU:
        optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
        scheduler = get_scheduler("reduce_lr_on_plateau", optimizer, scheduler_specific_kwargs=dict(kwargs))
        rates = []
        for metric in metrics:
            scheduler.step(metric)
            rates.append(optimizer.param_groups[0]["lr"])
        rows.append({"kwargs": kwargs, "metrics": [None if metric != metric else metric for metric in metrics], "rates": rates})
    return rows


def adamw():
    generator = torch.Generator().manual_seed(7)
    decayed = torch.nn.Parameter(torch.randn(5, 3, generator=generator))
    plain = torch.nn.Parameter(torch.randn(4, generator=generator))
    optimizer = torch.optim.AdamW([{"params": [decayed], "weight_decay": 0.1}, {"params": [plain], "weight_decay": 0.0}],
                                  lr=1e-2, betas=(0.9, 0.95), eps=1e-8, fused=True)
    result = {"begin": decayed.flatten().tolist() + plain.tolist(), "steps": []}
    for step in range(6):
        for p in (decayed, plain):
            p.grad = torch.randn(p.shape, generator=generator) * (4.0 if step % 2 else 0.05)
        gradients = decayed.grad.flatten().tolist() + plain.grad.tolist()
        norm = torch.nn.utils.clip_grad_norm_([decayed, plain], 1.0).item()
        optimizer.step()
        result["steps"].append({"gradients": gradients, "norm": norm,
                                "weights": decayed.flatten().tolist() + plain.tolist()})
    return result


def main():
    os.makedirs(HERE, exist_ok=True)
    for name, value in (("schedules", schedules()), ("plateau", plateau()), ("adamw", adamw())):
        with open(os.path.join(HERE, name + ".json"), "w", encoding="utf-8") as file:
            json.dump(value, file, indent=0)
            file.write("\n")


if __name__ == "__main__":
    main()
