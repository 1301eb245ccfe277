"""Writes tests/data/zero/<case>/: checkpoints of DeepSpeed, and beside each what it holds.

    python make_zero.py [FOLDER [CASE...]]        (deepspeed 0.19.8, torch 2.15.0, safetensors; gloo on the CPU)

Each <case>.safetensors holds the full tensors, gathered in the run that saved, under the names that ckpt gives them:
masters and moments by the fragments that the optimizer itself works on, the stored weights as the model has them.
"""
import os
import shutil
import subprocess
import sys

os.environ.update(DS_ACCELERATOR="cpu", DS_BUILD_OPS="0", CUDA_VISIBLE_DEVICES="", DS_SKIP_CUDA_CHECK="1")

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "zero")

BF16_STATES = {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}

# name: world size, stage, precision, more of zero_optimization, more of the configuration
CASES = {
    "stage0": (2, 0, "fp32", {}, {}),
    "stage0-bf16": (2, 0, "bf16", {}, {}),
    "stage0-fp16": (1, 0, "fp16", {}, {"fp16": {"enabled": True, "initial_scale_power": 4, "min_loss_scale": 2}}),
    "stage1": (3, 1, "fp32", {}, {}),
    "bf16-optimizer": (3, 1, "bf16", {}, {"data_types": {"grad_accum_dtype": "fp32"}}),
    "stage2-bf16": (3, 2, "bf16", {}, {}),
    "stage2-fp16": (2, 2, "fp16", {}, {}),
    "round-robin": (2, 2, "bf16", {"round_robin_gradients": True}, {}),
    "alignment": (2, 2, "bf16", {"parameter_alignment": True}, {}),
    "stage3": (3, 3, "fp32", {}, {}),
    "stage3-bf16": (3, 3, "bf16", {"sub_group_size": 20}, {}),
    "fp16-skipped": (2, 1, "fp16", {}, {"fp16": {"enabled": True, "initial_scale_power": 16, "hysteresis": 1}}),
    "offload-stage2": (2, 2, "fp32", {"offload_optimizer": {"device": "cpu"}}, {}),
    "offload-stage2-fp16": (2, 2, "fp16", {"offload_optimizer": {"device": "cpu"}}, {"zero_force_ds_cpu_optimizer": False}),
    "offload-stage3-bf16": (3, 3, "bf16", {"offload_optimizer": {"device": "cpu"}, "sub_group_size": 20}, {}),
    "wrapped": (2, 2, "bf16", {}, {"wrapper": "_orig_mod."}),
    "bf16-states": (2, 2, "bf16", {}, {"bf16": BF16_STATES}),
    "bf16-states-stage3": (2, 3, "bf16", {}, {"bf16": BF16_STATES}),
    "hpz": (4, 3, "bf16", {"zero_hpz_partition_size": 2, "stage3_gather_16bit_weights_on_model_save": True}, {}),
}


def client_tensor(torch):
    return torch.arange(3.0)


def model_of(torch):
    class Tiny(torch.nn.Module):
        """Odd shapes; `head` is tied to `embed`, `fixed` is frozen, `count` and `scale` are buffers."""

        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(7, 5)
            self.up = torch.nn.Linear(5, 13)
            self.norm = torch.nn.LayerNorm(13)
            self.fixed = torch.nn.Linear(13, 3)
            self.down = torch.nn.Linear(3, 5, bias=False)
            self.head = torch.nn.Linear(5, 7, bias=False)
            self.head.weight = self.embed.weight
            self.register_buffer("count", torch.tensor((1 << 40) + 7))
            self.register_buffer("scale", torch.tensor([0.5, 1.5, 2.5]))
            for p in self.fixed.parameters():
                p.requires_grad = False

        def forward(self, ids):
            x = self.norm(torch.tanh(self.up(self.embed(ids))))
            x = self.fixed(x) * self.scale.to(x.dtype)
            return self.head(self.down(x))

    return Tiny()


def config_of(stage, precision, more, rest):
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
              "zero_optimization": dict({"stage": stage}, **more), "steps_per_print": 1000000,
              "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.05,
                                                           "warmup_num_steps": 10}}}
    if precision != "fp32":
        config[precision] = {"enabled": True}
    if precision == "fp16":
        config[precision]["initial_scale_power"] = 4
    return dict(config, **rest)


def wrapped(torch, model, rest):
    """The model in a module that calls it as torch.compile does, so that DeepSpeed has it under such names, if that is
    asked for."""
    class Wrapper(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self._orig_mod = model

        def forward(self, *args):
            return self._orig_mod(*args)

    return Wrapper() if "wrapper" in rest else model


def engine_of(torch, deepspeed, stage, precision, more, rest):
    """A model and its engine, with two groups of parameters: with and without weight decay."""
    torch.manual_seed(1)
    model = model_of(torch)
    learned = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in learned if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in learned if p.dim() == 1], "weight_decay": 0.0}]
    kind = torch.optim.AdamW
    if "offload_optimizer" in more and "zero_force_ds_cpu_optimizer" not in rest:  # its steps are numbers
        kind = deepspeed.ops.adam.DeepSpeedCPUAdam
    optimizer = kind(groups, lr=0.05)
    engine, _, _, _ = deepspeed.initialize(model=wrapped(torch, model, rest), optimizer=optimizer,
                                           config=config_of(stage, precision, more, rest))
    return engine


def loss_of(torch, model, rank, seed, wanted=0):
    """The loss of a model, or an engine, on what this rank draws. wanted: added to the labels."""
    torch.manual_seed(100 * seed + rank)
    ids, labels = torch.randint(0, 7, (2, 4)), torch.randint(0, 7, (2, 4))
    logits = model(ids).float()
    return torch.nn.functional.cross_entropy(logits.reshape(-1, 7), (labels.reshape(-1) + wanted) % 7)


def step(torch, engine, rank, seed, wanted=0):
    """One step on what this rank draws; its loss."""
    loss = loss_of(torch, engine, rank, seed, wanted)
    engine.backward(loss)
    engine.step()
    return loss.item()


def fragment(torch, dist, engine, p, key):
    """A parameter's master, or a state of it, from the fragments that the ranks' optimizers work on."""
    optimizer = engine.optimizer
    full, dtype = torch.zeros(p.numel()), torch.float32
    if getattr(optimizer, "bf16_optimizer_states", False):
        dtype = torch.bfloat16
    if engine.zero_round_robin_gradients():  # its mappings are wrong: they are made before parameters are ordered
        for group, params in enumerate(optimizer.round_robin_bit16_groups):
            flat = optimizer.single_partition_of_fp32_groups[group]
            values = flat if key == "master" else optimizer.optimizer.state[flat][key]
            begin = dist.get_rank() * (optimizer.bit16_groups_flat[group].numel() // dist.get_world_size())
            for q, at in zip(params, optimizer.round_robin_bit16_offsets[group]):
                low, high = max(at, begin), min(at + q.numel(), begin + values.numel())
                if q is p and low < high:
                    full[low - at:high - at] = values.detach()[low - begin:high - begin].float()
    elif getattr(p, "_hp_mapping", None) is not None:
        to, at, group = p._hp_mapping.lp_fragment_address, p._hp_mapping.hp_fragment_address, p._hp_mapping.param_group_index
        flats = getattr(optimizer, "single_partition_of_fp32_groups", None)
        flat = (optimizer.fp32_groups_flat_partition if flats is None else flats)[group]
        values = flat if key == "master" else optimizer.optimizer.state[flat][key]
        full[to.start:to.start + to.numel] = values.detach()[at.start:at.start + at.numel].float()
    dist.all_reduce(full)
    return full.reshape(p.shape).to(dtype)


def master_of(optimizer, p):
    """What an optimizer without ZeRO steps in place of p."""
    for halves, masters in zip(getattr(optimizer, "fp16_groups", []), getattr(optimizer, "fp32_groups", [])):
        for half, master in zip(halves, masters):
            if half is p:
                return master
    return p


def step_of(torch, state):
    """The step of an optimizer's state, which torch has as a tensor and DeepSpeed's own optimizers as a number."""
    return torch.as_tensor(state["step"], dtype=torch.float32).detach().clone()


def gathered(torch, dist, deepspeed, engine, stage):
    """Name -> full tensor, as ckpt is to call them."""
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    tensors, optimizer = {}, engine.optimizer
    inner = getattr(optimizer, "optimizer", optimizer)
    is_flat = hasattr(optimizer, "single_partition_of_fp32_groups") or hasattr(optimizer, "fp32_groups_flat_partition")
    for name, p in engine.module.named_parameters():
        state = "optimizer.state.%s." % name
        if stage == 3:
            with deepspeed.zero.GatheredParameters([p]):
                tensors[name] = p.detach().clone().cpu()
            if p.requires_grad:
                tensors[state + "master"] = safe_get_full_fp32_param(p).detach().clone().to(optimizer.fp32_partitioned_groups_flat[0].dtype)
                for key in ("exp_avg", "exp_avg_sq"):
                    tensors[state + key] = safe_get_full_optimizer_state(p, key).detach().clone()
        else:
            tensors[name] = p.detach().clone()
            if p.requires_grad and is_flat:
                for key in ("master", "exp_avg", "exp_avg_sq"):
                    tensors[state + key] = fragment(torch, dist, engine, p, key)
            elif p.requires_grad:
                master = master_of(optimizer, p)
                if master is not p:
                    tensors[state + "master"] = master.detach().clone()
                for key in ("exp_avg", "exp_avg_sq"):
                    tensors[state + key] = inner.state[master][key].detach().clone()
        if p.requires_grad:
            tensors[state + "step"] = step_of(torch, next(iter(inner.state.values())))
    for name, b in engine.module.named_buffers():
        tensors[name] = b.detach().clone()
    tensors["table"] = client_tensor(torch)
    return {name.replace("_orig_mod.", ""): tensor for name, tensor in tensors.items()}


def patch(precision):
    if precision == "fp16":  # the CPU's accelerator says that it has none
        from deepspeed.accelerator import get_accelerator
        type(get_accelerator()).is_fp16_supported = lambda self: True


def end(engine, folder, tensors, exclude_frozen_parameters=False, **client_state):
    """Ends a run: what the engine saves is <folder>/, and the tensors that it holds are <folder>.safetensors."""
    import torch.distributed as dist
    from safetensors.torch import save_file
    engine.save_checkpoint(folder, client_state=dict(client_state, note="kept as it is"),
                           exclude_frozen_parameters=exclude_frozen_parameters)
    if dist.get_rank() == 0:
        print(os.path.basename(folder), type(engine.optimizer).__name__,
              sorted(os.listdir(os.path.join(folder, "global_step3"))))
        for name in os.listdir(folder):
            if name.endswith(".py"):
                os.remove(os.path.join(folder, name))
        save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, folder + ".safetensors")
    dist.barrier()
    dist.destroy_process_group()


def work(rank, root, case, port):
    world, stage, precision, more, rest = CASES[case]
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    import deepspeed
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    patch(precision)
    deepspeed.init_distributed("gloo")
    engine = engine_of(torch, deepspeed, stage, precision, more, rest)
    for i in range(3):
        step(torch, engine, rank, i)
    end(engine, os.path.join(root, case), gathered(torch, dist, deepspeed, engine, stage), table=client_tensor(torch))


def convert(root, case):
    """<root>/../universal/<case>/, as DeepSpeed's own ds_to_universal makes it; it holds what <case>.safetensors says."""
    import deepspeed.checkpoint.ds_to_universal as ds_to_universal
    tag = os.path.join(root, "..", "universal", case, "global_step3_universal")
    shutil.rmtree(os.path.dirname(tag), ignore_errors=True)
    subprocess.run([sys.executable, ds_to_universal.__file__, "--input_folder", os.path.join(root, case, "global_step3"),
                    "--output_folder", tag, "--num_extract_workers", "1", "--num_merge_workers", "1",
                    "--inject_missing_state"], check=True, stdout=subprocess.DEVNULL)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else ROOT
    import torch.multiprocessing as mp
    os.makedirs(root, exist_ok=True)
    for i, case in enumerate(sys.argv[2:] or CASES):
        shutil.rmtree(os.path.join(root, case), ignore_errors=True)
        mp.spawn(work, args=(root, case, 29600 + os.getpid() % 300 + i), nprocs=CASES[case][0])
        if case in ("stage2-bf16", "stage3-bf16"):
            convert(root, case)


if __name__ == "__main__":
    main()
