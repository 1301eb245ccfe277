# Text to ids and back, by a folder, one of its files and GGUF; what stands around a text and in it; what is refused.
cp -r "$DATA/llama-256" "$DATA/llama-tiny" .
model=llama-256
ckpt tokenize --model "$model" 'Hello, world!' 'two  spaces'
ckpt tokenize --model "$model/tokenizer.json" --no-special 'Hello, world!'
ckpt tokenize --model "$DATA/tokenizer/llama-256.gguf" 'Hello, world!'
ckpt tokenize --model "$DATA/tokenizer/spm" 'Hello, world!'
ckpt tokenize --model "$DATA/tokenizer/llama2.gguf" 'Hello, world!'
ckpt tokenize --model "$model" --no-special '<|endoftext|>'
ckpt tokenize --model "$model" --no-special --parse-special '<|endoftext|>'
printf 'one\ntwo\r\n\nlast' > lines.txt
ckpt tokenize --model "$model" -f lines.txt
ckpt tokenize --model "$model" -f lines.txt --lines --no-special
ckpt tokenize --model "$model" -f - --lines --json < lines.txt
ckpt detokenize --model "$model" $(ckpt tokenize --model "$model" -f lines.txt) | od -An -c
ckpt detokenize --model "$model" --no-special 1021,39 665 1022
ckpt detokenize --model "$model" --json 127 102
: > empty.txt; ckpt tokenize --model "$model" -f empty.txt
ckpt tokenize --model "$model" -f lines.txt --plan; ckpt detokenize --model "$model" 5 --plan
for bad in "tokenize --model $model" "tokenize --model $model x -f lines.txt" "tokenize --model $model x --lines" \
    "tokenize --model llama-tiny x" "tokenize --model lines.txt x" "tokenize x" "detokenize --model $model 5000" \
    "detokenize --model $model 1x" "tokenize --model $model -f none.txt" "tokenize --model $model -f /dev/zero" \
    "tokenize --model $model -f llama-tiny"; do
  # shellcheck disable=SC2086
  ckpt $bad; echo "exit $?"
done
