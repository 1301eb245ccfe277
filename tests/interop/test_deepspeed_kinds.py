"""DeepSpeed goes on from what was saved by optimizers and in layouts of its other kinds, resharded: with the next losses
of the run that saved. And what its own converter makes of a folder is a checkpoint like others."""
import json
import os
import sys

from command import CKPT, ckpt, main
from test_deepspeed import PLAIN_LINEAR, all_go_on, check, goes_on, make_zero, run, saved, zero_targets

FP32_GRADIENTS = {"data_types": {"grad_accum_dtype": "fp32"}}


def gathered(folder, case, *row):
    """What the run itself gathered is what we read, and what consolidate makes of it."""
    path = saved(folder, case, *row)
    weights = path + "-weights.safetensors"
    check(path)
    ckpt("consolidate", path, "-o", path + "-hf")
    ckpt("convert", path + ".safetensors", "-o", weights, "--exclude", "table")  # client state
    ckpt("diff", path + "-hf", weights)


def test_bf16_optimizer_goes_on(folder):
    """Which its engine takes for stage 1 in bf16 with gradients in fp32; it loads universal checkpoints on other ranks."""
    all_go_on(folder, "bf16", 1, 2, [((1, 4), (1, 2), (1, 3))], [("universal", "--dp", "4")], rest=FP32_GRADIENTS)


def test_bf16_optimizer_goes_on_in_zero(folder):
    gathered(folder, "gathered", 2, 1, "bf16", {}, FP32_GRADIENTS)
    all_go_on(folder, "bf16", 1, 4, *zero_targets((1, 2), (3, 2)), rest=FP32_GRADIENTS)


def test_masters_and_moments_of_bf16_go_on(folder):
    for stage in (2, 3):
        case = os.path.join(folder, str(stage))
        os.mkdir(case)
        all_go_on(case, "bf16", stage, 2, *zero_targets((stage, 4), (stage, 1)), decay=[0.1], rest={"bf16": make_zero.BF16_STATES})


def test_parameter_alignment_goes_on(folder):
    """Parameters that begin where their mappings say, which zero_to_fp32 takes for padding's."""
    gathered(folder, "gathered", 4, 1, "bf16", {"parameter_alignment": True}, {})
    all_go_on(folder, "bf16", 2, 2, *zero_targets((2, 1), (1, 4), (3, 2)), more={"parameter_alignment": True})


def test_stage_0_goes_on_with_zero(folder):
    """torch's AdamW without ZeRO: in fp16 FP16_UnfusedOptimizer has the masters. The scale is 1, see
    test_flat_masters_go_on."""
    for precision, rest in {"fp16": {"fp16": {"enabled": True, "initial_scale_power": 0}}, "bf16": {}}.items():
        case = os.path.join(folder, precision)
        os.mkdir(case)
        targets, argv = zero_targets((2, 4), (3, 2))
        all_go_on(case, precision, 0, 2, targets + [((1, 2),)], argv + [("universal",)], rest=rest)


def test_elastic_checkpoints_are_read(folder):
    """They keep each rank's part without its padding, and no groups: weights and moments alone go on elsewhere."""
    for stage in (1, 2):
        check(saved(folder, "elastic%d" % stage, 3, stage, "bf16", {"elastic_checkpoint": True}, {}))


def test_universal_of_deepspeed_goes_on_in_zero(folder):
    for stage, targets in ((2, ((1, 3), (3, 2))), (3, ((2, 4), (3, 1)))):
        case = os.path.join(folder, str(stage))
        os.mkdir(case)
        save, theirs = os.path.join(case, "save"), os.path.join(case, "theirs")
        common = {"precision": "bf16", "decay": [0.1], "rest": {}}
        jobs = [dict(common, world=2, stage=stage, save=save, more=PLAIN_LINEAR),
                {"argv": [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state", "--input_folder",
                          os.path.join(save, "global_step3"), "--output_folder", os.path.join(theirs, "global_step3_universal")]}]
        for s, w in targets:
            out = os.path.join(case, "out%d%d" % (s, w))
            jobs += [{"argv": [CKPT, "reshard", "--quiet", theirs, "-o", out, "--to", "zero", "--stage", str(s), "--dp", str(w)]},
                     dict(common, world=w, stage=s, load=out, more=PLAIN_LINEAR)]
        said = run(case, jobs)
        ckpt("verify", theirs)
        for job, found in zip([job for job in jobs if "load" in job], said[1:], strict=True):
            ckpt("diff", theirs, job["load"], "--include", "all")
            goes_on(said[0], found, job)


def test_tag_and_client_state_of_ranks_go_on(folder):
    """In stage 3 each rank saves its own client state: rank 0's goes on, which a note says of what the others have."""
    save = os.path.join(folder, "save")
    common = {"precision": "bf16", "decay": [0.1], "tag": "best", "more": PLAIN_LINEAR}
    jobs = [dict(common, world=2, stage=3, save=save)]
    for stage, world in ((3, 4), (1, 2)):
        out = os.path.join(folder, "out%d" % stage)
        jobs += [{"argv": [CKPT, "reshard", "--quiet", save, "-o", out, "--to", "zero", "--stage", str(stage), "--dp", str(world)]},
                 dict(common, world=world, stage=stage, load=out)]
    said = run(folder, jobs)
    for job, found in zip([job for job in jobs if "load" in job], said[1:], strict=True):
        ckpt("diff", save, job["load"], "--include", "all")
        goes_on(said[0], found, job)
    notes = json.loads(ckpt("inspect", save, "--json"))["notes"]
    assert any("seat" in note for note in notes), notes


def test_fsdp2_goes_on_in_deepspeed(folder):
    """What torch saved of FSDP2 by DCP, client state beside it: the next losses, in another arithmetic."""
    save = os.path.join(folder, "save")
    common = {"precision": "fp32", "rest": {"scheduler": {"type": "WarmupLR", "params": {
        "warmup_min_lr": 0.05, "warmup_max_lr": 0.05, "warmup_num_steps": 10}}}}
    jobs = [dict(common, world=2, save=save, by_fsdp=True)]
    for stage, world in ((1, 3), (2, 2)):  # DCP does not tell the float buffer, which stage 3 has apart
        out = os.path.join(folder, "out%d" % stage)
        jobs += [{"argv": [CKPT, "reshard", "--quiet", save, "-o", out, "--to", "zero", "--stage", str(stage), "--dp", str(world)]},
                 dict(common, world=world, stage=stage, load=out, of_torch=True, more=PLAIN_LINEAR)]
    said = run(folder, jobs)
    for found in said[1:]:
        assert found["note"] == "kept as it is" and found["lr"] == said[0]["lr"], found
        for a, b in zip(said[0]["losses"], found["losses"], strict=True):
            assert abs(a - b) <= 1e-5 * abs(a), (said[0]["losses"], found["losses"])


if __name__ == "__main__":
    main(globals())
