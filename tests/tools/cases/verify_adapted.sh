# A model that PEFT has adapters in has other names than its config says: no problem, and nothing proven.
mkdir model
cp $DATA/llama-tiny/config.json model
python3 $DATA/../tools/tiny.py model/model.safetensors 'base_model.model.lm_head.weight F32 2 1,2'
ckpt verify model 2>&1 | grep -E 'problem|config'
python3 $DATA/../tools/tiny.py model/model.safetensors 'lm_head.weight F32 2 1,2'
ckpt verify model 2>&1 | grep -c '^problem'
