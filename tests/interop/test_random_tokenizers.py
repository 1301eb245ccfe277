"""Random tokenizer.json files, of every step that is read: ids are those of `tokenizers`, and the text that they become."""
import json
import os
import random
import subprocess

import command
from command import ckpt

command.need("tokenizers")
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,  # noqa: E402
                        processors, trainers)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
CORPUS = ["the tensors of a checkpoint lie in files", "a name is a name, and names are names: 1234 + 56",
          "Ünïcödé çà et là, naïve café", "日本語のテキスト と 中文 文本", "hello   world\t\ttabs", "if (x == 3) { return y[4]; }",
          "don't can't we'll I'd", "e\u0301 o\u0308 \ufb01 \u2460", "👍🏽 emoji 🇩🇪 test", "١٢٣ Ⅳ ½"] * 3
PIECES = ["a", "b", " ", "  ", "the", "name", "é", "e\u0301", "1", "23", "4567", ".", "!!", "'s", "'ll", "日本", "文", "👍🏽", "🇩🇪", "▁",
          "\t", "\u00a0", "\u3000", "\u200b", "ﬁ", "Ⅳ", "½", "x", "ABC", "(", "{", "_", "\u0301", "ß", "İ", "ǆ", "\ufeff", "۱",
          "क्ष", "\u1e9b\u0323", "가", "\u1100\u1161"]
ADDED = ["<a>", "name", "[X]", " the", "é", "日本", "  ", "<|im|>", "ab", "1", "İ", "ﬁ", "E"]
BEHAVIORS = ["isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"]


def normalizer(rng):
    kinds = [normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD,
             lambda: normalizers.Prepend(rng.choice(["▁", "x ", "é"])),
             lambda: normalizers.Replace(rng.choice([" ", "a", "é"]), rng.choice(["▁", "", "b"])),
             lambda: normalizers.Replace(Regex(rng.choice([r"\s+", r"\d", "[aeiou]{2,}"])), rng.choice([" ", "#", ""])),
             lambda: normalizers.Strip(rng.random() < 0.5, rng.random() < 0.5)]
    steps = [rng.choice(kinds)() for _ in range(rng.randint(0, 3))]
    return normalizers.Sequence(steps) if steps else None


def split(rng):
    regex = rng.choice([LLAMA3, r"\p{N}{1,3}", r"\s+|\w+", r"[\p{L}]+", r"[^ ]+ ?", r"\s+(?!\S)"])
    return rng.choice([
        lambda: pre_tokenizers.Digits(individual_digits=rng.random() < 0.5), lambda: pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.WhitespaceSplit, pre_tokenizers.Whitespace,
        lambda: pre_tokenizers.Split(rng.choice([" ", "a", "▁", "é"]), rng.choice(BEHAVIORS), rng.random() < 0.3),
        lambda: pre_tokenizers.Split(Regex(regex), rng.choice(BEHAVIORS), rng.random() < 0.3)])()


def pre_tokenizer(rng, is_byte_level):
    """Metaspace's "first" goes with a normalizer that keeps lengths: `tokenizers` looks for it at the offset in the text."""
    if not is_byte_level:
        metaspace = pre_tokenizers.Metaspace("▁", rng.choice(["always", "never"]), rng.random() < 0.6)
        return pre_tokenizers.Sequence([metaspace] + [split(rng) for _ in range(rng.randint(0, 1))])
    steps = [split(rng) for _ in range(rng.randint(0, 2))]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=not steps and rng.random() < 0.4, use_regex=rng.random() < 0.5))
    return pre_tokenizers.Sequence(steps)


def without_bytes(tokenizer):
    """<0x41> is no added token in the files that there are."""
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if not token["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(state))


def made(rng):
    is_byte_level, has_bytes, unknown = rng.random() < 0.5, rng.random() < 0.7, rng.choice([None, "<unk>"])
    tokenizer = Tokenizer(models.BPE(byte_fallback=not is_byte_level, unk_token=unknown, fuse_unk=rng.random() < 0.5,
                                     ignore_merges=rng.random() < 0.3))
    tokenizer.pre_tokenizer = pre_tokenizer(rng, is_byte_level)
    steps = normalizer(rng)
    if steps is not None:
        tokenizer.normalizer = steps
    special = ["<s>", "</s>"] + ([unknown] if unknown else [])
    if not is_byte_level and has_bytes:
        special += ["<0x%02X>" % i for i in range(256)]
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=rng.choice([300, 420, 600]), special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if is_byte_level else []))
    tokenizer = without_bytes(tokenizer)
    for content in rng.sample(ADDED, rng.randint(0, 5)):
        if steps is not None and not steps.normalize_str(content):
            continue  # what normalizes to nothing is found everywhere there
        token = AddedToken(content, single_word=rng.random() < 0.2, lstrip=rng.random() < 0.25, rstrip=rng.random() < 0.25,
                           normalized=rng.random() < 0.5, special=rng.random() < 0.4)
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    if rng.random() < 0.5:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=rng.choice(["<s> $A", "<s> $A </s>", "$A </s>"]), special_tokens=[("<s>", 0), ("</s>", 1)])
    tokenizer.decoder = decoders.ByteLevel() if is_byte_level else decoders.Metaspace("▁", rng.choice(["always", "never"]))
    return tokenizer


def texts_of(rng, tokenizer):
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    for _ in range(40):
        yield "".join(rng.choice(added if rng.random() < 0.12 else PIECES) for _ in range(rng.choice([0, 1, 2, 5, 12, 30])))


def theirs_of(tokenizer, text):
    try:
        return tokenizer.encode(text).ids
    except BaseException as error:  # a panic of its own: tokens that strip from both sides of one space
        assert "bad split" in str(error) or "PanicException" in repr(type(error)), error
        return None


def test_ids(folder):
    seeds, n_compared = command.seeds(150), 0
    for seed in seeds:
        rng, path, lines = random.Random(seed), os.path.join(folder, "tokenizer.json"), os.path.join(folder, "lines.txt")
        tokenizer = made(rng)
        tokenizer.save(path)
        texts = list(texts_of(rng, tokenizer))
        with open(lines, "w", encoding="utf-8", newline="") as file:
            file.writelines(text + "\n" for text in texts)
        found = json.loads(ckpt("tokenize", "--model", path, "-f", lines, "--lines", "--json", "--parse-special"))
        assert len(found) == len(texts), (seed, len(found))
        for text, ours in zip(texts, found):
            theirs = theirs_of(tokenizer, text)
            assert theirs is None or ours == theirs, (seed, text, ours, theirs, tokenizer.to_str()[:3000])
            n_compared += theirs is not None
    assert n_compared > 30 * len(seeds), n_compared


def test_texts(folder):
    """Of ids as they come; what added tokens and bytes decode to has tests of its own."""
    for seed in range(40):
        rng, path = random.Random(seed), os.path.join(folder, "tokenizer.json")
        tokenizer = made(rng)
        tokenizer.save(path)
        n_added = len(tokenizer.get_added_tokens_decoder())
        plain = [i for i in range(300) if i < tokenizer.get_vocab_size() - n_added and i not in
                 tokenizer.get_added_tokens_decoder() and not tokenizer.id_to_token(i).startswith("<0x")]
        ids = [rng.choice(plain) for _ in range(rng.randint(1, 12))]
        done = subprocess.run([command.CKPT, "detokenize", "--model", path, *map(str, ids)], capture_output=True, check=True)
        ours = done.stdout.decode("utf-8", "replace")
        assert ours == tokenizer.decode(ids, skip_special_tokens=False) + "\n", (seed, ids, ours, tokenizer.decode(ids))


command.main(globals())
