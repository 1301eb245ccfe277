# Which copy stands for the parameters: the masters by default, the stored ones with --weights model; always said.
closing() { sed -E 's/ in [0-9].*peak memory .*/ in TIME, RATE, PEAK/'; }
python3 $DATA/../tools/tiny.py mixed.safetensors 'w BF16 2 0x803f0040' 'optimizer.state.w.master F32 2 1.001,2.002' \
  'optimizer.state.w.exp_avg F32 2 0'
python3 $DATA/../tools/tiny.py plain.safetensors 'w F32 2 1.001,2.002'
python3 $DATA/../tools/tiny.py stored.safetensors 'w BF16 2 0x803f0040'
python3 $DATA/../tools/tiny.py uneven.safetensors 'w F32 2 1' 'optimizer.state.w.master F32 3 1'
for weights in '' '--weights master' '--weights model'; do
  echo "== $weights"
  ckpt ls mixed.safetensors $weights --include all 2>&1
  ckpt cat mixed.safetensors $weights w 2>&1
  ckpt hash mixed.safetensors $weights 2>&1
  ckpt convert mixed.safetensors $weights -o out.safetensors --force 2>&1 | closing
  ckpt ls out.safetensors
  ckpt convert mixed.safetensors $weights -o out.safetensors --force --json --quiet | grep -o '"weights":[^,]*'
  ckpt convert mixed.safetensors $weights -o out.safetensors --force --plan 2>&1 | grep weights
done
echo "== both forms alone"
ckpt hash plain.safetensors stored.safetensors
ckpt convert plain.safetensors -o out.safetensors --force --json --quiet | grep -o '"weights":[^,]*'
ckpt inspect mixed.safetensors | sed -n '/^role/,$p'
echo "== a receipt replays the choice, and all roles are compared as written"
ckpt convert mixed.safetensors --weights model -o all.safetensors --include all --receipt receipt.json 2>&1 | closing
ckpt verify all.safetensors --receipt receipt.json 2>&1; echo "exit $?"
echo "== refused"
ckpt ls plain.safetensors --weights master 2>&1; echo "exit $?"
ckpt ls uneven.safetensors 2>&1; echo "exit $?"
ckpt ls uneven.safetensors --weights model 2>&1; echo "exit $?"
cp -r $DATA/zero/stage3-bf16 stage3
ckpt ls stage3 --weights model 2>&1; echo "exit $?"
ckpt consolidate stage3 --weights model -o none 2>&1; echo "exit $?"
