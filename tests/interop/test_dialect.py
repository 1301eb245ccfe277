"""One model in two dialects: llama.cpp's tools take what is made of a Hugging Face folder of each family, its perplexity
is transformers' one, presets are llama-quantize's of the same model in f32, and transformers gives the same logits from
what comes back."""
import json
import math
import os
import re
import shutil
import subprocess

import command
from command import TESTS, ckpt

command.need("torch", "transformers", "safetensors")
import torch  # noqa: E402
import torch.distributed.checkpoint  # noqa: E402
import transformers as hf  # noqa: E402
from transformers import (AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, LlamaConfig,  # noqa: E402
                          LlamaForCausalLM)
from safetensors.torch import load_file  # noqa: E402

PRESETS = ["Q8_0", "Q4_K_M", "Q3_K_S", "IQ4_XS"]


def models():
    torch.manual_seed(5)
    scaling = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    common = dict(vocab_size=280, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8,
                  num_key_value_heads=2, max_position_embeddings=128, bos_token_id=0, eos_token_id=1)
    yield "tied", LlamaForCausalLM(LlamaConfig(tie_word_embeddings=True, **common)).to(torch.bfloat16)
    yield "scaled", LlamaForCausalLM(LlamaConfig(tie_word_embeddings=False, rope_parameters=scaling, **common))
    scaling = longrope(common["hidden_size"] // common["num_attention_heads"], common["max_position_embeddings"])
    yield "longrope", LlamaForCausalLM(LlamaConfig(tie_word_embeddings=False, rope_parameters=scaling, **common))
    yield "qwen2", noisy(hf.Qwen2ForCausalLM(hf.Qwen2Config(tie_word_embeddings=True, **common))).to(torch.bfloat16)
    yield "qwen3", noisy(hf.Qwen3ForCausalLM(hf.Qwen3Config(head_dim=64, **common)))
    yield "mixtral", hf.MixtralForCausalLM(hf.MixtralConfig(num_local_experts=4, **common)).to(torch.bfloat16)
    yield "gemma2", noisy(hf.Gemma2ForCausalLM(hf.Gemma2Config(head_dim=64, query_pre_attn_scalar=64, pad_token_id=0,
                                                               **common)))
    common.pop("num_key_value_heads")
    yield "gpt-neox", noisy(hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}, **common)))
    yield "gpt2", GPT2LMHeadModel(GPT2Config(vocab_size=280, n_positions=128, n_embd=256, n_layer=2, n_head=4,
                                             bos_token_id=0, eos_token_id=0))


def longrope(head_width, n_positions):
    """One list of factors that Llama 3.1's scaling does not make."""
    factors = [1 + i / 4 for i in range(head_width // 2)]
    return {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 1.0, "attention_factor": 1.0, "short_factor": factors,
            "long_factor": factors, "original_max_position_embeddings": n_positions}


def noisy(model):
    for name, parameter in model.named_parameters():
        if "norm" in name or name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.125)
    return model


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
        ours, theirs = logits(back), logits(path)
        if name == "gemma2":  # whose norms are rounded: GGUF has their sums with 1
            assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5), (name, (ours - theirs).abs().max())
            continue
        assert torch.equal(ours, theirs), name
        digests = {ckpt("hash", x, "--cast", "f32").split()[0] for x in (path, made, back)}
        assert len(digests) == 1, (name, digests)


def test_names_of_state_dicts_become_the_same_model(folder):
    """What a run saves since transformers 5: Mixtral's experts joined, the head of GPT-NeoX called otherwise. Both the
    folder that such a save is, and a DCP save with the config of --like: the same GGUF, and the folder that
    save_pretrained writes."""
    n = 0
    for name, model in models():
        if name not in ("mixtral", "gpt-neox"):
            continue
        path, saved, dcp = (os.path.join(folder, name + ending) for ending in ("", "-state", "-dcp"))
        model.save_pretrained(path)
        state = model.state_dict()
        os.mkdir(saved)
        torch.save(state, os.path.join(saved, "pytorch_model.bin"))
        shutil.copy(os.path.join(path, "config.json"), saved)
        torch.distributed.checkpoint.save({"model": state}, checkpoint_id=dcp, no_dist=True)
        assert set(state) != set(load_file(os.path.join(path, "model.safetensors")))
        digests = set()
        for source, more in ((path, ()), (saved, ()), (dcp, ("--like", path))):
            ckpt("convert", source, "-o", source + ".gguf", *more)
            digests.add(ckpt("hash", source + ".gguf").split()[0])
            ckpt("convert", source, "-o", source + "-files", *more)
            assert ckpt("hash", source + "-files").split()[0] == ckpt("hash", path).split()[0], (name, source)
            theirs = load_file(os.path.join(path, "model.safetensors"))
            ours = load_file(os.path.join(source + "-files", "model.safetensors"))
            assert set(ours) == set(theirs) and all(torch.equal(ours[key], theirs[key]) for key in theirs), (name, source)
            assert torch.equal(logits(source + "-files"), logits(path)), (name, source)
            ckpt("diff", source, *more, path)
        assert len(digests) == 1, (name, digests)
        n += 1
    assert n == 2


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


# As llama-perplexity counts: windows that do not overlap, the second half of each, after a BOS where the model has one.
def perplexity(path, ids, bos, ctx, n_chunks):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    total, n = 0.0, 0
    for i in range(n_chunks):
        window = ids[i * ctx:(i + 1) * ctx].clone()
        if bos is not None:
            window[0] = bos
        with torch.no_grad():
            log_p = torch.log_softmax(model(window[None]).logits[0].double(), -1)
        for at in range(ctx // 2, ctx - 1):
            total -= log_p[at, window[at + 1]].item()
            n += 1
    return math.exp(total / n)


def test_llama_perplexity_runs_every_family(folder):
    tool = command.llama("llama-perplexity")
    if tool is None:
        return
    data, ctx, n_chunks = os.path.join(TESTS, "data"), 32, 4
    text = os.path.join(folder, "text.txt")
    with open(os.path.join(data, "text", "eval.txt")) as whole, open(text, "w") as part:
        part.write(whole.read()[:2000])
    families = [os.path.join(data, "dialect", name) for name in sorted(os.listdir(os.path.join(data, "dialect")))]
    families.append(shutil.copytree(os.path.join(data, "dialect", "llama-scaled"), os.path.join(folder, "llama-longrope")))
    with open(os.path.join(families[-1], "config.json")) as file:
        config = json.load(file)
    config["rope_parameters"] = longrope(config["head_dim"], config["max_position_embeddings"])
    with open(os.path.join(families[-1], "config.json"), "w") as file:
        json.dump(config, file)
    for path in families:
        name = os.path.basename(path)
        made = os.path.join(folder, name + ".gguf")
        ckpt("convert", path, "-o", made, "--dtype", "f32")
        found = None
        for _ in range(20):  # it may lose its last lines on exit
            done = subprocess.run([tool, "-m", made, "-f", text, "-c", str(ctx), "-b", str(ctx), "--chunks",
                                   str(n_chunks), "-t", "1", "-ctk", "f32", "-ctv", "f32"], capture_output=True, text=True,
                                  check=True)
            found = re.search(r"\[%d\]([0-9.]+)," % n_chunks, done.stdout + done.stderr)
            if found is not None:
                break
        tokenizer = AutoTokenizer.from_pretrained(path)
        ids = torch.tensor([int(x) for x in ckpt("tokenize", "--model", made, "-f", text).split()])
        bos = int(ids[0]) if ids[0] == tokenizer.bos_token_id else None  # as the file says
        theirs = perplexity(path, ids, bos, ctx, n_chunks)
        # its GELU of GPT-NeoX is the tanh formula; Mistral's window and Gemma's rounded norms are in reach of neither
        assert abs(float(found[1]) / theirs - 1) < (1e-2 if name == "gpt-neox" else 1e-3), (name, found[1], theirs)


command.main(globals())
