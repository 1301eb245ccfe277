"""What bench/run needs of PyTorch: checkpoints that it wrote, and its own consolidation, timed without imports.

    python peers.py save FOLDER N_RANKS AXIS < LIST     a DCP folder; LIST: lines "name shape", f32; cut along AXIS
    python peers.py torch FILE < LIST                   the same as one torch.save file
    python peers.py consolidate FOLDER FILE             dcp_to_torch_save: prints seconds and peak resident bytes
    python peers.py zero FOLDER N_RANKS < LIST          a checkpoint of ZeRO stage 3 with Adam's states
    python peers.py to_fp32 FOLDER OUT FORM             zero_to_fp32 to "safetensors" or "torch", its default: as above
    python peers.py to_universal FOLDER OUT             ds_to_universal with its own workers: as above
    python peers.py peft_merge BASE ADAPTER OUT         merge_and_unload and save_pretrained, as a command of its own
    python peers.py train CONFIG ROWS LENGTH THREADS f32|bf16 [cpu|cuda] [eager] [compile]
                                                        steps of transformers' GPT-2 with AdamW: tokens a second of a step
                                                        and of its matrix products alone
    python peers.py tape CONFIG ROWS LENGTH THREADS f32|bf16    for each line of the input a line of seconds: forward eager
                                                        and compiled and its matrix products alone, forward and
                                                        backward likewise
    python peers.py share CONFIG ROWS LENGTH THREADS f32|bf16 forward|training
                                                        seconds of one pass and of its products, once each
"""
import argparse
import contextlib
import math
import os
import resource
import sys
import time

import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, MetadataIndex, TensorProperties)
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.default_planner import create_default_global_save_plan


def tensors():
    """Values as of a model: small, and no two tensors alike."""
    generator = torch.Generator().manual_seed(1)
    block = torch.randn(1 << 22, generator=generator) / 64
    for line in sys.stdin:
        name, *shape = line.split()
        shape = tuple(map(int, shape))
        n = math.prod(shape)
        yield name, block.roll(len(name)).repeat(-(-n // block.numel()))[:n].reshape(shape)


class Rank:
    """The planner of one rank: hands out what it holds."""

    def __init__(self, local):
        self.local = local

    def resolve_data(self, item):
        return self.local[item.index.fqn].detach()


def save(folder, n_ranks, axis):
    """As n_ranks processes with DTensors of Shard(axis) leave it, one after another."""
    plans, ranks = [[] for _ in range(n_ranks)], [{} for _ in range(n_ranks)]
    for name, whole in tensors():
        start, cut = 0, min(axis, whole.dim() - 1)
        for rank, part in enumerate(whole.chunk(n_ranks, cut)):
            offsets = [0] * whole.dim()
            offsets[cut] = start
            start += part.shape[cut]
            data = TensorWriteData(ChunkStorageMetadata(torch.Size(offsets), part.shape),
                                   TensorProperties(dtype=whole.dtype), whole.shape)
            plans[rank].append(WriteItem(MetadataIndex("model." + name, torch.Size(offsets)), WriteItemType.SHARD, tensor_data=data))
            ranks[rank]["model." + name] = part.contiguous()
    plans, metadata = create_default_global_save_plan([SavePlan(items) for items in plans])
    results = []
    for rank, plan in enumerate(plans):
        writer = FileSystemWriter(folder, sync_files=False)
        writer.set_up_storage_writer(is_coordinator=rank == 0)
        plan = writer.prepare_local_plan(plan)
        plan = writer.prepare_global_plan([SavePlan([])] * rank + [plan])[rank]
        results.append(writer.write_data(plan, Rank(ranks[rank])).wait())
        ranks[rank] = None
        if rank == n_ranks - 1:
            writer.finish(metadata, results)


def consolidate(folder, path):
    timed(dcp_to_torch_save, folder, path)


def zero(folder, n_ranks):
    """As n_ranks processes of DeepSpeed 0.19.8 leave it: each has a part of every parameter, in one flat group."""
    shapes, parts = {}, [[] for _ in range(n_ranks)]
    for name, whole in tensors():
        shapes[name] = whole.shape
        n = math.ceil(whole.numel() / n_ranks)
        flat = torch.nn.functional.pad(whole.reshape(-1), (0, n * n_ranks - whole.numel()))
        for rank, part in enumerate(flat.split(n)):
            parts[rank].append(part)
    tag = os.path.join(folder, "global_step3")
    os.makedirs(tag)
    for rank in range(n_ranks):
        flat, name = torch.cat(parts[rank]), "zero_pp_rank_%d_mp_rank_00_%%s_states.pt" % rank
        parts[rank] = None
        torch.save({"module": {key: torch.empty(0) for key in shapes}, "buffer_names": [], "optimizer": None,
                    "param_shapes": [shapes], "frozen_param_shapes": None, "shared_params": {},
                    "frozen_param_fragments": None, "lr_scheduler": None, "data_sampler": None, "random_ltd": None,
                    "skipped_steps": 0, "global_steps": 3, "global_samples": 18, "dp_world_size": n_ranks,
                    "mp_world_size": 1, "ds_version": "0.19.8"}, os.path.join(tag, name % "model"))
        group = {"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "params": [0]}
        state = {"step": torch.tensor(3.0), "exp_avg": flat.neg(), "exp_avg_sq": flat.square()}
        torch.save({"optimizer_state_dict": {"zero_stage": 3, "partition_count": n_ranks, "dynamic_loss_scale": False,
                                             "overflow": False, "fp32_flat_groups": [flat],
                                             "optimizer_state_dict": {"state": {0: state}, "param_groups": [group]}},
                    "ds_version": "0.19.8"}, os.path.join(tag, name % "optim"))
    with open(os.path.join(folder, "latest"), "w") as file:
        file.write("global_step3")


def timed(function, *arguments, **options):
    """Seconds and the most that this process or one of its workers held; what is said goes nowhere."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        start = time.monotonic()
        function(*arguments, **options)
        seconds = time.monotonic() - start
    print(seconds, 1024 * max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def to_fp32(folder, out, form):
    from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict
    import huggingface_hub, safetensors.torch  # noqa: F401, E401: what it imports when it is called
    timed(convert_zero_checkpoint_to_fp32_state_dict, folder, out, safe_serialization=form == "safetensors")


def to_universal(folder, out):
    from deepspeed.checkpoint import ds_to_universal
    timed(ds_to_universal.main, argparse.Namespace(
        input_folder=os.path.join(folder, "global_step3"), output_folder=os.path.join(out, "global_step3"),
        num_extract_workers=4, num_merge_workers=2, keep_temp_folder=False, strict=True, inject_missing_state=False))


def peft_merge(base, adapter, out):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    PeftModel.from_pretrained(model, adapter).merge_and_unload().save_pretrained(out)


def seconds_of(run, device):
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    run()
    wait()
    return time.perf_counter() - start


def fastest(run, device, times=4):
    """Seconds of the fastest of some runs, after one to warm up."""
    seconds_of(run, device)
    return min(seconds_of(run, device) for _ in range(times))


def linears(config):
    """(in, out, is the weight stored as out x in) of a model's matrices."""
    width, n = config.hidden_size, config.num_hidden_layers
    head = [(width, config.vocab_size, True)]
    if config.model_type == "gpt2":
        return [(width, 3 * width, False), (width, width, False), (width, 4 * width, False), (4 * width, width, False)] * n + head
    inner = config.intermediate_size
    keys = width // config.num_attention_heads * config.num_key_value_heads
    shapes = [(width, width), (width, keys), (width, keys), (width, width), (width, inner), (width, inner), (inner, width)]
    return [(*shape, True) for shape in shapes] * n + head


def products(config, rows, length, dtype, device, is_training=True):
    """The products of a pass as a function: of each linear layer forward and twice backward, and of attention those of
    the causal half. They write to memory that was touched before: a product alone does not wait for pages."""
    tokens, width, heads = rows * length, config.hidden_size, rows * config.num_attention_heads
    matrices = linears(config)

    def matrix(*shape):
        return torch.randn(*shape, device=device, dtype=dtype)

    def operands(n_in, n_out, is_transposed):
        weight = (n_out, n_in) if is_transposed else (n_in, n_out)
        return [matrix(*shape) for shape in 2 * ((tokens, n_in), weight, (tokens, n_out))]

    made = {shape: operands(*shape) for shape in set(matrices)}
    head_width, half = width // config.num_attention_heads, length // 2
    q, weighed, k = matrix(heads, length, head_width), matrix(heads, length, head_width), matrix(heads, half, head_width)
    scores = matrix(heads, length, half)

    def run():
        for shape in matrices:
            x, w, y, dx, dw, out = made[shape]
            torch.mm(x, w.T if shape[2] else w, out=out)
            if is_training:
                torch.mm(y, w if shape[2] else w.T, out=dx)
                torch.mm(*((y.T, x) if shape[2] else (x.T, y)), out=dw)
        for _ in range(config.num_hidden_layers):
            for _ in range(3 if is_training else 1):  # scores and their gradient; two gradients
                torch.bmm(q, k.transpose(1, 2), out=scores)
                torch.bmm(scores, k, out=weighed)

    return run


def model_and_loss(config, mode, ids, is_bf16, device):
    """A model of random weights, and a function that gives its loss."""
    from transformers import AutoModelForCausalLM
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config).to(device)
    forward = torch.compile(model) if mode == "compile" else model

    def loss_of():
        with torch.autocast(device, torch.bfloat16, enabled=is_bf16):
            return forward(input_ids=ids, labels=ids).loss

    return model, loss_of


def train(folder, rows, length, threads, dtype, device="cpu", *modes):
    from transformers import AutoConfig
    rows, length, is_bf16 = int(rows), int(length), dtype == "bf16"
    torch.set_num_threads(int(threads))
    torch.backends.cuda.matmul.allow_tf32 = False
    config = AutoConfig.from_pretrained(folder)
    ids = torch.randint(0, config.vocab_size, (rows, length), device=device)
    alone = fastest(products(config, rows, length, torch.bfloat16 if is_bf16 else torch.float32, device), device)
    for mode in modes or ("eager", "compile"):
        model, loss_of = model_and_loss(config, mode, ids, is_bf16, device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

        def step():
            loss_of().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

        seconds = fastest(step, device)
        print(mode, f"{rows * length / seconds:.1f}", f"{rows * length / alone:.1f}", f"{alone / seconds:.3f}", flush=True)


def tape(folder, rows, length, threads, dtype):
    """Forward alone, and forward and backward, without an optimizer."""
    from transformers import AutoConfig
    rows, length, is_bf16 = int(rows), int(length), dtype == "bf16"
    torch.set_num_threads(int(threads))
    config = AutoConfig.from_pretrained(folder)
    ids = torch.randint(0, config.vocab_size, (rows, length))
    jobs = []
    for is_training in (False, True):
        for mode in ("eager", "compile"):
            jobs.append(pass_of(config, mode, ids, is_bf16, is_training))
        jobs.append(products(config, rows, length, torch.bfloat16 if is_bf16 else torch.float32, "cpu", is_training))
    for _ in sys.stdin:
        print(*(seconds_of(job, "cpu") for job in jobs), flush=True)


def share(folder, rows, length, threads, dtype, what):
    """One eager pass against its products alone, once each: for products that take minutes."""
    from transformers import AutoConfig
    rows, length, is_bf16, is_training = int(rows), int(length), dtype == "bf16", what == "training"
    torch.set_num_threads(int(threads))
    config = AutoConfig.from_pretrained(folder)
    ids = torch.randint(0, config.vocab_size, (rows, length))
    run = pass_of(config, "eager", ids, is_bf16, is_training)
    alone = seconds_of(products(config, rows, length, torch.bfloat16 if is_bf16 else torch.float32, "cpu", is_training), "cpu")
    seconds = seconds_of(run, "cpu")
    print(f"products {alone:.2f} s, pass {seconds:.2f} s, share {alone / seconds:.3f}")


def pass_of(config, mode, ids, is_bf16, is_training):
    model, loss_of = model_and_loss(config, mode, ids, is_bf16, "cpu")

    def run():
        with torch.set_grad_enabled(is_training):
            loss = loss_of()
        if is_training:
            loss.backward()
            model.zero_grad()

    return run


def main(job, *arguments):
    if job == "save":
        save(arguments[0], int(arguments[1]), int(arguments[2]))
    elif job == "torch":
        torch.save(dict(tensors()), arguments[0])
    elif job == "zero":
        zero(arguments[0], int(arguments[1]))
    elif job in ("consolidate", "to_fp32", "to_universal", "peft_merge", "train", "tape", "share"):
        globals()[job](*arguments)
    else:
        sys.exit(f"peers.py: no job '{job}'")


if __name__ == "__main__":
    main(*sys.argv[1:])
