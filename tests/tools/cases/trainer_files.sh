# What a trainer saved beside a model has a role by its name: shown, and whole or a problem.
cp -r $DATA/trainer/llama in && chmod -R u+w in
for name in scheduler.pt scaler.pt rng_state_0.pth training_args.bin random_states_1.pkl scheduler.bin sampler_1.bin \
  custom_checkpoint_0.pkl dl_state_dict.bin; do printf '\200\002N.' > in/$name; done
echo '# inspect'
ckpt inspect in | sed -n '/^side files/,/^$/p'
ckpt inspect in --json | python3 -c 'import json, sys; print([(f["name"], f["role"]) for f in json.load(sys.stdin)["side_files"]][:4])'
echo '# ls'
ckpt ls in --include all 2> err | grep file
ckpt ls in --include optimizer 2> err | grep file
ckpt ls in 2> err | grep file || echo none among the model
ckpt ls in --include all --match 'model.norm.weight' 2> err
ckpt ls in --include all --json 2> err | python3 -c 'import json, sys; print([(f["name"], f["role"]) for f in json.load(sys.stdin)["files"]][:3])'
echo '# whole, or a problem'
check() { ckpt verify "$1" 2> err | grep -E 'problem'; }
check in || echo ok
: > in/scaler.pt; check in
cp -r $DATA/trainer/llama cut && chmod -R u+w cut
head -c 9000 $DATA/trainer/llama/optimizer.pt > cut/optimizer.pt; ckpt verify cut > out 2> err; echo exit $?; grep problem: out
cp cut/optimizer.pt cut/scheduler.bin; cp $DATA/trainer/llama/optimizer.pt cut; check cut
