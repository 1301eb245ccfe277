# One model in two dialects: a folder to GGUF and presets in one read, back to a folder, and one digest for all that is
# not rounded.
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1
  code=$?
  [ $code = 0 ] || echo "exit $code"
}
cp -r $DATA/dialect/llama-scaled model
mkdir out
try quantize model -o 'out/{type}.gguf' -o out/hf/ -o out/auto.gguf --type Q8_0 --type Q4_0 --allow-fallback \
  --set general.name='A Model' --quiet --receipt out/r.json --trace trace.jsonl
for file in Q8_0.gguf Q4_0.gguf hf auto.gguf; do
  try verify out/$file --receipt out/r.json --quiet | tail -1
done
try hash model out/hf out/auto.gguf
try hash --cast f32 model out/hf out/auto.gguf
try diff model out/auto.gguf --cast f32 --quiet
try diff out/auto.gguf out/Q8_0.gguf --requantize --quiet
try convert model -o no.gguf --exclude 'model.layers.1.*'
# what quantizing makes of the folder, by an importance matrix of GGUF's names
python3 - <<'EOF' > matrix.dat
import struct, sys
names = [f"blk.{layer}.attn_{part}.weight" for layer in (0, 1) for part in "qkv"]
data = struct.pack("<i", len(names))
for name in names:
    data += struct.pack(f"<i{len(name)}sii64f", len(name), name.encode(), 1, 64, *(1 + i % 5 for i in range(64)))
sys.stdout.buffer.write(data)
EOF
try quantize model -o weighed.gguf --type Q4_0 --imatrix matrix.dat --allow-fallback --quiet 2>&1 | tail -1
try diff model weighed.gguf --requantize --imatrix matrix.dat --quiet
try ls out/auto.gguf --match '*.layers.0.*proj*'
try ls out/auto.gguf --match 'blk.0.attn_*' --names stored
try cat out/auto.gguf 'model.layers.1.self_attn.q_proj.weight[9:11,3:6]'
try cat model 'model.layers.1.self_attn.q_proj.weight[9:11,3:6]'
try convert out/auto.gguf -o same.gguf --quiet
cmp same.gguf out/auto.gguf
try convert out/auto.gguf -o back --quiet
cat back/config.json
try verify back --quiet
try convert out/Q8_0.gguf -o blocks --json | sed "s/\"seconds.*//" | grep -v MB/s
try convert model -o q.gguf --dtype q8_0 --quiet
try convert model -o q.safetensors --dtype q8_0 --quiet
try convert model -o f16.gguf --dtype f16 --plan --quiet | tail -1 | sed "s/memory .*, about/memory M, about/"
try convert out/hf/model.safetensors -o no.gguf
try quantize out/hf/model.safetensors -o like.gguf --like model --type Q8_0 --allow-fallback --quiet

# Of a family that became known later: manifests and receipts from before say hf:any/2 or stored, and stay checkable.
cp -r $DATA/dialect/qwen2 qwen
try hash qwen -o manifest.json
for names in hf:any/2 stored; do
  sed "s|hf:qwen2/1|$names|" manifest.json > older.json
  try verify qwen --manifest older.json --quiet
done
try hash qwen --names stored -o stored.json
try verify qwen --manifest stored.json --quiet
try convert qwen -o copy.safetensors --dtype f16 --receipt receipt.json --quiet
sed "s|hf:qwen2/1|stored|" receipt.json > older.json
try verify copy.safetensors --receipt older.json --quiet

# Experts are stacked in GGUF, and come back one by one; what was read back is told in the same run.
cp -r $DATA/dialect/mixtral mixtral
try quantize mixtral -o 'mixtral-{type}.gguf' -o mixtral.gguf --type Q8_0 --quiet
try hash mixtral-Q8_0.gguf mixtral.gguf
try ls mixtral.gguf --names stored --match 'blk.0.ffn_*'
try diff mixtral mixtral.gguf --cast f32 --quiet
try cat mixtral.gguf 'model.layers.1.block_sparse_moe.experts.2.w2.weight[3:5,0:3]'
try cat mixtral 'model.layers.1.block_sparse_moe.experts.2.w2.weight[3:5,0:3]'

# Gemma's norms are rounded, since GGUF has their sums with 1; of no family, nothing is made that nobody can load.
cp -r $DATA/dialect/gemma2 gemma
try convert gemma -o gemma.gguf 2>&1 | grep 'not written'
try convert mixtral.gguf -o three.gguf --set llama.expert_count=3 --quiet
try convert three.gguf -o none

# Files and settings that GGUF has no place for are said.
cp -r $DATA/dialect/llama-scaled beside
chmod -R u+w beside
echo MIT > beside/LICENSE
echo '{"eos_token_id": [1, 5], "max_new_tokens": 77, "top_k": 20}' > beside/generation_config.json
try convert beside -o beside.gguf --quiet
# a way of cutting text that is not the tokenizer's is said
for pre in smollm llama-bpe; do
  try convert beside -o beside.gguf --force --pre $pre --quiet
done
