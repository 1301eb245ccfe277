# How the job was cut into ranks, by the stage and layout of its checkpoint.
for name in stage0 stage3 round-robin moe-stage0 moe-stage1-bf16 tensor-stage3 pipe-stage1; do
  ckpt inspect "$DATA/zero/$name" --json | python3 -c '
import json, sys
said = json.load(sys.stdin)
print(*(said[key] for key in ("writer", "step", "min_ranks", "parallel", "tag")), sep="; ")'
  ckpt inspect "$DATA/zero/$name" | sed -n '/^writer/,/^tag/p'
done
ckpt inspect "$DATA/universal/stage3-bf16" | sed -n '/^writer/,/^tag/p'
ckpt inspect "$DATA/zero/stage3/global_step3" | sed -n '/^writer/,/^files/p'
