# CRC-32 of zip records: a flipped byte in a torch.save file, stored and deflated, and in an item of a DCP file, also in
# one that is compressed.
flip() { # FILE OFFSET
  byte=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
  printf "\\$(printf %o $((byte ^ 16)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2> /dev/null
}
# Where the payload of a file's last record of this name begins, by its local header.
payload() { # FILE NAME
  at=$(LC_ALL=C grep -aob "$2" "$1" | head -n "${3:-1}" | tail -n 1 | cut -d : -f 1)
  n=$(od -An -tu2 -j $((at - 2)) -N 2 "$1" | tr -d ' ')
  echo $((at + $(printf %s "$2" | wc -c) + n))
}
cp "$DATA/torch/training.pt" "$DATA/torch/deflated.pt" .
cp -r "$DATA/dcp/fsdp4" "$DATA/dcp/zstd" .
chmod -R u+w .
for path in training.pt deflated.pt fsdp4 zstd; do ckpt verify $path | grep 'bytes:'; done
ckpt hash zstd -o zstd.json > /dev/null
flip training.pt $(payload training.pt training/data/0)
flip fsdp4/__1_0.distcp $(payload fsdp4/__1_0.distcp archive/data/0)
flip zstd/__0_0.distcp 4000
for path in training.pt fsdp4 zstd; do
  ckpt verify $path
  echo "exit $?"
done
# What could not be unpacked is not compared: it is told once.
printf XXXX | dd of=zstd/__0_0.distcp bs=1 seek=470 conv=notrunc 2> /dev/null
ckpt verify zstd --manifest zstd.json
echo "exit $?"

# Damage in the pickle may leave no tensor: its archive is looked at all the same.
LC_ALL=C sed 's/torch._utils/torch._utilz/' "$DATA/torch/protocol2.pt" > lost.pt
ckpt verify lost.pt 2> said
echo "exit $?"

# What a writer did not compute is no proof, and none is missed.
cp "$DATA/torch/training.pt" none.pt
chmod u+w none.pt
for at in $(LC_ALL=C grep -aobP 'PK\x01\x02' none.pt | cut -d : -f 1); do
  printf '\0\0\0\0' | dd of=none.pt bs=1 seek=$((at + 16)) conv=notrunc 2> /dev/null
done
for at in $(LC_ALL=C grep -aobP 'PK\x07\x08' none.pt | cut -d : -f 1); do
  printf '\0\0\0\0' | dd of=none.pt bs=1 seek=$((at + 4)) conv=notrunc 2> /dev/null
done
ckpt verify none.pt | grep 'bytes:'
