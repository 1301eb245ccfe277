#!/usr/bin/env python3
"""What stands at an output before, beside and while it is written: replaced, refused, shared or interrupted.

    outputs.py CKPT FAULT_SO DATA

Folders of a former run with other options; two runs at once; links; a replacement that is interrupted between its two
renames; an input that changes while it is read; small disks of their own file systems (tmpfs, and ext4 in a file; said
where nothing can be mounted). After every failure nothing is left and what was there is as it was.
"""
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import scratch

CKPT, FAULT_SO, DATA = sys.argv[1:4]
LLAMA = os.path.join(os.path.abspath(DATA), "llama-tiny")
ZERO = os.path.join(os.path.abspath(DATA), "zero", "stage1")
problems = []


def ckpt(*arguments, **options):
    return subprocess.run([CKPT, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
                          **options)


def expect(what, is_fine, *said):
    if not is_fine:
        problems.append("%s: %s" % (what, " ".join(str(s) for s in said)))


def check(what, done, status, *texts):
    expect(what, done.returncode == status and all(t in done.stderr for t in texts), "exit", done.returncode, done.stderr)


def tree(folder):
    """Everything below folder: name to hash, link target, or "" for a folder."""
    found = {}
    for path, folders, files in os.walk(folder):
        for name in folders + files:
            full = os.path.join(path, name)
            if os.path.islink(full):
                found[os.path.relpath(full, folder)] = "-> " + os.readlink(full)
            elif os.path.isdir(full):
                found[os.path.relpath(full, folder)] = ""
            else:
                with open(full, "rb") as f:
                    found[os.path.relpath(full, folder)] = hashlib.sha256(f.read()).hexdigest()
    return found


def write(path, text="theirs"):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text)


def write_model(path, n_tensors, n_bytes):
    """Tensors of zeros, which take no room on disk."""
    header = {"t%03d" % i: {"dtype": "U8", "shape": [n_bytes], "data_offsets": [i * n_bytes, (i + 1) * n_bytes]}
              for i in range(n_tensors)}
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + n_tensors * n_bytes)


# ---- a former run's folder ------------------------------------------------------------------------------------------

def check_former(base):
    forms = {"whole": [], "9 shards": ["--shard-size", "50KB"], "more": ["--shard-size", "20KB"]}
    want = {}
    for form, options in forms.items():
        out = os.path.join(base, form)
        check(form, ckpt("convert", LLAMA, "-o", out, *options), 0)
        want[form] = tree(out)
    for old in forms:
        for new in forms:
            out = os.path.join(base, "o")
            shutil.copytree(os.path.join(base, old), out)
            check("%s over %s without --force" % (new, old), ckpt("convert", LLAMA, "-o", out, *forms[new]), 1, "exists")
            expect("without --force", tree(out) == want[old], tree(out))
            check("%s over %s" % (new, old), ckpt("convert", LLAMA, "-o", out, *forms[new], "--force"), 0)
            expect("%s over %s" % (new, old), tree(out) == want[new], sorted(tree(out)))
            expect("beside it", sorted(os.listdir(base)) == sorted([*forms, "o"]), os.listdir(base))
            shutil.rmtree(out)
    for foreign in ("notes.txt", ".git/config", "optimizer.pt", "pytorch_model.bin", "other.safetensors",
                    "model-00001-of-00002.safetensors", "model-1-of-3.safetensors", "model-00004-of-00003.safetensors",
                    "model.safetensors.bak", "consolidated.00.pth", "adapter_model.safetensors",
                    "sub/model.safetensors", "model-00001-of-00001.safetensors"):
        out = os.path.join(base, "o")
        shutil.copytree(os.path.join(base, "9 shards"), out)
        write(os.path.join(out, foreign))
        before = tree(out)
        for options in forms.values():
            done = ckpt("convert", LLAMA, "-o", out, *options, "--force")
            check("over a folder with " + foreign, done, 1, "would not be written anew")
            expect("names " + foreign, foreign.split("/")[0] in done.stderr, done.stderr)
            expect("over a folder with " + foreign, tree(out) == before, sorted(tree(out)))
        shutil.rmtree(out)
    # shards of which not all are there, or an index alone, may be all that is left of something else
    for kept in (["model-00001-of-00009.safetensors"], ["model-00009-of-00009.safetensors", "config.json"],
                 ["model-%05d-of-00009.safetensors" % i for i in range(1, 9)] + ["model.safetensors.index.json"],
                 ["model.safetensors.index.json"]):
        out = os.path.join(base, "o")
        for name in kept:
            write(os.path.join(out, name))
        before = tree(out)
        for form in ("whole", "more") if "model-" in "".join(kept) else ("whole",):  # shards come with an index anew
            check("%s over %s" % (form, kept), ckpt("convert", LLAMA, "-o", out, *forms[form], "--force"), 1,
                  "would not be written anew")
            expect("%s over %s" % (form, kept), tree(out) == before, sorted(tree(out)))
        shutil.rmtree(out)


def check_kinds(base):
    """An adapter and the model that it adapts are two things: neither takes the other's place."""
    adapter = os.path.join(base, "adapter")
    write(os.path.join(adapter, "adapter_config.json"), "{}")
    write_model(os.path.join(adapter, "adapter_model.safetensors"), 2, 4096)
    kept = {"model": ["model.safetensors"], "shards": ["model-0000%d-of-00002.safetensors" % i for i in (1, 2)] +
            ["model.safetensors.index.json"], "adapter": ["adapter_model.safetensors"],
            "dcp": [".metadata", "__0_0.distcp"]}
    for new, options in ((adapter, []), (LLAMA, []), (LLAMA, ["--shard-size", "50KB"]), (LLAMA, ["--to", "dcp"])):
        for old, names in kept.items():
            kind = "adapter" if new == adapter else "dcp" if "dcp" in options else "model"
            if kind == ("model" if old == "shards" else old):
                continue
            out = os.path.join(base, "o")
            for name in names:
                write(os.path.join(out, name))
            before = tree(out)
            check("%s over %s" % (kind, old), ckpt("convert", new, "-o", out, "--force", *options), 1,
                  "would not be written anew", names[0])
            expect("%s over %s" % (kind, old), tree(out) == before, sorted(tree(out)))
            shutil.rmtree(out)
    out = os.path.join(base, "o")
    for options in ([], ["--force"]):
        check("an adapter over its former self", ckpt("convert", adapter, "-o", out, *options), 0)
    expect("the adapter", sorted(os.listdir(out)) == ["adapter_config.json", "adapter_model.safetensors"])


# ---- links and places -----------------------------------------------------------------------------------------------

def check_places(base):
    """A link to a folder stands for it; a link to a file or to nothing is never replaced nor written through."""
    for name in ("file", "inner/file"):
        write(os.path.join(base, name))
    os.mkdir(os.path.join(base, "empty"))
    for link, target in (("to-file", "file"), ("to-nothing", "nowhere"), ("to-empty", "empty"), ("to-inner", "inner")):
        os.symlink(target, os.path.join(base, link))
    before = tree(base)
    for output, status, *texts in (
            ("to-file.safetensors", 0), ("missing/o", 1, "there is no folder", "make it first"),
            ("missing/o.safetensors", 1, "there is no folder"), ("file/o.safetensors", 1, "file"),
            ("to-file", 1, "exists and is no folder"), ("to-nothing", 1, "exists and is no folder"),
            ("to-inner", 1, "not empty")):
        check("-o " + output, ckpt("convert", LLAMA, "-o", os.path.join(base, output)), status, *texts)
    for option in ("--external-data", "--link"):
        check(option, ckpt("convert", LLAMA, "-o", os.path.join(base, "empty"), option), 2, "hf has no such option (onnx has)")
    os.remove(os.path.join(base, "to-file.safetensors"))
    for link in ("file", "nowhere"):
        os.symlink(link, os.path.join(base, "l.safetensors"))
        check("-o a link to " + link, ckpt("convert", LLAMA, "-o", os.path.join(base, "l.safetensors"), "--to",
                                           "safetensors", "--force"), 1, "a link is never replaced")
        os.remove(os.path.join(base, "l.safetensors"))
    expect("after the links", tree(base) == before, tree(base))
    check("into a folder by link", ckpt("convert", LLAMA, "-o", os.path.join(base, "to-empty")), 0)
    expect("by link", "model.safetensors" in os.listdir(os.path.join(base, "empty")) and
           os.path.islink(os.path.join(base, "to-empty")))
    check("below a linked folder", ckpt("convert", LLAMA, "-o", os.path.join(base, "to-inner", "o.safetensors")), 0)
    expect("below", sorted(os.listdir(os.path.join(base, "inner"))) == ["file", "o.safetensors"])
    if os.getuid() == 0 and shutil.which("setpriv"):
        folder = os.path.join(base, "locked")
        os.mkdir(folder, 0o755)
        os.chmod(base, 0o755)
        command = ["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", CKPT, "convert", LLAMA, "-o"]
        for name in ("o", "o.safetensors"):
            done = subprocess.run(command + [os.path.join(folder, name)], capture_output=True, text=True, timeout=60)
            if "cannot open" not in done.stderr and done.returncode != 126:  # where others may read the program and data
                check("in another's folder", done, 1, os.path.join(folder, name), "Permission denied")
        expect("in another's folder", os.listdir(folder) == [], os.listdir(folder))


def check_folder_links(base):
    """Links to folders of the input lead in circles: they are named, not followed, and nothing takes long."""
    model = os.path.join(base, "m")
    shutil.copytree(LLAMA, model)
    os.makedirs(os.path.join(model, "extra"))
    shutil.copy(os.path.join(LLAMA, "config.json"), os.path.join(model, "extra"))
    for i in range(100):
        os.symlink(".", os.path.join(model, "s%02d" % i))
    os.symlink("..", os.path.join(model, "extra", "up"))
    os.symlink("config.json", os.path.join(model, "linked.json"))
    started = time.monotonic()
    check("with links to folders", ckpt("hash", model), 0, "extra/up/ (a link to a folder)", "more")
    check("with links to folders", ckpt("convert", model, "-o", os.path.join(base, "o")), 0)
    expect("scan", "m/s99: not looked into: a link to a folder" in ckpt("scan", model).stdout)
    expect("with links to folders", time.monotonic() - started < 10, "took", time.monotonic() - started)
    check("without them", ckpt("convert", LLAMA, "-o", os.path.join(base, "w")), 0)
    found, wanted = set(tree(os.path.join(base, "o"))), {*tree(os.path.join(base, "w")), "extra", "extra/config.json",
                                                         "linked.json"}
    expect("with links to folders", found == wanted, sorted(found ^ wanted))


# ---- two at once ----------------------------------------------------------------------------------------------------

def check_concurrency(base):
    """One of them wins; the others say that it exists; the result is whole, and nothing is left."""
    model = os.path.join(base, "model.safetensors")
    write_model(model, 40, 1 << 18)
    for output, options in [("o.safetensors", []), ("o", ["--shard-size", "1MB"]),
                            ("empty", ["--shard-size", "1MB"])] * 3:
        work = os.path.join(base, "work")
        os.mkdir(work)
        path = os.path.join(work, output)
        wanted = os.path.join(base, "wanted-" + output)
        if not os.path.exists(wanted):
            check("alone", ckpt("convert", model, "-o", wanted, *options, *(
                ["--to", "safetensors"] if "." in output else [])), 0)
        if output == "empty":
            os.mkdir(path)
        processes = [subprocess.Popen([CKPT, "convert", model, "-o", path, *options], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.PIPE, text=True) for _ in range(3)]
        said = [process.communicate(timeout=120)[1] for process in processes]
        codes = [process.returncode for process in processes]
        expect("three at once to " + output, codes.count(0) == 1 and codes.count(1) == 2, codes, said)
        for code, text in zip(codes, said):
            expect("the loser's message", code == 0 or "exists" in text, text)
            expect("nobody removes another's", "interrupted" not in text, text)
        whole = tree(path) if os.path.isdir(path) else tree(work)[output]
        same = tree(wanted) if os.path.isdir(wanted) else tree(base)["wanted-" + output]
        expect("three at once to " + output, whole == same and os.listdir(work) == [output], tree(work))
        shutil.rmtree(work)
    # over one another with --force: all succeed or say why, and the result is whole
    work = os.path.join(base, "work")
    os.mkdir(work)
    path = os.path.join(work, "o")
    shutil.copytree(os.path.join(base, "wanted-o"), path)
    processes = [subprocess.Popen([CKPT, "convert", model, "-o", path, "--force", "--shard-size", size],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                 for size in ("1MB", "2MB", "3MB") * 2]
    said = [process.communicate(timeout=120)[1] for process in processes]
    expect("six with --force", any(p.returncode == 0 for p in processes), said)
    expect("six with --force", not any("cannot be removed" in text for text in said), said)
    check("the last of them is whole", ckpt("verify", path), 0)
    expect("six with --force", ckpt("hash", path).stdout.split()[0] == ckpt("hash", model).stdout.split()[0])


# ---- interrupted replacements ---------------------------------------------------------------------------------------

def check_interrupted(base):
    """Two renames instead of an exchange, killed at each of the three; of files right in the folder and of subfolders'."""
    convert, reshard = ("convert", LLAMA, "-o"), ("reshard", ZERO, "--to")
    check_interrupted_at(base, lambda out: ckpt(*convert, out, "--shard-size", "50KB"), [*convert])
    check_interrupted_at(base, lambda out: ckpt(*reshard, "zero", "--stage", "1", "--dp", "4", "-o", out),
                         [*reshard, "zero", "--stage", "3", "--dp", "2", "-o"])
    check_interrupted_at(base, lambda out: ckpt(*reshard, "universal", "--dp", "4", "-o", out),
                         [*reshard, "universal", "--drop", "optimizer", "-o"])


def check_interrupted_at(base, write_old, command):
    for number in (1, 2, 3):
        out = os.path.join(base, "o")
        again = [*command, out, "--force"]
        check("the old one", write_old(out), 0)
        old = tree(out)
        done = ckpt(*again, env=dict(os.environ, LD_PRELOAD=FAULT_SO, CKPT_FAULT="killrename:%d" % number))
        expect("killed", done.returncode == -signal.SIGKILL, number, done.returncode, done.stderr)
        names = sorted(os.listdir(base))
        left = [n for n in names if ".ckpt-old." in n]
        if number == 2:  # nothing at the name
            expect("killed between", "o" not in names and len(left) == 1 and tree(os.path.join(base, left[0])) == old, names)
            for verb in ("verify", "ls", "hash", "inspect"):
                check(verb + " in between", ckpt(verb, out), 1, out + ": is not there", left[0])
            done = ckpt(*again)
            check("again in between", done, 0, "removed what an interrupted run left: .o.ckpt-tmp.",
                  "was replacing still is at " + left[0])
            expect("the old one is kept", tree(os.path.join(base, left[0])) == old, os.listdir(base))
        else:
            expect("killed at %d" % number, "o" in names and ckpt("verify", out).returncode == 0, names)
            expect("killed at %d" % number, number != 1 or tree(out) == old, sorted(tree(out)))
        check("the next --force", ckpt(*again), 0, "removed what")
        expect("nothing is left", os.listdir(base) == ["o"], os.listdir(base))
        fresh = os.path.join(base, "fresh")
        check("fresh", ckpt(*command, fresh), 0)
        expect("only the new one is there", tree(out) == tree(fresh), sorted(tree(out)))
        shutil.rmtree(out)
        shutil.rmtree(fresh)


def check_interrupted_pair(base):
    """A model and its data: what is kept of them is named, until the next --force."""
    out = os.path.join(base, "m.onnx")
    old = [".m.onnx.ckpt-old.abcde2", ".m.onnx.data.ckpt-old.abcde3"]
    for name in old + [".m.onnx.data.ckpt-tmp.abcde4"]:
        write(os.path.join(base, name))
    check("the folder", ckpt("ls", base), 1, out + ": is not there", *old)
    model = os.path.join(DATA, "onnx", "dynamo.onnx")
    check("no --force", ckpt("convert", model, "-o", out), 0, "removed what an interrupted run left: .m.onnx.data.ckpt-tmp",
          "at %s, and its data at %s (the next --force removes both)" % tuple(old))
    check("the next --force", ckpt("convert", model, "-o", out, "--force"), 0, "removed what interrupted runs left")
    expect("nothing is left", os.listdir(base) == ["m.onnx"], os.listdir(base))
    os.remove(out)


def check_half_published(base):
    """A run into an empty folder that is killed between two of its last renames leaves its own folder inside."""
    out, wanted = os.path.join(base, "oe"), os.path.join(base, "wanted")
    check("the whole", ckpt("convert", LLAMA, "-o", wanted), 0)
    forms = {"hf": ([], "config.json"), "dcp": (["--to", "dcp"], "tokenizer.json")}
    for form, (options, late) in forms.items():
        os.mkdir(out)
        check(form, ckpt("convert", LLAMA, "-o", out, *options), 0)
        check("before", ckpt("verify", out), 0)
        whole = tree(out)
        foreign = os.path.join(out, ".other.ckpt-tmp.abcde2")
        os.mkdir(foreign)
        check("another's leftover is no problem of this one", ckpt("verify", out), 0, "under another name")
        os.rmdir(foreign)
        left = ".oe.ckpt-tmp.abcde2"
        os.mkdir(os.path.join(out, left))
        shutil.move(os.path.join(out, late), os.path.join(out, left, late))
        with open(os.path.join(out, "notes.ckpt-tmp.abcde2"), "w"):
            pass  # somebody's own
        done = ckpt("verify", out)
        expect("half published", done.returncode == 1 and left + "' was left by an interrupted run" in
               done.stdout + done.stderr, done.stdout, done.stderr)
        check("half published", ckpt("hash", out), 0, left + "' was left by an interrupted run", "--force")
        os.remove(os.path.join(out, "notes.ckpt-tmp.abcde2"))
        check("again", ckpt("convert", LLAMA, "-o", out, *options), 1, "exists and is not empty",
              "an interrupted run left '%s' there" % left)
        lock = os.open(os.path.join(out, left), os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = ckpt("verify", out)
        expect("being written", done.returncode == 1 and "is being written: '" + left in done.stdout + done.stderr,
               done.stdout, done.stderr)
        os.rename(os.path.join(out, left), os.path.join(out, ".sub.ckpt-tmp.abcde2"))
        expect("another beside", "ckpt-tmp" not in ckpt("hash", out).stderr)
        moved = ".metadata" if form == "dcp" else "model.safetensors"  # what makes it a checkpoint
        os.rename(os.path.join(out, moved), os.path.join(base, moved))
        expect("another's", "ckpt-tmp" not in ckpt("hash", out).stderr)
        os.rename(os.path.join(out, ".sub.ckpt-tmp.abcde2"), os.path.join(out, left))
        check("not one yet", ckpt("hash", out), 1, "other files of it are in '%s'" % left)
        os.rename(os.path.join(out, left), os.path.join(out, ".sub.ckpt-tmp.abcde2"))
        os.rename(os.path.join(base, moved), os.path.join(out, moved))
        os.rename(os.path.join(out, ".sub.ckpt-tmp.abcde2"), os.path.join(out, left))
        os.close(lock)
        check("again with --force", ckpt("convert", LLAMA, "-o", out, *options, "--force"), 0, "removed what", left)
        expect("again with --force", tree(out) == whole, sorted(tree(out)))
        shutil.rmtree(out)


# ---- inputs that change ---------------------------------------------------------------------------------------------

def check_changing(base):
    """The run is stopped when it has begun to write, so that the input changes in the middle of it."""
    for what in ("cut", "rewritten", "touched", "nothing"):
        model, out = os.path.join(base, "in.safetensors"), os.path.join(base, "o.safetensors")
        write_model(model, 64, 1 << 20)
        before = set(os.listdir(base))
        process = subprocess.Popen([CKPT, "convert", model, "-o", out, "--dtype", "t000=u8", "--threads", "1"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and set(os.listdir(base)) == before:
            time.sleep(0.0002)
        process.send_signal(signal.SIGSTOP)
        was_running = process.poll() is None and not os.path.exists(out)
        if what == "cut":
            os.truncate(model, 2 << 20)
        elif what == "rewritten":
            with open(model, "r+b") as f:
                f.seek(-100, 2)
                f.write(b"another")
        elif what == "touched":
            os.utime(model, (1, 1))
        process.send_signal(signal.SIGCONT)
        message = process.communicate(timeout=120)[1]
        expect(what + ": the run was met", was_running)
        if what == "nothing":
            expect(what, process.returncode == 0, message)
        elif was_running:
            expect(what, process.returncode == 1 and model in message and
                   ("changed while being read" in message or (what == "cut" and "ends early" in message)), message)
            expect(what, set(os.listdir(base)) == before, os.listdir(base))
        for name in os.listdir(base):
            os.remove(os.path.join(base, name))


def n_bytes_read(process):
    with open("/proc/%d/io" % process.pid) as f:
        return int(f.readline().split()[1])


def check_changing_proofs(base):
    """Verbs that write nothing are stopped when they have read a part of the input, at a place before the change."""
    for what in ("touched", "nothing"):
        for verb, n_inputs in (("hash", 1), ("verify", 1), ("diff", 2)):
            models = [os.path.join(base, name) for name in ("a.safetensors", "b.safetensors")]
            for model in models:
                write_model(model, 64, 1 << 20)
            process = subprocess.Popen([CKPT, verb, *models[:n_inputs], "--threads", "1"], stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True)
            while process.poll() is None and n_bytes_read(process) < 8 << 20:
                time.sleep(0.0002)
            process.send_signal(signal.SIGSTOP)
            expect(verb + ": the run was met", process.poll() is None)
            changed = models[n_inputs - 1]
            if what == "touched":
                os.utime(changed, (1, 1))
            process.send_signal(signal.SIGCONT)
            output = process.communicate(timeout=120)[0]
            if what == "touched":
                expect(verb, process.returncode == 1 and changed + ": changed while being read" in output, output)
            else:
                expect(verb, process.returncode == 0, output)
            for model in models:
                os.remove(model)


# ---- small disks ----------------------------------------------------------------------------------------------------

def check_disk(base):
    """Called again in a mount namespace of its own, as `outputs.py ... disk BASE`."""
    done = None
    for unshare in (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"]):
        if subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
            continue  # in a chroot, or not allowed
        done = subprocess.run([*unshare, sys.executable, "-B", __file__, CKPT, FAULT_SO, DATA, "disk", base],
                              capture_output=True, text=True, timeout=300)
        if done.returncode != 99:
            break
    if done is None or done.returncode == 99:
        print("outputs: small disks SKIPPED, nothing can be mounted here")
        return
    sys.stdout.write("".join(line + "\n" for line in done.stdout.splitlines() if "SKIPPED" in line))
    if done.returncode != 0:
        problems.extend([line for line in done.stdout.splitlines() if line != "" and "SKIPPED" not in line] + [done.stderr])


def mount(kind, base, n_bytes):
    disk = os.path.join(base, kind)
    os.mkdir(disk)
    if kind == "tmpfs":
        command = ["mount", "-t", "tmpfs", "-o", "size=%d" % n_bytes, "tmpfs", disk]
    else:
        image = disk + ".img"
        with open(image, "wb") as f:
            f.truncate(n_bytes)
        made = shutil.which("mkfs.ext4") or "/sbin/mkfs.ext4"
        if not os.path.exists(made) or subprocess.run([made, "-q", "-m", "0", image]).returncode != 0:
            return None
        command = ["mount", "-o", "loop", image, disk]
    return disk if subprocess.run(command, capture_output=True).returncode == 0 else None


def use_disk(kind, disk, base):
    model = os.path.join(base, "model.safetensors")
    write_model(model, 8, 1 << 20)
    found = os.listdir(disk)  # lost+found
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    n_needed = 8 << 20
    for output, *options in (("o.safetensors",), ("o", "--shard-size", "1MB"), ("o", "--shard-size", "3MB")):
        path = os.path.join(disk, output)
        done = ckpt("convert", model, "-o", path, *options)
        check("%s: full: %s" % (kind, output), done, 1, path, "not enough space", "No space left on device")
        said = re.search(r"(\d+) bytes needed, (\d+) available", done.stderr)
        expect("%s: full: sizes" % kind, said and int(said[1]) >= n_needed and 0 < int(said[2]) <= free, done.stderr, free)
        expect("%s: full: nothing left" % kind, os.listdir(disk) == found, os.listdir(disk))
    if kind == "tmpfs":
        use_full_disk(kind, disk, base, found, model)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    for output in ("o", "o.safetensors"):
        check("%s: read-only: %s" % (kind, output), ckpt("convert", model, "-o", os.path.join(disk, output)), 1,
              os.path.join(disk, output), "Read-only file system")


def use_full_disk(kind, disk, base, found, model):
    """Not a block is left, even for a receipt; ext4 finds some in its reserves."""
    path, receipt = os.path.join(base, kind + ".safetensors"), os.path.join(disk, "r.json")
    ballast = os.open(os.path.join(disk, "ballast"), os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(ballast, bytes(4096)):
            pass
    except OSError:
        os.close(ballast)
    done = ckpt("convert", model, "-o", path, "--receipt", receipt)
    check("%s: receipt on a full disk" % kind, done, 1, receipt, "No space left on device")
    expect("%s: receipt" % kind, not os.path.exists(path) and sorted(os.listdir(disk)) == sorted(found + ["ballast"]),
           os.listdir(disk), os.listdir(base))
    os.remove(os.path.join(disk, "ballast"))


def disk_main(base):
    status = 99
    for kind, n_bytes in (("tmpfs", 6 << 20), ("ext4", 8 << 20)):
        disk = mount(kind, base, n_bytes)
        if disk is None:
            print("outputs: a disk of %s SKIPPED, cannot be mounted here" % kind)
            continue
        try:
            use_disk(kind, disk, base)
        finally:
            subprocess.run(["umount", disk], capture_output=True)
        status = 0
    print("\n".join(problems))
    return 1 if problems else status


def main():
    for part in (check_former, check_kinds, check_places, check_folder_links, check_concurrency, check_interrupted,
                 check_interrupted_pair, check_half_published, check_changing, check_changing_proofs, check_disk):
        with scratch.folder("ckpt-outputs-", 1 << 30) as base:
            started = time.monotonic()
            part(base)
            print("%-21s %4.1f s" % (part.__name__[6:], time.monotonic() - started))
    for problem in problems:
        print(problem.strip())
    print("outputs: %d problems" % len(problems))
    return 1 if problems else 0


sys.exit(disk_main(sys.argv[5]) if sys.argv[4:5] == ["disk"] else main())
