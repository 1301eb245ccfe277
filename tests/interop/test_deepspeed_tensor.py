"""Checkpoints of DeepSpeed with tensor-parallel ranks (AutoTP), saved in the run: read with the bits that were gathered
in it, by maps and by patterns alone, of pipelines too; as DeepSpeed's own converter makes them universal; and gone on
from without tensor parallelism. The engine needs gloo on the CPU.
"""
import json
import os
import re
import shutil
import subprocess
import sys

from command import CKPT, ckpt, main, need

need("deepspeed", "safetensors", "torch", "transformers")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "data"))
import make_zero_grid  # noqa: E402  (sets what DeepSpeed goes by)
import make_zero_tensor  # noqa: E402

ENVIRONMENT = dict(os.environ, DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="", PYTHONPATH=os.path.join(HERE, "..", "data"))


def call(*argv):
    done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode != 0:
        raise AssertionError(done.stdout[-1000:] + done.stderr[-3000:])


def saved(folder, cases, script="make_zero_tensor"):
    """The checkpoints of cases, by one process."""
    code = "import %s as make\nmake.CASES.update(%r)\nif __name__ == '__main__': make.main()" % (script, cases)
    script = os.path.join(folder, "write.py")
    with open(script, "w") as out:
        out.write(code)
    call(script, folder, *cases)
    return [os.path.join(folder, case) for case in cases]


def runs(folder, jobs):
    out = os.path.join(folder, "runs.json")
    call(os.path.join(HERE, "zero_tensor_runs.py"), out, json.dumps(jobs))
    with open(out) as file:
        return json.load(file)


def check(path):
    ckpt("diff", path, path + ".safetensors", "--include", "all")
    said = ckpt("verify", path)
    assert "tensor parallel ranks all have is the same on them" in said, said
    ckpt("scan", path)


def without(tag, key, part=None):
    """Takes a key out of the model files, or out of a part of them."""
    import torch
    for name in os.listdir(tag):
        if re.match(r"(zero_pp_rank_\d+_)?mp_rank_\d+_model_states.pt", name):
            said = torch.load(os.path.join(tag, name), weights_only=False)
            assert (said[part] if part else said).pop(key, None) is not None, key
            torch.save(said, os.path.join(tag, name))


def test_stages(folder):
    """Every stage and optimizer, two by two ranks; three uneven slices."""
    cases = {name: row for name, row in make_zero_tensor.CASES.items() if row[2] != 0}
    cases["uneven"] = (3, 1, 2, "bf16", {})
    for path in saved(folder, cases):
        check(path)
        if os.path.basename(path) not in make_zero_tensor.WITHOUT_MAPS:
            without(os.path.join(path, "global_step3"), "affine_map", "universal_checkpoint_info")
            check(path)


def test_without_zero(folder):
    """Weights alone: the optimizer's states are slices that only have numbers, which is said."""
    path, = saved(folder, {"tensor-stage0": make_zero_tensor.CASES["tensor-stage0"]})
    ckpt("diff", path, path + ".safetensors", "--include", "model")
    assert "not read: the optimizer's states" in ckpt("inspect", path)


def test_universal(folder):
    """DeepSpeed's converter puts them together as we do."""
    import deepspeed.checkpoint.ds_to_universal as ds_to_universal
    names = ("tensor-stage2-bf16", "tensor-stage3")
    for path in saved(folder, {name: make_zero_tensor.CASES[name] for name in names}):
        tag = os.path.join(path + "-universal", "global_step3_universal")
        call(ds_to_universal.__file__, "--input_folder", os.path.join(path, "global_step3"), "--output_folder", tag,
             "--num_extract_workers", "1", "--num_merge_workers", "1", "--no_strict")
        ckpt("diff", os.path.dirname(tag), path, "--include", "all")
        ckpt("verify", os.path.dirname(tag))


def test_goes_on_without_tensor_parallelism(folder):
    """One rank goes on from what two tensor-parallel ones saved: their own next losses, rounded in another order."""
    path, = saved(folder, {"tensor-stage1": (2, 1, 1, "fp32", {})})
    jobs = [{"tensor": 2, "stage": 1, "load": path}]
    for to, stage in ((("zero", "--stage", "1", "--dp", "1"), 1), (("zero", "--stage", "3", "--dp", "1"), 3)):
        out = os.path.join(folder, "out-%s-%d" % (to[0], stage))
        ckpt("reshard", "--quiet", path, "-o", out, "--to", *to)
        ckpt("diff", path, out, "--include", "all")
        jobs.append({"tensor": 1, "stage": stage, "load": out})
    wanted, *found = runs(folder, jobs)
    assert len(set(wanted)) == len(wanted), "losses that do not change prove nothing"
    for losses in found:
        for a, b in zip(wanted, losses, strict=True):
            assert abs(a - b) <= 1e-5 * abs(a), (wanted, losses)


def test_grids(folder):
    """Pipelines of tensor-parallel stages, two data-parallel ranks, more stages, uneven; 3 x 2 x 1."""
    cases = {name: row for name, row in make_zero_grid.CASES.items() if row[1] != 0}
    cases["grid-three"] = ((3, 2, 1), 1, "bf16", True, {})
    cases["grid-untied"] = ((2, 2, 1), 1, "bf16", False, {})
    cases["grid-one-rank"] = ((2, 1, 2), 1, "fp32", True, {})
    for path, (grid, _, _, is_tied, _) in zip(saved(folder, cases, "make_zero_grid"), cases.values(), strict=True):
        ckpt("diff", path, path + ".safetensors", "--include", "all")
        said = ckpt("verify", path)
        assert ("stages of the pipeline have of tied modules is the same" in said) == (is_tied and grid[0] > 1), said
        for to in (["zero", "--stage", "1", "--dp", "2"], ["universal"], ["dcp", "--world", "2"]):
            ckpt("reshard", "--quiet", path, "-o", path + "-out", "--force", "--to", *to)
            ckpt("diff", path, path + "-out", "--include", "all")
            shutil.rmtree(path + "-out")


def test_grid_without_zero(folder):
    path, = saved(folder, {"grid-stage0": make_zero_grid.CASES["grid-stage0"]}, "make_zero_grid")
    ckpt("diff", path, path + ".safetensors", "--include", "model")
    assert "not read: the optimizer's states" in ckpt("inspect", path)


def universal_of(path):
    """What DeepSpeed's own converter makes of a checkpoint."""
    import deepspeed.checkpoint.ds_to_universal as ds_to_universal
    tag = os.path.join(path + "-universal", "global_step3_universal")
    call(ds_to_universal.__file__, "--input_folder", os.path.join(path, "global_step3"), "--output_folder", tag,
         "--num_extract_workers", "1", "--num_merge_workers", "1", "--no_strict")
    return os.path.dirname(tag)


def test_universal_of_a_grid(folder):
    """DeepSpeed's converter puts them together as we do, but leaves buffers and frozen parameters out."""
    for path in saved(folder, {"tied": ((2, 2, 1), 1, "bf16", True, {}), "untied": ((3, 2, 1), 1, "fp32", False, {})}, "make_zero_grid"):
        theirs = universal_of(path)
        for is_said in (True, False):
            *lines, last = ckpt("diff", theirs, path, "--include", "all", "--weights", "master", status=1).splitlines()
            assert last.startswith("different: 4 of "), last
            assert all(re.match(r"only in B +\d\.(offset|scale) ", line) for line in lines), lines
            ckpt("verify", theirs)
            if is_said:  # before DeepSpeed said how many tensor-parallel ranks there are
                for folder in (os.path.join(path, "global_step3"), os.path.join(theirs, "global_step3_universal")):
                    without(folder, "checkpoint_parallel_dimensions")


def test_grid_goes_on_from_universal(folder):
    """A pipeline goes on from our universal checkpoint of one with tensor-parallel ranks: its own next losses, rounded
    in another order where ranks are others."""
    path, = saved(folder, {"grid": ((2, 2, 1), 1, "fp32", True, {})}, "make_zero_grid")
    go_on_in_grids(folder, {"grid": (2, 2, 1), "tied": True, "stage": 1, "load": path}, ((2, 1, 1), (3, 1, 1), (1, 1, 1)))


def test_parts_of_several_sizes(folder):
    """The files of our universal checkpoint say how tensor-parallel ranks cut, as those of DeepSpeed's converter do."""
    import torch
    path, = saved(folder, {"uneven": ((1, 2, 1), 1, "fp32", True, {})}, "make_zero_grid")
    go_on_in_grids(folder, {"grid": (1, 2, 1), "tied": True, "uneven": True, "stage": 1, "load": path}, ((1, 2, 1), (1, 4, 1)))
    ours, theirs = (os.path.join(of, "global_step3_universal", "zero") for of in (os.path.join(folder, "out"), universal_of(path)))
    for universal in (ours, theirs):
        ckpt("scan", universal)
    for name in sorted(os.listdir(theirs)):
        file = os.path.join(name, "fp32.pt")
        if not os.path.isfile(os.path.join(theirs, file)):
            continue
        said = [torch.load(os.path.join(of, file), weights_only=False) for of in (ours, theirs)]
        is_cut = [(vars(of["sub_param_shape"]) if "sub_param_shape" in of else of.get("cat_dim", 0)) for of in said]
        assert is_cut[0] == is_cut[1] and said[0].get("vocab_tensor") == said[1].get("vocab_tensor"), (name, is_cut)
        assert isinstance(is_cut[0], dict) == (".up." in name or ".down.weight" in name), name


def go_on_in_grids(folder, job, grids):
    """The losses of a run, and of runs of other grids that go on from our universal checkpoint of it."""
    out = os.path.join(folder, "out")
    ckpt("reshard", "--quiet", job["load"], "-o", out, "--to", "universal")
    wanted, *found = runs(folder, [job] + [dict(job, grid=grid, load=out, universal=True) for grid in grids])
    assert len(set(wanted)) == len(wanted), "losses that do not change prove nothing"
    for losses in found:
        for a, b in zip(wanted, losses, strict=True):
            assert abs(a - b) <= 1e-5 * abs(a), (wanted, losses)


def say(path, change):
    """Changes universal_checkpoint_info of all model files."""
    import torch
    for name in os.listdir(os.path.join(path, "global_step3")):
        if name.endswith("model_states.pt"):
            file = os.path.join(path, "global_step3", name)
            said = torch.load(file, weights_only=False)
            change(said["universal_checkpoint_info"])
            torch.save(said, file)


def digests(path):
    return [ckpt("hash", path, "--include", "all", "--weights", weights).split()[0] for weights in ("master", "model")]


def test_means(folder):
    """Slices that came apart, and vocabularies with padding: the bits of DeepSpeed's converter, of any version of what
    is said; its files and ours load as the same run on another number of tensor-parallel ranks."""
    path, = saved(folder, {"tensor-mean": make_zero_tensor.CASES["tensor-mean"]})
    check(path)
    wanted = digests(path + ".safetensors")
    assert wanted[0] != wanted[1]
    for version in (0.4, 0.2, 0.1, None):
        if version != 0.4:
            say(path, lambda info: info.update(universal_checkpoint_version=version))
            say(path, lambda info: info.pop("sub_param_shard_widths", None))
        if version is None:
            say(path, lambda info: info.pop("universal_checkpoint_version"))
        assert digests(path) == wanted, version
        assert digests(universal_of(path)) == wanted, version


def test_one_rank_with_a_vocabulary(folder):
    """Padding is left out of one tensor-parallel rank below stage 3, and kept in it, as DeepSpeed's converter has it;
    what is written goes on as what was saved."""
    for stage in (1, 3):
        path = os.path.join(folder, "one-%d" % stage)
        runs(folder, [{"tensor": 1, "stage": stage, "save": path}])
        said_to(path, {"vocabulary_parameter_patterns": ["embed.weight"], "original_vocab_size": 6,
                       "tp_replicated_parameter_patterns": ["norm"], "parameter_to_average_patterns": ["down.bias"]})
        theirs, ours = universal_of(path), os.path.join(folder, "ours-%d" % stage)
        ckpt("diff", theirs, path, "--include", "all")
        ckpt("reshard", "--quiet", path, "-o", ours, "--to", "universal")
        ckpt("diff", theirs, ours, "--include", "all")
        rows = json.loads(ckpt("ls", "--json", path))["tensors"]
        assert [row["shape"][0] for row in rows if row["name"] == "embed.weight"] == [6 if stage == 1 else 7]
        if stage == 1:  # without AutoTP an engine adds the padding again, where the file says that it is a vocabulary
            jobs = [{"tensor": 1, "stage": 1, "universal": folder_} for folder_ in (theirs, ours)]
            a, b = runs(folder, jobs)
            assert a == b and len(set(a)) == len(a), (a, b)


def said_to(path, info):
    """Gives the model files patterns, which they have none of."""
    import torch
    for name in os.listdir(os.path.join(path, "global_step3")):
        if name.endswith("model_states.pt"):
            file = os.path.join(path, "global_step3", name)
            torch.save(dict(torch.load(file, weights_only=False), universal_checkpoint_info=info), file)


def test_universal_on_other_ranks(folder):
    """What two tensor-parallel ranks saved goes on on three and on one, from our universal checkpoint as from
    DeepSpeed's, and with the losses of two."""
    path, = saved(folder, {"tensor-stage1": (2, 1, 1, "fp32", {})})
    theirs, ours = universal_of(path), os.path.join(folder, "ours")
    ckpt("reshard", "--quiet", path, "-o", ours, "--to", "universal")
    ckpt("diff", theirs, ours, "--include", "all")
    jobs = [{"tensor": 2, "stage": 1, "load": path}]
    jobs += [{"tensor": tensor, "stage": 1, "universal": of} for tensor in (2, 3, 1) for of in (theirs, ours)]
    wanted, *found = runs(folder, jobs)
    assert len(set(wanted)) == len(wanted), "losses that do not change prove nothing"
    for a, b in zip(found[::2], found[1::2], strict=True):
        assert a == b, (a, b)
    for losses in found:
        for a, b in zip(wanted, losses, strict=True):
            assert abs(a - b) <= 1e-5 * abs(a), (wanted, losses)


def test_model_of_transformers(folder):
    """A model of the hub, cut by its own plan: consolidated it is what it was."""
    import torch
    import transformers
    torch.manual_seed(0)
    whole, save, out = (os.path.join(folder, name) for name in ("whole", "save", "out"))
    config = transformers.LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False)
    transformers.LlamaForCausalLM(config).save_pretrained(whole)
    runs(folder, [{"tensor": 2, "llama": whole, "save": save}])
    ckpt("consolidate", "--quiet", save, "-o", out, "--like", whole)
    ckpt("diff", whole, out)
    ckpt("verify", save)
    read = transformers.AutoModelForCausalLM.from_pretrained(out).state_dict()
    for name, value in transformers.AutoModelForCausalLM.from_pretrained(whole).state_dict().items():
        assert torch.equal(value, read[name]), name


if __name__ == "__main__":
    main(globals())
