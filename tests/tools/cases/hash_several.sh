# One bad input does not stop the others; sums of files need no format; lists come from what has an end.
ckpt join $DATA/llama-tiny -o a.safetensors --quiet >/dev/null
mkdir bin staged dots && echo weights >bin/model.bin && mkdir staged/.x.ckpt-tmp.abcdef && touch dots/.a
try() {
  echo "$ ckpt $*"
  ckpt "$@" 2>&1 || echo "  exit $?"
}
try hash missing a.safetensors none
try hash a.safetensors missing --json
try hash missing --json
try hash --files missing a.safetensors
try hash --files bin bin/model.bin
ckpt hash --files bin | sha256sum -c

ckpt hash a.safetensors >sums && echo nonsense >>sums
try hash --check sums
try hash --check sums --json --quiet
mkfifo fifo
try hash --check fifo
try hash --check bin
(ckpt hash a.safetensors >fifo) & try hash --check fifo
ckpt hash a.safetensors | try hash --check /dev/stdin

# a path is called as it was given; what is no checkpoint says what is there
try verify a.safetensors
truncate -s -1 a.safetensors && try verify a.safetensors
(cd staged && try verify . && try ls .)
(cd dots && try ls .)
try convert $DATA/gpt2-tiny -o x --dtype i32 | sed s,/.*/,DATA/,
try help --completion tcsh

# A digest of nothing would be that of every checkpoint without a model.
ckpt hash "$DATA/dcp/accelerate/optimizer_0" 2>&1 | sed "s|$DATA|DATA|g"
