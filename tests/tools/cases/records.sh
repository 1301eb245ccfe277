# What records say is compared, by the names that they say; bad content of a file is a failure, not wrong usage.
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1
  echo "exit $?"
}
# One checkpoint under both namings.
cp -r "$DATA/dcp/fsdp4" dcp
ckpt hash dcp -o model.json > hf.sum && ckpt hash dcp --names stored -o stored.json > stored.sum
cmp -s hf.sum stored.sum || echo "digests differ"
grep '"names"' model.json stored.json
ckpt inspect dcp | grep ^names
ckpt inspect dcp --names stored | grep ^names
try verify dcp --manifest model.json --quiet
try verify dcp --manifest stored.json --quiet
ckpt convert dcp -o dcp.safetensors --quiet > /dev/null
try verify dcp.safetensors --manifest model.json
try diff dcp dcp.safetensors --include model
cp "$DATA/torch/training.pt" .
ckpt inspect training.pt 2> /dev/null | grep ^names

# The digest of a manifest.
cp -r "$DATA/gpt2-tiny" one
ckpt hash one -o one.json > /dev/null
zeros=$(printf '%064d' 0)
sed "2,3s/\"digest\": \"ckpt1:[0-9a-f]*/\"digest\": \"ckpt1:$zeros/" one.json > forged.json
try verify one --manifest forged.json

# What lies beside and is no part.
printf '\200\002N.' > one/training_args.bin && ln -s /nowhere one/link && mkdir one/runs && cp one.json one/manifest.json
try verify one --manifest one/manifest.json
rm -r one/training_args.bin one/link one/runs one/manifest.json

# Content of files.
mkfifo fifo
for file in one /dev/zero fifo; do try verify one --manifest $file; done
mkdir two && cp -r one two/a && cp -r one two/b
try hash two
try verify two --json
mkdir several && cp one/model.safetensors several/a.safetensors && cp one/model.safetensors several/b.safetensors
try hash several
try hash --check two
ckpt convert one -o out.safetensors --receipt r.json --quiet > /dev/null
for edit in 's/"format":"safetensors"/"format":"nope"/' 's/"rename":\[\]/"rename":["s(a"]/' \
  's/"n_tensors":/"n_tensors":1/' 's/"format":"hf"/"format":"torch"/'; do
  sed "$edit" r.json > bad.json
  try verify out.safetensors --receipt bad.json | grep -e problem -e ^ckpt -e ^exit
done
