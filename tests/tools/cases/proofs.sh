# What a proof is not of is said or refused: masters, other roles, wrappers, side files, refs of the cache.
tiny() { python3 "$DATA/../tools/tiny.py" "$@"; }
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1
  echo "exit $?"
}
digest_of() { ckpt hash "$1" --quiet | cut -d' ' -f1; }

echo "== masters: the stored copy must be its master, rounded"
tiny plain.safetensors 'w F32 2 1.25,2.2500001' 'norm F32 1 3'
tiny good.safetensors 'w BF16 2 0xa03f1040' 'norm F32 1 3' 'optimizer.state.w.master F32 2 1.25,2.2500001'
tiny evil.safetensors 'w BF16 2 0xa03f1140' 'norm F32 1 3' 'optimizer.state.w.master F32 2 1.25,2.2500001'
tiny whole.safetensors 'w I32 2 1,2' 'norm F32 1 3' 'optimizer.state.w.master F32 2 1.25,2.2500001'
ckpt hash plain.safetensors -o manifest.json --quiet > /dev/null
try verify good.safetensors --digest "$(digest_of plain.safetensors)" --quiet
try verify evil.safetensors --digest "$(digest_of plain.safetensors)"
try verify evil.safetensors --manifest manifest.json --quiet
try verify evil.safetensors --weights model
try verify whole.safetensors --quiet
ckpt verify good.safetensors --json --quiet | grep -o '"weights":[^,]*'
echo "$(digest_of plain.safetensors)  evil.safetensors" > list
try hash --check list
ckpt hash --check list --json --quiet | grep -o '"weights":[^}]*'
try diff plain.safetensors evil.safetensors
ckpt diff plain.safetensors evil.safetensors --json --quiet | grep -o '"weights_a".*'

echo "== other roles, and nothing"
tiny a.safetensors 'w F32 1 1' 'optimizer.state.foo F32 1 1'
tiny b.safetensors 'w F32 1 1' 'optimizer.state.foo F32 1 2'
tiny none.safetensors
ckpt hash a.safetensors -o a.json --quiet > /dev/null
try diff a.safetensors b.safetensors
try diff a.safetensors b.safetensors --include all
try diff a.safetensors b.safetensors --include optimizer
try diff none.safetensors none.safetensors
try verify b.safetensors --manifest a.json

echo "== wrappers"
tiny wrapped.safetensors 'module._orig_mod.w F32 1 1' 'module._orig_mod.v F32 1 1'
tiny bare.safetensors 'w F32 1 1' 'v F32 1 1'
try verify wrapped.safetensors --digest "$(digest_of bare.safetensors)"

echo "== side files and metadata"
cp -r "$DATA/gpt2-tiny" in
ckpt convert in -o out --receipt r.json --quiet > /dev/null
ckpt verify out --receipt r.json | grep '^not proven'
ckpt verify out --digest "$(digest_of in)" --json | grep -o '"unproven":[^]]*'
ckpt hash --files out > sums
ckpt verify out --digest "$(digest_of in)" --sums sums | grep -c '^not proven'
grep -v tokenizer.json sums > fewer
ckpt verify out --sums fewer | grep '^not proven'

echo "== refs of the Hugging Face cache"
export HF_HUB_CACHE=hub
hub=hub/models--org--name; mkdir -p $hub/refs $hub/snapshots/abc
cp "$DATA"/gpt2-tiny/* $hub/snapshots/abc
printf abc > $hub/refs/main; try hash org/name
printf 'abc\0' > $hub/refs/main; try hash org/name
printf ../.. > $hub/refs/main; try hash org/name
rm $hub/refs/main; mkfifo $hub/refs/main; try hash org/name
rm $hub/refs/main; mkdir $hub/refs/main; try hash org/name
try hash org/name@abc
