# Optimizer states: what a run goes on from is not dropped, not rounded, and written for the engine that will load it.
try() { ckpt "$@" 2>&1 | grep -v -E ' in .* m?s,|^weights:' | sed "s,$DATA,DATA,"; }
echo '# an optimizer whose states cannot be named is refused, or left out'
cp -r $DATA/trainer/llama in && chmod -R u+w in
sed -i 's/"LlamaForCausalLM"/"OddForCausalLM"/; s/"model_type": "llama"/"model_type": "odd"/' in/config.json
try reshard in -o out --to dcp
try reshard in -o out --to universal
try reshard in -o out --to dcp --drop optimizer --quiet
ls out

echo '# --dtype without a pattern is for the model'
dtypes() { ckpt ls $1 --include all --weights model --quiet | grep -E '^(optimizer.state.)?(up|fixed).weight' | awk '{print $1, $2}'; }
try convert $DATA/zero/stage1 -o cast --to dcp --dtype bf16 --quiet
dtypes cast
try convert $DATA/zero/stage1 -o cast.pt --dtype '*exp_avg=bf16' --dtype f16
ckpt ls cast.pt --include all --quiet | awk '{print $2}' | sort | uniq -c
try convert $DATA/zero/stage1 -o states.safetensors --include optimizer --dtype bf16
# masters that the output needs are the values before the cast, and the engine is that of the parameters
try convert $DATA/zero/stage1 -o zero1 --to zero --dtype bf16 --quiet
ls zero1/global_step3 | grep optim
ckpt diff zero1 $DATA/zero/stage1 --include optimizer --quiet

echo '# names that an engine looks for'
for engine in bf16 fp16 fp32; do
  try reshard $DATA/zero/stage3-bf16 -o $engine --to zero --stage 1 --engine $engine --receipt $engine.json
  ls $engine/global_step3 | grep optim
  ckpt inspect $engine | grep -o 'loss_scaler.*"dynamic": [a-z]*'
  ckpt verify $engine --receipt $engine.json | grep -c 'run again from its inputs gives the same content'
done
grep -o '"engine":"[a-z0-9]*"' bf16.json fp16.json fp32.json
try reshard $DATA/zero/stage2-fp16 -o default --to zero --dp 1
ls default/global_step3 | grep optim
ckpt inspect default | grep -o 'loss_scaler.*"dynamic": [a-z]*'
try reshard $DATA/zero/stage2-fp16 -o other --to zero --stage 1 --engine bf16
ls other/global_step3 | grep optim
try reshard $DATA/zero/stage3-bf16 -o none --to dcp --engine bf16
sed 's/"engine":"bf16"/"engine":"fp8"/' bf16.json > wrong.json
try verify bf16 --receipt wrong.json
# A rank's file in another's place is found by the name that it was saved under; files saved to an open file have none.
ckpt reshard $DATA/zero/stage3-bf16 -o three --to zero --dp 2 --quiet > /dev/null
ckpt verify three --quiet | grep -c order
rank() { echo "three/$(cat three/latest)/bf16_zero_pp_rank_$1_mp_rank_00_optim_states.pt"; }
mv $(rank 0) swapped && mv $(rank 1) $(rank 0) && mv swapped $(rank 1)
ckpt verify three --quiet | grep 'saved as'
try consolidate three -o none.safetensors
cat > open.py << 'END'
import sys, zipfile
for path in sys.argv[1:]:
    with zipfile.ZipFile(path) as old:
        records = [(name, old.read(name)) for name in old.namelist()]
    with zipfile.ZipFile(path, "w") as new:
        for name, content in records:
            new.writestr("archive" + name[name.index("/"):], content)
END
python3 open.py three/*/*.pt
ckpt verify three --quiet | grep order
