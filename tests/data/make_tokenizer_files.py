"""Writes tokenizer/spm/tokenizer.model (sentencepiece BPE), tokenizer/llama-256.gguf and tokenizer/llama2.gguf (the
vocabularies of llama-256 and spm as llama.cpp's convert_hf_to_gguf.py --vocab-only writes them), and
tokenizer/files.jsonl: {"tokenizer", "text" (hexadecimal), "ids" without tokens around}.

Made with sentencepiece 0.2, transformers 5.23.0, tokenizers 0.23.3 and llama.cpp as llama-cpp-python 0.3.36 has it:
    python make_tokenizer_files.py LLAMA_CPP_FOLDER [OUTPUT_FOLDER]
Patched: the converter finds a pre-tokenizer by the hash of a text's ids, which a tokenizer of 1,000 tokens has not. It
is told the name.
"""
import json
import os
import shutil
import sys
import tempfile

import sentencepiece
from tokenizers import Tokenizer

from converter import convert_vocabulary

here = os.path.dirname(os.path.abspath(__file__))
out = os.path.join(sys.argv[2] if len(sys.argv) > 2 else here, "tokenizer")
TEXTS = ["", " ", "Hello, world!", "  two  spaces and é ü 你好 🙂", "12345\n\n\tx", "a" * 50, "the carpenter looked",
         " ".join(["David had 12 boxes"] * 5), "\u2581under <s> </s> <tool>", "naïve café e\u0301"]


def sentencepiece_model():
    folder = os.path.join(out, "spm")
    os.makedirs(folder, exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        input=os.path.join(here, "text", "train.txt"), model_prefix=os.path.join(folder, "tokenizer"), vocab_size=700,
        model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        user_defined_symbols=["<tool>"], minloglevel=2)
    os.remove(os.path.join(folder, "tokenizer.vocab"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True}, file)
    return sentencepiece.SentencePieceProcessor(os.path.join(folder, "tokenizer.model"))


def vocabulary(name, folder, **config):
    with tempfile.TemporaryDirectory() as parent:
        copy = os.path.join(parent, name)  # which general.name is made of
        os.mkdir(copy)
        for file in os.listdir(folder):
            if file.startswith("tokenizer"):
                shutil.copy(os.path.join(folder, file), copy)
        convert_vocabulary(sys.argv[1], copy, os.path.join(out, name + ".gguf"), "llama-bpe", config)


spm = sentencepiece_model()
vocabulary("llama-256", os.path.join(here, "llama-256"), vocab_size=1024)
vocabulary("llama2", os.path.join(out, "spm"), vocab_size=700)
inner = Tokenizer.from_file(os.path.join(here, "llama-256", "tokenizer.json"))
inner.encode_special_tokens = True
with open(os.path.join(out, "files.jsonl"), "w", encoding="utf-8") as file:
    for text in TEXTS:
        rows = {"llama-256.gguf": inner.encode(text, add_special_tokens=False).ids}
        if "<tool>" not in text and "\u2581" not in text:  # sentencepiece itself takes no U+2581 as text
            rows["spm"] = rows["llama2.gguf"] = spm.encode(text)
        for name, ids in rows.items():
            file.write(json.dumps({"tokenizer": name, "text": text.encode().hex(), "ids": ids}) + "\n")
