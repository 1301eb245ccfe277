# Adapters merged into their base, for every verb that reads a model, and what is refused.
cp -r "$DATA/adapters" a
try() {
  echo "\$ ckpt $*"
  ckpt "$@" --quiet 2>&1
  echo "exit $?"
}
base=a/linear/base lora=a/linear/adapter
try merge $base --adapter $lora -o merged/
try hash $base --adapter $lora
try diff $base --adapter $lora merged
try cat $base --adapter $lora 'model.layers.0.self_attn.q_proj.weight[0,:3]'
try cat merged 'model.layers.0.self_attn.q_proj.weight[0,:3]'
ckpt ls $base --adapter $lora | head -2
ls merged
try verify merged --headers
# what the updates did, for all tensors and for each
ckpt merge $base --adapter $lora=0.01 -o small.safetensors 2>&1 >/dev/null | grep updates
ckpt convert $base -o half --dtype bf16 --quiet >/dev/null && ckpt merge half --adapter $lora=0.01 -o small 2>&1 >/dev/null | grep updates
ckpt merge half --adapter $lora=0.01 -o small --force --json --quiet | grep -o '"update":.*q_proj[^}]*}' | head -c 420; echo
try merge --adapter $lora -o own.safetensors
# a scale of 0 is the identity, bit for bit, and asked for
try merge $base --adapter $lora=0 -o zero.safetensors
try merge $base --adapter $lora=0 -o zero.safetensors --allow-noop
cmp zero.safetensors $base/model.safetensors && echo "the base's bytes"
try hash $base
mkdir still && sed 's/"lora_alpha": 8/"lora_alpha": 0/' $lora/adapter_config.json >still/adapter_config.json && cp $lora/*.safetensors still
try hash $base --adapter still
try hash $base --adapter still --allow-noop
rm zero.safetensors
# what the config does not name is not merged, and what it names must be there
part() {
  mkdir -p part && cp $lora/*.safetensors part && sed "$1" $lora/adapter_config.json >part/adapter_config.json
  try hash $base --adapter part
  try verify part | sed -n '/^problem/p;/^exit/p' | head -3
}
part '/"o_proj"/d;s/"v_proj",/"v_proj"/;s/"down_proj",//'
part 's/"exclude_modules": null/"exclude_modules": ["q_proj"]/'
part 's/"layers_to_transform": null/"layers_to_transform": [0]/'
part 's/"modules_to_save": null/"modules_to_save": ["lm_head"]/'
part 's/"trainable_token_indices": null/"trainable_token_indices": [1]/'
part 's/"lora_bias": false/"lora_bias": true/'
part 's/"r": 4/"r": -1/'
try merge $base --adapter $lora=nan -o zero.safetensors
try hash $base --adapter $lora=1,5
try hash $base
try merge $base --adapter $lora=0.5 --adapter a/patterns/adapter -o one.safetensors
try merge $base --adapter a/patterns/adapter --adapter $lora=0.5 -o other.safetensors
cmp one.safetensors other.safetensors && echo the same bytes
try merge a/gpt2/base --adapter a/gpt2/adapter -o gpt2.gguf --dtype f32
try merge a/gpt2/base --adapter a/gpt2/adapter -o gpt2/
try hash gpt2 gpt2.gguf --cast f32
# bf16 bases are rounded once: as if they had been f32 all along
try convert $base -o b16 --dtype bf16
try convert b16 -o b32 --dtype f32
try hash b16 --adapter $lora --cast f32
try hash b32 --adapter $lora --cast f32
try convert b16 --adapter $lora -o b16.gguf --dtype f16
try convert b32 --adapter $lora -o b32.gguf --dtype f16
try hash b16.gguf b32.gguf
try convert b16 --adapter $lora -o b16.safetensors
try hash b32 --adapter $lora --cast bf16
try merge a/embedding/base --adapter a/embedding/adapter -o untied.safetensors --tied error
# threads, tiles and packaging change nothing; a merge that is converted is what --adapter converts
for threads in 1 3; do
  ckpt merge $base --adapter $lora -o t$threads.safetensors --threads $threads --memory 4M --quiet > out
done
cmp t1.safetensors t3.safetensors && ckpt split $base -o shards --shard-size 4K --quiet > out
try hash shards --adapter $lora
ckpt convert merged -o of-merged.gguf --dtype f32 --quiet > out && ckpt convert $base --adapter $lora -o at-once.gguf --dtype f32 --quiet > out
try hash of-merged.gguf at-once.gguf
ckpt diff $base $base --adapter $lora | sed -n 1p
# an adapter as older versions of PEFT save it
mkdir old && cp $lora/adapter_config.json old && ckpt convert $lora/adapter_model.safetensors -o old/adapter_model.bin --quiet
ls old
try hash $base --adapter old
# with both files the one of safetensors counts; other weights beside it may belong to it, and are named
cp $lora/adapter_model.safetensors old && printf PK >old/non_lora_trainables.bin
try hash $base --adapter old
try merge $base --adapter $lora=1e39 -o x.safetensors
try merge $base --adapter $lora=1e-60 -o x.safetensors
mkdir wrong && cp $lora/*.safetensors wrong && sed 's/"alpha_pattern": {}/"alpha_pattern": {"(": 2}/' $lora/adapter_config.json >wrong/adapter_config.json
try hash $base --adapter wrong
# the base that ckpt-train records, and another
mkdir trained && cp $lora/* trained && echo "{\"base_digest\":\"$(ckpt hash $base | cut -d' ' -f1)\"}" >trained/run.json
for of in $base half; do
  ckpt merge $of --adapter trained -o kept --force 2>&1 >/dev/null | grep 'another base'
  echo "$of: checked"
done
# names with "=", and names of the cache: of an adapter, and of the base that one names
cp -r $lora lora=v2
try hash $base --adapter lora=v2
try hash $base --adapter lora=v2=1
for name in base lora; do mkdir -p hub/models--org--$name/snapshots hub/models--org--$name/refs && printf r >hub/models--org--$name/refs/main; done
cp -r $base hub/models--org--base/snapshots/r && cp -r $lora hub/models--org--lora/snapshots/r
sed -i 's#"base_model_name_or_path": "base"#"base_model_name_or_path": "org/base"#' hub/models--org--lora/snapshots/r/adapter_config.json
HF_HUB_CACHE=hub try merge --adapter org/lora -o cached/ && ckpt hash cached
# GGUF as base: what comes of it is GGUF again, or the folder that the model's own merge is
try convert a/gpt2/base -o base.gguf --dtype f32
try merge base.gguf --adapter a/gpt2/adapter -o again.gguf
try hash again.gguf
ckpt ls --names stored again.gguf | sed -n 1,2p
ckpt ls --names stored base.gguf | sed -n 1,2p
try merge base.gguf --adapter a/gpt2/adapter -o folder/
ls folder
try merge $base -o x.safetensors
try merge $base --adapter a/gpt2/adapter -o x.safetensors
try merge $base --adapter $base -o x.safetensors
try merge $base --adapter nowhere -o x.safetensors
try merge $base --adapter $lora -o x.safetensors --combine ties
try hash $base --adapter $lora -o m.json
try verify $base --adapter $lora
ls x.safetensors r.json m.json 2> /dev/null
# A checkpoint of the Trainer: its optimizer's states, read or not, are no part of the adapter.
cp -r "$DATA/adapters/linear" saved && chmod -R u+w saved
cp "$DATA/trainer/llama-dora/optimizer.pt" saved/adapter
ckpt merge saved/base --adapter saved/adapter -o with.safetensors --quiet 2>&1 | grep -o 'ckpt1:.*'
ckpt merge saved/base --adapter "$DATA/adapters/linear/adapter" -o without.safetensors --quiet 2>&1 | grep -o 'ckpt1:.*'
cp -r "$DATA/trainer/llama-dora" whole
ckpt verify whole | tail -n 1 | grep -o ' ok, .*'
