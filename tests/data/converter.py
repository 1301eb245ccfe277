"""Runs llama.cpp's convert_hf_to_gguf.py --vocab-only on a folder, in this process, so that many runs load it once."""
import json
import logging
import os
import runpy
import sys

SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4,
         "num_key_value_heads": 4, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "n_ctx": 128, "n_embd": 64, "n_layer": 1, "n_head": 4, "layer_norm_epsilon": 1e-5, "head_dim": 16,
         "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "sliding_window": 64}
FAMILIES = {"LlamaForCausalLM": "llama", "GPT2LMHeadModel": "gpt2", "Qwen2ForCausalLM": "qwen2",
            "Gemma2ForCausalLM": "gemma2"}


def convert_vocabulary(llama, folder, output, pre, config, family="LlamaForCausalLM"):
    """Writes config.json into the folder, of the family and with these keys, and the vocabulary to output. pre: what
    the converter is told that the pre-tokenizer is called."""
    for path in (os.path.join(llama, "gguf-py"), llama):
        if path not in sys.path:
            sys.path.insert(0, path)
    from conversion import base
    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(dict(SIZES, architectures=[family], model_type=FAMILIES[family], **config), file)
    arguments = sys.argv
    sys.argv = ["convert_hf_to_gguf.py", folder, "--outfile", output, "--vocab-only"]
    logging.disable(logging.CRITICAL)
    try:
        runpy.run_path(os.path.join(llama, "convert_hf_to_gguf.py"), run_name="__main__")
    finally:
        sys.argv = arguments
