"""Writes tokenizer/both/tokenizer.json (what transformers makes of tokenizer/spm/tokenizer.model) and
tokenizer/folders.jsonl: folders of tokenizer files, what llama.cpp's convert_hf_to_gguf.py --vocab-only makes of each,
and the ids that transformers' AutoTokenizer gives. A line is
    {"name", "base", "tokenizer": keys of tokenizer.json that are replaced, "files": {path: text}, "config": config.json,
     "architecture", "pre", "keys": [[key, value]], "ours": {key: value}, "ids": [[text, ids]]}
Values of arrays are the SHA-256 of the bytes that GGUF has of them; texts are hexadecimal. "ours" has keys with another
value than the converter's, or that it leaves out: docs/formats/gguf.md says why.

Made with transformers 5.23.0, tokenizers 0.23.3, sentencepiece 0.2.3 and llama.cpp as llama-cpp-python 0.3.36 has it:
    python make_tokenizer_folders.py LLAMA_CPP_FOLDER
Patched: the converter is told the name of the pre-tokenizer, as in make_tokenizer_files.py.
"""
import hashlib
import json
import os
import shutil
import struct
import sys
import tempfile

import transformers
from transformers import AutoTokenizer, LlamaTokenizer

from converter import convert_vocabulary

here = os.path.dirname(os.path.abspath(__file__))
transformers.logging.set_verbosity_error()
TEXTS = ["the tensors", "a<pad>b <x> <a>, <b> and<c>", "names <|im_start|>user  two <user> hi<s>", "a<tool>b <q><r> it's 12"]
BASES = {"byte": {"tokenizer.json": "dialect/llama-scaled/tokenizer.json"},
         "slow": {"vocab.json": "tokenizer/gpt2-slow/vocab.json", "merges.txt": "tokenizer/gpt2-slow/merges.txt"},
         "spm": {"tokenizer.model": "tokenizer/spm/tokenizer.model"},
         "both": {"tokenizer.model": "tokenizer/spm/tokenizer.model", "tokenizer.json": "tokenizer/both/tokenizer.json"}}
BEGIN, END = "<|begin|>", "<|end|>"
ENDS = {"bos_token": BEGIN, "eos_token": END, "tokenizer_class": "PreTrainedTokenizerFast"}
LLAMA = {"tokenizer_class": "LlamaTokenizer", "legacy": True, "bos_token": "<s>", "eos_token": "</s>",
         "unk_token": "<unk>", "add_bos_token": True, "add_eos_token": False}
NO_BOS = {"tokenizer.ggml.add_bos_token": "false"}
USER_DEFINED = "the type of <tool>"  # this token alone has another type than the converter's


def row(content, **more):
    return dict({"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                 "special": True}, **more)


def added(*rows):
    return [dict(row(content, special=special), id=i) for i, content, special in rows]


def template(single, tokens, pair=None):
    def piece(part, kind):
        name = "Sequence" if part in ("A", "B") else "SpecialToken"
        return {name: {"id": part, "type_id": kind}}
    return {"type": "TemplateProcessing", "single": [piece(part, 0) for part in single],
            "pair": [piece(part, 1 if part == "B" else 0) for part in pair or ["A", "B"]],
            "special_tokens": {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in tokens.items()}}


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
CASES = []


def case(name, base, settings=None, tokenizer=None, files=None, config=None, family="LlamaForCausalLM", pre="llama-bpe",
         ours=None, ids=True):
    files = dict(files or {})
    if settings is not None:
        files["tokenizer_config.json"] = json.dumps(settings)
    CASES.append({"name": name, "base": base, "tokenizer": tokenizer or {}, "files": files, "config": config or {},
                  "family": family, "pre": pre, "ours": ours or {}, "has_ids": ids})


def byte(name, settings=None, size=288, config=None, **more):
    case("byte-" + name, "byte", None if settings is None else dict(ENDS, **settings),
         config=dict(config or {}, vocab_size=size), **more)


# What tokenizer_config.json adds to a tokenizer.json.
byte("plain", {}, ours=NO_BOS)
byte("pad", {"mask_token": "<b>", "pad_token": "<pad>", "extra_special_tokens": ["<x>", row("<a>", __type="AddedToken")]},
     ours=dict(NO_BOS, **{"tokenizer.ggml.padding_token_id": "280", "tokenizer.ggml.mask_token_id": "281"}))
byte("own", {"image_token": "<x>", "extra_special_tokens": {"audio_token": "<a>"}}, ours=NO_BOS)
byte("decoder", {"added_tokens_decoder": {"290": row("<a>"), "285": row("<b>", special=False, lstrip=True),
                                          "284": row("<c>", single_word=True), "0": row(BEGIN)}, "pad_token": "<pad>"},
     ours=dict(NO_BOS, **{"tokenizer.ggml.padding_token_id": "283"}))
byte("flags", {"added_tokens_decoder": {"1": row(END, special=False), "280": row("<|im_start|>", special=False)}},
     ours=NO_BOS)
byte("map", {}, ours=dict(NO_BOS, **{"tokenizer.ggml.padding_token_id": "282"}),
     files={"special_tokens_map.json": json.dumps({"pad_token": "<pad>", "additional_special_tokens": ["<r>", "<x>"]}),
            "added_tokens.json": json.dumps({"<r>": 281, "<q>": 280})})
byte("without-config", ours=NO_BOS, config={"bos_token_id": 0, "eos_token_id": 1})
# Ids of added_tokens that `tokenizers` does not take.
byte("holes", {}, ours=NO_BOS,
     tokenizer={"added_tokens": added((0, BEGIN, True), (1, END, True), (287, "<a>", True), (282, "<b>", False),
                                      (282, "<c>", True), (5, "<x>", True))})
# Post-processors.
byte("level", {"add_bos_token": True, "add_eos_token": True}, tokenizer={"post_processor": BYTE_LEVEL})
byte("level-template", {"add_bos_token": False, "add_eos_token": True},
     tokenizer={"post_processor": {"type": "Sequence", "processors": [
         BYTE_LEVEL, template([BEGIN, "A"], {BEGIN: 0}, [BEGIN, "A", BEGIN, "B"])]}})
byte("template", {"add_eos_token": False}, tokenizer={"post_processor": template([BEGIN, "A"], {BEGIN: 0})})
byte("template-eos", {}, tokenizer={
    "added_tokens": added((0, BEGIN, True), (1, END, True), (280, "<a>", True)),
    "post_processor": template(["A", "<a>"], {"<a>": 280}, ["A", "<a>", "B", "<a>"])}, ours=NO_BOS)
byte("template-dict", {"bos_token": row(BEGIN, __type="AddedToken"), "eos_token": row(END, __type="AddedToken")},
     tokenizer={"post_processor": template([BEGIN, "A", END], {BEGIN: 0, END: 1})})
byte("template-sep", {"sep_token": END, "cls_token": BEGIN, "bos_token": None, "eos_token": None}, tokenizer={
    "post_processor": template([BEGIN, "A", END], {BEGIN: 0, END: 1}, [BEGIN, "A", END, END, "B", END])})
byte("roberta", {}, tokenizer={"post_processor": {"type": "RobertaProcessing", "sep": [END, 1], "cls": [BEGIN, 0],
                                                  "trim_offsets": True, "add_prefix_space": False}})
byte("said", {"add_bos_token": True, "add_eos_token": False})
# Sizes and settings that the converter knows.
byte("prefix", {"add_prefix_space": False}, ours=NO_BOS)
byte("49152", {"add_bos_token": True}, size=49152)
byte("32016", {}, size=32016, ours=NO_BOS)
# Chat templates.
JINJA = {"chat_template.jinja": "{{ a }}\r\nsecond\rthird\n", "additional_chat_templates/tool-use.jinja": "{{ b }}"}
byte("jinja", {}, files={"chat_template.jinja": JINJA["chat_template.jinja"]}, ours=NO_BOS)
byte("jinjas", {}, files=JINJA, ours=NO_BOS)
byte("template-json", {}, files={"chat_template.json": json.dumps({"chat_template": "{{ c }}"})}, ours=NO_BOS)
byte("template-jinja-json", {}, ours=NO_BOS,
     files=dict(JINJA, **{"chat_template.json": json.dumps({"chat_template": "{{ c }}"})}))
byte("template-list", {"chat_template": [{"name": "default", "template": "d"}, {"name": "r\u00e4g", "template": "e"}]},
     files=JINJA, ours=NO_BOS)
# vocab.json and merges.txt.
N_SLOW = len(json.load(open(os.path.join(here, "tokenizer/gpt2-slow/vocab.json"), encoding="utf-8"))) + 8
slow = {"config": {"vocab_size": N_SLOW}, "family": "GPT2LMHeadModel", "pre": "gpt-2"}
NAMED = {"tokenizer.ggml.bos_token_id": str(N_SLOW - 8), "tokenizer.ggml.eos_token_id": str(N_SLOW - 8),
         "tokenizer.ggml.unknown_token_id": str(N_SLOW - 8)}
case("slow-gpt2", "slow", {"tokenizer_class": "GPT2Tokenizer", "pad_token": "<pad>", "bos_token": "<|endoftext|>",
                           "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"},
     ours=dict(NAMED, **{"tokenizer.ggml.padding_token_id": str(N_SLOW - 7)}), **slow)
case("slow-gpt2-bos", "slow", {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "bos_token": "<x>",
                               "eos_token": "<x>", "unk_token": "<x>"},
     files={"added_tokens.json": json.dumps({"<q>": N_SLOW - 1, "<x>": N_SLOW - 2})}, ours=NAMED, **slow)
case("slow-qwen2", "slow", {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<pad>",
                            "unk_token": None, "bos_token": None},
     ours={"tokenizer.ggml.eos_token_id": str(N_SLOW - 8), "tokenizer.ggml.padding_token_id": str(N_SLOW - 7)},
     config={"vocab_size": N_SLOW}, family="Qwen2ForCausalLM", pre="qwen2")
# tokenizer.model alone.
IDS = {"bos_token_id": 1, "eos_token_id": 2}
DECODER = {str(i): row(content) for i, content in enumerate(["<unk>", "<s>", "</s>"])}


def spm(name, settings=None, size=704, base="spm", **more):
    if base == "both" or "<tool>" not in json.dumps(settings or {}):
        more["ours"] = dict(more.get("ours") or {}, **{"tokenizer.ggml.token_type": USER_DEFINED})
    case(base + "-" + name, base, None if settings is None else dict(LLAMA, **settings),
         config=dict(IDS, vocab_size=size), pre="default", **more)


spm("plain", {})
spm("without-config", ids=False)
spm("added", {"pad_token": "<|im_start|>", "legacy": False},
    files={"added_tokens.json": json.dumps({"<|im_start|>": 700, "<user>": 701})})
spm("decoder", {"added_tokens_decoder": dict(DECODER, **{
    "3": row("<tool>", special=False), "700": row("<|im_start|>", special=False), "701": row("<user>", special=False),
    "702": row("\u2581two", special=False), "703": row("<pad>")})}, ids=False)
spm("chat", {"added_tokens_decoder": dict(DECODER, **{"700": row("<|im_start|>"), "701": row("<user>", special=False)}),
             "legacy": False})
spm("holes", {"added_tokens_decoder": {"600": row("<a>"), "702": row("<b>")}}, ids=False)
spm("beyond", {"pad_token": "[PAD]"}, size=700, files={"added_tokens.json": json.dumps({"[PAD]": 700})})
spm("no-prefix", {"add_prefix_space": False})
spm("no-bos", {"add_bos_token": False, "add_eos_token": True})
# tokenizer.model beside tokenizer.json.
spm("plain", {}, base="both")
spm("decoder", {"added_tokens_decoder": dict(DECODER, **{"3": row("<tool>", special=False)})}, base="both")
spm("gemma2", {"tokenizer_class": "PreTrainedTokenizerFast"}, base="both", family="Gemma2ForCausalLM",
    ours={"tokenizer.ggml.add_space_prefix": None})


def fill(folder, one):
    for name, source in BASES[one["base"]].items():
        if name == "tokenizer.json":
            state = json.load(open(os.path.join(here, source), encoding="utf-8"))
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                json.dump(dict(state, **one["tokenizer"]), file)
        else:
            shutil.copy(os.path.join(here, source), folder)
    for name, text in one["files"].items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(text)


def encoded(field):
    kind = field.types[1].value
    values = field.contents()
    out = struct.pack("<IQ", kind, len(values))
    for value in values:
        if isinstance(value, str):
            out += struct.pack("<Q", len(value.encode())) + value.encode()
        else:
            out += struct.pack("<f" if kind == 6 else "<i", value)
    return hashlib.sha256(out).hexdigest()


def value_of(field):
    value = field.contents()
    if isinstance(value, list):
        return encoded(field)
    return str(value).lower() if isinstance(value, bool) else str(value)


def make_both():
    folder = os.path.join(here, "tokenizer", "both")
    with tempfile.TemporaryDirectory() as parent:
        shutil.copy(os.path.join(here, "tokenizer", "spm", "tokenizer.model"), parent)
        LlamaTokenizer.from_pretrained(parent, add_bos_token=True, legacy=True).save_pretrained(parent)
        os.makedirs(folder, exist_ok=True)
        shutil.copy(os.path.join(parent, "tokenizer.json"), folder)


def golden(one):
    with tempfile.TemporaryDirectory() as parent:
        folder = os.path.join(parent, one["name"])
        os.mkdir(folder)
        fill(folder, one)
        output = os.path.join(parent, "x.gguf")
        convert_vocabulary(sys.argv[1], folder, output, one["pre"], one["config"], one["family"])
        import gguf
        reader = gguf.GGUFReader(output)
        keys = [[name, value_of(field)] for name, field in reader.fields.items() if name.startswith("tokenizer.")]
        ids = []
        if one["has_ids"]:
            tokenizer = AutoTokenizer.from_pretrained(folder)
            ids = [[text.encode().hex(), tokenizer(text).input_ids] for text in TEXTS]
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        return {"name": one["name"], "base": one["base"], "tokenizer": one["tokenizer"], "files": one["files"],
                "config": {key: config[key] for key in ("model_type", *one["config"])},
                "architecture": reader.fields["general.architecture"].contents(), "pre": one["pre"], "keys": keys,
                "ours": one["ours"], "ids": ids}


make_both()
with open(os.path.join(here, "tokenizer", "folders.jsonl"), "w", encoding="utf-8") as out:
    for one in CASES:
        out.write(json.dumps(golden(one), separators=(",", ":")) + "\n")
