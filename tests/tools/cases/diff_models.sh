# The same model in other packaging is equal; a flipped byte is found by name; ties; one read of each side.
tiny() { python3 "$DATA/../tools/tiny.py" "$@"; }
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1
  echo "exit $?"
}
cp -r "$DATA/llama-tiny" llama
ckpt convert llama -o one.safetensors --quiet > /dev/null
try diff llama one.safetensors
ckpt convert llama -o f32 --dtype f32 --quiet > /dev/null
try diff llama f32 --cast f32
try diff llama f32 --atol 0 --quiet | tail -2
ckpt diff llama f32 | head -2
try diff llama "$DATA/gpt2-tiny" --quiet | tail -2
cp -r llama bad
printf '\125' | dd of=bad/model-00002-of-00003.safetensors bs=1 seek=100001 conv=notrunc 2> /dev/null
try diff llama bad
for threads in 1 2 3; do
  ckpt diff f32 "$DATA/llama-tiny" --json --cast bf16 --threads $threads --memory 16M | cksum
  ckpt diff bad f32 --json --rtol 0 --threads $threads --memory 16M | cksum
done | sort | uniq -c
ckpt diff llama bad --trace trace > /dev/null
python3 - <<'END'
import json
tiles = [json.loads(line) for line in open("trace")]
payload = sum(one["read"] for one in tiles if "group" in one)
print("read", payload, "of twice", payload / 2)
END

# wte is tied to lm_head: stored once or twice is the same model, stored twice and unequal is not.
config='{"model_type": "gpt2", "tie_word_embeddings": true}'
mkdir once twice unequal
for folder in once twice unequal; do echo "$config" > $folder/config.json; done
tiny once/model.safetensors 'wte.weight F32 2,2 1,2,3,4'
tiny twice/model.safetensors 'transformer.wte.weight F32 2,2 1,2,3,4' 'lm_head.weight F32 2,2 1,2,3,4'
tiny unequal/model.safetensors 'transformer.wte.weight F32 2,2 1,2,3,4' 'lm_head.weight F32 2,2 1,2,3,5'
tiny bare.safetensors 'transformer.wte.weight F32 2,2 1,2,3,4'
try diff once twice
try diff twice once
try diff twice bare.safetensors
try diff bare.safetensors twice
try diff twice unequal
try diff unequal bare.safetensors
try verify unequal
ckpt hash once twice | cut -c1-70 | uniq -c | cut -c1-20
# Tensors alone are judged: what else differs is said, and where there are none nothing is equal.
cp -r "$DATA/llama-tiny" other && sed -i 's/10000.0/5.0/' other/config.json
try diff llama other
cp "$DATA/gguf/tiny-llama-f16.gguf" whole.gguf
ckpt convert whole.gguf -o edited.gguf --set llama.rope.freq_base=5 --quiet > /dev/null
try diff whole.gguf edited.gguf
# A list is shown by its first values alone, but compared whole: one letter of token 300 is another.
python3 - <<'END'
data = bytearray(open("whole.gguf", "rb").read())
at = data.index(b"tokenizer.ggml.tokens") + len("tokenizer.ggml.tokens") + 16  # its types, its count
for _ in range(300):
    at += 8 + int.from_bytes(data[at : at + 8], "little")
data[at + 8] ^= 1
open("token.gguf", "wb").write(data)
END
try diff whole.gguf token.gguf
# The same bytes are the same config, also where they are no JSON; other bytes are another one.
for folder in nan same nan-too; do cp -r llama $folder && sed -i 's/10000.0/NaN/' $folder/config.json; done
echo >> nan-too/config.json
try diff nan same
try diff nan nan-too
ckpt convert "$DATA/dcp/state-dicts" -o states.pt --quiet > /dev/null
try diff states.pt states.pt --include all
cp "$DATA/trainer/fsdp1-full/scheduler.bin" "$DATA/trainer/gpt2-lora/scheduler.pt" .
try diff scheduler.bin scheduler.pt --include all
try hash scheduler.bin
try convert scheduler.bin -o none.safetensors
