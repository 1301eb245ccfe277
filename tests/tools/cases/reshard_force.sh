# --force over DeepSpeed's own folders: what would be left beside a new checkpoint, and read as part of it, is named.
for name in stage3 stage0 moe-stage2 moe-stage0 pipe-stage1 tensor-stage3; do
  cp -r "$DATA/zero/$name" out
  chmod -R u+w out
  ckpt reshard "$DATA/zero/stage2-bf16" -o out --to zero --stage 2 --dp 2 --force --quiet || echo exit $?
  ls out/global_step3 | wc -l
  rm -rf out
done
# Those files beside another checkpoint.
for file in moe-stage2/global_step3/layer_0_expert_0_mp_rank_00_model_states.pt \
  moe-stage0/global_step3/expp_rank_0_mp_rank_00_optim_states.pt pipe-stage1/global_step3/layer_00-model_states.pt; do
  cp -r "$DATA/zero/stage0" in
  chmod -R u+w in
  cp "$DATA/zero/$file" in/global_step3
  ckpt ls in || echo exit $?
  rm -rf in
done
