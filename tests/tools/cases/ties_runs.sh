# Copies that the config ties, both stored: whoever runs the model, or makes a GGUF of it, has one of them or fails.
shards() {
  cp -r "$DATA/dialect/llama-tied" $1
  chmod -R u+w $1
  mv $1/model.safetensors $1/model-00001-of-00002.safetensors
  ckpt convert "$DATA/dialect/llama-tied" -o $1/model-00002-of-00002.safetensors --match model.embed_tokens.weight \
    --rename s/model.embed_tokens/lm_head/ >out 2>&1
}
index() {
  python3 - $1 <<'END'
import json, struct, sys
names, size = {}, 0
for file in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
    with open(sys.argv[1] + "/" + file, "rb") as data:
        header = json.loads(data.read(struct.unpack("<Q", data.read(8))[0]))
    header.pop("__metadata__", None)
    size += sum(entry["data_offsets"][1] - entry["data_offsets"][0] for entry in header.values())
    names.update({name: file for name in header})
with open(sys.argv[1] + "/model.safetensors.index.json", "w") as out:
    json.dump({"metadata": {"total_size": size}, "weight_map": names}, out)
END
}
run() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1 | grep -v 'peak memory\|note: device'
}
cp -r "$DATA/dialect/llama-tied" tied
shards both
index both
run ls both --match '*embed*' --match '*head*'
run quantize both --type F16 -o both.gguf
run quantize tied --type F16 -o one.gguf
run logits both --ids 1,2,3 -o both.safetensors
run logits tied --ids 1,2,3 -o one.safetensors
cmp both.safetensors one.safetensors && echo 'the same logits'
shards differs
python3 - <<'END'
with open("differs/model-00002-of-00002.safetensors", "r+b") as file:
    file.seek(-2, 2)
    byte = file.read(1)[0]
    file.seek(-2, 2)
    file.write(bytes([byte ^ 1]))
END
index differs
run quantize differs --type F16 -o differs.gguf
run logits differs --ids 1,2,3 -o differs.safetensors
printf 'one two three four five six seven\n%.0s' 1 2 3 4 5 6 7 8 9 10 >text
run ppl differs -f text --ctx 16
run convert differs -o differs.safetensors
ls -d differs.gguf differs.safetensors 2>/dev/null
