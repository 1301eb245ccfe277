# A PEFT adapter is written under the name that PEFT looks for, in one file.
ckpt convert $DATA/llama-tiny -o whole.safetensors --match '*q_proj*' --quiet >/dev/null
mkdir adapter && echo '{"peft_type":"LORA"}' >adapter/adapter_config.json && mv whole.safetensors adapter/adapter_model.safetensors
ckpt convert adapter -o copy 2>&1 | sed -E 's/ in [0-9].*//'
ls copy && cmp adapter/adapter_model.safetensors copy/adapter_model.safetensors && echo same
ckpt split adapter -o large --shard-size 1G --quiet && ls large
ckpt split adapter -o cut --shard-size 10K 2>&1 || echo "exit $?"
ckpt convert adapter -o copy --force --quiet && ls copy

# With a config.json the folder is a model that has an adapter's settings beside it.
cp $DATA/llama-tiny/config.json adapter && ckpt convert adapter -o model --quiet && ls model
