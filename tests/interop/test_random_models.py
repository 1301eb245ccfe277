"""Random configs of the families that run, with random rows: gradients of a first step and logits are transformers' own,
from the folder and from GGUF."""
import json
import os
import random
import subprocess

import command
from command import ckpt

command.need("torch", "transformers", "safetensors")
import torch  # noqa: E402
import transformers as hf  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

hf.utils.logging.disable_progress_bar()
N_POSITIONS = 48


def rope(rng):
    made = {"rope_type": rng.choice(["default", "default", "linear", "llama3"]), "rope_theta": rng.choice([1e4, 5e5, 1234.5])}
    if made["rope_type"] != "default":
        made["factor"] = rng.choice([1.5, 2.0, 8.0])
    if made["rope_type"] == "llama3":
        made.update(low_freq_factor=1.0, high_freq_factor=rng.choice([2.0, 4.0]),
                    original_max_position_embeddings=rng.choice([8, 16, 32]))
    return made


def gpt2(rng, common):
    heads = rng.randint(1, 4)
    return hf.GPT2Config(
        n_embd=heads * rng.choice([4, 5, 8, 16]), n_head=heads, n_layer=rng.randint(1, 3), n_positions=N_POSITIONS,
        n_inner=rng.choice([None, 40]), activation_function=rng.choice(["gelu_new", "gelu"]), resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0, scale_attn_weights=rng.random() < 0.7, scale_attn_by_inverse_layer_idx=rng.random() < 0.3, **common)


def config_of(rng):
    common = dict(vocab_size=rng.choice([33, 64, 257]), tie_word_embeddings=rng.random() < 0.5, bos_token_id=1, eos_token_id=2)
    family = rng.choice(["gpt2", "llama", "mistral", "qwen2"])
    if family == "gpt2":
        return gpt2(rng, common)
    kv_heads, width = rng.randint(1, 3), rng.choice([2, 4, 6, 8, 16])
    heads, has_own_width = kv_heads * rng.randint(1, 3), family != "qwen2" and rng.random() < 0.5
    common.update(hidden_size=heads * (rng.choice([4, 8, 12]) if has_own_width else width), num_attention_heads=heads,
                  num_key_value_heads=kv_heads, intermediate_size=rng.choice([16, 24, 40]), num_hidden_layers=rng.randint(1, 3),
                  max_position_embeddings=N_POSITIONS, rms_norm_eps=rng.choice([1e-6, 1e-2]), rope_parameters=rope(rng),
                  pad_token_id=rng.choice([None, 0, 3]), **{"head_dim": width} if has_own_width else {})
    if family == "llama":
        return hf.LlamaConfig(attention_bias=rng.random() < 0.5, mlp_bias=rng.random() < 0.5, **common)
    if family == "mistral":
        return hf.MistralConfig(sliding_window=rng.choice([None, 3, 7, 100]), **common)
    return hf.Qwen2Config(use_sliding_window=rng.random() < 0.5, sliding_window=rng.choice([3, 5]),
                          max_window_layers=rng.randint(0, 2), **common)


def save(rng, config, path):
    """A model far from its initialization, in some dtype, whole or sharded; what transformers loads from it, in float64."""
    model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * rng.choice([0.05, 0.15, 0.3]))
    model.to(rng.choice([torch.float32, torch.bfloat16, torch.float16])).save_pretrained(
        path, max_shard_size=rng.choice(["10KB", "1GB"]))
    return hf.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").double().eval()


def rows_of(rng, n_tokens):
    """(ids, labels, mask); a masked token is no target, and the first one is never masked."""
    for _ in range(rng.randint(1, 12)):
        n = rng.choice([1, 2, rng.randint(1, 20), N_POSITIONS])
        ids, mask = [rng.randrange(n_tokens) for _ in range(n)], [1] * n
        if rng.random() < 0.3:
            mask = [1] + [int(rng.random() < 0.7) for _ in ids[1:]]
        labels = [token if kept and rng.random() < 0.8 else -100 for token, kept in zip(ids, mask)]
        yield ids, labels, mask


def samples_of(rows, packing, length):
    """What each sample is made of: rows, or parts of rows that see themselves alone."""
    if packing == "none":
        return [[[part[:length] for part in row]] for row in rows]
    tokens = [token + (i,) for i, row in enumerate(rows) for token in zip(*row)]
    blocks = [tokens[at:at + length] for at in range(0, len(tokens), length)]
    if packing == "concat":
        return [[list(zip(*block))[:3]] for block in blocks]
    return [[list(zip(*[token for token in block if token[3] == i]))[:3] for i in sorted({token[3] for token in block})]
            for block in blocks]


def loss_of(model, samples, smoothing):
    total, n_targets = 0, 0
    for ids, labels, mask in (part for sample in samples for part in sample):
        logits = model(input_ids=torch.tensor([ids]), attention_mask=torch.tensor([mask])).logits[0, :-1]
        targets = torch.tensor(labels)[1:]
        chosen = torch.log_softmax(logits, -1)[targets != -100]
        if len(chosen) != 0:
            right = chosen.gather(-1, targets[targets != -100][:, None])
            total = total - ((1 - smoothing) * right.sum() + smoothing * chosen.mean(-1).sum())
        n_targets += len(chosen)
    return total, n_targets


def check_gradients(rng, model, rows, folder):
    packing, length, smoothing = rng.choice(["none", "concat", "document"]), rng.choice([4, 7, 16, 48]), rng.choice([0, 0.1])
    n_rows, n_batches, n_ranks = rng.randint(1, 4), rng.randint(1, 2), rng.choice([1, 1, 2, 3])
    samples = samples_of(rows, packing, length)[:n_rows * n_batches * n_ranks]
    if any(mask[0] == 0 for sample in samples for _, _, mask in sample):  # what sees nothing gets any value there
        return 0
    total, n_targets = loss_of(model, samples, smoothing)
    if n_targets == 0 or not total.isfinite():
        return 0
    words = ["--packing", packing, "--max_length", length, "--label_smoothing_factor", smoothing, "--ranks", n_ranks, "--stage",
             rng.randint(0, 3), "--per_device_train_batch_size", n_rows, "--gradient_accumulation_steps", n_batches]
    words += rng.choice([[], [], ["--recompute", "selective"], ["--recompute", "full"]])
    (total / n_targets).backward()
    done = subprocess.run([command.TRAIN, "--model", folder + "/m", "--data", folder + "/rows.jsonl", "-o", folder + "/out", "--dump-grads",
                           folder + "/g.safetensors", "--train_sampling_strategy", "sequential", "--max_steps", "1", "--quiet",
                           *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    gradients = {name: p.grad for name, p in model.named_parameters()}
    if any(gradient is not None and not gradient.isfinite().all() for gradient in gradients.values()):
        return 0
    command.same_gradients(folder + "/g.safetensors", gradients)
    return 1


def check_logits(model, rows, path, folder, bound):
    with open(folder + "/ids.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"input_ids": ids}) + "\n" for ids, _, _ in rows)
    ckpt("logits", path, "-f", folder + "/ids.jsonl", "-o", folder + "/l.safetensors", "--force")
    ours = load_file(folder + "/l.safetensors")["logits"]
    for i, (ids, _, _) in enumerate(rows):
        with torch.no_grad():
            theirs = model(input_ids=torch.tensor([ids])).logits[0]
        error = (ours[i, :len(ids)] - theirs).abs().max().item()
        assert error <= bound * theirs.abs().max().item(), (path, i, error)


def test_gradients_and_logits(folder):
    n_gradients = n_gguf = 0
    seeds = command.seeds(60)
    for seed in seeds:
        rng, here = random.Random(seed), os.path.join(folder, str(seed))
        torch.manual_seed(seed)
        config = config_of(rng)
        model = save(rng, config, here + "/m")
        rows = list(rows_of(rng, config.vocab_size))
        with open(here + "/rows.jsonl", "w", encoding="utf-8") as file:
            for ids, labels, mask in rows:
                file.write(json.dumps({"input_ids": ids, "labels": labels, "attention_mask": mask}) + "\n")
        try:
            n_gradients += check_gradients(rng, model, rows, here)
            check_logits(model, rows, here + "/m", here, 1e-5)
            done = subprocess.run([command.CKPT, "convert", here + "/m", "-o", here + "/m.gguf", "--dtype", "f32", "--quiet"],
                                  capture_output=True, text=True)
            if done.returncode == 0 and "window" not in done.stderr:  # which is said, since GGUF has none of these
                check_logits(model, rows, here + "/m.gguf", here, 2e-5)
                n_gguf += 1
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {json.dumps(config.to_dict())}") from error
    assert n_gradients > len(seeds) // 2 and n_gguf > len(seeds) // 4, (n_gradients, n_gguf)


command.main(globals())
