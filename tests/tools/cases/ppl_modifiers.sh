# Modifiers behind --against belong to the reference, those before it and without it to the model.
model=$DATA/dialect/llama-tied text=$DATA/text/eval.txt
ckpt convert $model -o weights.safetensors --quiet > /dev/null 2>&1
mkdir adapter
printf '{"peft_type":"LORA","r":64,"lora_alpha":64,"target_modules":["down_proj"]}' > adapter/adapter_config.json
ckpt convert $model -o adapter/adapter_model.safetensors --quiet --match 're:mlp.(gate|up)_proj.weight' \
  --rename 's/^model/base_model.model.model/' --rename 's/gate_proj/down_proj.lora_A/' --rename 's/up_proj/down_proj.lora_B/' \
  > /dev/null 2>&1
ckpt merge $model --adapter adapter=40 -o merged --quiet > /dev/null 2>&1
try() {
  echo "\$ ckpt ppl $*"
  ckpt ppl "$@" -f $text --ctx 64 --chunks 3 --quiet > out 2>&1
  code=$?
  sed -n 's/^kl *mean \([0-9.]*\) .*/kl \1/p; /^ckpt:/p' out | sed -e "s,$DATA/,,g" -e 's/kl 0.0*$/kl none/; s/kl [0-9.]*$/kl some/'
  echo "exit $code"
}
ln -s $model model
try model --against weights.safetensors --like model
try model --against weights.safetensors
try model --like merged --against weights.safetensors
try model --against model --adapter adapter=40
try merged --against model --adapter adapter=40
try model --adapter adapter=40 --against model --adapter adapter=40
try model --adapter adapter=40 --against merged
try --against model --adapter adapter=40 merged
try --against merged model --adapter adapter=40
