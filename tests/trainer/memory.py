#!/usr/bin/env python3
"""The memory that --plan says is what a run takes, on 4 ranks of a model whose layers are most of it.

    memory.py CKPT_TRAIN DATA

The peak of the process is within 2 % or 48 MiB of the plan, in each stage; stage 3 takes less than half of stage 0.
The peak of the step (the log's, before anything is saved) is the plan without saving, with what the program takes before
it trains, within 14 MB. One more buffer of a shard, the smallest that there is, on every rank is 32 MB.

Then a run in bf16 that evaluates first, with more rows a batch than it trains on, of a length that is no multiple of 32
and a tenth of the model's positions. Its step holds the same; each of these, planned otherwise, is more than 14 MB.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 96, "hidden_size": 320,
          "intermediate_size": 960, "num_hidden_layers": 6, "num_attention_heads": 5, "num_key_value_heads": 5,
          "max_position_embeddings": 32, "rms_norm_eps": 1e-6, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2}
# Matrices whose rounded factors are large, and few layers.
WIDE = {**CONFIG, "hidden_size": 640, "intermediate_size": 1920, "num_hidden_layers": 2, "max_position_embeddings": 450}
UNITS = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9}


def size_of(text):
    number, unit = text.split()
    return float(number) * UNITS[unit]


def run(command):
    """(What it prints, the peak of its memory in bytes)"""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (command, text)
    return text, usage.ru_maxrss * 1024


def plan_of(command, n_ranks=4):
    """(Bytes of the plan, those of its saving, the peak of the program that only plans)"""
    plan, base = run([*command, "--plan"])
    rows = re.findall(r"^rank \d+: ([0-9.]+ \w+):.* saving ([0-9.]+ \w+)$", plan, re.M)
    assert len(rows) == n_ranks, plan
    return sum(size_of(row[0]) for row in rows), sum(size_of(row[1]) for row in rows), base


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def gap_of(command, out, n_ranks):
    """(What the step takes, and how much of it is not planned)"""
    planned, saving, base = plan_of(command, n_ranks)
    run(command)
    with open(os.path.join(out, "log.jsonl"), encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    peak = next(row["mem_bytes"] for row in rows if "mem_bytes" in row)
    return peak, peak - (planned - saving + base)


def check_evaluation_in_bf16(train, folder):
    os.makedirs(os.path.join(folder, "wide"))
    write(folder, "wide/config.json", json.dumps(WIDE))
    row = json.dumps({"input_ids": [i % 90 for i in range(45)]}) + "\n"
    out = os.path.join(folder, "out-bf16")
    peak, gap = gap_of([train, "--model", os.path.join(folder, "wide"), "--init", "scratch", "--data",
                        write(folder, "rows.jsonl", row * 40), "--eval-data", write(folder, "eval.jsonl", row * 48), "--bf16",
                        "--eval_on_start", "--per_device_eval_batch_size", "24", "--ranks", "2", "--stage", "3", "--threads", "1",
                        "--per_device_train_batch_size", "4", "--max_steps", "1", "--save_strategy", "no", "--quiet", "-o", out],
                       out, 2)
    print(f"bf16 with evaluation: of the step {peak / 1e6:.0f} MB, {gap / 1e6:.1f} MB not planned")
    assert abs(gap) < 14e6, (peak, gap)


def main():
    train, data = sys.argv[1:]
    peaks = {}
    with tempfile.TemporaryDirectory() as folder:
        write(folder, "config.json", json.dumps(CONFIG))
        check_evaluation_in_bf16(train, folder)
        for stage in range(4):
            out = os.path.join(folder, f"out-{stage}")
            command = [train, "--model", folder, "--init", "scratch", "--data", os.path.join(data, "rows.jsonl"), "--ranks", "4",
                       "--stage", str(stage), "--threads", "1", "--per_device_train_batch_size", "1", "--max_steps", "1",
                       "--save_strategy", "no", "--quiet", "-o", out]
            planned, saving, base = plan_of(command)
            _, peak = run(command)
            with open(os.path.join(out, "log.jsonl"), encoding="utf-8") as file:
                peaks[stage] = json.loads(file.readline())["mem_bytes"]
            gap = peaks[stage] - (planned - saving + base)
            print(f"stage {stage}: planned {planned / 1e6:.0f} MB, peak {peak / 1e6:.0f} MB; of the step {peaks[stage] / 1e6:.0f} MB, "
                  f"{gap / 1e6:.1f} MB not planned")
            assert abs(peak - planned) < max(0.02 * planned, 48 << 20), (stage, planned, peak)
            assert abs(gap) < 14e6, (stage, planned, saving, base, peaks[stage])
    assert peaks[3] < 0.5 * peaks[0], peaks


main()
