"""Random LoraConfigs on random models: gradients of a first step, logits and merged weights are PEFT's."""
import json
import os
import random
import subprocess

import command
from command import ckpt

command.need("torch", "transformers", "safetensors", "peft")
import torch  # noqa: E402
import transformers as hf  # noqa: E402
from peft import LoraConfig, PeftModel, get_peft_model  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

hf.utils.logging.disable_progress_bar()
MODULES = {"gpt2": ["c_attn", "c_proj", "c_fc"],
           "llama": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]}
PATTERNS = {"gpt2": [r".*c_attn", r".*\.0\..*c_.*"], "llama": [r".*\.(q_proj|v_proj)", r".*\.0\..*proj", r".*mlp.*proj"]}
FIRST = {"gpt2": "h.0.attn.c_attn", "llama": "layers.0.self_attn.q_proj"}


def config_of(rng, family):
    is_tied, n_layers = rng.random() < 0.5, rng.randint(1, 3)
    if family == "gpt2":
        return hf.GPT2Config(vocab_size=64, n_embd=16, n_head=2, n_layer=n_layers, n_positions=48, resid_pdrop=0, embd_pdrop=0,
                             attn_pdrop=0, bos_token_id=1, eos_token_id=2, tie_word_embeddings=is_tied)
    more = dict(vocab_size=64, hidden_size=24, intermediate_size=40, num_attention_heads=4, num_key_value_heads=2,
                num_hidden_layers=n_layers, max_position_embeddings=48, pad_token_id=rng.choice([None, 3]),
                tie_word_embeddings=is_tied, bos_token_id=1, eos_token_id=2)
    if rng.random() < 0.5:
        return hf.Qwen2Config(**more)
    return hf.LlamaConfig(attention_bias=rng.random() < 0.5, mlp_bias=rng.random() < 0.5, **more)


def lora_of(rng, family, n_layers):
    modules = MODULES[family]
    targets = rng.choice(["all-linear", rng.choice(PATTERNS[family]), [FIRST[family], rng.choice(modules)],
                          rng.sample(modules, rng.randint(1, len(modules))), modules])
    more = {"target_modules": targets, "r": rng.randint(1, 6), "lora_alpha": rng.choice([1, 3, 8, 16]),
            "use_rslora": rng.random() < 0.3, "use_dora": rng.random() < 0.25, "fan_in_fan_out": family == "gpt2",
            "bias": rng.choice(["none", "none", "all", "lora_only"])}
    keys = modules + [FIRST[family], r".*\.0\..*"]
    if rng.random() < 0.3:
        more["rank_pattern"] = {rng.choice(keys): rng.randint(1, 7)}
    if rng.random() < 0.3:
        more["alpha_pattern"] = {rng.choice(keys): rng.choice([2, 5, 32])}
    if rng.random() < 0.2:
        more["exclude_modules"] = rng.choice([[rng.choice(modules)], r".*\.1\..*"])
    if isinstance(targets, list) and rng.random() < 0.3:
        more["layers_to_transform"] = rng.choice([0, [n_layers - 1]])
        more["layers_pattern"] = rng.choice([None, "h" if family == "gpt2" else "layers"])
    if rng.random() < 0.25:
        more["modules_to_save"] = rng.sample(["wte" if family == "gpt2" else "embed_tokens", "lm_head"], rng.randint(1, 2))
    return LoraConfig(task_type="CAUSAL_LM", **more)


def noisy(model, scale):
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * scale)
    return model


def load(path):
    return hf.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")


def make(rng, family, folder):
    """A model and an adapter in folders; None where PEFT finds nothing to adapt."""
    config = config_of(rng, family)
    noisy(hf.AutoModelForCausalLM.from_config(config), 0.15).save_pretrained(folder + "/m")
    try:
        model = get_peft_model(load(folder + "/m"), lora_of(rng, family, config.num_hidden_layers))
    except ValueError:
        return None
    noisy(model, 0.1).save_pretrained(folder + "/a")
    return config


def plain(name):
    """A name as our files have it, of PEFT's in memory."""
    for part in (".default", ".modules_to_save"):
        name = name.replace(part, "")
    return name.replace("lora_magnitude_vector.weight", "lora_magnitude_vector")


def check_gradients(rows, theirs, folder):
    total, n_targets = 0, 0
    for ids in rows:
        logits = theirs(input_ids=torch.tensor([ids])).logits[0, :-1]
        total = total + torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum")
        n_targets += len(ids) - 1
    (total / n_targets).backward()
    subprocess.run([command.TRAIN, "--model", folder + "/m", "--lora", folder + "/a", "--data", folder + "/rows.jsonl", "-o",
                    folder + "/out", "--dump-grads", folder + "/g.safetensors", "--per_device_train_batch_size", str(len(rows)),
                    "--train_sampling_strategy", "sequential", "--max_steps", "1", "--quiet"], check=True)
    gradients = {plain(name): p.grad for name, p in theirs.named_parameters() if p.requires_grad}
    command.same_gradients(folder + "/g.safetensors", gradients)


def check_logits(rows, theirs, folder, more):
    ckpt("logits", folder + "/m", "--adapter", folder + "/a", "-f", folder + "/rows.jsonl", "-o", folder + "/l.safetensors",
         *more)
    ours = load_file(folder + "/l.safetensors")["logits"]
    for i, ids in enumerate(rows):
        with torch.no_grad():
            logits = theirs(input_ids=torch.tensor([ids])).logits[0]
        error = (ours[i, :len(ids)] - logits).abs().max().item()
        assert error <= 2e-5 * logits.abs().max().item(), (i, error)


def check_merged(config, folder, more):
    ckpt("merge", folder + "/m", "--adapter", folder + "/a", "-o", folder + "/merged.safetensors", *more)
    ours = load_file(folder + "/merged.safetensors")
    theirs = PeftModel.from_pretrained(load(folder + "/m"), folder + "/a").merge_and_unload().state_dict()
    missing = theirs.keys() - ours.keys()
    assert missing <= ({"lm_head.weight"} if config.tie_word_embeddings else set()), missing
    assert ours.keys() <= theirs.keys(), ours.keys() - theirs.keys()
    for name, tensor in ours.items():
        error = (tensor.double() - theirs[name]).abs().max().item()
        assert error <= 2e-6 * max(1, theirs[name].abs().max().item()), (name, error)


def test_adapters(folder):
    seeds, n_checked = command.seeds(24), 0
    for seed in seeds:
        rng, here = random.Random(seed), os.path.join(folder, str(seed))
        torch.manual_seed(seed)
        config = make(rng, rng.choice(["gpt2", "llama"]), here)
        if config is None:
            continue
        rows = [[rng.randrange(64) for _ in range(rng.randint(2, 20))] for _ in range(rng.randint(1, 5))]
        with open(here + "/rows.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"input_ids": ids}) + "\n" for ids in rows)
        theirs = PeftModel.from_pretrained(load(here + "/m"), here + "/a", is_trainable=True).double().eval()
        more = ["--tied", "untie"] if config.tie_word_embeddings else []
        try:
            check_gradients(rows, theirs, here)
            check_logits(rows, theirs, here, more)
            check_merged(config, here, more)
        except Exception as error:
            with open(here + "/a/adapter_config.json", encoding="utf-8") as file:
                raise AssertionError(f"seed {seed}: {json.dumps(json.load(file))}") from error
        n_checked += 1
    assert n_checked > len(seeds) // 2, n_checked


command.main(globals())
