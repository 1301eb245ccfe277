"""Writes tests/data/zero/fused-<case>/ and scalar-<case>/: checkpoints of DeepSpeed, and beside each what it holds.

    python make_zero_kinds.py [FOLDER [CASE...]]      (deepspeed 0.19.8, torch 2.15.0, safetensors; gloo on the CPU)

fused: with its FusedAdam. Without ZeRO, in fp16 and bf16, DeepSpeed steps one flat master for each group of such an
optimizer. Its groups have a `step`, too, that stays 0; the states' is the one that counts.
scalar: with AdamW, of a model whose first parameter has no axes, as CLIP's logit_scale.
"""
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_zero  # noqa: E402  (sets what DeepSpeed goes by)

# name: world size, stage, precision, whether all is trained, in one group
CASES = {
    "fused-stage0-fp16": (1, 0, "fp16", True),
    "fused-stage0-bf16-groups": (1, 0, "bf16", False),
    "fused-stage2": (2, 2, "fp32", False),
    "scalar-stage0": (1, 0, "fp32", True),
    "scalar-stage1": (2, 1, "fp32", True),
}


def engine_of(torch, deepspeed, config, is_one, is_fused):
    torch.manual_seed(1)
    model = make_zero.model_of(torch)
    if not is_fused:
        deepspeed.DeepSpeedEngine._broadcast_model = lambda engine: None  # gloo's takes no such parameter
        model.gain = torch.nn.Parameter(torch.tensor(2.5))
        model.register_forward_hook(lambda module, ids, logits: logits * module.gain)
    groups = [{"params": list(model.parameters())}]
    if is_one:
        for p in model.parameters():
            p.requires_grad = True
    else:
        learned = [p for p in model.parameters() if p.requires_grad]
        groups = [{"params": [p for p in learned if p.dim() > 1], "weight_decay": 0.1},
                  {"params": [p for p in learned if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = (deepspeed.ops.adam.FusedAdam if is_fused else torch.optim.AdamW)(groups, lr=0.05)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def gathered_flat(torch, engine, is_one):
    """Of flat masters: by name where they are of all parameters, else by the number of their group."""
    optimizer = engine.optimizer
    tensors = {name: p.detach().clone() for name, p in engine.module.named_parameters()}
    names = {id(p): name for name, p in engine.module.named_parameters()}
    tensors.update({name: b.detach().clone() for name, b in engine.module.named_buffers()})
    for g, (params, master) in enumerate(zip(optimizer.fp16_groups, optimizer.fp32_groups_flat)):
        held = dict(optimizer.optimizer.state[master], master=master.detach())
        step = make_zero.step_of(torch, held)
        del held["step"]
        owners = [names[id(p)] for p in params] if is_one else [str(g)]
        tensors.update({"optimizer.state.%s.step" % name: step for name in owners})
        for key, flat in held.items():
            if not is_one:
                tensors["optimizer.state.%d.%s" % (g, key)] = flat.clone()
                continue
            for p, part in zip(params, flat.split([p.numel() for p in params])):
                tensors["optimizer.state.%s.%s" % (names[id(p)], key)] = part.reshape(p.shape).clone()
    return tensors


def work(rank, root, case, port):
    world, stage, precision, is_one = CASES[case]
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    import deepspeed
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    make_zero.patch(precision)
    deepspeed.init_distributed("gloo")
    config = make_zero.config_of(stage, precision, {}, {"gradient_clipping": 0.0})
    engine = engine_of(torch, deepspeed, config, is_one, case.startswith("fused"))
    for i in range(3):
        make_zero.step(torch, engine, rank, i)
    if hasattr(engine.optimizer, "fp32_groups_flat"):
        tensors = gathered_flat(torch, engine, is_one)
    else:
        tensors = make_zero.gathered(torch, dist, deepspeed, engine, stage)
        del tensors["table"]
    make_zero.end(engine, os.path.join(root, case), tensors)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else make_zero.ROOT
    import torch.multiprocessing as mp
    os.makedirs(root, exist_ok=True)
    for i, case in enumerate(sys.argv[2:] or CASES):
        shutil.rmtree(os.path.join(root, case), ignore_errors=True)
        mp.spawn(work, args=(root, case, 29700 + os.getpid() % 300 + i), nprocs=CASES[case][0])


if __name__ == "__main__":
    main()
