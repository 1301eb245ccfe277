"""ckpt-train beside transformers and torch: the table of arguments is complete, torch DCP goes on from its checkpoints, and
transformers loads what it ends with."""
import dataclasses
import importlib.util
import json
import os
import re
import subprocess
import sys

import command

command.need("transformers", "torch")

import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict  # noqa: E402
from transformers import AutoModelForCausalLM, TrainingArguments  # noqa: E402

sys.path.insert(0, os.path.join(command.TESTS, "data"))
import make_training_curves  # noqa: E402

ROOT = os.path.dirname(command.TESTS)
DATA = os.path.join(command.TESTS, "data", "training")
ROW = re.compile(r'^ARG_([A-Z]+)\((\w+), *((?:"(?:\\.|[^"\\])*"|[^,"\n])+)', re.M)
RENAMED = {"resume_from_checkpoint", "output_dir"}


def table():
    with open(os.path.join(ROOT, "trainer", "loop", "arguments.def"), encoding="utf-8") as file:
        return {name: (kind, value.strip()) for kind, name, value in ROW.findall(file.read())}


def default_of(kind, value):
    """The defaults of a row, as Python has them."""
    if kind in ("SAID", "REFUSED"):
        decoder, at, found, text = json.JSONDecoder(), 0, [], json.loads(value)
        while at < len(text):
            one, at = decoder.raw_decode(text, at)
            found.append(one)
            at += at < len(text)
        return found
    return [{"NULL": None, "NAN": None, "INT64_MIN": None, "true": True, "false": False}.get(value, value.strip('"'))]


def test_arguments(folder):
    """Every field of TrainingArguments is in the table, with its default."""
    rows = table()
    assert len(rows) > 130, len(rows)
    for field in dataclasses.fields(TrainingArguments):
        assert field.name in rows, f"TrainingArguments.{field.name} is not in trainer/loop/arguments.def"
        kind, value = rows[field.name]
        if kind == "ALIAS":
            kind, value = rows[value.rstrip(")")]
        default = field.default_factory() if field.default is dataclasses.MISSING else field.default
        default = getattr(default, "value", default)
        wanted = default_of(kind, value) + [None] * field.name.endswith("_checkpointing")
        same = any(default == one or (isinstance(default, (int, float)) and not isinstance(one, (bool, type(None), list, dict))
                                      and str(one) not in ("", "none") and float(one) == float(default)) for one in wanted)
        assert same, f"{field.name}: {default!r} there, {wanted} here"


def train(out, *arguments):
    subprocess.run([command.TRAIN, "--data", os.path.join(DATA, "rows.jsonl"), "-o", out, "--quiet", *map(str, arguments)],
                   check=True)
    with open(os.path.join(out, "log.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def batch_of(rows):
    longest = max(len(row["input_ids"]) for row in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.int64)
    labels, mask = torch.full_like(ids, -100), torch.zeros_like(ids)
    for i, row in enumerate(rows):
        n = len(row["input_ids"])
        ids[i, :n] = torch.tensor(row["input_ids"])
        labels[i, :n] = torch.tensor(row.get("labels", row["input_ids"]))
        mask[i, :n] = 1
    return ids, labels, mask


def loss_of(model, rows):
    ids, labels, mask = batch_of(rows)
    logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1))


def test_dcp_goes_on(folder):
    """torch DCP reads a checkpoint of two ranks and takes the next steps: the losses are those that we log."""
    for family in ("llama", "gpt2", "qwen2"):
        out = os.path.join(folder, family)
        log = train(out, "--model", os.path.join(DATA, family), "--max_steps", 6, "--save_steps", 3, "--ranks", 2, "--stage",
                    3, "--per_device_train_batch_size", 2, "--train_sampling_strategy", "sequential", "--learning_rate",
                    5e-3, "--weight_decay", 0.1, "--lr_scheduler_type", "constant")
        model = AutoModelForCausalLM.from_config(AutoModelForCausalLM.from_pretrained(out).config)
        model.train(False)
        decayed = [p for name, p in model.named_parameters() if p.dim() == 2]
        plain = [p for name, p in model.named_parameters() if p.dim() != 2]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=1.0)
        state, states = get_state_dict(model, optimizer)
        dcp.load({"model": state, "optimizer": states}, checkpoint_id=os.path.join(out, "checkpoint-3"))
        set_state_dict(model, optimizer, model_state_dict=state, optim_state_dict=states)
        assert optimizer.param_groups[0]["lr"] == 5e-3, optimizer.param_groups[0]
        assert optimizer.state[decayed[0]]["step"] == 3
        with open(os.path.join(DATA, "rows.jsonl"), encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        for step in range(3, 6):
            loss = loss_of(model, rows[4 * step:4 * step + 4])
            assert abs(loss.item() - log[step]["loss"]) < 1e-5 * loss.item(), (family, step, loss.item(), log[step])
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            assert abs(norm.item() - log[step]["grad_norm"]) < 1e-4 * norm.item()
            optimizer.step()
        final = AutoModelForCausalLM.from_pretrained(out).state_dict()
        for name, tensor in model.state_dict().items():
            if family == "gpt2" and name.endswith("c_attn.bias"):
                continue  # gradients of keys' biases are rounding alone
            worst = (tensor - final[name]).abs().max().item()
            assert worst < 1e-5 * max(1.0, tensor.abs().max().item()), (family, name, worst)


def test_curves(folder):
    """The installed Trainer and ckpt-train, step by step, for each family; the committed curves are those of the Trainer."""
    make_training_curves.HERE = folder
    make_training_curves.ARGUMENTS["max_steps"] = 40
    with open(os.path.join(DATA, "curves.json"), encoding="utf-8") as file:
        committed = json.load(file)["curves"]
    words = []
    for key, value in make_training_curves.ARGUMENTS.items():
        words += [f"--{key}", value]
    for family, config in make_training_curves.CONFIGS.items():
        curve = make_training_curves.train(family, config, make_training_curves.rows())
        log = train(os.path.join(folder, family + "-out"), "--model", os.path.join(folder, family), *words)
        assert len(curve["steps"]) == len(log) == 40
        for i, (wanted, got) in enumerate(zip(curve["steps"], log)):
            where = (family, i, wanted, got)
            assert abs(got["loss"] - wanted["loss"]) < (1e-5 if i < 10 else 1e-4) * wanted["loss"], where
            assert abs(got["grad_norm"] - wanted["grad_norm"]) < 1e-4 * wanted["grad_norm"], where
            assert got["learning_rate"] == wanted["learning_rate"], where
        for i, (now, then) in enumerate(zip(curve["steps"], committed[family]["steps"])):
            assert abs(now["loss"] - then["loss"]) < 1e-5 * then["loss"], (family, i, now, then)


def test_peft_loads(folder):
    """PEFT loads the folder of an adapter; the loss with it is the one that we evaluate."""
    if importlib.util.find_spec("peft") is None:
        command.skip("peft is not installed")
        return
    from peft import LoraConfig, PeftModel
    with open(os.path.join(folder, "lora.json"), "w", encoding="utf-8") as file:
        json.dump({"r": 4, "lora_alpha": 16, "target_modules": "all-linear", "rank_pattern": {"down_proj": 2},
                   "alpha_pattern": {"c_fc": 4}, "bias": "all", "modules_to_save": ["norm", "ln_f"]}, file)
    with open(os.path.join(DATA, "eval.jsonl"), encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    for family in ("llama", "gpt2"):
        out, model = os.path.join(folder, family), os.path.join(DATA, family)
        evaluation = ["--eval-data", os.path.join(DATA, "eval.jsonl"), "--eval_strategy", "steps", "--eval_steps", 8,
                      "--per_device_eval_batch_size", 100]
        log = train(out, "--model", model, "--lora", os.path.join(folder, "lora.json"), "--max_steps", 8, "--learning_rate",
                    0.02, "--per_device_train_batch_size", 4, *evaluation)
        with open(os.path.join(out, "adapter_config.json"), encoding="utf-8") as file:
            missing = set(LoraConfig().to_dict()) - set(json.load(file)) - {"peft_version"}
        assert not missing, f"adapter_config.json lacks {missing}"
        adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model), out)
        wanted = [row["eval_loss"] for row in log if "eval_loss" in row][-1]
        with torch.no_grad():
            loss = loss_of(adapted, rows).item()
        assert abs(loss - wanted) < 1e-5 * wanted, (family, loss, wanted)
        assert abs(log[0]["loss"] - wanted) > 0.05, "the adapter has learned nothing"


if __name__ == "__main__":
    command.main(globals())
