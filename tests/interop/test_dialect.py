"""One model in two dialects: llama.cpp's tools take what is made of a Hugging Face folder, presets are llama-quantize's
of the same model in f32, and transformers gives the same logits from what comes back."""
import os
import subprocess

import command
from command import ckpt

command.need("torch", "transformers")
import torch  # noqa: E402
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM  # noqa: E402

PRESETS = ["Q8_0", "Q4_K_M", "Q3_K_S", "IQ4_XS"]


def models():
    torch.manual_seed(5)
    scaling = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    common = dict(vocab_size=280, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8,
                  num_key_value_heads=2, max_position_embeddings=128, bos_token_id=0, eos_token_id=1)
    yield "tied", LlamaForCausalLM(LlamaConfig(tie_word_embeddings=True, **common)).to(torch.bfloat16)
    yield "scaled", LlamaForCausalLM(LlamaConfig(tie_word_embeddings=False, rope_parameters=scaling, **common))
    yield "gpt2", GPT2LMHeadModel(GPT2Config(vocab_size=280, n_positions=128, n_embd=256, n_layer=2, n_head=4,
                                             bos_token_id=0, eos_token_id=0))


def logits(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return model(torch.arange(1, 60)[None]).logits


def test_logits_come_back(folder):
    for name, model in models():
        path, made, back = (os.path.join(folder, name + ending) for ending in ("", ".gguf", "-back"))
        model.save_pretrained(path)
        dtype = "bf16" if next(model.parameters()).dtype == torch.bfloat16 else "f32"
        ckpt("convert", path, "-o", made, "--dtype", dtype)
        ckpt("convert", made, "-o", back)
        assert torch.equal(logits(path), logits(back)), name
        digests = {ckpt("hash", x, "--cast", "f32").split()[0] for x in (path, made, back)}
        assert len(digests) == 1, (name, digests)


def test_presets_are_those_of_llama_quantize(folder):
    quantize = command.llama("llama-quantize")
    if quantize is None:
        return
    for name, model in models():
        path, f32 = os.path.join(folder, name), os.path.join(folder, name + "-f32.gguf")
        model.save_pretrained(path)
        types = [argument for preset in PRESETS for argument in ("--type", preset)]
        ckpt("quantize", path, "-o", os.path.join(folder, name + "-{type}.gguf"), "-o", os.path.join(folder, name + "-hf/"),
             *types)
        ckpt("convert", path, "-o", f32, "--dtype", "f32")
        for preset in PRESETS:
            theirs = os.path.join(folder, "theirs.gguf")
            subprocess.run([quantize, f32, theirs, preset, "1"], check=True, capture_output=True)
            ours = os.path.join(folder, "%s-%s.gguf" % (name, preset))
            with open(theirs, "rb") as a, open(ours, "rb") as b:
                assert a.read() == b.read(), (name, preset)


command.main(globals())
