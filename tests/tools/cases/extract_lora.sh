# An adapter made of two models, merged again, and what is refused.
cp -r "$DATA/adapters" a
try() {
  echo "\$ ckpt $*"
  ckpt "$@" > out.log 2>&1
  status=$?
  sed '/peak memory/d' out.log
  echo "exit $status"
}
base=a/linear/base
ckpt merge $base --adapter a/linear/adapter -o tuned/ --quiet > out
try extract-lora --base $base --tuned tuned --energy 0.9999999 -o lora/
ls lora
cat lora/adapter_config.json
try merge $base --adapter lora -o again/ --quiet
ckpt diff tuned again --atol 1e-6 | tail -1
try extract-lora --base $base --tuned tuned --rank 2 -o two/ --plan
try extract-lora --base $base --tuned tuned --rank 2 -o two/ --threads 3
ckpt extract-lora --base $base --tuned tuned --rank 2 -o one/ --threads 1 --json | sed 's/"seconds":[0-9.e-]*/"seconds":_/'
cmp one/adapter_model.safetensors two/adapter_model.safetensors && echo the same bytes
# GPT-2 stores its matrices transposed; a GGUF base is what it was made from
ckpt merge a/gpt2/base --adapter a/gpt2/adapter -o gpt2/ --quiet > out
ckpt convert a/gpt2/base -o gpt2.gguf --dtype f32 --quiet > out 2>&1
try extract-lora --base gpt2.gguf --tuned gpt2 --energy 0.9999999 -o gpt2-lora --quiet
grep -c . gpt2-lora/adapter_config.json
try extract-lora --base $base --tuned $base --rank 2 -o x
try extract-lora --base $base --tuned a/gpt2/base --rank 2 -o x
try extract-lora --base $base --tuned tuned --rank 0 -o x
try extract-lora --base $base --tuned tuned --rank 17 -o x
try extract-lora --base $base --tuned tuned --rank 10 -o small/ --quiet
try extract-lora --base $base --tuned tuned --energy 1.5 -o x
try extract-lora --base $base --tuned tuned -o x
try extract-lora --base $base --tuned tuned --rank 2 --energy 0.5 -o x
try extract-lora --base $base --tuned tuned --rank 2 -o lora
try extract-lora --base $base --tuned tuned --rank 2 -o tuned
try extract-lora --base $base --tuned nowhere --rank 2 -o x
try extract-lora --tuned tuned --rank 2 -o x
# what is left out, and a record that is not what its checksum says
try extract-lora --base $base --tuned tuned --rank 2 --exclude '*.mlp.*' --exclude 're:v_proj' -o some --quiet
grep -c lora_A some/adapter_model.safetensors
try merge $base --adapter some -o x.safetensors --quiet
try extract-lora --base $base --tuned tuned --rank 2 --exclude nothing -o x
ckpt convert tuned -o bad.pt --quiet >out
python3 -c "
import sys, zipfile
path = sys.argv[1]
with zipfile.ZipFile(path) as file:
    one = max((i for i in file.infolist() if '/data/' in i.filename), key=lambda i: i.file_size)
data = bytearray(open(path, 'rb').read())
at = one.header_offset
n = int.from_bytes(data[at + 26:at + 28], 'little') + int.from_bytes(data[at + 28:at + 30], 'little')
data[at + 30 + n] ^= 1
open(path, 'wb').write(data)" bad.pt
try extract-lora --base $base --tuned bad.pt --rank 2 -o x --quiet | sed -E "s/record '[^']*'/record/;s/[0-9a-f]{8}/_/g"
try extract-lora --base $base --tuned bad.pt --rank 2 -o x --quiet --allow-corrupt | sed -E "s/record '[^']*'/record/;s/[0-9a-f]{8}/_/g" | grep -v -e rank -e layers -e ckpt1
rm -r x x.safetensors bad.pt some
# one tensor under two names, of which one is left out
ckpt convert a/gpt2/base -o tied.pt --quiet > out 2>&1
python3 -c "
import zipfile
old, new = zipfile.ZipFile('tied.pt'), zipfile.ZipFile('other.pt', 'w')
largest = max((i for i in old.infolist() if '/data/' in i.filename and i.file_size == 2560), key=lambda i: i.file_size)
for one in old.infolist():
    data = bytearray(old.read(one))
    if one is largest: data[0] ^= 255
    new.writestr(one.filename, data)
new.close()"
ckpt extract-lora --base tied.pt --tuned other.pt --rank 1 -o both --quiet > out 2>&1
ckpt extract-lora --base tied.pt --tuned other.pt --rank 1 -o one_name --exclude lm_head.weight --quiet > out 2>&1
ckpt ls both
ckpt ls one_name
rm -r both one_name tied.pt other.pt
# a receipt, its replay, and what has changed since
try extract-lora --base $base --tuned tuned --energy 0.8 --exclude 'model.layers.1.*' -o kept/ --receipt kept.json --quiet
sed -n 4,7p kept.json
try verify kept --receipt kept.json
cp -r $base moved
try verify kept --receipt kept.json --input $base=moved | tail -2
sed 's/"energy":0.8[0-9]*/"energy":0.3/' kept.json > other.json
try verify kept --receipt other.json | grep -c -e 'the receipt lists it' -e 'the replay does not have it' -e other
sed 's/"rules":"2","tuned"/"rules":"9","tuned"/' kept.json > rules.json
try verify kept --receipt rules.json
sed 's/"rules":"2","tuned"/"rules":"1","tuned"/' kept.json > rules.json
try verify kept --receipt rules.json | tail -2
sed 's/"extract":{.*}}/"merge":{"rules":"2"}}/' kept.json > merge.json
try verify kept --receipt merge.json
try verify kept --receipt kept.json --input tuned=$base
try extract-lora --base $base --tuned tuned --rank 2 -o kept --force --receipt kept
try extract-lora --base $base --tuned tuned --rank 2 -o two --force --receipt kept.json --quiet
try extract-lora --base $base --tuned tuned --rank 2 -o three --receipt kept.json
ls -d three 2>&1
rm -r kept kept.json moved other.json rules.json merge.json
ls -A | grep -v -e '^a$' -e out
