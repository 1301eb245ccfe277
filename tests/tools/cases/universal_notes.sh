# What engines of stage 3 do not take from a universal checkpoint is said, and what becomes of a missing scheduler.
said() { grep -E 'engine|scheduler'; }
cp -r $DATA/zero/stage2-bf16 run
cp -r $DATA/llama-tiny model
echo "== two groups and frozen parameters"
ckpt reshard run -o universal --to universal 2>&1 | said
ckpt reshard run -o universal2 --to universal --plan 2>&1 | said
echo "== zero has all"
ckpt reshard run -o zero --to zero 2>&1 | said
echo "== a model alone"
ckpt reshard model -o new --to universal 2>&1 | said
