# Receipts of merges: adapters are inputs, and a replay merges them again.
cp -r "$DATA/adapters" a
base=a/linear/base lora=a/linear/adapter
check() {
  ckpt verify "$@" >log 2>&1
  status=$?
  sed "s|$PWD|HERE|" log | grep -v '^proven: [sc]' | grep -v '^not proven' | sed 4,30d
  echo "exit $status"
}
ckpt convert $base -o b16 --dtype bf16 --quiet >/dev/null
base=b16
ckpt merge $base --adapter $lora=0.5 --adapter a/patterns/adapter -o out --receipt r.json --quiet
sed -n '4,12p' r.json
grep -o '"name":"[^"]*layers.0.mlp.*"update_.*,"n_unchanged":[0-9]*' r.json
check out --receipt r.json
# the order of --adapter changes nothing of it, nor do threads and memory
ckpt merge $base --adapter a/patterns/adapter --adapter $lora=0.5 -o out --receipt r2.json --quiet --force \
  --threads 1 --memory 4M >/dev/null
cmp r.json r2.json && echo same
# every verb that writes, into any format, and what the options say
ckpt convert a/gpt2/base --adapter a/gpt2/adapter -o gpt2.gguf --dtype f32 --receipt gguf.json --quiet
check gpt2.gguf --receipt gguf.json
ckpt convert a/gpt2/base -o base.gguf --dtype f32 --quiet >/dev/null
ckpt merge base.gguf --adapter a/gpt2/adapter -o again.gguf --receipt again.json --quiet
check again.gguf --receipt again.json
ckpt quantize a/linear/base --adapter $lora --type Q8_0 --allow-fallback -o q8.gguf --receipt q.json --quiet
check q8.gguf --receipt q.json
ckpt merge a/embedding/base --adapter a/embedding/adapter --tied untie --combine cat -o untied --receipt untied.json --quiet
sed -nE 's/ *"merge"/merge/p' untied.json
check untied --receipt untied.json
ckpt merge a/saved/base --adapter a/saved/adapter -o saved --receipt saved.json --quiet
grep '"rank":0' saved.json
check saved --receipt saved.json
# adapters that moved, that changed, that are gone
mv $lora moved
check out --receipt r.json
check out --receipt r.json --input $lora=moved
check out --receipt r.json --input other=moved
cp -r a/rslora/adapter $lora
check out --receipt r.json
rm -r $lora && cp -r moved $lora
# what a receipt may claim
claim() { sed -E "$1" r.json >claim.json; check out --receipt claim.json; }
claim 's/"scale":0.5,"digest"/"scale":"-0.5","digest"/'
claim 's/"scale":0.5,"digest"/"scale":-0.5,"digest"/'
claim 's/"scale":0.5,"digest"/"scale":1e999,"digest"/'
claim 's/"scale":0.5,"digest"/"digest"/'
claim 's/("scale":0.5,"digest":)"[^"]*"/\1null/'
claim 's/"path":"a.linear.adapter",//'
claim 's/"path":"a.linear.adapter"/"path":"\/dev\/zero"/'
claim '0,/"adapter":1/s//"adapter":7/'
claim '0,/"rank":4/s//"rank":-4/'
claim '/"name".*layers.0.mlp.down.*"adapter"/d'
claim '0,/"update_norm":[^,]*/s//"update_norm":-1/'
claim '0,/"n_unchanged":[0-9]*/s//"n_unchanged":1/'
claim 's/"merged":/"merged_not":/'
claim 's/"rules":"2"/"rules":"3"/'
claim 's/"rules":"2"/"rules":"1"/'
claim 's/"tied":null/"tied":"perhaps"/'
claim 's/"tied":null,//'
claim '/"merge":/d; s/"rename":\[\],/"rename":[]},/'
claim 's/"verb":"merge"/"verb":"split"/'
claim '/"scale":[0-9.]*,"digest"/d; s/("include":"model","digest":"[^"]*"\}),/\1],/'
# the digest of the base comes of the same read
for k in linear dora embedding gpt2 experts; do
  for more in "" "--receipt of.json"; do
    rm -f t.jsonl && ckpt merge a/$k/base --adapter a/$k/adapter -o $k.safetensors --tied untie --trace t.jsonl --force --quiet $more >/dev/null
    sed -nE 's/.*"total":\{("read":[0-9]*).*/\1/p' t.jsonl
    rm -f of.json
  done | uniq
done
