# A model against itself and its GGUF: what is passed, missed and refused. Figures differ in their last digits from one
# processor to another, so only those stand here that do not.
model=$DATA/dialect/llama-tied text=$DATA/text/eval.txt
try() {
  {
    echo "\$ ckpt $*"
    ckpt "$@" --quiet 2>&1 | sed -E 's/: [0-9.e+-]+( \(|$)/\1/; s/^(ppl|ref|kl|top1) +.*/\1/'
  } | sed "s,$DATA/,,g"
}
code() {
  ckpt "$@" > /dev/null 2>&1
  echo "exit $?"
}
ckpt convert $model -o f32.gguf --dtype f32 --quiet > /dev/null 2>&1
ckpt convert $model -o q8.gguf --dtype q8_0 --quiet > /dev/null 2>&1
try ppl f32.gguf --against $model -f $text --ctx 64 --chunks 9 --max-kl 1e-6 --min-top1 1 --max-ppl-increase 0.01%
try ppl q8.gguf --against $model -f $text --ctx 64 --chunks 9 --max-kl 1e-9 --max-ppl 1000
code ppl f32.gguf --against $model -f $text --ctx 64 --chunks 9 --max-kl 1e-6
code ppl q8.gguf --against $model -f $text --ctx 64 --chunks 9 --max-kl 1e-9
# every family that runs, against its own GGUF
for family in gpt2 llama-scaled mistral qwen2; do
  ckpt convert $DATA/dialect/$family -o $family.gguf --dtype f32 --quiet > /dev/null 2>&1
  code ppl $family.gguf --against $DATA/dialect/$family -f $text --ctx 64 --chunks 3 --max-kl 1e-9 --min-top1 1 --max-ppl-increase 1e-6
done
code ppl q8.gguf --against $model -f $text --ctx 64 --chunks 1 --max-kl 1 # one window passes nothing
code ppl q8.gguf -f $text --ctx 64 --scoring hf --stride 32 --max-ppl 1000
printf '{"text":"The cat \\u00e9"}\n{"id":1,"text":"sat."}\n' > two.jsonl
printf '{"id":1}\n' > none.jsonl
try ppl f32.gguf -f two.jsonl --ctx 4
try ppl f32.gguf -f none.jsonl
try ppl f32.gguf -f two.jsonl
try ppl f32.gguf -f $text --max-kl 1
try ppl f32.gguf -f $text --max-ppl-increase 1% --strict
try ppl f32.gguf -f $text --against $model --max-ppl-increase x%
try ppl f32.gguf -f $text --strict
try ppl f32.gguf -f $text --stride 3
try ppl $DATA/tape/gpt2 -f $text
try ppl f32.gguf -f $text --against $DATA/dialect/mistral --ctx 64
try ppl f32.gguf -f $text --device cuda
try ppl f32.gguf -f $text --ctx 64 --chunks 2 --dtype bf16
try ppl f32.gguf -f $text --dtype f64
try ppl f32.gguf -f $text --ctx 2
# what llama.cpp refuses or computes otherwise passes no gate
changed() {
  echo "\$ ckpt ppl f32.gguf with $*"
  ckpt convert f32.gguf -o changed.gguf --force --quiet --names stored "$@" > /dev/null 2>&1
  ckpt ppl changed.gguf -f $text --ctx 64 --chunks 3 --against $model --max-kl 1e-6 --quiet 2>&1 | sed "s,$DATA/,,g"
}
changed --set llama.rope.dimension_count=4
changed --remove llama.attention.layer_norm_rms_epsilon
changed --remove llama.context_length
changed --set llama.rope.scale_linear=4.0
changed --set llama.rope.scaling.attn_factor=2.0
changed --set llama.attention.causal=false
changed --exclude blk.1.ffn_up.weight
changed --exclude '*.attn_q.bias'
for bos in 0 5; do
  ckpt convert f32.gguf -o bos-$bos.gguf --quiet --set tokenizer.ggml.bos_token_id=$bos --set tokenizer.ggml.add_bos_token=true \
    > /dev/null 2>&1
done
try ppl bos-5.gguf --against bos-0.gguf -f $text --ctx 64 --max-kl 1
mkdir short
cp $model/* short/
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 1/' short/config.json
echo '$ ckpt ppl short'
ckpt ppl short -f $text --ctx 64 --chunks 3 2>&1 | grep warning
ckpt logits short --ids 1,2 -o short.safetensors 2>&1 | grep warning
try ppl f32.gguf -f $text --ctx 64 --min-top1 90 --against $model
try ppl f32.gguf -f $text --ctx 64 --chunks 3 --min-top1 90% --against $model
try ppl f32.gguf -f $text --ctx 64 --chunks 1
try ppl f32.gguf -f $text --ctx 64 --against $model --plan --json
try ppl f32.gguf -f two.jsonl --ctx 8 --stride 5 --scoring hf --plan
try ppl f32.gguf -f two.jsonl --plan
try ppl f32.gguf -f nowhere.txt --plan
printf '{"input_ids":[1,2],"attention_mask":[1,1]}\n' > seen.jsonl
printf '{"input_ids":[1,2],"attention_mask":[0,1]}\n' > hidden.jsonl
code logits f32.gguf -f seen.jsonl -o seen.safetensors
try logits f32.gguf -f hidden.jsonl -o hidden.safetensors
printf '{"input_ids":[5000]}\n' > past.jsonl
try logits f32.gguf -f past.jsonl -o past.safetensors
code logits f32.gguf -f past.jsonl -o past.safetensors
# within two standard errors of a limit: passed, but for --strict
try ppl f32.gguf -f $text --ctx 64 --chunks 3 --max-ppl 285
code ppl f32.gguf -f $text --ctx 64 --chunks 3 --max-ppl 285
code ppl f32.gguf -f $text --ctx 64 --chunks 3 --max-ppl 285 --strict
# a weight that is no number, of either; a tokenizer that gives other ids; windows that score nothing are none
cp -r $model nan
cp -r $model other
chmod -R u+w nan other
python3 - <<'EOF'
import json, struct
with open("nan/model.safetensors", "r+b") as file:
    n, = struct.unpack("<Q", file.read(8))
    at = json.loads(file.read(n))["model.layers.0.mlp.up_proj.weight"]["data_offsets"][0]
    file.seek(8 + n + at)
    file.write(b"\xc0\x7f\xc0\x7f")
with open("other/tokenizer.json", encoding="utf-8") as file:
    tokenizer = json.load(file)
vocab = tokenizer["model"]["vocab"]
vocab["e"], vocab["t"] = vocab["t"], vocab["e"]
with open("other/tokenizer.json", "w", encoding="utf-8") as file:
    json.dump(tokenizer, file)
EOF
echo '$ ckpt ppl nan'
ckpt ppl nan -f $text --ctx 64 --chunks 3 --max-ppl 1e9 --quiet
code ppl nan -f $text --ctx 64 --chunks 3
echo '$ ckpt ppl --against nan'
ckpt ppl $model -f $text --against nan --ctx 64 --chunks 3 --max-kl 1e9 --quiet | tail -4
ckpt ppl $model -f $text --against nan --ctx 64 --chunks 3 --json | sed 's/.*\("kl_mean".*\),"device.*/\1/'
try ppl $model -f $text --against other --ctx 64 --chunks 3
n=$(head -c 120 $text | ckpt tokenize --model $model -f - | wc -w)
head -c 120 $text > short.txt
ckpt ppl $model -f short.txt --scoring hf --ctx $((n - 1)) --max-ppl 1e9 --quiet | sed -E 's/[0-9.]+ .*scored/N scored/; s/: .*//'
