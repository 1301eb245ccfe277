# Patterns on a tensor of several names: each is matched, and those that are left out are said.
cp -r $DATA/gpt2-tiny gpt2
cp $DATA/torch/views.pt .
try() {
  echo "\$ ckpt convert $*"
  rm -rf out out.pt
  ckpt convert "$@" > sum 2> said
  echo "exit $?"
  grep -e 'not written' -e '^ckpt' said
  [ ! -s sum ] || ckpt hash --check sum
}
names() { ckpt ls "$1" | grep -e wte -e lm_head -e head; }
ckpt ls gpt2 --match 'lm_head*'
try gpt2 -o out.pt
names out.pt
try gpt2 -o out.pt --exclude 'lm_head*'
names out.pt
try gpt2 -o out.pt --exclude '*wte*'
names out.pt
try gpt2 -o out.pt --exclude '*wte*' --exclude 'lm_head*'
names out.pt
try gpt2 -o out.pt --match '*wte*' --match '*wpe*'
names out.pt
try gpt2 -o out --match 'lm_head*'
names out
try gpt2 -o out.pt --match 'lm_head*' --exclude '*wte*'
names out.pt
try gpt2 -o out.pt --dtype 'lm_head*=bf16' --dtype '*wpe*=f16'
names out.pt
try gpt2 -o out.pt --rename 's/^lm_head/head/'
names out.pt
try gpt2 -o out.pt --rename 's/^/model./'
names out.pt
try gpt2 -o out.pt --rename 's/^lm_head/transformer.wte/'
try gpt2 -o out.pt --exclude 'head*'
echo '# a file of PyTorch, with its own object'
names views.pt
try views.pt -o out.pt --exclude head.copy
names out.pt
try views.pt -o out.pt --exclude embed.weight
names out.pt
