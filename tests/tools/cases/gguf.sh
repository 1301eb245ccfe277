# GGUF: what is shown of it, --set and --remove, shards and back, and what is refused.
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1
  code=$?
  [ $code = 0 ] || echo "exit $code"
}
cp $DATA/gguf/every-type.gguf $DATA/gguf/whole.gguf .
try inspect every-type.gguf
try inspect every-type.gguf --json
try ls every-type.gguf
try convert every-type.gguf -o same.gguf --quiet
cmp every-type.gguf same.gguf
try convert every-type.gguf -o set.gguf --quiet --set value.u8=7 --set new.key=1.5 --remove array.text --match 'tensor.*' \
  --receipt r.json
ckpt inspect set.gguf | grep -E 'value.u8|new.key|array.text'
grep -o '"remove.*new.key=1.5"\]' r.json
try verify set.gguf --receipt r.json --quiet
try convert every-type.gguf -o cast.gguf --set value.u8=256
try convert every-type.gguf -o cast.gguf --set general.alignment=12
try convert every-type.gguf -o cast.gguf --set split.count=2
try convert every-type.gguf -o cast.gguf --set "general.name=$(printf '\377')"
try convert every-type.gguf -o cast.gguf --remove nothing
try convert every-type.gguf -o cast.gguf --dtype f16 --quiet
try convert every-type.gguf -o no.safetensors
try convert whole.gguf -o no.safetensors --set a=1
try convert whole.gguf -o whole.safetensors --quiet
try convert whole.safetensors -o back.gguf --plan=rows | sed "s/memory .*, about/memory M, about/"
try convert whole.safetensors -o back.gguf --plan=rows --names stored | sed "s/memory .*, about/memory M, about/"
try diff whole.gguf whole.safetensors

# shards
try split whole.gguf -o shards --shard-size 200 --quiet
ls shards
try inspect shards
try split whole.gguf -o shards --shard-size 300 --quiet
try split whole.gguf -o shards --shard-size 300 --quiet --force
ls shards
try ls shards/model-00002-of-00002.gguf
try join shards/model-00001-of-00002.gguf -o joined.gguf --quiet
cmp joined.gguf whole.gguf
rm shards/model-00002-of-00002.gguf
try ls shards
try ls .
try split whole.gguf -o whole2.gguf --shard-size 500
try convert whole.gguf -o all/ --to gguf --shard-size 200 --quiet
ls all
try convert whole.gguf -o all --to gguf --quiet --force --receipt all.json
ls all
try verify all --receipt all.json --quiet
rm all.json
try convert whole.gguf -o no.safetensors --to gguf-shards

# what verify looks at
try verify whole.gguf --quiet
cp whole.gguf padded.gguf
n=$(($(stat -c %s whole.gguf) - 64))
printf 'xy' | dd of=padded.gguf bs=1 seek=$((n - 3)) conv=notrunc status=none
printf 'z' | dd of=padded.gguf bs=1 seek=$((n + 60)) conv=notrunc status=none
try verify padded.gguf --quiet
try verify padded.gguf --headers --quiet
cp $DATA/gguf/tiny-llama-f16.gguf model.gguf
try quantize model.gguf -o nvfp4.gguf --type F16 --tensor-type attn_q=nvfp4 --quiet
try convert nvfp4.gguf -o scaled.gguf --rename 's/0\.attn_norm\.weight/0.attn_q.scale/' --quiet
try verify scaled.gguf --quiet
try convert scaled.gguf -o no.safetensors --dtype f32
try convert scaled.gguf -o scaled-f16.gguf --dtype f16 --quiet
try ls scaled-f16.gguf --match '*attn_q*'
# metadata that llama.cpp refuses: said when it is written, in the words of verify
cp "$DATA/gguf/tiny-llama-f16.gguf" tiny.gguf
try convert tiny.gguf -o blocks.gguf --set llama.block_count=5 --quiet
try verify blocks.gguf | grep '^problem'
try quantize tiny.gguf -o foo.gguf --type Q8_0 --set general.architecture=foo --quiet
try verify foo.gguf | grep '^problem'
