"""Adapters as llama.cpp has them: its converter writes our bytes, its tools merge and run our files; and what PEFT makes
of adapters that we wrote.

The tools of llama.cpp are looked for in LLAMA_CPP_BIN, convert_lora_to_gguf.py two folders above it.
"""
import json
import os
import subprocess
import sys
import warnings

warnings.filterwarnings("ignore")

import command  # noqa: E402, before transformers, whose environment it sets

command.need("peft", "transformers", "gguf")
import gguf  # noqa: E402
import numpy as np  # noqa: E402
import peft  # noqa: E402
import torch  # noqa: E402
import transformers as hf  # noqa: E402
from command import TESTS, ckpt  # noqa: E402

hf.logging.set_verbosity_error()
hf.logging.disable_progress_bar()
BASES = os.path.join(TESTS, "data", "dialect")
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FUSED = ["c_attn", "c_proj", "c_fc"]


def adapter(name, folder, **config):
    """An adapter of one of the models in tests/data/dialect, with values in every part of it; and the wrapped model."""
    torch.manual_seed(3)
    model = hf.AutoModelForCausalLM.from_pretrained(os.path.join(BASES, name), dtype=torch.float32)
    wrapped = peft.get_peft_model(model, peft.LoraConfig(**{"r": 4, "lora_alpha": 8, "init_lora_weights": False, **config}))
    wrapped.save_pretrained(folder)
    return wrapped.eval()


def logits(model):
    with torch.no_grad():
        return model(input_ids=torch.arange(24).reshape(2, 12) * 3 % 90).logits.float()


def values(path):
    return {t.name: np.array(t.data, dtype=np.float64) for t in gguf.GGUFReader(path).tensors}


def test_the_bytes_are_those_of_the_converter(folder):
    script = os.path.join(os.environ.get("LLAMA_CPP_BIN", "nowhere"), "../../convert_lora_to_gguf.py")
    if not os.path.exists(script):
        command.skip("no convert_lora_to_gguf.py beside LLAMA_CPP_BIN")
        return
    for name in ("mistral", "llama-scaled", "qwen2", "qwen3", "gemma2"):
        at = os.path.join(folder, name)
        adapter(name, at, target_modules=LINEARS, rank_pattern={"q_proj": 2})
        os.remove(at + "/README.md")  # a card of which the converter makes keys
        done = subprocess.run([sys.executable, script, "--base", os.path.join(BASES, name), "--outfile", at + "-theirs.gguf", at],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        # ranks alone need no other values: llama.cpp divides alpha by each pair's own
        ckpt("convert", at, "--like", os.path.join(BASES, name), "-o", at + ".gguf")
        ours, theirs = (open(path, "rb").read() for path in (at + ".gguf", at + "-theirs.gguf"))
        assert ours == theirs, name


def test_export_lora_gives_the_model_that_merge_gives(folder):
    tool = command.llama("llama-export-lora")
    if tool is None:
        return
    for name, config in (("mistral", dict(target_modules=LINEARS)),
                         ("mistral", dict(target_modules=LINEARS, use_rslora=True)),
                         ("qwen2", dict(target_modules=LINEARS, rank_pattern={"q_proj": 2},
                                        alpha_pattern={"mlp.*": 3, "layers.1.self_attn.v_proj": 5})),
                         ("llama-scaled", dict(target_modules=["embed_tokens", "lm_head", "k_proj"])),
                         ("gpt2", dict(target_modules=FUSED, fan_in_fan_out=True))):
        at = os.path.join(folder, "%s-%d" % (name, len(os.listdir(folder))))
        adapter(name, at, **config)
        ckpt("convert", os.path.join(BASES, name), "--dtype", "f32", "-o", at + "-base.gguf")
        ckpt("convert", at, "--like", at + "-base.gguf", "-o", at + ".gguf")
        ckpt("merge", at + "-base.gguf", "--adapter", at, "-o", at + "-ours.gguf")
        done = subprocess.run([tool, "-m", at + "-base.gguf", "--lora", at + ".gguf", "-o", at + "-theirs.gguf"],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]
        base, ours, theirs = (values(at + end) for end in ("-base.gguf", "-ours.gguf", "-theirs.gguf"))
        changed = 0
        for key, wanted in ours.items():
            most = np.abs(wanted).max()
            assert np.abs(theirs[key] - wanted).max() <= 1e-6 * most, (name, key, np.abs(theirs[key] - wanted).max(), most)
            changed += not np.array_equal(base[key], wanted)
        assert changed >= 4, (name, changed)


def test_llama_cpp_runs_with_it_as_with_the_merged_model(folder):
    text = os.path.join(folder, "text")
    with open(text, "w") as file:
        file.write("the tensors of a checkpoint lie in files, and what is read is read once. rows and columns. " * 40)
    for name, targets in (("mistral", LINEARS), ("gpt2", FUSED), ("qwen2", LINEARS)):
        at = os.path.join(folder, name)
        adapter(name, at, target_modules=targets, fan_in_fan_out=name == "gpt2")
        ckpt("convert", os.path.join(BASES, name), "--dtype", "f32", "-o", at + "-base.gguf")
        ckpt("convert", at, "--like", os.path.join(BASES, name), "-o", at + ".gguf")
        ckpt("merge", at + "-base.gguf", "--adapter", at + ".gguf", "-o", at + "-merged.gguf")
        alone, wrapped, merged = (command.perplexity(at + end, text, "--chunks", "4", *options) for end, options in
                                  (("-base.gguf", ()), ("-base.gguf", ("--lora", at + ".gguf")), ("-merged.gguf", ())))
        if merged is None:
            return
        n = min(map(len, (alone, wrapped, merged)))  # the tool may lose its last lines
        alone, wrapped, merged = (np.array(chunks[:n], dtype=float) for chunks in (alone, wrapped, merged))
        assert (abs(wrapped - merged) < 2e-4 * merged).all(), (name, wrapped, merged)
        assert (abs(alone - merged) > 2e-3 * merged).any(), (name, alone, merged)


def test_peft_loads_what_comes_back(folder):
    for name, config in (("mistral", dict(target_modules=LINEARS, rank_pattern={"q_proj": 2}, use_rslora=True)),
                         ("gpt2", dict(target_modules=FUSED, fan_in_fan_out=True)),
                         ("llama-scaled", dict(target_modules=["embed_tokens", "q_proj"]))):
        at = os.path.join(folder, name)
        wanted = logits(adapter(name, at, **config))
        ckpt("convert", at, "--like", os.path.join(BASES, name), "-o", at + ".gguf")
        ckpt("convert", at + ".gguf", "--like", os.path.join(BASES, name), "-o", at + "-back")
        base = hf.AutoModelForCausalLM.from_pretrained(os.path.join(BASES, name), dtype=torch.float32)
        found = logits(peft.PeftModel.from_pretrained(base, at + "-back").eval())
        assert (found - wanted).abs().max() < 1e-5 * wanted.abs().max(), name


def tuned(name, folder):
    """A model that differs from its base in linear layers by rank 6, and in all else too."""
    torch.manual_seed(5)
    model = hf.AutoModelForCausalLM.from_pretrained(os.path.join(BASES, name), dtype=torch.float32)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.dim() == 2 and "embed" not in key and "wte" not in key and "wpe" not in key and "lm_head" not in key:
                parameter += 0.1 * torch.randn(parameter.shape[0], 6) @ torch.randn(6, parameter.shape[1])
            else:
                parameter += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    return model.eval()


def test_peft_computes_the_tuned_model_with_what_was_extracted(folder):
    for name in ("mistral", "gpt2", "qwen2", "llama-tied"):
        at = os.path.join(folder, name)
        wanted = logits(tuned(name, at))
        told = json.loads(ckpt("extract-lora", "--base", os.path.join(BASES, name), "--tuned", at, "--energy", "0.9999999",
                               "-o", at + "-lora", "--json"))
        assert all(t["rank"] in (0, 6) for t in told["tensors"]), told["tensors"]
        base = hf.AutoModelForCausalLM.from_pretrained(os.path.join(BASES, name), dtype=torch.float32)
        found = logits(peft.PeftModel.from_pretrained(base, at + "-lora").eval())
        assert (found - wanted).abs().max() < 1e-4 * wanted.abs().max(), (name, (found - wanted).abs().max())
        ckpt("merge", os.path.join(BASES, name), "--adapter", at + "-lora", "-o", at + "-merged", "--dtype", "f32")
        merged = logits(hf.AutoModelForCausalLM.from_pretrained(at + "-merged", dtype=torch.float32).eval())
        assert (merged - wanted).abs().max() < 1e-4 * wanted.abs().max(), (name, (merged - wanted).abs().max())


if __name__ == "__main__":
    command.main(globals())
