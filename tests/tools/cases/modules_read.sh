# A module of sentence-transformers is a checkpoint of its own: verified, and carried only where it can be read.
SAID=$(mktemp)
trap 'rm "$SAID"' EXIT
TINY="python3 $DATA/../tools/tiny.py"
try() {
  echo "\$ ckpt $*"
  ckpt "$@" --quiet > "$SAID" 2>&1
  code=$?
  grep -v 'proven:' "$SAID"
  echo "exit $code"
}
make() {
  rm -rf st out
  mkdir -p st/1_Pooling st/2_Dense
  $TINY st/model.safetensors 'embeddings.weight F32 2,2 1'
  $TINY st/2_Dense/model.safetensors 'linear.weight F32 2,2 3'
  echo '{}' | tee st/config.json st/1_Pooling/config.json > st/2_Dense/config.json
  echo '[{"path": "", "type": "sentence_transformers.models.Transformer"},
   {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
   {"path": "./2_Dense/", "type": "sentence_transformers.models.Dense"},
   {"path": "3_Normalize", "type": "sentence_transformers.models.Normalize"},
   {"path": "4_Own", "type": "own.Module"}]' > st/modules.json
}
make
ckpt verify st --quiet | grep modules
ckpt convert st -o out --dtype bf16 2>&1 | grep -v peak
find out -type f | sort
for kind in cut zeros nan removed emptied outside absolute pooling; do
  echo "# $kind"
  make
  case $kind in
    cut) truncate -s 90 st/2_Dense/model.safetensors ;;
    zeros) head -c 100 /dev/zero > st/2_Dense/model.safetensors ;;
    nan) $TINY st/2_Dense/model.safetensors 'linear.weight F32 2,2 nan' ;;
    removed) rm -r st/2_Dense ;;
    emptied) rm st/2_Dense/model.safetensors ;;
    outside) sed -i 's|./2_Dense/|2_Dense/../../st/2_Dense|' st/modules.json ;;
    absolute) sed -i 's|./2_Dense/|/2_Dense|' st/modules.json ;;
    pooling) rm -r st/1_Pooling ;;
  esac
  try verify st
  try convert st -o out
done
make
sed -i 's|./2_Dense/|.//2_Dense/./|' st/modules.json
try convert st -o out && ls out/2_Dense
# A file of one output has no side files, and needs none.
rm -r st/2_Dense
try convert st -o out.safetensors
