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
