#!/usr/bin/env python3
"""What llama.cpp's convert_lora_to_gguf makes of adapters in tests/data/adapters: <kind>/llama.gguf.

Made with torch 2.15.0, transformers 5.23.0, safetensors 0.8.0 and llama.cpp as llama-cpp-python 0.3.36 has it:
    python3 tests/data/make_lora_gguf.py LLAMA_CPP_FOLDER tests/data/adapters
mixtral/ is an adapter as PEFT saved it before transformers 5 fused experts: a pair for each expert's matrix. rotary/ is
for heads that are wide enough to tell rows that are permuted from rows that are put back. Of GPT-2
there is none: the converter transposes its factors, though PEFT's are those of the layer, and llama.cpp refuses them.
"""
import json
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

converter, out = Path(sys.argv[1]) / "convert_lora_to_gguf.py", Path(sys.argv[2])
KINDS = {"linear": "linear/base", "rslora": "rslora/base", "embedding": "embedding/base", "mixtral": "experts/base",
         "rotary": "../dialect/mistral"}


def save(folder, shapes, base, targets):
    torch.manual_seed(7)
    tensors = {}
    for module, (rows, columns) in shapes.items():
        tensors[module + ".lora_A.weight"] = torch.randn(2, columns) * 0.1
        tensors[module + ".lora_B.weight"] = torch.randn(rows, 2) * 0.1
    folder.mkdir(parents=True, exist_ok=True)
    save_file(dict(sorted(tensors.items())), folder / "adapter_model.safetensors", {"format": "pt"})
    config = {"base_model_name_or_path": base, "bias": "none", "lora_alpha": 4, "peft_type": "LORA", "r": 2,
              "target_modules": targets}
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")


def rotary(folder):
    layer = "base_model.model.model.layers.1.self_attn."
    save(folder, {layer + "q_proj": (128, 64), layer + "k_proj": (32, 64), layer + "o_proj": (64, 128)},
         "../../dialect/mistral", [f"layers.1.self_attn.{part}_proj" for part in "qko"])


def mixtral(folder):
    layer, shapes = "base_model.model.model.layers.0.", {"self_attn.k_proj": (8, 16), "block_sparse_moe.gate": (3, 16)}
    for expert in range(3):
        for part, shape in (("w1", (24, 16)), ("w2", (16, 24)), ("w3", (24, 16))):
            shapes[f"block_sparse_moe.experts.{expert}.{part}"] = shape
    save(folder, {layer + module: shape for module, shape in shapes.items()}, "../experts/base",
         ["k_proj", "gate", "w1", "w2", "w3"])


mixtral(out / "mixtral" / "adapter")
rotary(out / "rotary" / "adapter")
for kind, base in KINDS.items():
    subprocess.run([sys.executable, converter, "--base", out / base, "--outfile", out / kind / "llama.gguf",
                    out / kind / "adapter"], check=True)
