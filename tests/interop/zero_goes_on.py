"""Runs of DeepSpeed, one after the other: each trains and saves, or goes on from a folder, and says its next losses.

    python zero_goes_on.py OUT.json '[{"world", "stage", "precision", "more", "rest", "save": FOLDER or "load": FOLDER},
                                      {"argv": [...]}, ...]'

A job with "layers" has experts as make_zero_moe.py says, one with "stages" is a pipeline as make_zero_pipe.py has it; of
0 stages its layers are a model without one (a pipeline's engine loads its own layers' files alone). One with "frozen" has
a frozen parameter with two names, as make_zero_frozen.py has it; true: that is not saved. One with "kind" is of the
optimizer or model that make_zero_kinds.py has: [whether all is trained, in one group; whether by FusedAdam]; with "muon" of make_zero_muon.py.
One with "offload" has its optimizer on the CPU, DeepSpeed's own. One with "in_torch" goes on without DeepSpeed, with torch's AdamW.
One with "by_fsdp" is no run of DeepSpeed's: FSDP2 trains and saves by DCP. One with "of_torch" goes on from such a save.
"optimizer" is one of torch.optim, else AdamW. One with "tag" saves under it, with client state that each rank has its own of.
What has argv is a command to be run in between. Ranks are forked, since importing takes longer than a run does. All ranks see the same data, so that runs on 1, 2 and 4 ranks have the same gradients to the bit, and nothing is clipped:
a norm depends on the partition.
"""
import argparse
import collections
import datetime
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data"))
import make_zero  # noqa: E402  (sets what DeepSpeed goes by)
import make_zero_frozen  # noqa: E402
import make_zero_kinds  # noqa: E402
import make_zero_moe  # noqa: E402
import make_zero_muon  # noqa: E402
import make_zero_pipe  # noqa: E402

BEFORE, BEHIND = 3, 3  # steps
MICRO = 2  # batches of a pipeline's step


def client_values(torch, job):
    """What scripts keep beside the model, of Python's own classes."""
    values = {"args": argparse.Namespace(lr=0.1, dtype=torch.bfloat16, out=pathlib.PurePosixPath("runs/1")),
              "recent": collections.deque([1.5, 2.5], 4),
              "begun": datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc), "kinds": frozenset(["a", "b"])}
    if not {"layers", "by_fsdp", "of_torch"} & set(job):  # DeepSpeed 0.19.8 saves none beside experts, DCP makes it a dict
        values["counts"] = collections.defaultdict(int, seen=3)
    return values


def groups_of(model, decay):
    learned = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in learned if p.dim() > 1], "weight_decay": decay[0]},
              {"params": [p for p in learned if p.dim() == 1], "weight_decay": decay[-1]}]
    return learned if len(decay) == 1 else groups


def run_of(torch, job):
    """A model and its groups of parameters."""
    torch.manual_seed(1)
    model, decay = make_zero.model_of(torch), job.get("decay", [0.1, 0.0])
    return model, groups_of(model, decay), decay


def engine_of(torch, deepspeed, job):
    model, groups, decay = run_of(torch, job)
    config = make_zero.config_of(job["stage"], job["precision"], job.get("more", {}),
                                 dict({"gradient_clipping": 0.0, "zero_allow_untested_optimizer": "optimizer" in job},
                                      **job.get("rest", {})))
    if job.get("is_universal"):
        config["checkpoint"] = {"load_universal": True}
    if "frozen" in job:
        return make_zero_frozen.engine_of(torch, deepspeed, job["stage"], job["precision"], {"gradient_clipping": 0.0})
    if "muon" in job:
        return make_zero_muon.engine_of(torch, deepspeed, job["stage"], job.get("more", {}), {})
    if "kind" in job:
        return make_zero_kinds.engine_of(torch, deepspeed, config, *job["kind"])
    if "layers" in job:
        return make_zero_moe.engine_of(torch, deepspeed, job["layers"], config)
    if "stages" in job:
        return make_zero_pipe.engine_of(torch, deepspeed, job["stages"], dict(config, gradient_accumulation_steps=MICRO), False)
    lr = torch.tensor(0.05) if job.get("has_tensor_lr") else 0.05
    kind = deepspeed.ops.adam.DeepSpeedCPUAdam if job.get("offload") else getattr(torch.optim, job.get("optimizer", "AdamW"))
    optimizer = kind(groups, lr=lr, weight_decay=decay[0])
    model = make_zero.wrapped(torch, model, job.get("rest", {}))
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer) if job.get("has_tensor_lr") else None
    return deepspeed.initialize(model=model, optimizer=optimizer, lr_scheduler=scheduler, config=config)[0]


def load_in_torch(torch, model, optimizer, path):
    """From a file by torch.load; from a folder by DCP, whose states torch wants to have been stepped once."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict, set_state_dict
    if os.path.isfile(path):
        with torch.serialization.safe_globals([argparse.Namespace, collections.defaultdict, collections.deque, datetime.datetime,
                                               datetime.timezone, datetime.timedelta, frozenset, pathlib.PurePosixPath, int]):
            saved = torch.load(path, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        return
    states, of_optimizer = get_model_state_dict(model), get_optimizer_state_dict(model, optimizer)
    groups = of_optimizer.pop("param_groups")  # DeepSpeed's have not all keys of torch's
    dcp.load({"model": states, "optimizer": of_optimizer}, checkpoint_id=path, no_dist=True)
    set_state_dict(model, optimizer, model_state_dict=states, optim_state_dict=dict(of_optimizer, param_groups=groups))


def work_in_torch(out, job):
    import torch
    torch.set_num_threads(1)
    model, groups, _ = run_of(torch, job)
    optimizer = torch.optim.AdamW(groups, lr=0.05)
    load_in_torch(torch, model, optimizer, job["load"])
    assert {int(state["step"]) for state in optimizer.state.values()} == {BEFORE}, "another step"
    losses = []
    for i in range(BEFORE, BEFORE + BEHIND):
        optimizer.zero_grad()
        loss = make_zero.loss_of(torch, model, 0, i)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with open(out, "w") as file:
        json.dump({"losses": losses, "lr": [group["lr"] for group in optimizer.param_groups]}, file)


def work_by_fsdp(rank, out, job, port):
    """Trains with FSDP2, and saves what its state dicts say, with client state beside them."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(job["world"]), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model, _, decay = run_of(torch, job)
    fully_shard(model, mesh=init_device_mesh("cpu", (job["world"],)))
    optimizer, losses = torch.optim.AdamW(groups_of(model, decay), lr=0.05), []
    for i in range(BEFORE + BEHIND):
        if i == BEFORE:
            states, of_optimizer = get_state_dict(model, optimizer)
            dcp.save(dict(client_values(torch, job), model=states, optimizer=of_optimizer, global_step=BEFORE, note="kept as it is"),
                     checkpoint_id=job["save"])
        optimizer.zero_grad()
        loss = make_zero.loss_of(torch, model, 0, i)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if rank == 0:
        with open(out, "w") as file:
            json.dump({"losses": losses[BEFORE:], "lr": [group["lr"] for group in optimizer.param_groups]}, file)
    dist.barrier()
    dist.destroy_process_group()


def step(torch, engine, job, i):
    if "stages" not in job:
        return make_zero.step(torch, engine, 0, i)
    batches = [batch for _, batch in zip(range(MICRO * (i + 1)), make_zero_pipe.batches(torch, 0))][MICRO * i:]
    if job["stages"] != 0:
        return engine.train_batch(iter(batches)).item()
    total = 0
    for ids, labels in batches:
        loss = make_zero_pipe.loss_of(torch)(engine(ids), labels)
        engine.backward(loss)
        engine.step()
        total += loss.detach()
    return (total / MICRO).item()


def work(rank, out, job, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(job["world"]), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    import deepspeed
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    make_zero.patch(job["precision"])
    deepspeed.init_distributed("gloo")
    engine, client = engine_of(torch, deepspeed, job), {}
    if "load" in job:
        path, client = engine.load_checkpoint(job["load"], load_module_strict=not job.get("frozen"),
                                              load_lr_scheduler_states="of_torch" not in job)
        assert path is not None, "nothing was loaded"
        assert engine.global_steps == BEFORE, engine.global_steps
        for key, value in client_values(torch, job).items():
            assert client.get(key) == value and type(client[key]) is type(value), (key, client.get(key))
        assert "counts" not in client or client["counts"].default_factory is int, client
        assert client["recent"].maxlen == 4, client
        assert "tag" not in job or (job["tag"] in path.split(os.sep) and client["seat"] == 0), (path, client)
    else:
        for i in range(BEFORE):
            step(torch, engine, job, i)
        seat = {"seat": rank} if "tag" in job else {}
        engine.save_checkpoint(job["save"], tag=job.get("tag"), exclude_frozen_parameters=job.get("frozen", False),
                               client_state=dict(client_values(torch, job), **seat, note="kept as it is",
                                                 table=make_zero.client_tensor(torch)))
    losses = [step(torch, engine, job, i) for i in range(BEFORE, BEFORE + BEHIND)]
    if rank == 0:
        with open(out, "w") as file:
            json.dump({"losses": losses, "lr": [float(lr) for lr in engine.get_lr()], "note": client.get("note")}, file)
    dist.barrier()
    dist.destroy_process_group()


def main():
    import deepspeed  # noqa: F401  (before the fork)
    import torch
    import torch.multiprocessing as mp
    torch.set_num_threads(1)
    said = []
    for i, job in enumerate(json.loads(sys.argv[2])):
        if "argv" in job:
            subprocess.run(job["argv"], check=True)
            continue
        part = sys.argv[1] + ".part"
        if "in_torch" in job:
            work_in_torch(part, job)
        else:
            mp.start_processes(work_by_fsdp if "by_fsdp" in job else work, args=(part, job, 29300 + (os.getpid() + 7 * i) % 290), nprocs=job["world"],
                               start_method="fork")
        with open(part) as file:
            said.append(json.load(file))
    with open(sys.argv[1], "w") as file:
        json.dump(said, file)


if __name__ == "__main__":
    main()
