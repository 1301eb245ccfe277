# Ranks that saved without collectives: what they have of their own stands beside it, and is said; drifted parts are not.
cp -r "$DATA/dcp/rank-local" "$DATA/dcp/rank-equal" "$DATA/../golden-errors/dcp/rank-drift" .
for path in rank-local rank-equal rank-drift; do
  ckpt ls $path --include all 2>&1
  echo "exit $?"
  ckpt verify $path 2>&1
  echo "exit $?"
done
ckpt reshard rank-local -o again --to dcp --world 2 2> said
grep 'values of their own' said
ckpt diff rank-local again --include all
echo "exit $?"
# A bit of a replica that is not read: verify tells.
chmod -R u+w rank-equal
at=$(LC_ALL=C grep -aobP 'archive/data/0' rank-equal/__1_0.distcp | head -n 1 | cut -d : -f 1)
n=$(od -An -tu2 -j $((at - 2)) -N 2 rank-equal/__1_0.distcp | tr -d ' ')
printf '\377' | dd of=rank-equal/__1_0.distcp bs=1 seek=$((at + 14 + n)) conv=notrunc 2> /dev/null
ckpt verify rank-equal
echo "exit $?"
# Other values with the same CRC-32, as a multiple of its polynomial makes them.
rm -rf rank-equal && cp -r "$DATA/dcp/rank-equal" . && chmod -R u+w rank-equal
python3 - << 'END'
bits = "1" + format(0x04C11DB7, "032b")
path = "rank-equal/__1_0.distcp"
data = bytearray(open(path, "rb").read())
at = data.index(b"archive/data/0")
at += 14 + int.from_bytes(data[at - 2:at], "little")
for i, bit in enumerate(bits):
    data[at + i // 8] ^= int(bit) << i % 8
open(path, "wb").write(data)
END
ckpt verify rank-equal
echo "exit $?"
# Without checksums opening reads the replicas, and finds the same.
cp -r "$DATA/dcp/rank-local" no-sums && chmod -R u+w no-sums
python3 - << 'END'
import glob
for path in glob.glob("no-sums/*.distcp"):
    data = bytearray(open(path, "rb").read())
    for begin, crc in ((b"PK\x03\x04", 14), (b"PK\x07\x08", 4), (b"PK\x01\x02", 16)):
        at = data.find(begin)
        while at >= 0:
            data[at + crc:at + crc + 4] = bytes(4)
            at = data.find(begin, at + 1)
    open(path, "wb").write(data)
END
ckpt verify no-sums | grep bytes
ckpt diff no-sums rank-local --include all --quiet
# Weights that drifted: a training state keeps what each rank has, a model has one.
cp -r "$DATA/dcp/rank-equal" drifted && chmod -R u+w drifted
python3 - << 'END'
import glob
for path in glob.glob("drifted/*.distcp"):
    data = bytearray(open(path, "rb").read())
    for begin, crc in ((b"PK\x03\x04", 14), (b"PK\x07\x08", 4), (b"PK\x01\x02", 16)):
        at = data.find(begin)
        while at >= 0:
            data[at + crc:at + crc + 4] = bytes(4)
            at = data.find(begin, at + 1)
    if path.endswith("__1_0.distcp"):
        at = data.index(b"archive/data/0")
        data[at + 14 + int.from_bytes(data[at - 2:at], "little")] ^= 1
    open(path, "wb").write(data)
END
ckpt ls drifted 2>&1
for output in model.safetensors folder state.pt; do
  ckpt convert drifted -o $output 2>&1 | grep -v 'peak memory'
done
ckpt convert drifted -o model.safetensors --exclude '*@*' 2>&1 | grep -v 'peak memory'
ckpt ls state.pt
