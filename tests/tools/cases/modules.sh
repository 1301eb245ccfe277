# Modules of sentence-transformers go whole; of an adapter that lies beside a model neither half goes.
TINY="python3 $DATA/../tools/tiny.py"
mkdir -p st/1_Pooling st/2_Dense st/other
$TINY st/model.safetensors 'embeddings.weight F32 2,2 1'
$TINY st/2_Dense/model.safetensors 'linear.weight F32 2,2 3'
$TINY st/other/model.safetensors 'w F32 2 1'
echo '{}' > st/config.json
echo '{"pooling_mode_mean_tokens": true}' > st/1_Pooling/config.json
echo '{"in_features": 2, "out_features": 2}' > st/2_Dense/config.json
echo '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
 {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
 {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}]' > st/modules.json
ckpt convert st -o out --dtype bf16 2>&1 | grep -v peak
find out -type f | sort
cmp st/2_Dense/model.safetensors out/2_Dense/model.safetensors && ckpt ls out
mkdir base
cp st/model.safetensors st/config.json base
$TINY base/adapter_model.safetensors 'lora_A.weight F32 2,2 1'
echo '{"peft_type": "LORA"}' > base/adapter_config.json
ckpt convert base -o made 2>&1 | grep -v peak
find made -type f | sort
# A list that is none names no module.
echo '[1, {"path": "2_Dense"}' > st/modules.json
ckpt convert st -o broken --quiet && find broken -name '*.safetensors'

# Folders with other weights stay whole, whatever lies in them and how deep; those without go along, as do modules in one.
mkdir -p repo/original repo/onnx/fp16 repo/docs/more repo/parts/dense repo/parts/stray
cp st/model.safetensors st/config.json repo
cp "$DATA/torch/training.pt" repo/original/consolidated.00.pth
cp "$DATA/onnx/dynamo.onnx" repo/onnx/fp16/model.onnx
cp st/model.safetensors repo/parts/dense
cp st/model.safetensors repo/parts/stray
echo '{}' | tee repo/original/params.json repo/onnx/config.json repo/docs/more/a.json repo/parts/dense/config.json \
  repo/parts/stray/config.json repo/parts/a.json >/dev/null
echo '[{"path": "parts/dense"}]' > repo/modules.json
ckpt convert repo -o kept --json --quiet 2>/dev/null | grep -o '"dropped":[^]]*]'
find kept -type f | sort
ckpt ls repo --quiet
