# Receipts and manifests hold SHA-256 of the side files; verify names each that is changed, missing or not listed.
try() {
  echo "\$ ckpt $*"
  code=0
  ckpt "$@" > said 2>&1 || code=$?
  grep -e side -e problem -e '^ckpt: ' said
  echo "exit $code"
}
cp -r "$DATA/gpt2-tiny" in
printf 'caf\303\251' > in/NOTES
ckpt convert in -o out --dtype f16 --receipt r.json --quiet > /dev/null
ckpt hash out -o m.json --quiet > /dev/null
cp r.json out/ # beside what it is of, it is none of it
try verify out --receipt out/r.json
rm out/r.json
cp m.json out/
try verify out --manifest out/m.json
rm out/m.json
echo "== as written: the spliced config, and a cloned or copied tokenizer"
sha256sum < out/config.json | cut -d' ' -f1 | xargs -I{} grep -c '"name":"config.json".*{}' r.json m.json
sha256sum < in/tokenizer.json | cut -d' ' -f1 | xargs -I{} grep -c '"name":"tokenizer.json".*{}' r.json m.json
echo "== changed, missing, extra"
cp -r out was
printf ' ' >> out/tokenizer.json
rm out/NOTES
echo new > out/extra.txt
try verify out --receipt r.json
try verify out --manifest m.json
ckpt verify out --manifest m.json --json | python3 -c '
import json, sys
result = json.load(sys.stdin)
print(result["status"], result["n_problems"], *(one["file"] for one in result["problems"]))'
echo "== an input that changed shows in the replay alone"
printf ' ' >> in/NOTES
try verify was --receipt r.json
echo "== records of before, other formats, casts"
python3 -c '
import json
for name in "r.json", "m.json":
    record = json.load(open(name))
    for one in record.get("outputs", [record]): del one["side_files"]
    json.dump(record, open("old-" + name, "w"))'
try verify was --receipt old-r.json
try verify was --manifest old-m.json
ckpt convert was -o one.safetensors --quiet > /dev/null
try verify one.safetensors --manifest m.json
ckpt hash was --cast f32 -o cast.json --quiet > /dev/null
grep -c side_files cast.json
echo "== forged lists"
for text in '{}' '[1]' '[{}]' '[{"name":"a","n_bytes":1,"sha256":"12"}]' '[{"name":"../in/NOTES","n_bytes":1}]' \
  "[{\"name\":\"a\",\"n_bytes\":1,\"sha256\":\"$(printf '%064d' 0)\"},{\"name\":\"a\",\"n_bytes\":1,\"sha256\":\"$(printf '%064d' 0)\"}]"; do
  TEXT=$text python3 -c '
import json, os
for name in "r.json", "m.json":
    record = json.load(open(name))
    for one in record.get("outputs", [record]): one["side_files"] = json.loads(os.environ["TEXT"])
    json.dump(record, open("forged-" + name, "w"))'
  ckpt verify was --receipt forged-r.json --quiet 2>&1 | sed -n 's/ (byte.*//; /^ckpt: /p'
  ckpt verify was --manifest forged-m.json --quiet 2>&1 | sed -n 's/ (byte.*//; /^ckpt: /p'
done
echo "== a name that JSON cannot hold"
printf x > in/$(printf 'caf\351')
try hash in -o m2.json
try convert in -o out2 --receipt r2.json
ls
