# Bytes are proven or they are not: no report says both.
say() { # [OPTION...] PATH
  echo "\$ verify $*"
  ckpt verify "$@" > said
  echo "exit $?"
  grep '^problem\|^proven: [bdfr]\|^not proven: [bdfr]' said
  grep -q '^proven: bytes' said && grep -q '^not proven: bytes' said && echo 'BOTH'
  rm said
}
# One record without a CRC-32 among others that have one.
cp "$DATA/torch/training.pt" one.pt
chmod u+w one.pt
say one.pt
ckpt hash one.pt -o cast.json --cast bf16 --quiet > /dev/null
at=$(LC_ALL=C grep -aobP 'PK\x01\x02' one.pt | head -n 1 | cut -d : -f 1)
printf '\0\0\0\0' | dd of=one.pt bs=1 seek=$((at + 16)) conv=notrunc 2> /dev/null
at=$(LC_ALL=C grep -aobP 'PK\x07\x08' one.pt | head -n 1 | cut -d : -f 1)
printf '\0\0\0\0' | dd of=one.pt bs=1 seek=$((at + 4)) conv=notrunc 2> /dev/null
say one.pt
say one.pt --manifest cast.json

# One shard is a blob of the cache, whose name says what its bytes are; the others are not.
export HF_HUB_CACHE=hub
hub=hub/models--org--name
mkdir -p $hub/refs $hub/snapshots/abc $hub/blobs
cp "$DATA"/llama-tiny/* $hub/snapshots/abc
printf abc > $hub/refs/main
shard=model-00002-of-00003.safetensors
sum=$(sha256sum "$DATA/llama-tiny/$shard" | cut -d ' ' -f 1)
mv $hub/snapshots/abc/$shard $hub/blobs/$sum
ln -s ../../blobs/$sum $hub/snapshots/abc/$shard
say org/name
say org/name --digest "$(ckpt hash org/name --quiet | cut -d ' ' -f 1)"

# A tensor is broken, and there is no digest of it all; the others are those of the manifest.
cp -r "$DATA/llama-tiny" cut
ckpt hash cut -o whole.json --quiet > /dev/null
truncate -s -5 cut/$shard
say cut --manifest whole.json
say cut --digest "ckpt1:$(printf '%064d' 0)"
