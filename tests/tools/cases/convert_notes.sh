# What else stands in the folder, what is left out and what a reader will miss is said; with --quiet the warnings are.
mkdir both && cp $DATA/gpt2-tiny/* both && printf 'PK\003\004' >both/pytorch_model.bin
closing() { sed -E 's/ in [0-9].*peak memory .*/ in TIME, RATE, PEAK/'; }
ckpt convert both -o one.safetensors 2>&1 >/dev/null | closing
ckpt convert both -o folder 2>&1 >/dev/null | closing
ls folder
ckpt convert one.safetensors -o bare 2>&1 >/dev/null | closing
ckpt convert one.safetensors -o bare2 --quiet 2>&1 >/dev/null

# A folder of the Hugging Face Trainer: what a run goes on from stays behind.
cp -r $DATA/gpt2-tiny trainer && echo '{"global_step": 5}' >trainer/trainer_state.json
for file in optimizer.pt scheduler.pt rng_state.pth training_args.bin; do printf 'PK\003\004' >trainer/$file; done
ckpt convert trainer -o model 2>&1 >/dev/null | closing
ls model

# optimizer states of a flat file
st() { # FILE HEADER PAYLOAD: a safetensors file; the payload with printf's escapes
  n=$(((${#2} + 7) / 8 * 8))
  printf "$(printf '\\%03o\\%03o\\000\\000\\000\\000\\000\\000' $((n % 256)) $((n / 256)))" >$1
  printf "%-${n}s$3" "$2" >>$1
}
one='"dtype":"F32","shape":[4]' zeros='\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000'
st state.safetensors '{"optimizer.state.w.exp_avg":{'$one',"data_offsets":[0,16]},"optimizer.state.w.exp_avg_sq":{'$one',"data_offsets":[16,32]},"optimizer.state.w.step":{'$one',"data_offsets":[32,48]},"w":{'$one',"data_offsets":[48,64]}}' \
  $zeros$zeros$zeros$zeros
ckpt convert state.safetensors -o model.safetensors 2>&1 | closing
ckpt convert state.safetensors -o all.safetensors --include all 2>&1 | closing
ckpt convert state.safetensors -o optimizer.safetensors --include optimizer 2>&1 | closing
ckpt split state.safetensors -o parts --shard-size 20 2>&1 | closing
ckpt ls parts --include all
ckpt split state.safetensors -o all-parts --shard-size 20 --include all 2>&1 | closing
ckpt join all-parts -o joined.safetensors 2>&1 | closing
ckpt join all-parts -o all-joined.safetensors --include all 2>&1 | closing
ckpt diff --include all model.safetensors joined.safetensors && ckpt diff --include all all.safetensors all-joined.safetensors
# What loading a namespace takes, said of the output; the objects of one with tensors in it are a dict in DCP
ckpt convert $DATA/torch/training.pt -o training.pt 2>&1 >/dev/null | closing
ckpt convert $DATA/torch/training.pt -o training.dcp --to dcp 2>&1 >/dev/null | closing
ckpt convert $DATA/torch/training.pt -o again.pt -o again.safetensors 2>&1 >/dev/null | closing
# A note of one file of a checkpoint names it once
cp "$DATA/../golden-errors/safetensors/noted-hole.safetensors" hole.safetensors && ckpt ls hole.safetensors 2>&1 >/dev/null
