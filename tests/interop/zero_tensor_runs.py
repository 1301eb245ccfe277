"""Runs of DeepSpeed for test_deepspeed_tensor.py; each job is forked, so that torch is imported once.

    python zero_tensor_runs.py OUT.json JOBS.json

{"tensor": T, "stage": S, "load": FOLDER}: loads a checkpoint of make_zero_tensor and says the losses of the next steps.
{"grid": [P, T, D], "tied": B, "uneven": B, "stage": S, "load": FOLDER, "universal": B}: the same of make_zero_grid.
{"tensor": T, "stage": S, "universal": FOLDER}: the same of a universal checkpoint.
{"tensor": T, "stage": S, "save": FOLDER}: what three steps come to is saved.
{"tensor": T, "llama": FOLDER, "save": FOLDER}: cuts the model that is there by its own plan, and saves it in stage 1.
"""
import json
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data"))
import make_zero_grid  # noqa: E402  (sets what DeepSpeed goes by)
import make_zero_tensor  # noqa: E402


def load(engine, job):
    if "load" in job:
        return engine.load_checkpoint(job["load"])
    return engine.load_checkpoint(job["universal"], tag="global_step3_universal")


def go_on(torch, dist, deepspeed, job):
    rest = {} if job["tensor"] > 1 else {"tensor_parallel": {"autotp_size": 0}}
    if "universal" in job:
        rest["checkpoint"] = {"load_universal": True}
    config = make_zero_tensor.config_of(job["tensor"], job["stage"], "fp32", rest)
    engine = make_zero_tensor.engine_of(torch, deepspeed, make_zero_tensor.model_of(torch), config)
    if "save" in job:
        for i in range(3):
            make_zero_tensor.step(torch, engine, 0, i)
        engine.save_checkpoint(job["save"], client_state={"note": "kept as it is"})
        return []
    path, said = load(engine, job)
    assert path is not None and said["note"] == "kept as it is", job
    return [make_zero_tensor.step(torch, engine, 0, 3 + i) for i in range(3)]


def go_on_in_grid(torch, dist, deepspeed, job):
    config = make_zero_grid.config_of(job["stage"], "fp32", {})
    if job.get("universal"):
        config["checkpoint"] = {"load_universal": True}
    engine = make_zero_grid.engine_of(torch, dist, deepspeed, job["grid"], config, job["tied"],
                                      job.get("uneven", False))
    path, said = engine.load_checkpoint(job["load"])
    assert path is not None and said["note"] == "kept as it is", job["load"]
    batches = make_zero_grid.make_zero_pipe.batches(torch, engine.grid.get_data_parallel_rank())
    for _ in range(3 * 2):  # what was seen before
        next(batches)
    return [engine.train_batch(batches).item() for _ in range(3)]


def cut_llama(torch, dist, deepspeed, job):
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(job["llama"])
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1},
              "tensor_parallel": {"autotp_size": job["tensor"]}}
    engine = make_zero_tensor.engine_of(torch, deepspeed, model, config)
    ids = torch.arange(8).reshape(1, 8)
    engine.backward(engine(input_ids=ids, labels=ids).loss * 0)
    for group in engine.optimizer.param_groups:
        group["lr"] = 0.0  # what is saved is what was cut
    engine.step()
    engine.save_checkpoint(job["save"])
    return [name for name, p in engine.module.named_parameters() if p.numel() < model.config.vocab_size]


def ranks_of(job):
    return math.prod(job["grid"]) if "grid" in job else job["tensor"]


def work(rank, job, port, out):
    torch, dist, deepspeed = make_zero_tensor.begin(rank, ranks_of(job), 1, "fp32", port)
    said = (cut_llama if "llama" in job else go_on_in_grid if "grid" in job else go_on)(torch, dist, deepspeed, job)
    if rank == 0:
        with open(out, "w") as file:
            json.dump(said, file)
    dist.barrier()
    dist.destroy_process_group()


def main():
    import deepspeed  # noqa: F401  (once for all)
    import torch.multiprocessing as mp
    out, results = sys.argv[1], []
    for i, job in enumerate(json.loads(sys.argv[2])):
        mp.start_processes(work, args=(job, 29900 + os.getpid() % 90 + i, out), nprocs=ranks_of(job), start_method="fork")
        with open(out) as file:
            results.append(json.load(file))
    with open(out, "w") as file:
        json.dump(results, file)


if __name__ == "__main__":
    main()
