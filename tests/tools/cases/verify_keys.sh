# What from_pretrained refuses in a config is a problem, what is not known leaves it unproven; so does what else is loaded.
cp -r "$DATA/llama-tiny" in && chmod -R u+w in
cp in/config.json whole.json
with() {
  python3 -c 'import json, sys
config = json.load(open("whole.json")); config.update(json.loads(sys.argv[1])); json.dump(config, open("in/config.json", "w"))' "$1"
  echo "# $1"
  ckpt verify in --headers --quiet | grep -e problem: -e config:
}
for edit in '{}' '{"hidden_act": "nope"}' '{"hidden_act": 3}' '{"rms_norm_eps": "1e-5"}' '{"use_cache": "yes"}' \
  '{"attention_dropout": "x"}' '{"initializer_range": null}' '{"dtype": "float3"}' '{"torch_dtype": "int32", "dtype": null}' \
  '{"id2label": {"a": "x"}}' '{"id2label": []}' '{"id2label": {"0": "x", "1": "y"}}' '{"num_labels": "x"}' \
  '{"layer_types": ["full_attention", "odd", "odd", "odd"]}' '{"layer_types": ["full_attention"]}' \
  '{"rope_parameters": {"rope_type": "odd"}}' '{"rope_parameters": {"rope_type": "linear"}}' \
  '{"rope_parameters": {"rope_type": "linear", "factor": 2.0}}' '{"rope_parameters": {"rope_type": "yarn", "factor": "x"}}' \
  '{"rope_parameters": null, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}}' \
  '{"problem_type": "single_label_classification", "num_labels": 1}' '{"somebody": 1}' '{"n_ctx": "x", "temperature": 2}'; do
  with "$edit"
done
with '{}' > /dev/null
echo '# an adapter beside it'
python3 "$DATA/../tools/tiny.py" in/adapter_model.safetensors 'lora_A.weight F32 2,2 1'
echo '{"peft_type": "LORA"}' > in/adapter_config.json
ckpt verify in --headers --quiet | grep config:
rm in/adapter*
echo '# an index without metadata'
python3 -c 'import json
index = json.load(open("in/model.safetensors.index.json")); del index["metadata"]
json.dump(index, open("in/model.safetensors.index.json", "w"))'
ckpt verify in --headers --quiet | grep -e problem: -e config:
ckpt convert in -o out --quiet 2>&1 && ckpt verify out --headers --quiet | grep config:
