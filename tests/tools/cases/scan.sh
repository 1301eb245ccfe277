# Every pickle is judged by what it calls. The files in scan/bad would run a command when they are loaded, each hidden in
# another way; those in scan/good are what frameworks save.
work=$PWD
cd "$DATA/scan/bad"
for path in *; do
  ckpt scan "$path" | grep '^problem'
  ckpt scan "$path" > /dev/null 2>&1 || continue
  echo "PASSED: $path"
done
cd ..
ckpt scan good | grep -v '^  \|: 1 pickle of'
ckpt scan good > /dev/null && echo 'exit 0'
ckpt scan bad > /dev/null || echo "exit $?"

# Everything that is said of one, as text and as JSON.
ckpt scan bad/truncated.pkl good/tensors.pt
ckpt scan --json bad/nested.zip
ckpt scan --json good/numbers.npy

# A pickle may begin with a long text, which is not kept.
cd "$work"
{ printf 'X\000\000\020\000'; head -c 1048576 /dev/zero; printf '0cposix\nsystem\n(S'"'true'"'\ntR.'; } > text.bin
ckpt scan text.bin
mkdir -p sub/deep && cp text.bin sub/deep && ln -s ../text.bin sub/link && ln -s sub folder && mkfifo pipe
ckpt scan . | grep '^problem'
ckpt scan nothing 2>&1
ckpt scan 2>&1
