# A file of a folder that is one checkpoint, named alone: which folder to name. A config without weights.
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1
  echo "exit $?"
}
cp -r "$DATA/dcp/fsdp4" dcp
cp -r "$DATA/dcp/no-collectives" ranks
cp -r "$DATA/dcpv2/fsdp" dcpv2
cp -r "$DATA/zero/offload-stage2" zero
mkdir bare && cp "$DATA/llama-tiny/config.json" bare
for path in dcp/.metadata ./dcp/__0_0.distcp ranks/__1.metadata dcpv2/metadata.pkl zero/latest; do
  try ls $path
done
try verify dcp/__1_0.distcp
try convert "$PWD/dcp/.metadata" -o x.safetensors | sed "s|$PWD|HERE|g"
cd dcp
try ls .metadata
cd ..
try ls dcp --like bare
try ls bare
