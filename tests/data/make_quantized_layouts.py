"""Writes quantized/<peer>.safetensors: one quantized layer and a norm, as each library stores them.

Each peer runs where it can be imported; the others' files stay.  python make_quantized_layouts.py [FOLDER]
Made with mlx 0.32.4, and torchao 0.18.0 with torch 2.15.
"""
import importlib.util
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
out = os.path.join(sys.argv[1] if len(sys.argv) > 1 else here, "quantized")
os.makedirs(out, exist_ok=True)


def path(name):
    return os.path.join(out, name + ".safetensors")


def mlx():
    """As mlx_lm.convert -q stores a model: u32 weights of 4 bits, scales and biases; its config says `quantization`."""
    import mlx.core as mx
    import mlx.nn as nn
    from mlx.utils import tree_flatten
    mx.random.seed(0)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(64, 4)
            self.norm = nn.RMSNorm(4)
    model = Model()
    model.set_dtype(mx.float16)
    nn.quantize(model, group_size=32, bits=4)
    mx.save_safetensors(path("mlx"), dict(tree_flatten(model.parameters())), metadata={"format": "mlx"})


def torchao():
    """As transformers saves a model that torchao quantized: the parts of a weight, and what they are in the metadata."""
    import torch
    from safetensors.torch import save_file
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, quantize_
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"l": torch.nn.Linear(8, 4), "m": torch.nn.Linear(32, 2), "norm": torch.nn.RMSNorm(4)})
    model = model.to(torch.bfloat16)
    quantize_(model["l"], Int8WeightOnlyConfig())
    quantize_(model["m"], IntxWeightOnlyConfig(weight_dtype=torch.int4))
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    tensors, metadata = flatten_tensor_state_dict(state)
    save_file(tensors, path("torchao"), metadata=metadata)


for peer in (mlx, torchao):
    if importlib.util.find_spec(peer.__name__) is not None:
        peer()
