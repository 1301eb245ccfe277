# A pair that config.json ties and that differs: every verb names the input, both tensors and what to do, which works.
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1
  echo "exit $?"
}
cp -r "$DATA/llama-tiny" bad
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' bad/config.json
try convert bad -o out
try convert bad -o out --names stored
try convert bad -o out.safetensors
try convert bad -o out --receipt r.json
try split bad -o out --shard-size 100KB
try join bad -o out.safetensors
try hash bad
try verify bad
ckpt diff bad bad
ls
echo '# one of them'
ckpt convert bad -o one --exclude lm_head.weight --quiet > one.sum && ckpt hash --check one.sum
ckpt verify one | tail -1
ckpt convert bad -o other --exclude model.embed_tokens.weight 2>&1 > other.sum | grep 'not written'
echo '# both'
sed -i 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' bad/config.json
ckpt convert bad -o both --quiet > both.sum && ckpt hash --check both.sum
ckpt verify bad | tail -1
echo '# neither true nor false'
cp -r both odd
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": "false"/' odd/config.json
ckpt convert odd -o copy 2>&1 > copy.sum | grep warning && ckpt hash --check copy.sum
