"""A run of FSDP on 2 processes, which accelerate saves sharded, and that goes on; and DeepSpeed, which goes on from what
ckpt makes of the folder: the next losses of each, and the learning rate.

    python fsdp_goes_on.py OUT.json CKPT FOLDER VERSION '[[stage, world], ...]'

Forked as the runs of zero_goes_on.py are.
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data"))
import make_fsdp  # noqa: E402
import make_zero  # noqa: E402  (sets what DeepSpeed goes by)

BEHIND = 3  # steps


def tell(rank, out, losses, lr):
    if rank == 0:
        with open(out, "w") as file:
            json.dump({"losses": losses, "lr": lr}, file)


def train(rank, out, folder, version, port):
    tell(rank, out, make_fsdp.save(rank, folder, port, version, "sharded", BEHIND), [0.1 * 0.1 ** 2])


def go_on(rank, out, folder, stage, world, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    import deepspeed
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    model = make_fsdp.model_of()
    config = make_zero.config_of(stage, "fp32", {"memory_efficient_linear": False}, {"gradient_clipping": 0.0})
    del config["scheduler"]  # the rate stays what it was
    engine = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.5), config=config)[0]
    assert engine.load_checkpoint(folder)[0] is not None, "nothing was loaded"
    losses = []
    for _ in range(BEHIND):
        loss = make_fsdp.loss_of(engine)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    tell(rank, out, losses, [float(lr) for lr in engine.get_lr()])
    dist.barrier()
    dist.destroy_process_group()


def main():
    import accelerate.utils.fsdp_utils  # noqa: F401  (before the fork)
    import deepspeed  # noqa: F401
    import torch
    import torch.multiprocessing as mp
    torch.set_num_threads(1)
    out, ckpt, folder, version = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    said, part, port = [], out + ".part", 29300 + os.getpid() % 290

    def run(function, n, *arguments):
        mp.start_processes(function, args=(part, *arguments, port + 7 * len(said)), nprocs=n, start_method="fork")
        with open(part) as file:
            said.append(json.load(file))

    run(train, 2, folder, version)
    for stage, world in json.loads(sys.argv[5]):
        to = "%s-%d-%d" % (folder, stage, world)
        subprocess.run([ckpt, "reshard", "--quiet", folder, "-o", to, "--to", "zero", "--stage", str(stage), "--dp", str(world)],
                       check=True)
        run(go_on, world, to, stage, world)
    with open(out, "w") as file:
        json.dump(said, file)


if __name__ == "__main__":
    main()
