"""Writes dialect/: tiny Llamas with byte-level BPE as transformers writes them, and in dialect.tsv what llama.cpp's
convert_hf_to_gguf makes of them: every key with its value, every tensor with its type, shape and digest.

Made with torch 2.15.0, transformers 5.23.0, tokenizers 0.23.3 and llama.cpp as llama-cpp-python 0.3.36 has it:
    python make_dialect.py LLAMA_CPP_FOLDER
Patched: the converter finds a pre-tokenizer by the hash of a text's ids, which a tokenizer of 300 tokens has not. It is
told the name, llama-bpe or gpt-2, which has the regex that these tokenizers have. And it looks for n_ctx, which
transformers 5 calls n_positions alone.
"""
import hashlib
import os
import shutil
import subprocess
import sys

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, PreTrainedTokenizerFast)

here = os.path.dirname(os.path.abspath(__file__))
llama = sys.argv[1]
TEXT = ["the tensors of a checkpoint lie in files", "a name is a name, and the names of the tensors are names",
        "what is read is read once", "rows and columns of the weights"] * 4
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")


def tokenizer(folder, n):
    inner = Tokenizer(models.BPE(ignore_merges=True))
    inner.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    inner.decoder = decoders.ByteLevel()
    inner.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=n, special_tokens=["<|begin|>", "<|end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<|begin|>",
                            eos_token="<|end|>").save_pretrained(folder)


def gpt2_tokenizer(folder, n):
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=n, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<|endoftext|>",
                            eos_token="<|endoftext|>").save_pretrained(folder)


def fresh(name):
    folder = os.path.join(here, "dialect", name)
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def common(**more):
    return dict(hidden_size=64, num_attention_heads=4, num_hidden_layers=2, max_position_embeddings=128,
                bos_token_id=0, eos_token_id=1, **more)


def make():
    torch.manual_seed(11)
    scaling = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
    config = LlamaConfig(vocab_size=280, intermediate_size=96, num_key_value_heads=2, rope_parameters=scaling,
                         tie_word_embeddings=False, **common())
    folder = fresh("llama-scaled")
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer(folder, 280)

    config = LlamaConfig(vocab_size=288, intermediate_size=64, num_key_value_heads=4, attention_bias=True,
                         mlp_bias=True, tie_word_embeddings=True, **common())
    model = LlamaForCausalLM(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    model.generation_config.temperature, model.generation_config.top_p = 0.75, 0.9
    model.generation_config.do_sample = True
    folder = fresh("llama-tied")
    model.save_pretrained(folder)
    tokenizer(folder, 280)  # eight rows of the embedding have no token

    config = MistralConfig(vocab_size=280, intermediate_size=96, num_key_value_heads=1, sliding_window=64,
                           head_dim=32, **common())
    folder = fresh("mistral")
    MistralForCausalLM(config).to(torch.float16).save_pretrained(folder, max_shard_size="100KB")
    tokenizer(folder, 280)


    config = GPT2Config(vocab_size=280, n_positions=64, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    folder = fresh("gpt2")
    model.save_pretrained(folder)
    gpt2_tokenizer(folder, 280)


PATCHED = """
import runpy, sys
sys.path.insert(0, {folder!r})
sys.path.insert(1, {folder!r} + "/gguf-py")
from conversion import base
base.TextModel.get_vocab_base_pre = lambda self, tokenizer: {pre!r}
load_hparams = base.ModelBase.load_hparams
def with_n_ctx(*arguments, **more):
    found = load_hparams(*arguments, **more)
    return dict(found, n_ctx=found["n_positions"]) if "n_positions" in found else found
base.ModelBase.load_hparams = staticmethod(with_n_ctx)
sys.argv = ["convert_hf_to_gguf.py"] + {arguments!r}
runpy.run_path({folder!r} + "/convert_hf_to_gguf.py", run_name="__main__")
"""


def text_of(field):
    value = field.contents()
    if isinstance(value, list):
        return "%d items, sha256 %s" % (len(value), hashlib.sha256(repr(value).encode()).hexdigest())
    return repr(value)


def golden(out, name, outtype):
    made = os.path.join("/tmp", "%s-%s.gguf" % (name, outtype))
    arguments = [os.path.join(here, "dialect", name), "--outfile", made, "--outtype", outtype]
    subprocess.run([sys.executable, "-c", PATCHED.format(folder=llama, arguments=arguments,
                                                           pre="gpt-2" if name == "gpt2" else "llama-bpe")], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    sys.path.insert(0, os.path.join(llama, "gguf-py"))
    import gguf
    reader = gguf.GGUFReader(made)
    for field in reader.fields.values():
        if not field.name.startswith("GGUF."):
            print(name, outtype, "key", field.name, "/".join(t.name for t in field.types), text_of(field), sep="\t",
                  file=out)
    for tensor in sorted(reader.tensors, key=lambda t: t.name):
        print(name, outtype, "tensor", tensor.name, tensor.tensor_type.name,
              ",".join(str(n) for n in reversed(tensor.shape.tolist())),
              hashlib.sha256(tensor.data.tobytes()).hexdigest(), sep="\t", file=out)
    os.remove(made)


make()
with open(os.path.join(here, "dialect.tsv"), "w") as out:
    for name in ("llama-scaled", "llama-tied", "mistral", "gpt2"):
        for outtype in ("f32", "f16", "bf16", "q8_0", "auto"):
            golden(out, name, outtype)
