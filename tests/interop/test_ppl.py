"""Perplexity and divergence as the peers count them, and labels as transformers gives them: llama-perplexity on the same GGUF, transformers on the same folder
with whole windows and with a stride, and torch's divergence between the two models."""
import json
import math
import os
import re
import shutil
import subprocess

import command
from command import TESTS, ckpt

command.need("torch", "transformers")
import torch  # noqa: E402
import safetensors.torch  # noqa: E402
from transformers import (AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification,  # noqa: E402
                          AutoTokenizer, LlamaConfig, LlamaForCausalLM)

TEXT = os.path.join(TESTS, "data", "text", "eval.txt")
TOKENIZER = os.path.join(TESTS, "data", "llama-256")


def make(path, seed, **more):
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=1024, hidden_size=256, intermediate_size=512, num_hidden_layers=2,
                                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
                                         initializer_range=0.1, **more))
    model.save_pretrained(path)
    for name in os.listdir(TOKENIZER):
        if name.startswith("tokenizer"):
            shutil.copy(os.path.join(TOKENIZER, name), path)
    return path


def ppl(*arguments):
    return json.loads(ckpt("ppl", *arguments, "--json"))


def log_probabilities(path, ids):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    with torch.no_grad():
        return torch.log_softmax(model(ids[None]).logits[0].double(), -1)


def scored(path, ids, ctx, stride):
    """Sum of -log p and count, every token once, as transformers' page on perplexity slides its windows."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    total, n, end_before = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + ctx, len(ids))
        with torch.no_grad():
            log_p = torch.log_softmax(model(ids[None, begin:end]).logits[0].double(), -1)
        for at in range(max(end_before, begin + 1), end):
            total -= log_p[at - 1 - begin, ids[at]].item()
            n += 1
        end_before = end
        if end == len(ids):
            break
    return total / n, n


def test_llama_scoring_is_that_of_llama_perplexity(folder):
    tool = command.llama("llama-perplexity")
    if tool is None:
        return
    gguf = os.path.join(folder, "model.gguf")
    ckpt("convert", make(os.path.join(folder, "hf"), 1), "-o", gguf, "--dtype", "f32")
    for ctx, chunks in (128, 4), (100, 7), (512, 2):
        theirs = None
        while theirs is None:  # it may lose its last lines on exit
            done = subprocess.run([tool, "-m", gguf, "-f", TEXT, "-c", str(ctx), "--chunks", str(chunks), "-t", "2", "-ctk",
                                   "f32", "-ctv", "f32"], capture_output=True, text=True, check=True)
            theirs = re.search(r"PPL = ([0-9.]+) \+/- ([0-9.]+)", done.stdout + done.stderr)
        ours = ppl(gguf, "-f", TEXT, "--ctx", ctx, "--chunks", chunks)
        assert abs(ours["ppl"] / float(theirs[1]) - 1) < 1e-3, (ours, theirs[0])
        assert abs(ours["ppl_stderr"] / float(theirs[2]) - 1) < 1e-2, (ours, theirs[0])


def test_hf_scoring_is_that_of_transformers(folder):
    path = make(os.path.join(folder, "hf"), 2)
    with open(TEXT) as file:
        text = file.read()[:6000]
    part = os.path.join(folder, "part.txt")
    with open(part, "w") as file:
        file.write(text)
    ids = torch.tensor(AutoTokenizer.from_pretrained(path)(text)["input_ids"])
    for ctx, stride in (128, 128), (128, 48), (512, 256):
        nll, n = scored(path, ids, ctx, stride)
        ours = ppl(path, "-f", part, "--scoring", "hf", "--ctx", ctx, "--stride", stride)
        assert ours["n_tokens"] == n, (ours, n)
        assert abs(math.exp(ours["nll"] - nll) - 1) < 1e-4, (ours, nll)


def test_divergence_is_that_of_torch(folder):
    a, b = make(os.path.join(folder, "a"), 3), make(os.path.join(folder, "b"), 4)
    with open(TEXT) as file:
        tokenizer = AutoTokenizer.from_pretrained(a)
        ids = torch.tensor(tokenizer(file.read())["input_ids"])
    if ids[0] == tokenizer.bos_token_id:  # then each window begins with it
        ids[64] = tokenizer.bos_token_id
    divergences, n_same = [], 0
    for begin in 0, 64:
        q, p = (log_probabilities(path, ids[begin:begin + 64])[32:63] for path in (a, b))
        divergences += (p.exp() * (p - q)).sum(-1).tolist()
        n_same += (p.argmax(-1) == q.argmax(-1)).sum().item()
    ours = ppl(a, "-f", TEXT, "--ctx", 64, "--chunks", 2, "--against", b)
    mean = sum(divergences) / len(divergences)
    assert abs(ours["kl_mean"] / mean - 1) < 1e-4, (ours, mean)
    assert abs(ours["kl_max"] / max(divergences) - 1) < 1e-4, (ours, max(divergences))
    assert abs(ours["top1"] - n_same / len(divergences)) < 1e-9, (ours, n_same)


def test_labels_are_those_of_transformers(folder):
    wide = {"vocab_size": 100, "max_position_embeddings": 64, "initializer_range": 0.2, "num_hidden_layers": 2,
            "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    sequences = [[1, 2, 3, 4, 5], [7], [9, 8, 7, 3, 3], [3, 3], [3, 5, 3, 6, 6, 6, 6, 3]]
    rows = os.path.join(folder, "ids.jsonl")
    with open(rows, "w") as file:
        file.writelines(json.dumps({"input_ids": ids}) + "\n" for ids in sequences)
    for kind in "llama", "mistral", "qwen2", "gpt2":
        for padding in 3, None:
            torch.manual_seed(5)
            sizes = wide if kind != "gpt2" else {"vocab_size": 100, "n_positions": 64, "initializer_range": 0.2, "n_layer": 2,
                                                 "n_embd": 32, "n_head": 4}
            config = AutoConfig.for_model(kind, num_labels=5, pad_token_id=padding, **sizes)
            model = AutoModelForSequenceClassification.from_config(config).eval()
            path, out = os.path.join(folder, f"{kind}-{padding}"), os.path.join(folder, "out.safetensors")
            model.save_pretrained(path)
            with torch.no_grad():
                expected = torch.cat([model(torch.tensor([ids])).logits for ids in sequences])
            ckpt("logits", path, "-f", rows, "-o", out, "--force")
            ours = safetensors.torch.load_file(out)
            assert list(ours) == ["logits"] and ours["logits"].shape == expected.shape, (kind, ours)
            assert (ours["logits"] - expected).abs().max() <= 1e-5 * expected.abs().max(), (kind, padding)
            ckpt("ppl", path, "-f", TEXT, status=1)  # they are no tokens


command.main(globals())
