"""Writes gguf/: files of llama.cpp's converter and of its gguf package.

tiny-llama-f16.gguf  a LlamaForCausalLM of one layer with random weights and a small SentencePiece vocabulary, as
                     convert_hf_to_gguf.py writes it (--outtype f16); rows of 256, so that every block type fits
every-type.gguf      every type of metadata and of tensors that is no block, one of each block type of old, alignment 64
version-2.gguf       a few tensors as version 2, which differs in that number alone
split/               the same as version 3 (whole.gguf), cut by llama-gguf-split

Made with llama.cpp as llama-cpp-python 0.3.36 carries it, transformers 4.57.6, sentencepiece 0.2.3, torch 2.15.0:
    python make_gguf.py LLAMA_CPP      (LLAMA_CPP/convert_hf_to_gguf.py, gguf-py/ and build/bin/ of its tools)
"""
import os
import shutil
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
llama_cpp = sys.argv[1]
out = sys.argv[2] if len(sys.argv) > 2 else os.path.join(here, "gguf")
sys.path.insert(0, os.path.join(llama_cpp, "gguf-py"))

import gguf
import numpy as np


def vocabulary(folder):
    import sentencepiece
    words = ["the model reads a small text again and writes it", "weights are checked and kept", "one two three four"]
    corpus = os.path.join(folder, "corpus.txt")
    with open(corpus, "w") as f:
        f.write("\n".join(words * 20))
    sentencepiece.SentencePieceTrainer.train(
        input=corpus, model_prefix=os.path.join(folder, "tokenizer"), vocab_size=320, model_type="bpe",
        byte_fallback=True, hard_vocab_limit=False, num_threads=1, minloglevel=2)
    os.remove(corpus)
    os.remove(os.path.join(folder, "tokenizer.vocab"))
    return sentencepiece.SentencePieceProcessor(os.path.join(folder, "tokenizer.model")).vocab_size()


def tiny_llama(path):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(6)
        config = LlamaConfig(vocab_size=vocabulary(folder), hidden_size=256, intermediate_size=256,
                             num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=1,
                             max_position_embeddings=256, tie_word_embeddings=False, torch_dtype="float16")
        LlamaForCausalLM(config).half().save_pretrained(folder)
        subprocess.run([sys.executable, os.path.join(llama_cpp, "convert_hf_to_gguf.py"), folder, "--outfile", path,
                        "--outtype", "f16", "--model-name", "tiny-llama"], check=True)


def every_type(path):
    w = gguf.GGUFWriter(path, "llama")
    w.add_custom_alignment(64)
    w.add_uint8("value.u8", 200)
    w.add_int8("value.i8", -3)
    w.add_uint16("value.u16", 60000)
    w.add_int16("value.i16", -300)
    w.add_uint32("value.u32", 4000000000)
    w.add_int32("value.i32", -5)
    w.add_float32("value.f32", 1e-5)
    w.add_bool("value.bool", True)
    w.add_string("value.text", "h\u00e9llo\n\"quoted\"")
    w.add_key_value("value.empty", "", gguf.GGUFValueType.STRING)  # add_string leaves it out
    w.add_string("value.long", "0123456789" * 7000)
    w.add_uint64("value.u64", 2**63)
    w.add_int64("value.i64", -2**62)
    w.add_float64("value.f64", 3.14159)
    for name, kind, values in (("u8", gguf.GGUFValueType.UINT8, [1, 2, 255]),
                               ("i8", gguf.GGUFValueType.INT8, [-1, 2]),
                               ("u16", gguf.GGUFValueType.UINT16, [1, 65535]),
                               ("i16", gguf.GGUFValueType.INT16, [-1, 2]),
                               ("u32", gguf.GGUFValueType.UINT32, [1, 2]),
                               ("i32", gguf.GGUFValueType.INT32, list(range(-50, 50))),
                               ("f32", gguf.GGUFValueType.FLOAT32, [0.1, 1e30, float("inf")]),
                               ("bool", gguf.GGUFValueType.BOOL, [True, False]),
                               ("text", gguf.GGUFValueType.STRING, ["", "a", "\u2581the long text of a token"] * 7),
                               ("u64", gguf.GGUFValueType.UINT64, [2**64 - 1]),
                               ("i64", gguf.GGUFValueType.INT64, [-2**63]),
                               ("f64", gguf.GGUFValueType.FLOAT64, [0.1])):
        w.add_key_value("array." + name, values, gguf.GGUFValueType.ARRAY, kind)
    rng = np.random.default_rng(7)
    for kind in (np.float64, np.float32, np.float16, np.int64, np.int32, np.int16, np.int8):
        w.add_tensor("tensor." + np.dtype(kind).name, (rng.standard_normal((3, 5)) * 50).astype(kind))
    w.add_tensor("tensor.bfloat16", rng.integers(0, 1 << 14, (3, 5)).astype(np.uint16).view(np.uint8),
                 raw_dtype=gguf.GGMLQuantizationType.BF16)
    w.add_tensor("tensor.four_axes", rng.standard_normal((2, 3, 4, 5)).astype(np.float32))
    w.add_tensor("tensor.one", np.ones(1, np.float32))
    for kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"):
        kind = gguf.GGMLQuantizationType[kind]
        w.add_tensor("blk.0.%s.weight" % kind.name.lower(),
                     gguf.quants.quantize(rng.standard_normal((4, 64)).astype(np.float32), kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def small(path):
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(2)
    w.add_array("tokenizer.ggml.tokens", ["token %d" % i for i in range(30)])
    rng = np.random.default_rng(8)
    w.add_tensor("token_embd.weight", rng.standard_normal((3, 7)).astype(np.float16))
    for block in range(2):
        for name in ("attn_q", "attn_norm", "ffn_up"):
            w.add_tensor("blk.%d.%s.weight" % (block, name), rng.standard_normal((3, 7)).astype(np.float16))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


os.makedirs(out, exist_ok=True)
split = os.path.join(out, "split")
shutil.rmtree(split, ignore_errors=True)
os.makedirs(split)
whole = os.path.join(out, "whole.gguf")
small(whole)
with open(whole, "rb") as f, open(os.path.join(out, "version-2.gguf"), "wb") as two:
    content = f.read()
    two.write(content[:4] + b"\2" + content[5:])
subprocess.run([os.path.join(llama_cpp, "build", "bin", "llama-gguf-split"), "--split", "--split-max-tensors", "3",
                whole, os.path.join(split, "model")], check=True)
every_type(os.path.join(out, "every-type.gguf"))
tiny_llama(os.path.join(out, "tiny-llama-f16.gguf"))
