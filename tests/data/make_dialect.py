"""Writes dialect/: a tiny model of each family as transformers writes it, and in dialect.tsv what llama.cpp's
convert_hf_to_gguf makes of them: every key with its value, every tensor with its type, shape and digest.

Made with torch 2.15.0, transformers 5.23.0, tokenizers 0.23.3 and llama.cpp as llama-cpp-python 0.3.36 has it:
    python make_dialect.py LLAMA_CPP_FOLDER
    python make_dialect.py LLAMA_CPP_FOLDER NAME...     only these, the others' lines stay
Patched: the converter finds a pre-tokenizer by the hash of a text's ids, which a tokenizer of 300 tokens has not. It is
told the name, which has the regex that these tokenizers have. It looks for n_ctx and rotary_pct, which transformers 5
calls n_positions alone and puts into rope_parameters. And of Gemma 2, whose file here is the one that it also finds, it
takes the tokenizer for byte-level BPE.
"""
import hashlib
import os
import shutil
import subprocess
import sys

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (Gemma2Config, Gemma2ForCausalLM, GPT2Config, GPT2LMHeadModel, GPTNeoXConfig,
                          GPTNeoXForCausalLM, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
                          MixtralConfig, MixtralForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM)

here = os.path.dirname(os.path.abspath(__file__))
llama = sys.argv[1]
TEXT = ["the tensors of a checkpoint lie in files", "a name is a name, and the names of the tensors are names",
        "what is read is read once", "rows and columns of the weights"] * 4
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")


QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def tokenizer(folder, n, regex=LLAMA3, normalizer=None, special=("<|begin|>", "<|end|>")):
    inner = Tokenizer(models.BPE(ignore_merges=regex == LLAMA3))
    if normalizer is not None:
        inner.normalizer = normalizer
    inner.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(regex), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    inner.decoder = decoders.ByteLevel()
    inner.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=n, special_tokens=list(special), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    PreTrainedTokenizerFast(tokenizer_object=inner, bos_token=special[0],
                            eos_token=special[1]).save_pretrained(folder)


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


def biases(model):
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    return model


def norms(model):
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


def llama_scaled(folder):
    scaling = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
    config = LlamaConfig(vocab_size=280, intermediate_size=96, num_key_value_heads=2, rope_parameters=scaling,
                         tie_word_embeddings=False, **common())
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer(folder, 280)


def llama_tied(folder):
    config = LlamaConfig(vocab_size=288, intermediate_size=64, num_key_value_heads=4, attention_bias=True,
                         mlp_bias=True, tie_word_embeddings=True, **common())
    model = biases(LlamaForCausalLM(config))
    model.generation_config.temperature, model.generation_config.top_p = 0.75, 0.9
    model.generation_config.do_sample = True
    model.save_pretrained(folder)
    tokenizer(folder, 280)  # eight rows of the embedding have no token


def mistral(folder):
    config = MistralConfig(vocab_size=280, intermediate_size=96, num_key_value_heads=1, sliding_window=64,
                           head_dim=32, **common())
    MistralForCausalLM(config).to(torch.float16).save_pretrained(folder, max_shard_size="100KB")
    tokenizer(folder, 280)


def gpt2(folder):
    config = GPT2Config(vocab_size=280, n_positions=64, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
    biases(GPT2LMHeadModel(config)).save_pretrained(folder)
    gpt2_tokenizer(folder, 280)


def qwen2(folder):
    config = Qwen2Config(vocab_size=280, intermediate_size=96, num_key_value_heads=2, tie_word_embeddings=True,
                         use_sliding_window=False, rope_parameters={"rope_type": "default", "rope_theta": 1e6},
                         **common())
    biases(Qwen2ForCausalLM(config)).to(torch.bfloat16).save_pretrained(folder)
    tokenizer(folder, 280, QWEN2, normalizers.NFC(), ("<|endoftext|>", "<|im_end|>"))


def qwen3(folder):
    config = Qwen3Config(vocab_size=280, intermediate_size=96, num_key_value_heads=2, head_dim=32,
                         rope_parameters={"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "beta_fast": 24.0,
                                          "original_max_position_embeddings": 32}, **common())
    norms(Qwen3ForCausalLM(config)).to(torch.bfloat16).save_pretrained(folder)
    tokenizer(folder, 280, QWEN2, normalizers.NFC(), ("<|endoftext|>", "<|im_end|>"))


def mixtral(folder):
    config = MixtralConfig(vocab_size=280, intermediate_size=32, num_key_value_heads=2, num_local_experts=4,
                           num_experts_per_tok=2, **common())
    MixtralForCausalLM(config).to(torch.bfloat16).save_pretrained(folder, max_shard_size="100KB")
    tokenizer(folder, 280)


def gemma2(folder):
    config = Gemma2Config(vocab_size=280, intermediate_size=96, num_key_value_heads=2, head_dim=32, sliding_window=32,
                          query_pre_attn_scalar=32, pad_token_id=0, **common())
    norms(Gemma2ForCausalLM(config)).to(torch.float16).save_pretrained(folder)
    gpt2_tokenizer(folder, 280)


def gpt_neox(folder):
    config = GPTNeoXConfig(vocab_size=280, intermediate_size=96, use_parallel_residual=False,
                           rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                                            "partial_rotary_factor": 0.5}, **common())
    biases(GPTNeoXForCausalLM(config)).to(torch.float16).save_pretrained(folder)
    gpt2_tokenizer(folder, 280)


# Each by itself, so that one more changes no other; the first four as they once were, one after the other.
MODELS = [("llama-scaled", llama_scaled, "llama-bpe"), ("llama-tied", llama_tied, "llama-bpe"),
          ("mistral", mistral, "llama-bpe"), ("gpt2", gpt2, "gpt-2"), ("qwen2", qwen2, "qwen2"),
          ("qwen3", qwen3, "qwen2"), ("mixtral", mixtral, "llama-bpe"), ("gemma2", gemma2, "gpt-2"),
          ("gpt-neox", gpt_neox, "gpt-2")]


def make(wanted):
    torch.manual_seed(11)
    for number, (name, write, _) in enumerate(MODELS):
        if number >= 4:
            torch.manual_seed(number)
        if name in wanted or (number < 4 and not wanted.isdisjoint(row[0] for row in MODELS[:4])):
            write(fresh(name))


PATCHED = """
import runpy, sys
sys.path.insert(0, {folder!r})
sys.path.insert(1, {folder!r} + "/gguf-py")
from conversion import base
base.TextModel.get_vocab_base_pre = lambda self, tokenizer: {pre!r}
load_hparams = base.ModelBase.load_hparams
def with_n_ctx(*arguments, **more):
    found = load_hparams(*arguments, **more)
    if "n_positions" in found:
        found = dict(found, n_ctx=found["n_positions"])
    if "partial_rotary_factor" in (found.get("rope_parameters") or dict()):
        found = dict(found, rotary_pct=found["rope_parameters"]["partial_rotary_factor"])
    return found
base.ModelBase.load_hparams = staticmethod(with_n_ctx)
base.TextModel._set_vocab_sentencepiece = lambda self, add_to_gguf=True: self._set_vocab_gpt2()
for arguments in {all_arguments!r}:
    sys.argv = ["convert_hf_to_gguf.py"] + arguments
    runpy.run_path({folder!r} + "/convert_hf_to_gguf.py", run_name="__main__")
"""


def text_of(field):
    value = field.contents()
    if isinstance(value, list):
        return "%d items, sha256 %s" % (len(value), hashlib.sha256(repr(value).encode()).hexdigest())
    return repr(value)


OUTTYPES = ("f32", "f16", "bf16", "q8_0", "auto")


def made(name, outtype):
    return os.path.join("/tmp", "%s-%s.gguf" % (name, outtype))


def convert(name, pre):
    all_arguments = [[os.path.join(here, "dialect", name), "--outfile", made(name, outtype), "--outtype", outtype]
                     for outtype in OUTTYPES]
    done = subprocess.run([sys.executable, "-c", PATCHED.format(folder=llama, all_arguments=all_arguments, pre=pre)],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)


def golden(out, name, outtype):
    sys.path.insert(0, os.path.join(llama, "gguf-py"))
    import gguf
    reader = gguf.GGUFReader(made(name, outtype))
    for field in reader.fields.values():
        if not field.name.startswith("GGUF."):
            print(name, outtype, "key", field.name, "/".join(t.name for t in field.types), text_of(field), sep="\t",
                  file=out)
    for tensor in sorted(reader.tensors, key=lambda t: t.name):
        print(name, outtype, "tensor", tensor.name, tensor.tensor_type.name,
              ",".join(str(n) for n in reversed(tensor.shape.tolist())),
              hashlib.sha256(tensor.data.tobytes()).hexdigest(), sep="\t", file=out)
    os.remove(made(name, outtype))


wanted = set(sys.argv[2:] or [row[0] for row in MODELS])
make(wanted)
path = os.path.join(here, "dialect.tsv")
kept = [line for line in open(path) if line.split("\t")[0] not in wanted]
with open(path, "w") as out:
    out.writelines(kept)
    for name, _, pre in MODELS:
        if name not in wanted:
            continue
        convert(name, pre)
        for outtype in OUTTYPES:
            golden(out, name, outtype)
