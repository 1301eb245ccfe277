#!/usr/bin/env python3
"""The memory that --plan says is what a run takes, on 4 ranks of a model whose layers are most of it.

    memory.py CKPT_TRAIN DATA

The peak of the process is within 2 % or 48 MiB of the plan, in each stage; stage 3 takes less than half of stage 0.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 96, "hidden_size": 320,
          "intermediate_size": 960, "num_hidden_layers": 8, "num_attention_heads": 5, "num_key_value_heads": 5,
          "max_position_embeddings": 32, "rms_norm_eps": 1e-6, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2}
UNITS = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9}


def main():
    train, data = sys.argv[1:]
    peaks = {}
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(CONFIG, file)
        for stage in (0, 3):
            out = os.path.join(folder, f"out-{stage}")
            command = [train, "--model", folder, "--init", "scratch", "--data", os.path.join(data, "rows.jsonl"), "--ranks", "4",
                       "--stage", str(stage), "--threads", "1", "--per_device_train_batch_size", "1", "--max_steps", "1",
                       "--save_strategy", "no", "--quiet", "-o", out]
            plan = subprocess.run([*command, "--plan"], check=True, capture_output=True, text=True).stdout
            rows = re.findall(r"^rank \d+: ([0-9.]+) (\w+):", plan, re.M)
            planned = sum(float(number) * UNITS[unit] for number, unit in rows)
            assert len(rows) == 4, plan
            subprocess.run(command, check=True)
            with open(os.path.join(out, "log.jsonl"), encoding="utf-8") as file:
                peaks[stage] = json.loads(file.readline())["mem_bytes"]
            print(f"stage {stage}: planned {planned / 1e6:.0f} MB, peak {peaks[stage] / 1e6:.0f} MB")
            assert abs(peaks[stage] - planned) < max(0.02 * planned, 48 << 20), (stage, planned, peaks[stage])
    assert peaks[3] < 0.5 * peaks[0], peaks


main()
