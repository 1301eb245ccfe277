"""What trainers save beside a model is one checkpoint with it: carried byte for byte, and the run goes on from the copy."""
import contextlib
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import warnings

import command

command.need("accelerate", "transformers")
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save  # noqa: E402
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data"))
import make_trainer  # noqa: E402

ACCELERATE = {"optimizer.bin", "scheduler.bin", "random_states_0.pkl"}
TRAINER = {"optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "training_args.bin"}


def content(folder, name):
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()


def check_carried(saved, wanted, out, read=(), dropped=()):
    """Everything goes to a folder, by --include all and by reshard; what is left out is said. read: files whose tensors
    reshard writes in their place; dropped: files of an optimizer of a model that nobody knows, without which alone it goes
    on."""
    assert wanted <= set(os.listdir(saved)), os.listdir(saved)
    listed = {line.split("  ", 1)[1] for line in command.ckpt("hash", "--files", saved).splitlines()}
    assert {os.path.join(saved, name) for name in wanted} <= listed, listed
    reshard = ["reshard", saved, "-o", out + "-dcp", "--to", "dcp", "--world", 2, "--receipt", out + ".json"]
    if dropped:
        command.ckpt(*reshard, status=1)
        assert not os.path.exists(out + "-dcp")
    command.ckpt(*reshard, *["--drop", "optimizer"] * bool(dropped))
    command.ckpt("verify", out + "-dcp", "--receipt", out + ".json")
    command.ckpt("convert", saved, "-o", out + "-all", "--include", "all")
    command.ckpt("convert", saved, "-o", out + "-model")
    for name in wanted:
        assert content(saved, name) == content(out + "-all", name), name
        assert os.path.exists(os.path.join(out + "-dcp", name)) == (name not in (*read, *dropped)), name
        assert name in read or name in dropped or content(saved, name) == content(out + "-dcp", name), name
        assert not os.path.exists(os.path.join(out + "-model", name)), name
    command.ckpt("hash", saved, "--include", "all", "-o", out + "-manifest.json")
    command.ckpt("verify", out + "-all", "--manifest", out + "-manifest.json")
    changed = sorted(wanted)[0]
    with open(os.path.join(out + "-all", changed), "ab") as file:
        file.write(b"x")
    assert changed in command.ckpt("verify", out + "-all", "--manifest", out + "-manifest.json", status=1)
    with open(os.path.join(out + "-all", changed), "wb") as file:
        file.write(content(saved, changed))


def test_accelerate(folder):
    from accelerate import Accelerator

    def prepared():
        torch.manual_seed(0)
        accelerator = Accelerator(cpu=True)
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        return (accelerator, *accelerator.prepare(model, optimizer, scheduler))

    accelerator, model, optimizer, scheduler = prepared()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    scheduler.step()
    saved = os.path.join(folder, "saved")
    accelerator.save_state(saved)
    check_carried(saved, ACCELERATE, os.path.join(folder, "out"), dropped=["optimizer.bin"])
    accelerator, again, optimizer_again, scheduler_again = prepared()
    accelerator.load_state(os.path.join(folder, "out-all"))
    assert torch.equal(again.weight, model.weight)
    assert scheduler_again.get_last_lr() == scheduler.get_last_lr()
    states, before = optimizer_again.state_dict()["state"], optimizer.state_dict()["state"]
    assert torch.equal(states[0]["exp_avg"], before[0]["exp_avg"])


def test_trainer(folder):
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
    data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 8

    def run(n_steps, resumed=None):
        torch.manual_seed(0)
        model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=16, n_positions=8))
        args = TrainingArguments(os.path.join(folder, "run"), max_steps=4, save_steps=2, report_to=[], use_cpu=True,
                                 per_device_train_batch_size=2, disable_tqdm=True, logging_strategy="no")
        trainer = Trainer(model, args, train_dataset=data)
        with contextlib.redirect_stdout(io.StringIO()):
            trainer.train(resume_from_checkpoint=resumed)
        return {name: value.clone() for name, value in model.state_dict().items()}

    whole = run(4)
    saved = os.path.join(folder, "run", "checkpoint-2")
    out = os.path.join(folder, "out")
    check_carried(saved, TRAINER, out, read=["optimizer.pt"])
    resumed = run(4, out + "-all")
    assert all(torch.equal(whole[name], value) for name, value in resumed.items())


def test_client_state_keeps_its_shape(folder):
    """Tensors beside other values in what save_checkpoint was given: the same dicts and lists wherever they go."""
    def client():
        return {"nested": {"a": [1, 2.5, None], "t": torch.arange(4.0), "deep": {"l": [torch.ones(2), {"x": 5}]}},
                "mixed": [1, torch.full((3,), 7.0)], "pair": (2, torch.zeros(1)), "only": {"u": torch.ones(1)}}

    def check(path, is_dcp=True):
        wanted, read = client(), torch.load(path, weights_only=False)
        if is_dcp:  # whose planner knows no tuples
            wanted["pair"] = list(wanted["pair"])
        assert not [key for key in read if "." in key], list(read)
        torch.testing.assert_close({key: read.get(key) for key in wanted}, wanted, rtol=0, atol=0)

    saved = os.path.join(folder, "saved")
    shutil.copytree(os.path.join(make_trainer.ROOT, "..", "zero", "stage2-bf16"), saved)
    model_file = os.path.join(saved, "global_step3", "mp_rank_00_model_states.pt")
    torch.save(dict(torch.load(model_file, weights_only=False), **client()), model_file)
    to = {"pt": os.path.join(folder, "out.pt"), "dcp": os.path.join(folder, "dcp")}
    command.ckpt("consolidate", saved, "-o", to["pt"], "--include", "all")
    command.ckpt("reshard", saved, "-o", to["dcp"], "--to", "dcp", "--world", 2)
    check(to["pt"], False)
    dcp_to_torch_save(to["dcp"], to["dcp"] + ".pt")
    check(to["dcp"] + ".pt")
    into = {"nested": dict(client()["nested"], t=torch.zeros(4)), "mixed": [0, torch.zeros(3)]}
    dcp.load(into, checkpoint_id=to["dcp"])
    torch.testing.assert_close(into, {key: client()[key] for key in into}, rtol=0, atol=0)
    for name, path in to.items():
        for argv in (["zero", "--stage", 1, "--dp", 2], ["zero", "--stage", 3, "--dp", 2], ["universal"]):
            out = os.path.join(folder, "-".join([name, *map(str, argv)]))
            command.ckpt("reshard", path, "-o", out, "--to", *argv)
            rank = "zero_pp_rank_0_mp_rank_00" if argv[0] == "zero" and argv[2] == 3 else "mp_rank_00"
            tag = "global_step3" + "_universal" * (argv == ["universal"])
            check(os.path.join(out, tag, rank + "_model_states.pt"), name == "dcp")


def test_numbered_optimizer(folder):
    """States that a run numbers, by the names that it has for them inside: read, resharded to everything, and back."""
    for case in make_trainer.CASES:
        make_trainer.write(folder, case)
        saved = os.path.join(folder, case)
        reference = saved + ".safetensors"
        command.ckpt("diff", "--include", "all", saved, reference)
        command.ckpt("verify", saved)
        for name, argv in {"dcp": ["dcp", "--world", 2], "zero1": ["zero", "--stage", 1, "--dp", 2],
                           "zero3": ["zero", "--stage", 3, "--dp", 3], "universal": ["universal"]}.items():
            out, back = saved + "-" + name, saved + "-" + name + "-back"
            if case == "llama-adafactor" and name != "dcp":  # whose rows and columns ZeRO keeps nowhere
                command.ckpt("reshard", saved, "-o", out, "--to", *argv, status=1)
                continue
            command.ckpt("reshard", saved, "-o", out, "--to", *argv)
            command.ckpt("verify", out)
            command.ckpt("reshard", out, "-o", back, "--to", "dcp")
            for path in (out, back):  # DeepSpeed has masters besides
                flat = path + ".safetensors"
                masters = [] if name == "dcp" else ["--exclude", "*.master"]
                command.ckpt("convert", path, "-o", flat, "--include", "all", *masters)
                command.ckpt("diff", "--include", "all", flat, reference)


def test_numbered_optimizer_goes_on_in_torch(folder):
    """From a DCP folder that was made of a Trainer's checkpoint torch takes the states of the run, by names."""
    torch.manual_seed(1)
    model = make_trainer.llama()
    trainer = make_trainer.train(model, os.path.join(folder, "run"))
    saved, out = os.path.join(folder, "run", "checkpoint-2"), os.path.join(folder, "dcp")
    command.ckpt("reshard", saved, "-o", out, "--to", "dcp")
    again = make_trainer.llama()
    optimizer = torch.optim.AdamW(again.parameters())
    loss = again(torch.arange(8)[None], labels=torch.arange(8)[None]).loss
    loss.backward()
    optimizer.step()  # states to be loaded into
    states = {"model": get_model_state_dict(again), "optimizer": get_optimizer_state_dict(again, optimizer)}
    states["optimizer"].pop("param_groups")
    dcp.load(states, checkpoint_id=out, no_dist=True)
    inner = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    for name, parameter in trainer.model.named_parameters():
        for key in ("exp_avg", "exp_avg_sq", "step"):
            assert torch.equal(states["optimizer"]["state"][name][key], inner.state[parameter][key]), (name, key)


def test_numbered_optimizer_goes_on_in_deepspeed(folder):
    """From what was made of a Trainer's checkpoint DeepSpeed takes masters, moments and steps, on one rank and on two."""
    if importlib.util.find_spec("deepspeed") is None:
        return command.skip("deepspeed is not installed")
    torch.manual_seed(1)
    trainer = make_trainer.train(make_trainer.llama(), os.path.join(folder, "run"))
    saved, reference = os.path.join(folder, "run", "checkpoint-2"), os.path.join(folder, "reference.safetensors")
    tensors = make_trainer.states_of(trainer.model, trainer.optimizer)
    masters = {"optimizer.state.%s.master" % name: value.clone() for name, value in trainer.model.state_dict().items()}
    save_file({**tensors, **masters}, reference)
    for stage, world in (1, 1), (3, 2):
        out = os.path.join(folder, "zero%d" % stage)
        command.ckpt("reshard", saved, "-o", out, "--to", "zero", "--stage", stage, "--dp", world)
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trainer_goes_on.py")
        done = subprocess.run([sys.executable, program, out, str(stage), str(world), out + ".safetensors"],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
        command.ckpt("diff", "--include", "all", out + ".safetensors", reference)


def test_model_and_optimizer_apart(folder):
    """torch.distributed.checkpoint.save called twice: one checkpoint, whether the two dicts name themselves or not."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2, bias=False))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    weights, states = get_model_state_dict(model), get_optimizer_state_dict(model, optimizer)
    whole = dict(weights)
    for parameter, state in states["state"].items():
        for leaf, value in state.items():
            whole["optimizer.state.%s.%s" % (parameter, leaf)] = value
    reference = os.path.join(folder, "reference.safetensors")
    save_file({name: value.clone().contiguous() for name, value in whole.items()}, reference)
    forms = {"bare": (weights, states), "named": ({"model": weights}, {"optimizer": states}), "mixed": (weights, {"optim": states})}
    for form, (first, second) in forms.items():
        saved = os.path.join(folder, form)
        dcp.save(first, checkpoint_id=os.path.join(saved, "model"), no_dist=True)
        dcp.save(second, checkpoint_id=os.path.join(saved, "optimizer"), no_dist=True)
        torch.save({"last_epoch": 1}, os.path.join(saved, "scheduler.pt"))
        command.ckpt("diff", "--include", "all", saved, reference)
        command.ckpt("verify", saved)
        out = os.path.join(folder, form + "-2")
        command.ckpt("reshard", saved, "-o", out, "--to", "dcp", "--world", 2)
        command.ckpt("diff", "--include", "all", out, reference)
        assert content(saved, "scheduler.pt") == content(out, "scheduler.pt")
        again = {"model": {name: torch.zeros_like(value) for name, value in weights.items()}}
        dcp.load(again, checkpoint_id=out, no_dist=True)
        assert all(torch.equal(value, weights[name]) for name, value in again["model"].items()), form


def test_files_for_deepspeed_are_weights_only(folder):
    """Of what is written for DeepSpeed, which loads anything, weights-only loading takes all but what DeepSpeed's own
    optimizers ask for; client state of other classes is not there, also where a tensor has it as an attribute."""
    own = {"deepspeed.runtime.fp16.loss_scaler.LossScaler", "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler",
           "deepspeed.runtime.zero.config.ZeroStageEnum"}
    tests = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    plain, other = torch.arange(3.0), torch.arange(4.0)
    plain.note, other.note = 5, contextlib.ExitStack()
    state = {"step": torch.tensor(1.0), "exp_avg": torch.ones(2), "exp_avg_sq": torch.ones(2)}
    groups = [{"lr": 0.1, "params": [0], "param_names": ["w"]}]
    made = os.path.join(folder, "made.pt")
    torch.save({"model": {"w": torch.ones(2)}, "optimizer": {"state": {0: state}, "param_groups": groups},
                "kept": {"t": plain, "list": [1, {"deep": "text"}]}, "lost": {"t": other}}, made)
    for saved in (made, os.path.join(tests, "golden-errors", "zero", "noted-client-state"),
                  os.path.join(tests, "data", "zero", "fp16-skipped")):
        for to in "zero", "universal":
            out = os.path.join(folder, os.path.basename(saved) + "-" + to)
            command.ckpt("convert", saved, "-o", out, "--to", to)
            n, kept = 0, set()
            for at in [os.path.join(at, name) for at, _, files in os.walk(out) for name in files if name.endswith(".pt")]:
                is_optimizer = "optim" in os.path.basename(at)
                assert set(torch.serialization.get_unsafe_globals_in_checkpoint(at)) <= (own if is_optimizer else set()), at
                if not is_optimizer:
                    held = torch.load(at, weights_only=True)
                    kept.update(held if isinstance(held, dict) else ())
                n += not is_optimizer
            assert n != 0, to
            assert saved != made or ("kept" in kept and "lost.t" in kept and "lost" not in kept), kept  # its values stay


def test_a_damaged_optimizer_is_refused(folder):
    """What torch cannot load is no optimizer that was left out: a byte here and there, the end, all of it."""
    source = os.path.join(command.TESTS, "data", "trainer", "llama")
    with open(os.path.join(source, "optimizer.pt"), "rb") as file:
        whole = file.read()
    cuts = {"zeros": bytes(len(whole)), "first": b"X" + whole[1:], "cut": whole[:9000], "words": b"words", "empty": b""}
    for name, damaged in cuts.items():
        path = os.path.join(folder, name)
        shutil.copytree(source, path)
        with open(os.path.join(path, "optimizer.pt"), "wb") as file:
            file.write(damaged)
        try:
            torch.load(os.path.join(path, "optimizer.pt"), weights_only=True)
        except Exception:  # whatever it is, there is no optimizer
            command.ckpt("verify", path, status=1)
            command.ckpt("hash", path, "--include", "all", status=1)
            command.ckpt("convert", path, "-o", path + ".pt", status=1)
            command.ckpt("reshard", path, "-o", path + "-dcp", "--to", "dcp", status=1)
            command.ckpt("reshard", path, "-o", path + "-dcp", "--to", "dcp", "--drop", "optimizer")
            continue
        raise AssertionError("torch loads %s" % name)


if __name__ == "__main__":
    command.main(globals())
