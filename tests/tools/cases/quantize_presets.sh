# Every preset, with and without importance, is the file that llama-quantize makes.
cp $DATA/gguf/tiny-llama-f16.gguf model.gguf
cp $DATA/gguf/imatrix.gguf .
same=0
refused=0
while read -r what sum; do
  preset=${what%+imatrix}
  importance=
  [ "$preset" = "$what" ] || importance='--imatrix imatrix.gguf'
  got=refused
  if ckpt quantize model.gguf -o out.gguf --type "$preset" $importance --force --quiet > /dev/null 2>&1; then
    got=$(sha256sum out.gguf | cut -d' ' -f1)
  fi
  if [ "$got" != "$sum" ]; then
    echo "$what: $got, of llama-quantize $sum"
  elif [ "$got" = refused ]; then
    refused=$((refused + 1))
  else
    same=$((same + 1))
  fi
done < $DATA/gguf/quantized.tsv
echo "$same files are those of llama-quantize, and it refuses the same $refused"
