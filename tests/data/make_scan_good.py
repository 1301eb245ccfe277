"""Writes scan/good/*: what frameworks save besides weights, every name of which `ckpt scan` has to know.

    python make_scan_good.py [FOLDER]

Made with torch 2.15, numpy 2, transformers 5.23 (with accelerate 1.15), peft 0.21.
"""
import argparse
import collections
import datetime
import os
import pathlib
import pickle
import random
import sys
import warnings

import numpy as np
import torch
from torch import nn
from torch.distributed._shard import sharded_tensor

warnings.filterwarnings("ignore")
here = os.path.dirname(os.path.abspath(__file__))
out = os.path.join(sys.argv[1] if len(sys.argv) > 1 else here, "scan", "good")
os.makedirs(out, exist_ok=True)
torch.manual_seed(0)
random.seed(0)
np.random.seed(0)


def save(name, value, **options):
    torch.save(value, os.path.join(out, name), **options)


LAYERS = {"Linear": (2, 2), "Conv2d": (1, 1, 1), "Embedding": (2, 2), "LayerNorm": (2,), "LSTM": (1, 1),
          "MultiheadAttention": (2, 1), "TransformerEncoderLayer": (2, 1, 2), "BatchNorm1d": (2,), "RMSNorm": (2,)}
model = nn.Sequential(collections.OrderedDict((name, getattr(nn, name)(*args)) for name, args in LAYERS.items()))
model.add_module("rest", nn.ModuleList([nn.ReLU(), nn.GELU(), nn.SiLU(), nn.Softmax(-1), nn.Dropout(), nn.Identity(),
                                        nn.Flatten(), nn.CrossEntropyLoss(), nn.ModuleDict({"a": nn.Tanh()}),
                                        nn.ParameterList([nn.Parameter(torch.ones(1))])]))
save("module.pt", model)
linear = nn.Linear(1, 1)
for name in ("AdamW", "SGD", "Adafactor"):
    optimizer = getattr(torch.optim, name)(linear.parameters(), lr=0.1)
    linear(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    save(name + ".pt", {"whole": optimizer, "state": optimizer.state_dict()})
schedules = torch.optim.lr_scheduler
sgd = torch.optim.SGD(linear.parameters(), lr=0.1)
save("schedules.pt", {type(s).__name__: s.state_dict()
                      for s in (schedules.CosineAnnealingLR(sgd, 4), schedules.OneCycleLR(sgd, 0.1, total_steps=4),
                                schedules.LambdaLR(sgd, lambda step: 1.0),
                                schedules.SequentialLR(sgd, [schedules.ConstantLR(sgd), schedules.LinearLR(sgd)], [2]))})
scaler = torch.amp.GradScaler("cpu")
save("scaler.pt", {"whole": scaler, "state": scaler.state_dict()})
numpy_state = np.random.get_state()
save("rng_state.pth", {"python": random.getstate()[0], "numpy": (numpy_state[0], numpy_state[1][:4], *numpy_state[2:]),
                       "cpu": torch.get_rng_state()[:16], "generator": np.random.default_rng(0)})
save("arguments.pt", argparse.Namespace(lr=1.0, path=pathlib.Path("data"), dtype=torch.bfloat16,
                                        when=datetime.datetime(2024, 1, 1), device=torch.device("cpu")))
save("numpy.pt", {"array": np.arange(3), "f32": np.float32(1.5), "objects": np.array(["a", {}], dtype=object),
                  "dtype": np.dtype("<f4"), "bool": np.bool_(True)})
save("masked.pt", {"array": np.ma.array([1.0, 2.0], mask=[0, 1]), "filled": np.ma.array([1, 2], mask=True, fill_value=7),
                   "objects": np.ma.array([1, "a"], dtype=object), "record": np.ma.array([(1, 2.0)], dtype="i4,f4"),
                   "text": np.ma.array(["a", "b"], mask=[0, 1]), "none": np.ma.masked,
                   "void": np.ma.array([(1, 2.0)], mask=[(0, 1)], dtype="i4,f4")[0]})
save("tensors.pt", {"sparse": torch.eye(2).to_sparse(), "csr": torch.eye(2).to_sparse_csr(),
                    "quantized": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
                    "parameter": nn.Parameter(torch.ones(1)), "buffer": nn.Buffer(torch.ones(1)),
                    "size": torch.Size([1]), "meta": torch.empty(2, device="meta"), "storage": torch.UntypedStorage(4)})
cyclic = torch.optim.SGD(linear.parameters(), lr=0.1, momentum=0.9)
save("whole.pt", {"parallel": nn.DataParallel(nn.Linear(1, 1)), "weights": nn.utils.weight_norm(nn.Linear(1, 1)),
                  "spectral": nn.utils.spectral_norm(nn.Linear(1, 1)), "cyclic": schedules.CyclicLR(cyclic, 0.1, 0.2),
                  "packed": nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)]),
                  "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(1)], layout=torch.jagged)})
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
spec = torch.distributed._shard.sharding_spec
on_rank = spec.ShardMetadata([0, 0], [2, 3], "rank:0/cpu")
for protocol in (2, 4):
    save(f"sharded{protocol}.pt", {"chunked": sharded_tensor.ones(spec.ChunkShardingSpec(0, ["rank:0/cpu"]), 4, 2),
                                   "named": sharded_tensor.ones(spec.EnumerableShardingSpec([on_rank]), 2, 3)},
         pickle_protocol=protocol)
for protocol in range(6):
    with open(os.path.join(out, f"plain{protocol}.pkl"), "wb") as file:
        pickle.dump({"a": np.arange(3), "x": [1, "é", b"x", {1}, frozenset({2}), bytearray(b"q"), 1 << 90, 1.5, None]},
                    file, protocol=protocol)
np.savez_compressed(os.path.join(out, "objects.npz"), a=np.array([{"x": 1}, None], dtype=object), b=np.arange(4))
np.save(os.path.join(out, "numbers.npy"), np.arange(4))

try:
    from peft import LoraConfig
    from transformers import GenerationConfig, TrainingArguments
    save("training_args.bin", TrainingArguments(output_dir="out"))
    save("configs.pt", {"lora": LoraConfig(r=4, target_modules=["q"]), "generation": GenerationConfig()})
except ImportError as error:
    print("not made:", error)
with open(os.path.join(out, "README.md"), "w") as file:
    file.write("class of\nits own\nR.\n(in a way it is)\n")
