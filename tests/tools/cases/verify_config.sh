# What config.json says and cannot be read is a problem; what it does not say leaves things unproven, never proven.
try() { # MODEL SED: verify's lines about a model whose config was edited
  cp -r "$DATA/$1" model
  sed "$2" "$DATA/$1/config.json" >model/config.json
  echo "\$ $1 $2"
  ckpt verify model --headers >said 2>&1
  code=$?
  grep -v "proven: structure\|proven: values\|proven: tokenizer: ids of\|tensor 'model.layers.*: unexpected" said
  echo "exit $code"
  rm -rf model
}
for value in '"64"' 64.5 1e400 99999999999999999999 -64 null '[64]'; do
  try llama-tiny 's/"hidden_size": 64/"hidden_size": '"$value/"
done
try llama-tiny 's/"hidden_size": 64/"text_config": {"hidden_size": 64}/'
try llama-tiny 's/"num_hidden_layers": 4/"num_hidden_layers": "4"/'
try llama-tiny 's/"num_hidden_layers": 4/"n_layer": 4/'
try llama-tiny 's/"num_attention_heads": [0-9]*/"num_attention_heads": 4611686018427387904/'
try llama-tiny 's/"model_type": "llama"/"model_type": "other"/; s/"vocab_size": 160/"vocab_size": "160"/'
try llama-tiny 's/"eos_token_id": 2/"eos_token_id": "2"/'
try llama-tiny 's/"eos_token_id": 2/"eos_token_id": [2, 3]/'
for model in llama-tiny gpt2-tiny; do
  try $model 's/"tie_word_embeddings": [a-z]*/"tie_word_embeddings": "false"/'
done
for class in LlamaForTokenClassification LlamaForQuestionAnswering; do
  try llama-tiny 's/LlamaForCausalLM/'$class/
done
# What a config adds to the model, and what it takes from it.
for key in attention_bias mlp_bias; do
  try llama-tiny 's/"'$key'": false/"'$key'": true/'
  try llama-tiny 's/"'$key'": false/"'$key'": 1/'
done
try gpt2-tiny 's/"add_cross_attention": false/"add_cross_attention": true/'
for classes in '[]' '["LlamaForCausalLM", "LlamaModel"]' '["MistralForCausalLM"]' '["Other"]'; do
  try llama-tiny '/"architectures"/,/\]/c\  "architectures": '"$classes",
done
stale='s/"vocab_size": 160/"vocab_size": 160, "quantization_config": {"quant_method": "fp8"}/'
try llama-tiny "$stale"

# The plain tensors of such a model can be cast, and it is said; with a quantized one beside them it is the config's.
cp -r "$DATA/llama-tiny" stale
sed "$stale" "$DATA/llama-tiny/config.json" >stale/config.json
ckpt convert stale -o cast --dtype bf16 2>&1 | grep quantization
grep '"dtype"' cast/config.json
mkdir fp8 && cp stale/config.json fp8
python3 "$DATA/../tools/tiny.py" fp8/model.safetensors 'w U8 2 1' 'w_scale_inv F32 1 1' 'n F32 1 1'
ckpt convert fp8 -o still --dtype 'n=bf16' 2>&1 | grep quantization
ckpt verify fp8 --headers | grep quantiz
ckpt convert fp8 -o not --dtype bf16 2>&1 || true
