# transformers_weights in config.json names the file of the weights, which transformers 5 loads, and no other.
TINY="python3 $DATA/../tools/tiny.py"
mkdir in
$TINY in/model.safetensors 'a.weight F32 2 1'
$TINY in/other.safetensors 'a.weight F32 2 2'
config() { printf '%s' "$1" > in/config.json; }
try() {
  echo "\$ ckpt $*"
  ckpt "$@" --quiet 2>&1
  echo "exit $?"
}
for text in '{"transformers_weights": "other.safetensors"}' '{"dtype": "float32", "transformers_weights": "other.safetensors"}' \
  '{"transformers_weights": "other.safetensors" , "dtype":"float16", "a": [1]}' \
  '{"a": {"transformers_weights": 1}, "transformers_weights": null}'; do
  config "$text"
  rm -rf out
  ckpt cat in a.weight --quiet 2>&1
  ckpt convert in -o out --quiet > sum && cat out/config.json && echo
  ls out
done
echo '# named, and not there'
for text in '"../other.safetensors"' '"gone.safetensors"' '"config.json"' 7; do
  config "{\"transformers_weights\": $text}"
  ckpt verify in --headers --quiet | grep problem
done
echo '# an index'
mkdir model && cp -r "$DATA/llama-tiny/." model && chmod -R u+w model
mv model/model.safetensors.index.json model/own.safetensors.index.json
ckpt verify model --headers --quiet | grep -e config -e problem
sed -i 's/{/{"transformers_weights": "own.safetensors.index.json",/;t' model/config.json
sed -i '1!s/"transformers_weights": "own.safetensors.index.json",//' model/config.json
ckpt verify model --headers --quiet | grep -e config: -e problem
echo '# of any kind, and twice: what is left is JSON'
for text in '{"transformers_weights": {"dtype": "float32", "a": 1}, "dtype": "float32"}' \
  '{"a": 1, "transformers_weights": null, "transformers_weights": null}' '{"transformers_weights": null, "transformers_weights": 7}'; do
  config "$text"
  rm -rf out
  ckpt convert in -o out --dtype bf16 --quiet 2>&1 > sum; echo "exit $?"
  [ ! -e out/config.json ] || python3 -m json.tool --compact out/config.json
done
