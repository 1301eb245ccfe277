#!/usr/bin/env python3
"""What the system refuses: a full disk, a read-only folder, few descriptors, little address space, closed streams.

    limits.py CKPT DATA

Each verb that meets the limit is exit 1 with a message that says what is short, and leaves nothing. The disk parts need
a mount of their own (root or user namespaces) and say so where they cannot have one.
"""
import os
import resource
import shutil
import subprocess
import sys
import tempfile

CKPT, DATA = sys.argv[1:3]
LLAMA = os.path.join(os.path.abspath(DATA), "llama-tiny")
problems = []


def run(command, **options):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, **options)


def check(what, done, status, *texts):
    """The exit status, and what the message has to say."""
    if done.returncode != status or not all(text in done.stderr for text in texts):
        problems.append("%s: exit %d: %s" % (what, done.returncode, done.stderr))


def limited(kind, value):
    return lambda: resource.setrlimit(kind, (value, value))


def check_descriptors(base):
    shards = os.path.join(base, "shards")
    check("split", run([CKPT, "split", LLAMA, "-o", shards, "--shard-size", "1KB"]), 0)
    n_files = len(os.listdir(shards))
    for verb in (["hash", shards], ["convert", shards, "-o", os.path.join(base, "joined.safetensors")],
                 ["split", shards, "-o", os.path.join(base, "again"), "--shard-size", "1KB"]):
        done = run([CKPT, *verb], preexec_fn=limited(resource.RLIMIT_NOFILE, 20))
        check("%s of %d files with 20 descriptors" % (verb[0], n_files), done, 0)
        done = run([CKPT, *verb, *(["--force"] if verb[0] != "hash" else [])],
                   preexec_fn=limited(resource.RLIMIT_NOFILE, 5))
        check("%s with 5 descriptors" % verb[0], done, 1, "ckpt: ", "Too many open files")
    if any(".ckpt-tmp." in name for name in os.listdir(base)):
        problems.append("with few descriptors: left %s" % os.listdir(base))


def check_streams(base):
    """Output that nobody takes: exit 1. Where that is known before, nothing is written; else it is said what was."""
    out = os.path.join(base, "streams.safetensors")
    for options in ("", " --quiet", " --json"):
        convert = "%s convert %s -o %s%s " % (CKPT, LLAMA, out, options)
        check("convert with stdout closed", run(["bash", "-c", convert + ">&-"]), 1, "stdout: is closed")
        if os.path.exists(out):
            problems.append("convert%s with stdout closed: wrote %s" % (options, out))
        check("convert to a full stdout", run(["bash", "-c", convert + ">/dev/full"]), 1, "cannot write the result",
              "ckpt: warning: %s: is written, whole" % out)
        check("what was written", run([CKPT, "diff", LLAMA, out]), 0)
        os.remove(out)
    for redirection, status in ((">/dev/full", 1), (">&-", 1), ("2>/dev/full", 0), ("2>&-", 0), ("<&-", 0)):
        for verb in ("ls %s" % LLAMA, "convert %s -o %s --force" % (LLAMA, out)):
            done = run(["bash", "-c", "%s %s %s" % (CKPT, verb, redirection)])
            if done.returncode != status or (status == 1 and "ckpt: " not in done.stderr):
                problems.append("%s %s: exit %d: %s" % (verb, redirection, done.returncode, done.stderr))
    done = run(["bash", "-c", "set -o pipefail; %s ls %s | head -n 1" % (CKPT, LLAMA)])
    if done.returncode > 1:
        problems.append("ls | head: exit %d: %s" % (done.returncode, done.stderr))


def check_file_size(base):
    """A limit on the size of files: EFBIG, not a signal."""
    out = os.path.join(base, "large.safetensors")
    done = run([CKPT, "convert", LLAMA, "-o", out], preexec_fn=limited(resource.RLIMIT_FSIZE, 100000))
    if done.returncode != 1 or "ckpt: " not in done.stderr or os.path.exists(out):
        problems.append("files of at most 100,000 bytes: exit %d: %s" % (done.returncode, done.stderr))


DISK = r"""
set -u
mount -t tmpfs -o size=300k tmpfs "$1" || exit 99
"$2" convert "$3" -o "$1/o.safetensors" 2> "$4/full.file"; echo $? > "$4/full.file.exit"
"$2" convert "$3" -o "$1/o" 2> "$4/full.folder"; echo $? > "$4/full.folder.exit"
"$2" split "$3" -o "$1/s" --shard-size 50KB 2> "$4/full.split"; echo $? > "$4/full.split.exit"
"$2" convert "$3" -o "$1/small.safetensors" --match '*norm*' 2> "$4/full.small"; echo $? > "$4/full.small.exit"
"$2" convert "$3" -o "$1/small.safetensors" --force 2> "$4/full.force"; echo $? > "$4/full.force.exit"
ls -A "$1" > "$4/full.ls"
"$2" hash "$1/small.safetensors" > "$4/full.hash" 2> "$4/full.left"; echo $? > "$4/full.left.exit"
mount -o remount,ro "$1"
"$2" convert "$3" -o "$1/o.safetensors" 2> "$4/ro.file"; echo $? > "$4/ro.file.exit"
"$2" convert "$3" -o "$1/o" 2> "$4/ro.folder"; echo $? > "$4/ro.folder.exit"
"$2" hash "$1/small.safetensors" -o "$1/m.json" 2> "$4/ro.manifest"; echo $? > "$4/ro.manifest.exit"
"$2" hash "$1/small.safetensors" > "$4/ro.hash" 2> "$4/ro.read"; echo $? > "$4/ro.read.exit"
"""


def check_disk(base):
    mounted, said = os.path.join(base, "mounted"), os.path.join(base, "said")
    os.mkdir(mounted)
    os.mkdir(said)
    for unshare in (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"]):
        done = run([*unshare, "bash", "-c", DISK, "disk", mounted, CKPT, LLAMA, said])
        if done.returncode == 0 and os.path.exists(os.path.join(said, "full.ls")):
            break
    else:
        print("limits: full disk and read-only folder SKIPPED, nothing can be mounted here")
        return

    def of(name):
        with open(os.path.join(said, name)) as f:
            return f.read()

    for name in ("file", "folder", "split", "force"):
        text = of("full." + name)
        if of("full.%s.exit" % name) != "1\n" or "not enough space: " not in text or "bytes needed" not in text:
            problems.append("full disk, %s: exit %s: %s" % (name, of("full.%s.exit" % name).strip(), text))
    if of("full.small.exit") != "0\n" or of("full.ls") != "small.safetensors\n" or of("full.left.exit") != "0\n":
        problems.append("full disk: left %s; %s" % (of("full.ls").split(), of("full.small")))
    for name in ("file", "folder", "manifest"):
        if of("ro.%s.exit" % name) != "1\n" or "Read-only file system" not in of("ro." + name):
            problems.append("read-only, %s: exit %s: %s" % (name, of("ro.%s.exit" % name).strip(), of("ro." + name)))
    if of("ro.read.exit") != "0\n" or of("ro.hash") != of("full.hash"):
        problems.append("read-only: cannot be read: %s" % of("ro.read"))


def check_permissions(base):
    """As a user who may not write; root may write anywhere."""
    if os.getuid() != 0:
        folder = os.path.join(base, "locked")
        os.mkdir(folder, 0o500)
        check("a locked folder", run([CKPT, "convert", LLAMA, "-o", os.path.join(folder, "o")]), 1, "Permission denied")


def main():
    with tempfile.TemporaryDirectory(prefix="ckpt-limits-") as base:
        for part in (check_descriptors, check_streams, check_file_size, check_disk, check_permissions):
            part(base)
        shutil.rmtree(os.path.join(base, "locked"), ignore_errors=True)
    for problem in problems:
        print(problem.strip())
    print("limits: %d problems" % len(problems))
    return 1 if problems else 0


sys.exit(main())
