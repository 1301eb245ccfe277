# Structure, missing and damaged files, the Hugging Face cache, receipts.
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1
  echo "exit $?"
}
cp -r "$DATA/llama-tiny" llama
mv llama/model-00002-of-00003.safetensors .
try verify llama
ckpt verify llama --json
cp model-00002-of-00003.safetensors llama; echo tail >> llama/model-00002-of-00003.safetensors
try verify llama --headers
cp model-00002-of-00003.safetensors llama; rm llama/model.safetensors.index.json
try verify llama --headers
head -c 100000 model-00002-of-00003.safetensors > llama/model-00002-of-00003.safetensors
try verify llama
try verify nowhere

# The cache: a link that is called by the SHA-256 of what it should lead to.
hub=models--org--tiny; mkdir -p $hub/blobs $hub/snapshots/main
for file in "$DATA"/gpt2-tiny/*; do
  sum=$(sha256sum "$file" | cut -d' ' -f1)
  cp "$file" $hub/blobs/$sum; ln -s ../../blobs/$sum $hub/snapshots/main/$(basename "$file")
done
try verify $hub/snapshots/main
blob=$(readlink -f $hub/snapshots/main/model.safetensors)
printf '\125' | dd of="$blob" bs=1 seek=100001 conv=notrunc 2> /dev/null
try verify $hub/snapshots/main

cp -r "$DATA/gpt2-tiny" gpt2
ckpt convert gpt2 -o out.safetensors --dtype bf16 --receipt receipt.json --quiet > /dev/null
try verify out.safetensors --receipt receipt.json
printf '\125' | dd of=out.safetensors bs=1 seek=100001 conv=notrunc 2> /dev/null
ckpt verify out.safetensors --receipt receipt.json | grep -c ^problem
