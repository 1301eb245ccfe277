# Ties of a family that no row knows: what the config ties is one tensor in any format, under the embedding's name.
tensors='model.embed_tokens.weight F32 3,2 1,2,3'
mkdir one two
python3 "$DATA/../tools/tiny.py" one/model.safetensors "$tensors" 'model.norm.weight F32 2 1'
python3 "$DATA/../tools/tiny.py" two/model.safetensors 'lm_head.weight F32 3,2 1,2,3' "$tensors" 'model.norm.weight F32 2 1'
python3 "$DATA/../tools/tiny.py" other.safetensors 'lm_head.weight F32 3,2 1,2,4' "$tensors" 'model.norm.weight F32 2 1'
echo '{"model_type": "cohere", "tie_word_embeddings": true}' | tee one/config.json >two/config.json
run() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1 | grep -v 'peak memory'
}
run hash one two
run diff one two
run convert two -o two.pt
echo '# a DCP folder has both, and the folder made of it one'
run convert two --to dcp -o dcp
run ls dcp
run convert dcp -o back
run ls back
run convert two.pt --like one -o like
run ls like
run diff two.pt --like one one --like one
echo '# copies that differ are none'
run convert other.safetensors --like one -o never
[ -e never ] || echo 'nothing is written'
echo '# the bias of a head that is a decoder goes with it'
mkdir bert
bert='bert.embeddings.word_embeddings.weight F32 3,2 1,2,3'
python3 "$DATA/../tools/tiny.py" bert/model.safetensors "$bert" 'cls.predictions.bias F32 3 4,5,6' \
  'cls.predictions.decoder.weight F32 3,2 1,2,3' 'cls.predictions.decoder.bias F32 3 4,5,6'
echo '{"model_type": "bert", "tie_word_embeddings": true}' >bert/config.json
run convert bert --to dcp -o cut
run convert cut -o whole
run ls whole
echo '# without a config the head gives way, and manifests of older names stay good'
ckpt convert "$DATA/gpt2-tiny" -o m.bin >sum 2>&1
run ls m.bin --match '*wte*'
ckpt hash m.bin -o new.json
ckpt hash m.bin --names stored -o stored.json
sed 's/"stored"/"hf:any\/1"/' stored.json >any.json
grep -ho '"names": *"[^"]*"' new.json stored.json any.json
for manifest in new stored any; do run verify m.bin --manifest $manifest.json | grep -v proven; done
echo '# equal values under other names: the digests differ, which is said'
run convert m.bin -o head.bin --exclude '*wte*' | grep -v ckpt1
run diff m.bin head.bin
