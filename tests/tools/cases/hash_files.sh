# SHA-256 lines that sha256sum accepts, of every file of a checkpoint.
cp -r "$DATA/llama-tiny" .
mkdir odd; cp "$DATA/gpt2-tiny/model.safetensors" odd/; echo x > 'odd/back\slash'
echo y > 'odd/new
line'
ckpt hash --files llama-tiny odd > sums
sha256sum -c sums
echo "exit $?"
ckpt hash --files llama-tiny --threads 1 | cmp - sums 2>&1 | sed 's/ after.*//'
ckpt hash --files llama-tiny/model-00001-of-00003.safetensors --memory 1M | sha256sum -c
ckpt hash --files llama-tiny --json | python3 -c '
import hashlib, json, sys
files = json.load(sys.stdin)["files"]
print(len(files), all(hashlib.sha256(open(one["path"], "rb").read()).hexdigest() == one["sha256"] for one in files))'
ckpt verify llama-tiny --sums sums | tail -3
(cd llama-tiny && sha256sum * > ../inside)
ckpt verify llama-tiny --sums inside | grep ^problem
ckpt verify "$PWD/llama-tiny" --sums inside | grep -c '^proven: bytes'
ckpt verify llama-tiny/model-00001-of-00003.safetensors --sums inside | grep '^proven: bytes'
grep -v 00002 inside > fewer; ckpt verify llama-tiny --sums fewer | grep 'not every'
cat inside inside > twice; ckpt verify llama-tiny --sums twice | grep '^proven: bytes'
grep 00002 inside > other; ckpt verify llama-tiny/model-00001-of-00003.safetensors --sums other | grep 'lists no file'
sed 's/^./x/' inside > malformed; ckpt verify llama-tiny --sums malformed; echo "exit $?"
printf '\125' | dd of=llama-tiny/model-00002-of-00003.safetensors bs=1 seek=100001 conv=notrunc 2> /dev/null
ckpt verify llama-tiny --sums sums | grep ^problem
rm llama-tiny/tokenizer.json
ckpt verify llama-tiny --sums inside | grep ^problem | sed 's/[0-9a-f]\{64\}/HEX/'
