"""Writes tokenizer/: tiny tokenizers of every kind that is read, and the ids that `tokenizers` gives for odd texts.

tokenizer/<name>/tokenizer.json (one with vocab.json and merges.txt instead) and tokenizer/golden.jsonl, a line per
tokenizer and text: {"tokenizer", "text" (hexadecimal UTF-8 or not), "ids", "plain" (without the tokens around it),
"closed" (special tokens in the text are text), "offsets" (bytes of `plain`; null where characters were cut or changed),
"decoded" (hexadecimal, special tokens left in), "skipped"}.
Made with tokenizers 0.23.3:  python make_tokenizers.py
"""
import json
import os
import random
import shutil
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

here = os.path.dirname(os.path.abspath(__file__))
out = os.path.join(sys.argv[1] if len(sys.argv) > 1 else here, "tokenizer")

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<s>", "</s>", "<|im_start|>"]

TEXT = open(os.path.join(here, "text", "train.txt"), encoding="utf-8").read()[:20000].split("\n")
TEXT += ["Größe, naïve café, Ωμέγα, Привет мир, 你好，世界, こんにちは, 안녕하세요, 🙂👩‍👩‍👧 emoji 🏳️‍🌈"] * 12

FIXED = [b"", b" ", b"  ", b"\n", b"\n\n\n", b"\t\t x", b"a", b"Hello, world!", b"Hello,   world !!\r\n\r\nNext",
         b"it's IT'S we'Ll they'RE I'm you'd \xe2\x80\x99s", b"12345 678 9", b"3.14159e-10", b"x=1;\n    return x\n",
         "ſ K 's'ſ 'ſ".encode(), "é e\u0301 \u1e9b\u0323 \u0344 \u212b \uac00 \u1100\u1161\u11a8 \u0e33".encode(),
         "a\u0300\u0316\u0315b\u0316\u0300".encode(), "\u00a0nbsp\u2003em\u3000ideo\u180emvs\u200bzw\u0085nel".encode(),
         "你好，世界。 こんにちは 안녕".encode(), "👩‍👩‍👧‍👦🏳️‍🌈 🇩🇪".encode(), "²³¹ ½ Ⅷ ٣٤٥ 一二三".encode(),
         b"<s>text</s> <|im_start|>user", b"<s><s> </s>  <|im_start|> ", b"a<s", b"word<mask>word <mask> x  <mask>  y",
         b"helper <tool> <tool>s s<tool>", "<tool>é é<tool>".encode(), b"\x00nul\x00", b"\x7f\x1b[0m", b"a" * 200, b" " * 100,
         b"ab" * 300, b"\xff\xfe", b"caf\xc3", b"\xe2\x82x\xf0\x9f\x98 \xed\xa0\x80 \xc0\xaf", b"\xf4\x90\x80\x80\x80",
         "\u2581under \u2581\u2581 score".encode(), b"<0x41> <0x0A>", "Ġ Ċ ÄĢ".encode(), b"  leading and trailing  ",
         "\ufeffbom".encode(), "\u0130stanbul \u0131 ß ẞ".encode(), b"CamelCaseWord HTTPServer aB Ab AB", b"!!!???...\n\n/\n/"]

SPACES = [b"     ", b"a      b", b"<mask>  tool", b"<mask> tool tool", b"x <mask>    <mask>", b"thoe tohe tooohe"]


def texts():
    rng = random.Random(7)
    pools = ["abc deEF'sS", " \n\t\r  \u00a0", "éàüñÅ\u0301\u0300\u0327", "你好世界。、", "0123 ٣½²", "🙂👩\u200d❤️", "<s></s>", "\u1100\u1161\u11a8가"]
    for _ in range(60):
        yield "".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(1, 40))).encode()


def trained(model, size, pre, normalizer=None, special=SPECIAL, alphabet=True):
    inner = Tokenizer(model)
    inner.pre_tokenizer = pre
    if normalizer is not None:
        inner.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=special,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [])
    inner.train_from_iterator(TEXT, trainer)
    return inner


def byte_level(pre, **more):
    inner = trained(models.BPE(**more), 420, pre)
    inner.decoder = decoders.ByteLevel()
    inner.post_processor = processors.ByteLevel(trim_offsets=False)
    return inner


def split(regex):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))


def gpt2_prefix():
    inner = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))
    inner.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=False)
    inner.add_tokens([AddedToken("<mask>", lstrip=True), AddedToken("<tool>", single_word=True)])
    return inner


def llama3():
    inner = byte_level(split(LLAMA3))
    state = json.loads(inner.to_str())
    state["model"]["ignore_merges"] = True
    state["model"]["vocab"]["qzqz"] = len(state["model"]["vocab"])  # no merges make it
    inner = Tokenizer.from_str(json.dumps(state))
    inner.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 0)])])
    return inner


def qwen2():
    inner = byte_level(split(QWEN2))
    inner.normalizer = normalizers.NFC()
    inner.add_tokens([AddedToken("<tool>", normalized=True, rstrip=True), AddedToken("e\u0301x", normalized=True),
                      AddedToken("<mask>", normalized=False, lstrip=True, rstrip=True)])
    return inner


def gpt4o():
    return byte_level(split(GPT4O))


def smollm():
    return byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False)]))


def partial():
    """Bytes without a letter in the vocabulary, and no unk_token: they are left out."""
    state = json.loads(gpt2().to_str())
    gone = [chr(256 + i) for i in range(33, 60)]
    state["model"]["vocab"] = {t: i for i, t in enumerate(t for t in state["model"]["vocab"] if not set(t) & set(gone))}
    state["model"]["merges"] = [m for m in state["model"]["merges"] if not set("".join(m)) & set(gone)]
    return Tokenizer.from_str(json.dumps(state))


def llama2(byte_fallback=True, metaspace=False):
    bytes_ = [f"<0x{i:02X}>" for i in range(256)] if byte_fallback else []
    inner = trained(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=byte_fallback), 620,
                    pre_tokenizers.Metaspace(), special=["<unk>", "<s>", "</s>"] + bytes_, alphabet=False)
    state = json.loads(inner.to_str())
    state["added_tokens"] = [t for t in state["added_tokens"] if not t["content"].startswith("<0x")]
    state["pre_tokenizer"] = None
    inner = Tokenizer.from_str(json.dumps(state))
    if metaspace:
        inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        inner.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    else:
        inner.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        inner.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1",
                                                         special_tokens=[("<s>", 1)])
    inner.add_tokens([AddedToken("<tool>", normalized=False)])
    return inner


def llama2_first():
    return llama2(metaspace=True)


def llama2_unknown():
    inner = llama2(byte_fallback=False)
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    inner.normalizer = normalizers.NFKC()
    inner.decoder = decoders.Metaspace(prepend_scheme="always", split=True)
    return inner


def behaviors():
    """Every behavior of Split, inverted too, by text and by regex."""
    return byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\s"), "merged_with_previous"), pre_tokenizers.Split("-", "merged_with_next"),
        pre_tokenizers.Split("#", "removed"),
        pre_tokenizers.Split(Regex(r"[aeiou]"), "contiguous"), pre_tokenizers.Split(Regex(r"[\p{L}\p{N}]+"), "isolated", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


def gaps():
    """No unk_token and no bytes: what has no token is left out, and what lies around it merges. Added tokens take spaces
    that others have begun with."""
    state = json.loads(llama2(byte_fallback=False).to_str())
    state["model"]["unk_token"] = None
    state["model"]["vocab"] = {t: i for i, t in enumerate(t for t in state["model"]["vocab"] if t != "o")}
    state["added_tokens"] = state["added_tokens"][:3]
    state["model"]["merges"] = [pair for pair in state["model"]["merges"] if "o" not in pair]
    state["normalizer"] = None
    inner = Tokenizer.from_str(json.dumps(state))
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    inner.decoder = decoders.Metaspace(prepend_scheme="always", split=False)
    inner.add_tokens([AddedToken("  ", normalized=False, lstrip=True, rstrip=True), AddedToken(" tool", normalized=False),
                      AddedToken("<mask>", normalized=False, rstrip=True)])
    return inner


def decoded(inner, ids, skip):
    return inner.decode(ids, skip_special_tokens=skip).encode().hex()


def row(name, inner, data):
    text = data.decode("utf-8", "replace")
    inner.encode_special_tokens = False
    ids, plain = inner.encode(text).ids, inner.encode(text, add_special_tokens=False)
    inner.encode_special_tokens = True
    closed = inner.encode(text, add_special_tokens=False).ids
    inner.encode_special_tokens = False
    width = [0]
    for char in text:
        width.append(width[-1] + len(char.encode()))
    offsets = [[width[a], width[b]] for a, b in plain.offsets]
    whole = all(a[1] <= b[0] for a, b in zip(offsets, offsets[1:])) and text.encode() == data and inner.normalizer is None
    whole = whole and name not in ("partial", "gaps")  # its offsets forget the bytes that were left out
    return {"tokenizer": name, "text": data.hex(), "ids": ids, "plain": plain.ids, "closed": closed,
            "offsets": offsets if whole else None, "decoded": decoded(inner, ids, False),
            "skipped": decoded(inner, ids, True)}


kinds = [gpt2, gpt2_prefix, llama3, qwen2, gpt4o, smollm, partial, llama2, llama2_first, llama2_unknown, behaviors, gaps]
shutil.rmtree(out, ignore_errors=True)
os.makedirs(out)
with open(os.path.join(out, "golden.jsonl"), "w", encoding="utf-8") as golden:
    for kind in kinds:
        inner, name = kind(), kind.__name__.replace("_", "-")
        os.makedirs(os.path.join(out, name))
        state = json.loads(inner.to_str())
        with open(os.path.join(out, name, "tokenizer.json"), "w", encoding="utf-8") as file:
            if name == "smollm":  # the older form of merges
                state["model"]["merges"] = [" ".join(pair) for pair in state["model"]["merges"]]
            json.dump(state, file, ensure_ascii=name == "qwen2", separators=(",", ":"))
        inner = Tokenizer.from_file(os.path.join(out, name, "tokenizer.json"))
        for data in [*FIXED, *texts(), *(SPACES if name == "gaps" else [])]:
            golden.write(json.dumps(row(name, inner, data), separators=(",", ":")) + "\n")
        if name == "gpt2":
            os.makedirs(os.path.join(out, "gpt2-slow"))
            inner.model.save(os.path.join(out, "gpt2-slow"))
            with open(os.path.join(out, "gpt2-slow", "tokenizer_config.json"), "w", encoding="utf-8") as file:
                json.dump({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": "<|im_start|>"}, file)
            for data in FIXED:
                golden.write(json.dumps(row("gpt2-slow", inner, data), separators=(",", ":")) + "\n")
