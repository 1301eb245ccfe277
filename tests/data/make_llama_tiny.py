"""Writes llama-tiny/ (sharded) and gpt2-tiny/ (tied) as transformers writes them: random weights, fixed seed.

Made with torch 2.15.0, transformers 5.23.0, safetensors 0.8.0, tokenizers 0.23.3:  python make_llama_tiny.py
"""
import os
import shutil
import sys

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

here = os.path.dirname(os.path.abspath(__file__))
out = sys.argv[1] if len(sys.argv) > 1 else here


def tokenizer(folder):
    words = {w: i for i, w in enumerate(["<unk>", "<s>", "</s>"] + [chr(c) for c in range(32, 127)])}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    fast = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(folder)


def fresh(name):
    folder = os.path.join(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    return folder


torch.manual_seed(3)
config = LlamaConfig(vocab_size=160, hidden_size=64, intermediate_size=176, num_hidden_layers=4, num_attention_heads=4,
                     num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=False,
                     torch_dtype="bfloat16")
folder = fresh("llama-tiny")
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder, max_shard_size="150KB")
tokenizer(folder)

torch.manual_seed(4)
config = GPT2Config(vocab_size=160, n_positions=64, n_embd=48, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)
folder = fresh("gpt2-tiny")
GPT2LMHeadModel(config).save_pretrained(folder)
tokenizer(folder)
