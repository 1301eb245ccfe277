# Several types from one read; what is refused, and receipts. Each preset against llama-quantize: quantize_presets.sh.
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1
  code=$?
  [ $code = 0 ] || echo "exit $code"
}
cp $DATA/gguf/tiny-llama-f16.gguf model.gguf
cp $DATA/gguf/imatrix.gguf .
try quantize model.gguf -o 'm-{type}.gguf' --type Q8_0 --type q4_k --type F32 --quiet --receipt r.json
try verify m-Q4_K_M.gguf --receipt r.json --quiet
sed 's/"type":"Q4_K_M"/"type":"Q4_K_S"/' r.json > other.json
try verify m-Q4_K_M.gguf --receipt other.json --quiet
sed 's/"presets":"[^"]*",//' r.json > other.json
try verify m-Q4_K_M.gguf --receipt other.json --quiet
ckpt quantize model.gguf -o one.gguf --type Q4_K_M --threads 1 --memory 16M --quiet > /dev/null
cmp one.gguf m-Q4_K_M.gguf
try quantize model.gguf -o w.gguf --type IQ2_XS --imatrix imatrix.gguf --quiet --receipt w.json --json |
  sed 's/"seconds":[^,]*,"peak_bytes":[0-9]*/"seconds":0,"peak_bytes":0/'
try verify w.gguf --receipt w.json --quiet
try diff model.gguf m-Q8_0.gguf --atol 0.01 --quiet
try convert m-Q8_0.gguf -o back.safetensors --dtype f32 --quiet
# one dtype is a preset: norms stay f32, general.file_type follows, and blocks are read
for dtype in f32 f16 bf16; do
  preset=$(echo $dtype | tr a-z A-Z)
  ckpt convert model.gguf -o cast.gguf --dtype $dtype --force --quiet --receipt cast.json > /dev/null
  grep -q "^$preset $(sha256sum cast.gguf | cut -d' ' -f1)" $DATA/gguf/quantized.tsv && echo "$preset is the converter's"
  ckpt verify cast.gguf --receipt cast.json --quiet > /dev/null || echo "$preset: the receipt does not hold"
  rm cast.json
done
try convert m-Q8_0.gguf -o cast.gguf --dtype f16 --set general.file_type=7 --force --quiet
ckpt inspect cast.gguf | grep -E 'parameter|file_type'
ckpt convert model.gguf -o cast.gguf --dtype bf16 --force --json 2> /dev/null | grep -c fallbacks
rm cast.gguf
# a shipped file is what its source gives
try diff model.gguf m-Q4_K_M.gguf --requantize --quiet
try diff model.gguf m-Q4_K_M.gguf --requantize --imatrix imatrix.gguf --quiet
try diff model.gguf w.gguf --requantize --imatrix imatrix.gguf --quiet --json
try diff model.gguf w.gguf --requantize --quiet
try diff model.gguf w.gguf --imatrix imatrix.gguf
try diff model.gguf w.gguf --requantize --cast f32
try diff model.gguf w.gguf --requantize --imatrix model.gguf
printf '\001' | dd of=m-Q8_0.gguf bs=1 seek=200001 conv=notrunc status=none
try diff model.gguf m-Q8_0.gguf --requantize --quiet
try quantize m-Q8_0.gguf -o again.gguf --type Q4_K_M
try quantize model.gguf -o no.gguf --type IQ2_XS
try quantize model.gguf -o no.gguf --type Q7_K
try quantize model.gguf -o no.gguf --type Q8_0 --type Q4_0
try quantize model.gguf -o lower.gguf --type Q8_0 --tensor-type 'BLK\.\d+\.ATTN_V=q4_0' --quiet
try quantize model.gguf -o no.gguf --type Q8_0 --tensor-type nothing=q4_0
try quantize model.gguf -o no.gguf --type Q8_0 --tensor-type attn_q=i8
try quantize model.gguf -o no.gguf --type Q8_0 --tensor-type 'ATTN_(V=q8_0'
try quantize model.gguf -o no.gguf --type Q8_0 --tensor-type 're:attn_[v=q8_0'
try quantize missing.gguf -o no.gguf --type Q8_0 --tensor-type 'blk.0.*'
try quantize missing.gguf -o no.gguf --type Q8_0 --tensor-type attn=q8_K
try quantize missing.gguf -o no.gguf --type Q8_0 --output-tensor-type q8_1
try quantize model.gguf -o no.gguf --type Q8_0 --imatrix model.gguf
try quantize model.gguf -o no.safetensors --type Q8_0
cp -r $DATA/llama-tiny llama-tiny && rm llama-tiny/tokenizer* # of a kind that is not read
try quantize llama-tiny -o no.gguf --type Q8_0
try quantize model.gguf -o imatrix.gguf --type Q8_0 --imatrix imatrix.gguf --force
# rows of 7 values fit no blocks
cp $DATA/gguf/whole.gguf $DATA/gguf/every-type.gguf .
try quantize whole.gguf -o no.gguf --type Q4_K_M
try quantize whole.gguf -o no.gguf --type Q8_0 --tensor-type attn_q=f32
try quantize whole.gguf -o fallen.gguf --type Q4_K_M --allow-fallback --quiet
try quantize whole.gguf -o fallen.gguf --type Q8_0 --tensor-type attn_q=f32 --allow-fallback --quiet --json --force |
  sed 's/"seconds":[^,]*,"peak_bytes":[0-9]*/"seconds":0,"peak_bytes":0/'
rm fallen.gguf whole.gguf
try quantize every-type.gguf -o no.gguf --type Q8_0
try quantize model.gguf -o no.gguf --type Q8_0 --output-tensor-type i32
rm every-type.gguf
ls
# rows that give the output's digest are none of a receipt
ckpt quantize model.gguf -o no.gguf --type Q8_0 --plan | grep -c 'digest'
ckpt quantize model.gguf -o no.gguf --type Q8_0 --plan --receipt no.json | grep 'digest'
# shards are a folder's
try quantize model.gguf -o no.gguf --type Q8_0 --shard-size 200K
try quantize model.gguf -o no/ --type Q8_0
try quantize model.gguf -o shards/ --type Q8_0 --shard-size 200K --receipt shards.json --quiet
try verify shards --receipt shards.json --quiet
ls shards
