# What is proven of a sound model, what is not; values, config, layers, ties, tokenizer: every problem at once.
tiny() { python3 "$DATA/../tools/tiny.py" "$@"; }
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1
  echo "exit $?"
}
cp -r "$DATA/llama-tiny" llama
cp -r "$DATA/gpt2-tiny" gpt2
try verify llama
try verify gpt2
try verify llama --headers
try verify llama --digest "$(ckpt hash llama | cut -d' ' -f1)"
try verify llama --digest "ckpt1:$(printf '%064d' 0)"
try verify llama --digest 1234
try verify llama --headers --digest "ckpt1:$(printf '%064d' 0)"
ckpt verify llama --json | python3 -c '
import json, sys
for key, value in json.load(sys.stdin).items():
  print(key, value)'
ckpt verify llama --trace trace --threads 2 > /dev/null
ckpt ls llama --json | python3 -c '
import json, sys
total = [json.loads(line) for line in open("trace")][-1]["total"]["read"]
print("one read:", total == json.load(sys.stdin)["n_bytes"])'

tiny values.safetensors 'nan F32 2,2 1,nan,nan' 'inf F16 3 inf' 'zeros F32 3,4 0' 'bias F32 8 0' 'long I64 2 0'
try verify values.safetensors
edit() { sed "$2" "$1" > edited && mv edited "$1"; }
edit llama/config.json 's/"num_hidden_layers": 4/"num_hidden_layers": 5/; s/"vocab_size": 160/"vocab_size": 161/'
edit llama/config.json 's/"eos_token_id": 2/"eos_token_id": 160/; s/"num_key_value_heads": 2/"num_key_value_heads": 1/'
edit llama/tokenizer.json 's/"!": 4,/"!": 4444,/'
try verify llama --headers
edit llama/tokenizer.json 's/"!": 4444,/"!": "x",/'
ckpt verify llama --headers | grep tokenizer.json
edit llama/config.json 's/"num_hidden_layers": 5/"num_hidden_layers": 3/'
ckpt verify llama --headers | grep 'of layer' | head -2
edit gpt2/config.json 's/"tie_word_embeddings": true/"tie_word_embeddings": false/; s/"n_inner": null/"n_inner": 100/'
try verify gpt2 --headers
edit gpt2/config.json 's/"model_type": "gpt2"/"model_type": "gpt3"/'
try verify gpt2 --headers
