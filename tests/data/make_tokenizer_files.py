"""Writes tokenizer/spm/tokenizer.model (sentencepiece BPE), tokenizer/llama-256.gguf and tokenizer/llama2.gguf (vocabularies
as the gguf library writes them: the keys of SpecialVocab, the tokens as llama.cpp's converter makes them), and
tokenizer/files.jsonl: {"tokenizer", "text" (hexadecimal), "ids" without tokens around}.

Made with sentencepiece 0.2, gguf 0.19.0, tokenizers 0.23.3:  python make_tokenizer_files.py
"""
import json
import os
import sys

import gguf
import sentencepiece
from tokenizers import Tokenizer

here = os.path.dirname(os.path.abspath(__file__))
out = os.path.join(sys.argv[1] if len(sys.argv) > 1 else here, "tokenizer")
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


def vocabulary(name, folder):
    """As TextModel._set_vocab_gpt2 of llama.cpp's converter, by its own rules of token types."""
    state = json.load(open(os.path.join(folder, "tokenizer.json"), encoding="utf-8"))
    added = {t["id"]: t for t in state["added_tokens"]}
    tokens = {i: t for t, i in state["model"]["vocab"].items()} | {i: t["content"] for i, t in added.items()}
    writer = gguf.GGUFWriter(os.path.join(out, name + ".gguf"), "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list([tokens[i] for i in range(len(tokens))])
    writer.add_token_types([(gguf.TokenType.CONTROL if added[i]["special"] else gguf.TokenType.USER_DEFINED)
                            if i in added else gguf.TokenType.NORMAL for i in range(len(tokens))])
    gguf.SpecialVocab(folder, load_merges=True).add_to_gguf(writer, quiet=True)
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def spm_vocabulary(spm):
    """As LlamaModel's _set_vocab_sentencepiece."""
    writer = gguf.GGUFWriter(os.path.join(out, "llama2.gguf"), "llama")
    kinds = []
    for i in range(spm.vocab_size()):
        kinds.append(gguf.TokenType.UNKNOWN if spm.is_unknown(i) else gguf.TokenType.CONTROL if spm.is_control(i) else
                     gguf.TokenType.BYTE if spm.is_byte(i) else gguf.TokenType.USER_DEFINED
                     if spm.id_to_piece(i) == "<tool>" else gguf.TokenType.NORMAL)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([spm.id_to_piece(i).encode() for i in range(spm.vocab_size())])
    writer.add_token_scores([spm.get_score(i) for i in range(spm.vocab_size())])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    finish(writer)


spm = sentencepiece_model()
vocabulary("llama-256", os.path.join(here, "llama-256"))
spm_vocabulary(spm)
inner = Tokenizer.from_file(os.path.join(here, "llama-256", "tokenizer.json"))
inner.encode_special_tokens = True
with open(os.path.join(out, "files.jsonl"), "w", encoding="utf-8") as file:
    for text in TEXTS:
        rows = {"llama-256.gguf": inner.encode(text, add_special_tokens=False).ids}
        if "<tool>" not in text and "\u2581" not in text:  # sentencepiece itself takes no U+2581 as text
            rows["spm"] = rows["llama2.gguf"] = spm.encode(text)
        for name, ids in rows.items():
            file.write(json.dumps({"tokenizer": name, "text": text.encode().hex(), "ids": ids}) + "\n")
