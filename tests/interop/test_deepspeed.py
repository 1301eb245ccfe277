"""What DeepSpeed saves in the run, at other numbers of ranks than the files of tests/data/zero, read with the bits that
were gathered in it; and what its own converters make of the same folders.

The engine needs gloo on the CPU, and compiles a helper of its own when it runs for the first time (minutes).
"""
import json
import os
import subprocess
import sys

from command import CKPT, ckpt, main, need, skip

need("deepspeed", "safetensors", "torch")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "data"))
import make_zero  # noqa: E402  (sets what DeepSpeed goes by)

ENVIRONMENT = dict(os.environ, DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")


def saved(folder, case, *row, script="make_zero"):
    """A checkpoint of a case of make_zero or its like, with another number of ranks where a row is given."""
    code = "import sys, %s as make\nmake.CASES[%r] = %r\nif __name__ == '__main__': make.main()" % (
        script, case, row or make_zero.CASES[case])
    path = os.path.join(folder, "write.py")
    with open(path, "w") as out:
        out.write(code)
    done = subprocess.run([sys.executable, path, folder, case], capture_output=True, text=True,
                          env=dict(ENVIRONMENT, PYTHONPATH=os.path.join(HERE, "..", "data")))
    if done.returncode != 0:
        raise AssertionError(done.stderr[-2000:])
    return os.path.join(folder, case)


def check(path):
    ckpt("diff", path, path + ".safetensors", "--include", "all")
    ckpt("verify", path)
    ckpt("scan", path)


def test_stage_1_on_two_ranks(folder):
    check(saved(folder, "stage1", 2, 1, "bf16", {}, {}))


def test_stage_2_on_five_ranks(folder):
    check(saved(folder, "stage2", 5, 2, "fp32", {}, {}))


def test_round_robin(folder):
    """On 2 ranks parameters lie in another order than the model's; mappings are right where something is padded."""
    for world, stage, more in ((2, 1, {}), (2, 2, {"parameter_alignment": True}), (4, 2, {"parameter_alignment": True})):
        check(saved(folder, "round-%d-%d" % (world, stage), world, stage, "bf16",
                    dict({"round_robin_gradients": True}, **more), {}))


def test_stage_3_on_five_ranks(folder):
    """Five ranks have more than some parameters have elements for: their parts are empty or padding."""
    check(saved(folder, "stage3", 5, 3, "bf16", {"sub_group_size": 7}, {}))


def test_experts(folder):
    """Experts on 2 and 4 ranks, each rank with its own (ep_size), all with all, and both in one model."""
    both = ((4, 2), (2, 1))
    for name, row in {"two": (2, 2, "bf16", ((4, 2), (2, 2)), {}, {}), "one": (2, 1, "fp32", ((4, 1), (2, 1)), {}, {}),
                      "apart": (4, 2, "fp32", ((4, 4), (8, 4)), {}, {}), "both": (4, 2, "bf16", both, {}, {}),
                      "data-first": (4, 1, "fp32", both, {}, {"use_data_before_expert_parallelism": True}),
                      "padded": (2, 2, "bf16", ((4, 2), (2, 2)), {"round_robin_gradients": True, "parameter_alignment": True}, {})}.items():
        check(saved(folder, "moe-" + name, *row, script="make_zero_moe"))


def test_pipelines(folder):
    for name, row in {"two": (2, 2, 1, "fp32", False, {}), "four": (4, 2, 1, "bf16", True, {}),
                      "three": (3, 3, 1, "fp32", True, {})}.items():
        check(saved(folder, "pipe-" + name, *row, script="make_zero_pipe"))


def test_zero_to_fp32(folder):
    """DeepSpeed's own script, in the cases that it does right: the same bits. In stage 1 it loses frozen parameters."""
    import torch
    from safetensors.torch import load_file
    for case in ("stage1", "stage2-bf16", "stage3", "stage3-bf16"):
        path, out = os.path.join(HERE, "..", "data", "zero", case), os.path.join(folder, case)
        module = "import sys; sys.path[0:0] = [%r]; from deepspeed.utils.zero_to_fp32 import *; " % HERE
        code = module + "convert_zero_checkpoint_to_fp32_state_dict(%r, %r, safe_serialization=False)" % (path, out)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT)
        if done.returncode != 0:
            skip("zero_to_fp32 of %s: %s" % (case, done.stderr.strip().splitlines()[-1][:200]))
            continue
        theirs = torch.load(os.path.join(out, "pytorch_model.bin"), weights_only=True)
        ckpt("consolidate", path, "-o", out + ".safetensors", "--dtype", "f32")
        ours = load_file(out + ".safetensors")
        lost = {"fixed.weight", "fixed.bias"} if case == "stage1" else set()
        assert set(ours) - set(theirs) == lost, (case, sorted(set(ours) ^ set(theirs)))
        for name in set(ours) - lost:
            assert torch.equal(ours[name].double(), theirs[name].double()), (case, name)


def run(folder, jobs):
    """What the runs of zero_goes_on.py say, one after the other."""
    out = os.path.join(folder, "runs.json")
    done = subprocess.run([sys.executable, os.path.join(HERE, "zero_goes_on.py"), out, json.dumps(jobs)],
                          capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode != 0:
        raise AssertionError(done.stdout[-1000:] + done.stderr[-3000:])
    with open(out) as file:
        return json.load(file)


def goes_on(wanted, found, case):
    """The same next losses: to the bit where ranks are a power of two, whose mean of equal gradients is exact."""
    assert found["note"] == "kept as it is", case
    rounding = 1e-6 if "has_tensor_lr" in case else 0  # of f32, in which a scheduler goes on with a tensor
    for a, b in zip(wanted["lr"], found["lr"], strict=True):
        assert abs(a - b) <= rounding * a, (case, wanted["lr"], found["lr"])
    assert len(set(wanted["losses"])) == len(wanted["losses"]), "losses that do not change prove nothing"
    is_exact = case["world"] in (1, 2, 4) and "layers" not in case and "muon" not in case
    bound = 1e-5 if "muon" in case else 1e-6  # it orthogonalizes in bf16
    for a, b in zip(wanted["losses"], found["losses"]):
        assert a == b if is_exact else abs(a - b) <= bound * abs(a), (case, wanted["losses"], found["losses"])


PLAIN_LINEAR = {"memory_efficient_linear": False}  # else stage 3 adds biases in a rounding of its own


def all_go_on(folder, precision, stage, world, targets, argv, decay=(0.1, 0.0), more=None, rest=None):
    """Trains, reshards by each of argv, goes on from each; targets are (stage, world) for each of argv."""
    save, common = os.path.join(folder, "save"), {"precision": precision, "decay": decay, "rest": rest or {}}
    jobs = [dict(common, world=world, stage=stage, save=save, more=dict(PLAIN_LINEAR, **(more or {})))]
    for i, arguments in enumerate(argv):
        out = os.path.join(folder, "out%d" % i)
        jobs.append({"argv": [CKPT, "reshard", "--quiet", save, "-o", out, "--to", *arguments]})
        jobs += [dict(common, world=w, stage=s, load=out, more=PLAIN_LINEAR, is_universal=arguments[0] == "universal")
                 for s, w in targets[i]]
    said = run(folder, jobs)
    for i in range(len(argv)):
        out = os.path.join(folder, "out%d" % i)
        ckpt("diff", save, out, "--include", "all")
        ckpt("verify", out)
        ckpt("scan", out)
    for job, found in zip([job for job in jobs if "load" in job], said[1:], strict=True):
        goes_on(said[0], found, job)


def test_universal_goes_on_in_any_stage(folder):
    """DeepSpeed goes on from what we make of its files, on other ranks and in other stages. An engine of stage 3 takes
    one step and one set of hyperparameters for all groups, so that there is one here."""
    all_go_on(folder, "bf16", 2, 2, [((1, 1), (2, 4), (1, 3), (3, 2))], [("universal", "--dp", "4")], decay=[0.1])


def test_universal_of_stage_3_goes_on(folder):
    all_go_on(folder, "fp32", 3, 2, [((3, 4), (1, 2), (3, 3))], [("universal", "--dp", "4")], decay=[0.1])


def test_universal_goes_on_with_two_groups_and_a_loss_scaler(folder):
    all_go_on(folder, "fp16", 1, 2, [((2, 1),)], [("universal",)])


def test_scaler_of_torch(folder):
    """torch's GradScaler, written as DeepSpeed's: the same scales, step by step, and half of it at an overflow."""
    import torch
    from deepspeed.runtime.fp16 import loss_scaler
    loss_scaler.dist.get_rank = lambda: 0
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.named_parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    for tracker in (0, 2, 3):
        state = {"scale": 1024.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 4, "_growth_tracker": tracker}
        path, out = os.path.join(folder, "%d.pt" % tracker), os.path.join(folder, "out%d" % tracker)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": state, "step": 1}, path)
        ckpt("reshard", path, "-o", out, "--to", "zero", "--stage", "1", "--dp", "1")
        saved = torch.load(os.path.join(out, "global_step1", "zero_pp_rank_0_mp_rank_00_optim_states.pt"),
                           weights_only=False)["optimizer_state_dict"]
        theirs, ours = saved["loss_scaler"], torch.tensor(state["scale"])
        assert type(theirs) is loss_scaler.DynamicLossScaler and saved["dynamic_loss_scale"] is True
        fresh = loss_scaler.DynamicLossScaler(1024.0, 4, 1.0, 1, False)
        assert set(vars(theirs)) == set(vars(fresh)) and theirs.dtype is torch.half, vars(theirs)
        count = torch.tensor(tracker, dtype=torch.int32)
        for has_overflow in [False] * 10 + [True, True]:
            theirs.update_scale(has_overflow)
            torch._amp_update_scale_(ours, count, torch.tensor(float(has_overflow)), 2.0, 0.5, 4)
            assert theirs.loss_scale == ours.item(), (tracker, theirs.loss_scale, ours)


def zero_targets(*targets):
    return [((s, w),) for s, w in targets], [("zero", "--stage", str(s), "--dp", str(w)) for s, w in targets]


def test_zero_goes_on_in_other_stages(folder):
    all_go_on(folder, "bf16", 2, 2, *zero_targets((1, 4), (3, 2), (2, 3), (1, 1)))


def test_zero_of_stage_3_goes_on(folder):
    all_go_on(folder, "fp32", 3, 4, *zero_targets((1, 3), (2, 2), (3, 1), (3, 3)))


def test_engine_of_another_dtype_goes_on(folder):
    """Engines of bf16 and fp16 find the files of an fp32 run, and a loss scaler that is theirs: that of fp16 begins with
    steps that overflow, which it skips, so that its first loss alone is the run's."""
    save, common = os.path.join(folder, "save"), {"world": 2, "stage": 1}
    jobs = [dict(common, precision="fp32", save=save)]
    for engine in ("bf16", "fp16"):
        out = os.path.join(folder, engine)
        jobs.append({"argv": [CKPT, "reshard", "--quiet", save, "-o", out, "--to", "zero", "--stage", "1", "--dp", "2", "--engine", engine]})
        jobs.append(dict(common, precision=engine, load=out))
    wanted, *said = run(folder, jobs)
    for engine, found in zip(("bf16", "fp16"), said, strict=True):
        names = os.listdir(os.path.join(folder, engine, "global_step3"))
        assert ("bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt" in names) == (engine == "bf16"), names
        assert found["note"] == "kept as it is", found
        losses = list(zip(wanted["losses"], found["losses"], strict=True))
        for a, b in losses if engine == "bf16" else losses[:1]:
            assert abs(a - b) <= 0.01 * a, (engine, wanted, found)
    assert said[1]["lr"] != wanted["lr"], said[1]  # a scheduler does not step where the engine skips


def test_wrapped_model_goes_on(folder):
    """A model in a wrapper has its names in what it loads again."""
    all_go_on(folder, "bf16", 2, 2, *zero_targets((1, 3), (3, 2)), rest={"wrapper": "_orig_mod."})


def test_zero_of_round_robin_goes_on(folder):
    for world in (2, 4):
        os.mkdir(os.path.join(folder, str(world)))
        all_go_on(os.path.join(folder, str(world)), "bf16", 2, world, *zero_targets((1, 2), (2, 1)), more={"round_robin_gradients": True})


def shape_goes_on(folder, before, behind, target):
    """From a run of one shape, resharded, to one of another."""
    save, out = os.path.join(folder, "save"), os.path.join(folder, "out")
    common = {"precision": "fp32", "world": 2, "stage": 1}
    jobs = [dict(common, save=save) | before, {"argv": [CKPT, "reshard", "--quiet", save, "-o", out, *target]},
            dict(common, load=out, is_universal="universal" in target) | behind]
    said = run(folder, jobs)
    ckpt("diff", save, out, "--include", "all")
    goes_on(said[0], said[1], jobs[2])


def kind_goes_on(folder, *kind):
    for target in (["--to", "universal", "--dp", "2"], ["--to", "zero", "--stage", "1", "--dp", "2"]):
        os.mkdir(os.path.join(folder, target[1]))
        shape_goes_on(os.path.join(folder, target[1]), {"kind": kind}, {"kind": kind}, target)


def test_parameter_without_axes_goes_on(folder):
    """Which DeepSpeed's own ds_to_universal does not convert."""
    kind_goes_on(folder, True, False)


def test_fused_adam_goes_on(folder):
    kind_goes_on(folder, False, True)


def goes_on_through_torch(folder, before):
    """Steps that are numbers: torch's AdamW goes on from DCP and .pt, and DeepSpeed from what is made of those again. The
    learning rate is one that stays, since torch has not DeepSpeed's schedulers."""
    common = {"precision": "fp32", "world": 2, "stage": 2, "rest": {"scheduler": {"type": "WarmupLR", "params": {
        "warmup_min_lr": 0.05, "warmup_max_lr": 0.05, "warmup_num_steps": 10}}}} | before
    save = os.path.join(folder, "save")
    jobs = [dict(common, save=save)]
    for name, argv in {"dcp": ["reshard", "--to", "dcp", "--world", "2"], "run.pt": ["consolidate", "--include", "all"]}.items():
        there, back = os.path.join(folder, name), os.path.join(folder, name + "-back")
        jobs += [{"argv": [CKPT, argv[0], "--quiet", save, "-o", there, *argv[1:]]}, dict(common, load=there, in_torch=True),
                 {"argv": [CKPT, "reshard", "--quiet", there, "-o", back, "--to", "zero", "--stage", "2", "--dp", "2"]},
                 dict(common, load=back)]
    said = run(folder, jobs)
    for job, found in zip([job for job in jobs if "load" in job], said[1:], strict=True):
        ckpt("diff", save, job["load"], "--include", "all")
        if "in_torch" not in job:
            goes_on(said[0], found, job)
            continue
        assert found["lr"] == said[0]["lr"], (found["lr"], said[0]["lr"])
        for a, b in zip(said[0]["losses"], found["losses"], strict=True):  # DeepSpeed's arithmetic is its own
            assert abs(a - b) <= 1e-5 * abs(a), (said[0]["losses"], found["losses"])


def test_optimizer_on_the_cpu_goes_on_through_torch(folder):
    goes_on_through_torch(folder, {"offload": True, "more": {"offload_optimizer": {"device": "cpu"}}})


def test_fused_adam_goes_on_through_torch(folder):
    goes_on_through_torch(folder, {"kind": (False, True)})


def test_muon_goes_on(folder):
    """Matrices have a momentum, and all else Adam's states: between its stages, where no rank needs a copy."""
    for before, stage, world in ((1, 3, 2), (1, 1, 1), (3, 2, 1), (3, 3, 4)):
        case = os.path.join(folder, "%d-%d" % (before, stage))
        os.mkdir(case)
        shape_goes_on(case, {"muon": True, "stage": before}, {"muon": True, "stage": stage, "world": world},
                      ["--to", "zero", "--stage", str(stage), "--dp", str(world)])
    ckpt("reshard", "--quiet", os.path.join(case, "save"), "-o", os.path.join(folder, "out"), "--to", "zero", "--stage", "1", "--dp",
         "2", status=1)


def test_one_value_of_a_group_goes_on(folder):
    """NAdam's mu_product: between its stages; universal checkpoints have no place for it."""
    nadam = {"optimizer": "NAdam"}
    for before, stage, world in ((2, 3, 2), (3, 1, 2), (1, 3, 1)):
        case = os.path.join(folder, "%d-%d" % (before, stage))
        os.mkdir(case)
        shape_goes_on(case, dict(nadam, stage=before), dict(nadam, stage=stage, world=world),
                      ["--to", "zero", "--stage", str(stage), "--dp", str(world)])
    ckpt("reshard", "--quiet", os.path.join(case, "save"), "-o", os.path.join(folder, "out"), "--to", "universal", status=1)
    import torch
    whole, out = os.path.join(folder, "whole.pt"), os.path.join(folder, "zero")
    ckpt("consolidate", os.path.join(case, "save"), "-o", whole, "--include", "all")
    ckpt("reshard", whole, "-o", out, "--to", "zero", "--stage", "1", "--dp", "2")
    ckpt("diff", out, whole, "--include", "all")
    read = torch.load(whole, weights_only=False)
    read["optimizer"]["state"]["up.weight"]["mu_product"] *= 0.5
    torch.save(read, whole)
    said = ckpt("reshard", "--json", whole, "-o", out + "-2", "--to", "zero", "--stage", "1", "--dp", "2", status=1)
    assert "this format has one for all" in said, said


def test_learning_rate_in_a_tensor_goes_on(folder):
    """Which torch.optim takes, and a scheduler keeps."""
    lr = {"has_tensor_lr": True}
    for target in (["--to", "universal", "--dp", "2"], ["--to", "zero", "--stage", "1", "--dp", "2"]):
        os.mkdir(os.path.join(folder, target[1]))
        shape_goes_on(os.path.join(folder, target[1]), lr, lr, target)


def test_flat_masters_go_on(folder):
    """FusedAdam without ZeRO: an engine of ZeRO goes on. The scale is 1, since in fp16 without ZeRO DeepSpeed 0.19.8
    divides gradients by it that it did not multiply."""
    for precision, target in (("fp16", ["--to", "universal", "--dp", "2"]),
                              ("bf16", ["--to", "zero", "--stage", "2", "--dp", "2"])):
        common = {"kind": (True, True), "precision": precision,
                  "rest": {precision: dict({"enabled": True}, **({"initial_scale_power": 0} if precision == "fp16" else {}))}}
        os.mkdir(os.path.join(folder, precision))
        shape_goes_on(os.path.join(folder, precision), dict(common, stage=0, world=1), dict(common, stage=2), target)


def test_experts_go_on_together(folder):
    """A run with ep_size 2 goes on with all experts on each rank, whose products add up in another order."""
    shape_goes_on(folder, {"layers": ((4, 2), (2, 2))}, {"layers": ((4, 1), (2, 1))}, ["--to", "universal", "--dp", "2"])


def test_pipeline_goes_on_in_one_stage(folder):
    shape_goes_on(folder, {"stages": 2}, {"stages": 0}, ["--to", "zero", "--stage", "1", "--dp", "2"])


if __name__ == "__main__":
    main(globals())
