#!/usr/bin/env python3
"""Kills conversions at random instants: what stands at the output is the old one or the new one, whole.

    kills.py CKPT

SIGKILL, SIGINT and SIGTERM while a model is converted, quantized, split or resharded to a new file, over a file, to a
new folder and over a folder, in each format that is written and to frames of zstd; while a DCP folder is consolidated,
and while shards are joined. After each: no output, the old one or the new one, to the byte; only a SIGKILL may leave
temporary files, and only by their names; the same command then succeeds, says what it removed, and nothing is left.
Most kills wait until the temporary file or folder is there, for a time that follows how long runs take, and half of
all must meet it. 18 kills, each form at least once and each signal six times, or 200 with CKPT_TEST_FULL; CKPT_TEST_SEED
repeats a draw.
"""
import glob
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import scratch

CKPT = sys.argv[1]
N_KILLS = 200 if "CKPT_TEST_FULL" in os.environ else 18
SEED = int(os.environ.get("CKPT_TEST_SEED", random.randrange(10**6)))
SIGNALS = [signal.SIGKILL, signal.SIGINT, signal.SIGTERM]
TEMPORARY = re.compile(r"\.out\S*\.ckpt-tmp\.[a-z2-7]{6}$")
STORED = ["--names", "stored"]  # the model is of no family
N_TENSORS, N_ELEMENTS = 120, 96 * 1024
FORMER = {"latest_universal", "model.safetensors.index.json", ".metadata", "model-00001-of-00003.gguf"}  # what makes an old folder another one


def write_model(path):
    """A model large enough that a kill meets every part of a run."""
    header, block = {}, random.Random(7).randbytes(2 * N_ELEMENTS)
    block = bytes(b & 0x3F if i % 2 else b for i, b in enumerate(block))  # BF16 without infinities
    for i in range(N_TENSORS):
        header["layers.%d.weight" % i] = {"dtype": "BF16", "shape": [96, 1024],
                                          "data_offsets": [i * len(block), (i + 1) * len(block)]}
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + block * N_TENSORS)


def contents(path):
    """Hashes of a file or of a folder's files; None where there is nothing."""
    if os.path.isdir(path):
        return {name: contents(os.path.join(path, name)) for name in sorted(os.listdir(path))}
    if not os.path.exists(path):
        return None
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def is_writing(work):
    return any(TEMPORARY.match(name) for name in os.listdir(work))


def wait_until_writing(process, work):
    while process.poll() is None and not is_writing(work):
        time.sleep(0.0005)
    return time.monotonic()


def named(output):
    return output if "." in output else output + "/"  # a folder, also of a format that can be one file


def main():
    random.seed(SEED)
    problems, met, left_behind, n_writing = [], {}, 0, 0
    with scratch.folder("ckpt-kills-", 1 << 30) as base:
        model, old, work = (os.path.join(base, name) for name in ("model.safetensors", "old", "work"))
        write_model(model)
        source = {"quantize": os.path.join(base, "model.gguf"), "consolidate": os.path.join(base, "dcp"),
                  "join": os.path.join(base, "parts")}  # else the model
        subprocess.run([CKPT, "convert", model, "-o", source["quantize"], "--set", "general.architecture=llama",
                        "--set", "llama.block_count=%d" % N_TENSORS, "--rename", r"s/layers.(\d+)/blk.\1.attn_q/",
                        *STORED], check=True, capture_output=True)
        os.mkdir(old)
        reshard = ["reshard", "--to", "dcp", "--world", "3"]
        forms = {"out.safetensors": ["convert", "--dtype", "f32"], "out": ["convert", "--shard-size", "2MB"],
                 "out.pt": ["convert", "--dtype", "f32"], "out.gguf": ["convert", "--dtype", "f32", *STORED],
                 "out-gguf": ["convert", "--to", "gguf", "--shard-size", "10MB", *STORED],
                 "out-dcp": reshard, "out-zstd": [*reshard, "--zstd", "1"],
                 "out-universal": ["reshard", "--to", "universal"],
                 "out-q.gguf": ["quantize", "--type", "Q4_K_M"], "out-whole": ["consolidate", "--shard-size", "10MB"],
                 "out-parts": ["split", "--shard-size", "2MB"], "out-joined.safetensors": ["join"]}
        subprocess.run([CKPT, *reshard, model, "-o", source["consolidate"], "--quiet"], check=True, capture_output=True)
        subprocess.run([CKPT, "split", model, "-o", source["join"], "--shard-size", "5MB", "--quiet"], check=True, capture_output=True)
        new, seconds, writing = {}, {}, {}
        for output, (verb, *options) in forms.items():
            command = [CKPT, verb, source.get(verb, model), "-o", os.path.join(old, named(output)), "--quiet"]
            others = ["--type", "Q8_0"] if verb == "quantize" else ["--dtype", "f16"] if "." in output else options
            others += STORED if output == "out.gguf" else []
            if output == "out-universal":
                others = [*options, "--dp", "4"]  # files in its subfolders that are not written anew
            if verb == "join":
                shutil.copy(sorted(glob.glob(os.path.join(source[verb], "*.safetensors")))[0], command[4])
            else:
                subprocess.run(command + others, check=True, capture_output=True)
            for name in FORMER & set(os.listdir(command[4]) if "." not in output else ()):
                with open(os.path.join(command[4], name), "a") as f:
                    f.write("\n")  # the old folder is another one, with the same names
            os.mkdir(work)
            started = time.monotonic()
            command[4] = os.path.join(work, named(output))
            process = subprocess.Popen(command + options, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            begun = wait_until_writing(process, work)
            if process.wait() != 0:
                sys.exit("cannot be converted")
            seconds[output], writing[output] = time.monotonic() - started, time.monotonic() - begun
            new[output] = contents(command[4])
            shutil.rmtree(work)
        for i in range(3 * N_KILLS):  # on a busy machine fewer of them meet a run that is writing
            if i >= N_KILLS and n_writing >= N_KILLS // 2:
                break
            n_kills = i + 1
            if i % len(forms) == 0:
                order = random.sample(list(forms), len(forms))  # each form once in a round
            number, output, force = SIGNALS[i % len(SIGNALS)], order[i % len(forms)], random.random() < 0.5
            os.mkdir(work)
            path = os.path.join(work, output)
            if force:
                (shutil.copy if "." in output else shutil.copytree)(os.path.join(old, output), path)
            before = contents(path)
            verb, *options = forms[output]
            command = [CKPT, verb, source.get(verb, model), "-o", os.path.join(work, named(output)), "--quiet", *options, *(["--force"] if force else [])]
            waits = i % 4 != 3
            delay = random.uniform(0, writing[output] if waits else 1.3 * seconds[output])
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if waits:
                wait_until_writing(process, work)
            time.sleep(delay)
            was_writing = is_writing(work)
            process.send_signal(number)
            message = process.communicate(timeout=60)[1]
            n_writing += was_writing and process.returncode != 0
            if waits:  # how long a run writes changes with what else the machine does
                writing[output] *= 0.7 if process.returncode == 0 else 1.1
            after = contents(path)
            state = "new" if after == new[output] else "old" if after == before else "broken"
            what = "%s after %.3f s of %s%s" % (signal.Signals(number).name, delay, output, " --force" if force else "")
            met[state] = met.get(state, 0) + 1
            if state == "broken" or (process.returncode == 0 and state != "new"):
                problems.append("%s: %s at the output, exit %d: %s" % (what, state, process.returncode, message))
            others = [name for name in os.listdir(work) if name != output]
            left_behind += len(others)
            if any(not TEMPORARY.match(name) for name in others):
                problems.append("%s: left %s" % (what, others))
            if number != signal.SIGKILL:
                if others:
                    problems.append("%s: left %s though it could clean up" % (what, others))
                if process.returncode not in (0, 128 + number, -number):  # the last: before or after the run itself
                    problems.append("%s: exit %d: %s" % (what, process.returncode, message))
                if process.returncode > 0 and not message.startswith("ckpt: "):
                    problems.append("%s: no message" % what)
            command.remove("--quiet")
            again = subprocess.run(command + ["--force"] * (not force), capture_output=True, text=True)
            if bool(others) != ("removed what an interrupted run left: .out" in again.stderr):
                problems.append("%s: left %s, and the next run said: %s" % (what, others, again.stderr))
            if again.returncode != 0 or contents(path) != new[output]:
                problems.append("%s: cannot be run again: %s" % (what, again.stderr))
            if os.listdir(work) != [output]:
                problems.append("%s: still there after another run: %s" % (what, os.listdir(work)))
            shutil.rmtree(work)
    if n_writing < N_KILLS // 2:
        problems.append("only %d of %d kills met a run that was writing: this proves little" % (n_writing, n_kills))
    print("seed %d: %d kills, %d of them while it was written; at the output: %s; %d temporary names left by SIGKILL" % (SEED, n_kills, n_writing, met, left_behind))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


sys.exit(main())
