# What engines of stage 3 do not take from a universal checkpoint is said, and what becomes of a missing scheduler.
said() { grep -E 'engine|scheduler'; }
cp -r $DATA/zero/stage2-bf16 run
cp -r $DATA/llama-tiny model
echo "== two groups and frozen parameters"
ckpt reshard run -o universal --to universal 2>&1 | said
ckpt reshard run -o universal2 --to universal --plan 2>&1 | said
echo "== zero has all"
ckpt reshard run -o zero --to zero 2>&1 | said
echo "== tensors of client state"
ckpt reshard $DATA/../golden-errors/zero/noted-client-state -o client --to universal 2>&1 | said
echo "== frozen parameters that may be buffers"
ckpt convert run -o run_dcp --to dcp > out 2>&1 || cat out
ckpt reshard run_dcp -o zero3 --to zero --stage 3 2>&1 | said
ckpt reshard run_dcp -o zero2 --to zero --stage 2 2>&1 | said
echo "== a scheduler beside a model"
cp -r $DATA/trainer/llama trained && chmod -R u+w trained && echo scheduler > trained/scheduler.pt
ckpt reshard trained -o trained_out --to universal 2>&1 | said
echo "== a model alone"
ckpt reshard model -o new --to universal 2>&1 | said
