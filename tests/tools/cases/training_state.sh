# What a trainer saved beside a model goes with all of it, and nowhere else; it is never read.
cp -r $DATA/llama-tiny in && chmod -R u+w in
for name in scheduler.pt rng_state_0.pth rng_state_1.pth rng_state_2.pth; do printf '\200\002N.' > in/$name; done
cp "$DATA/torch/views.pt" in/optimizer.pt && chmod u+w in/optimizer.pt # states that nobody knows
echo "{}" > in/trainer_state.json
mkdir in/checkpoint-5
present() { (cd $1 && ls | grep -E 'optimizer|scheduler|rng|trainer' | tr '\n' ' '); echo; }
said() { grep -E 'not written|training|refused' $1; }
echo '# by role'
ckpt convert in -o model > sum 2> err; said err; present model
ckpt convert in -o all --include all > sum 2> err; said err; present all
ckpt convert in -o one.safetensors > sum 2> err; said err
ckpt convert in -o one.pt > sum 2> err || tail -1 err
echo '# ranks that are left'
ckpt reshard in -o two --to dcp --world 2 > sum 2> err || tail -1 err
mv in/optimizer.pt kept.pt
ckpt reshard in -o two --to dcp --world 2 --receipt two.json > sum 2> err; said err; present two
ckpt reshard in -o one --to dcp > sum 2> err; said err; present one
cmp in/rng_state_1.pth two/rng_state_1.pth && ckpt verify two --receipt two.json | tail -4
cp kept.pt in/optimizer.pt
ckpt reshard in -o less --to dcp --drop optimizer > sum 2> err; said err; present less
echo '# the state is the input own, not that of --like'
cp -r $DATA/llama-tiny like && chmod -R u+w like && cp "$DATA/torch/signs.pt" like/optimizer.pt && echo other > like/scaler.pt
ckpt convert in --like like -o liked --include all --quiet && cmp in/optimizer.pt liked/optimizer.pt && ls liked | grep -c scaler
echo '# manifests: of the model, or of all'
ckpt hash in -o model.json > sum && grep -c optimizer.pt model.json; ckpt verify in --manifest model.json | grep 'side files'
ckpt hash in --include all -o all.json > sum; ckpt verify in --manifest all.json | grep 'side files'
cp "$DATA/torch/signs.pt" in/optimizer.pt; ckpt verify in --manifest all.json | grep -o 'optimizer.pt: .* has it' || echo not noticed
ckpt hash --files in | grep -c -E 'optimizer|scheduler|rng|trainer'
echo '# what lies in folders is not carried: a run could not go on'
mkdir in/global_step5 && ckpt reshard in -o no --to dcp || echo exit $?
