# Every side file that is called *.json is JSON, or a problem: whoever loads the tokenizer or the adapter would fail.
cp -r "$DATA/llama-tiny" in && chmod -R u+w in
for name in tokenizer_config.json generation_config.json adapter_config.json special_tokens_map.json \
  preprocessor_config.json docs/notes.json; do
  mkdir -p in/docs
  cp in/$name kept 2>/dev/null
  head -c 200 /dev/zero > in/$name
  ckpt verify in --quiet | grep -e problem -e tokenizer: -e 'in: '
  echo '{"a": 1' > in/$name
  ckpt verify in --headers --quiet | grep problem
  echo '[1, NaN]' > in/$name
  ckpt verify in --headers --quiet | grep problem
  rm in/$name
  test -e kept && mv kept in/$name
done
ckpt verify in --headers --quiet | tail -1
