"""DeepSpeed goes on from what we write of a run whose frozen parameter has two names, saved or left out."""
import os

import test_deepspeed as runs
from command import ckpt, main, need

need("deepspeed", "safetensors", "torch")


def goes_on(folder, stage, is_left_out, *targets):
    save, out = os.path.join(folder, "save"), os.path.join(folder, "out")
    common = {"precision": "bf16", "frozen": is_left_out}
    jobs = [dict(common, world=2, stage=stage, save=save)]
    for i, (to, world) in enumerate(targets):
        argv = ["reshard", "--quiet", save, "-o", out + str(i), "--to", "zero", "--stage", str(to), "--dp", str(world)]
        jobs += [{"argv": [runs.CKPT, *argv]}, dict(common, world=world, stage=to, load=out + str(i))]
    said = runs.run(folder, jobs)
    for i, found in enumerate(said[1:]):
        ckpt("diff", save, out + str(i), "--include", "all")
        runs.goes_on(said[0], found, jobs[2 + 2 * i])


def test_ties(folder):
    goes_on(folder, 3, False, (3, 4), (2, 1), (1, 2))


def test_ties_of_stage_2(folder):
    goes_on(folder, 2, False, (3, 2), (2, 4))


def test_left_out(folder):
    goes_on(folder, 3, True, (3, 4), (2, 2))


def test_left_out_of_stage_2(folder):
    goes_on(folder, 2, True, (3, 1), (1, 2))


if __name__ == "__main__":
    main(globals())
