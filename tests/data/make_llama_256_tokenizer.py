"""Writes the tokenizer of llama-256/: byte-level BPE of 1,024 tokens, trained on text/train.txt.

Llama 3's way of cutting text (so that `llama-bpe` is its name in GGUF); <|begin_of_text|> is put before each text,
<|endoftext|> ends one, <|pad|> fills rows.
Made with tokenizers 0.23.3, transformers 5.23.0:  python make_llama_256_tokenizer.py
"""
import os
import sys

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

here = os.path.dirname(os.path.abspath(__file__))
out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "llama-256")

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
SPECIAL = ["<|begin_of_text|>", "<|endoftext|>", "<|pad|>"]

inner = Tokenizer(models.BPE())
inner.pre_tokenizer = pre_tokenizers.Sequence([
    pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
    pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False)])
inner.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(vocab_size=1024 - len(SPECIAL), show_progress=False,
                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
inner.train([os.path.join(here, "text", "train.txt")], trainer)
inner.add_special_tokens(SPECIAL)
inner.post_processor = processors.Sequence([
    processors.ByteLevel(trim_offsets=False),
    processors.TemplateProcessing(single=f"{SPECIAL[0]} $A", pair=f"{SPECIAL[0]} $A {SPECIAL[0]}:1 $B:1",
                                  special_tokens=[(SPECIAL[0], inner.token_to_id(SPECIAL[0]))])])
assert inner.get_vocab_size() == 1024
fast = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token=SPECIAL[0], eos_token=SPECIAL[1],
                               pad_token=SPECIAL[2], model_max_length=256, clean_up_tokenization_spaces=False)
fast.save_pretrained(out)
