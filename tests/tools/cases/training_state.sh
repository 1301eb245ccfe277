# What a trainer saved beside a model goes with all of it, and nowhere else; it is never read.
cp -r $DATA/llama-tiny in && chmod -R u+w in
for name in optimizer.pt scheduler.pt rng_state_0.pth rng_state_1.pth rng_state_2.pth; do echo $name > in/$name; done
echo "{}" > in/trainer_state.json
mkdir in/checkpoint-5
present() { (cd $1 && ls | grep -E 'optimizer|scheduler|rng|trainer' | tr '\n' ' '); echo; }
said() { grep -E 'not written|training|refused' $1; }
echo '# by role'
ckpt convert in -o model > sum 2> err; said err; present model
ckpt convert in -o all --include all > sum 2> err; said err; present all
ckpt convert in -o one.safetensors > sum 2> err; said err
ckpt convert in -o one.pt > sum 2> err; said err
echo '# ranks that are left'
ckpt reshard in -o two --to dcp --world 2 --receipt two.json > sum 2> err; said err; present two
ckpt reshard in -o one --to dcp > sum 2> err; said err; present one
ckpt reshard in -o less --to dcp --drop optimizer > sum 2> err; said err; present less
cmp in/optimizer.pt two/optimizer.pt && ckpt verify two --receipt two.json | tail -4
echo '# the state is the input own, not that of --like'
cp -r $DATA/llama-tiny like && chmod -R u+w like && echo other > like/optimizer.pt && echo other > like/scaler.pt
ckpt convert in --like like -o liked --include all --quiet && cmp in/optimizer.pt liked/optimizer.pt && ls liked | grep -c scaler
echo '# manifests: of the model, or of all'
ckpt hash in -o model.json > sum && grep -c optimizer.pt model.json; ckpt verify in --manifest model.json | grep 'side files'
ckpt hash in --include all -o all.json > sum; ckpt verify in --manifest all.json | grep 'side files'
echo changed > in/optimizer.pt; ckpt verify in --manifest all.json | grep -o 'optimizer.pt: .* has it' || echo not noticed
ckpt hash --files in | grep -c -E 'optimizer|scheduler|rng|trainer'
echo '# what lies in folders is not carried: a run could not go on'
mkdir in/global_step5 && ckpt reshard in -o no --to dcp || echo exit $?
