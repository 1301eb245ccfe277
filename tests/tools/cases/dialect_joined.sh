# Mixtral with its experts joined, as its own state dict has them since transformers 5: GGUF is the same as of files.
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1
  code=$?
  [ $code = 0 ] || echo "exit $code"
}
cp -r $DATA/dialect/mixtral mixtral
python3 $DATA/../tools/join_experts.py mixtral joined
name='general.name=Mixtral'
try ls joined --match '*.layers.0.mlp.*'
try convert joined -o joined.gguf --quiet --set $name
try convert mixtral -o mixtral.gguf --quiet --set $name
try diff joined.gguf mixtral.gguf
try quantize joined -o 'joined-{type}.gguf' --type Q8_0 --type F16 --quiet --set $name
try quantize mixtral -o 'mixtral-{type}.gguf' --type Q8_0 --type F16 --quiet --set $name
for type in Q8_0 F16; do
  try diff joined-$type.gguf mixtral-$type.gguf
done
try diff mixtral joined.gguf --cast f32 --quiet

# A folder gets the names of files, whatever saved the model; `split` only cuts.
try convert joined -o apart --quiet --receipt apart.json
try hash mixtral
try verify apart --receipt apart.json --quiet
try convert joined -o saved --to dcp --quiet
try convert saved -o from-saved --like mixtral --quiet
try split joined -o cut --shard-size 128KB --quiet
try hash joined
try diff saved mixtral
try diff mixtral joined
try diff joined saved
mkdir bare && cp saved/.metadata saved/*.distcp bare
try diff bare saved
try convert joined -o none --exclude '*gate_up_proj'

# Weights alone, with the config and the tokenizer of a folder that has the names of files.
try convert joined/model.safetensors -o like.gguf --like mixtral --quiet --set $name
cmp like.gguf joined.gguf
ckpt convert mixtral -o files.safetensors --quiet > /dev/null
try convert files.safetensors -o like2.gguf --like joined --quiet --set $name
try verify joined --headers

# One defect each.
python3 $DATA/../tools/join_experts.py mixtral both model.layers.0.block_sparse_moe.experts.0.w3.weight
try convert both -o none.gguf --quiet
try convert both -o as-it-is --quiet
try ls as-it-is --match '*.0.w3.*'
sed 's/"num_local_experts": 4/"num_local_experts": 3/' mixtral/config.json > joined/config.json
try convert joined -o none.gguf --quiet
sed 's/"intermediate_size": 32/"intermediate_size": 48/' mixtral/config.json > joined/config.json
try convert joined -o none.gguf --quiet
sed 's/"num_hidden_layers": 2/"num_hidden_layers": 3/' mixtral/config.json > joined/config.json
try convert joined -o none.gguf --quiet

# What does not come apart keeps its name.
for gate_up in '2,2,1 1,2,3,4' '0,2,1 1' '1,4 1,2,3,4' '1,3,1 1,2,3'; do
  mkdir part
  echo '{"model_type": "mixtral"}' >part/config.json
  python3 $DATA/../tools/tiny.py part/model.safetensors "model.layers.0.mlp.experts.gate_up_proj F32 $gate_up"
  ckpt convert part -o whole --force --quiet >/dev/null 2>&1
  try ls whole
  rm -r part
done
