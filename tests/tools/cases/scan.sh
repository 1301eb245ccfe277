# Every pickle is judged by what it calls. The files in scan/bad would run a command when they are loaded, each hidden in
# another way; those in scan/good are what frameworks save.
work=$PWD
cd "$DATA/scan/bad"
for path in * getattr/* npy/* zip_behind/*; do
  case $path in getattr | npy | zip_behind) continue ;; esac
  ckpt scan "$path" > "$work/said" 2>&1 && echo "PASSED: $path"
  grep '^problem' "$work/said"
done
rm "$work/said"
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

# One of several that is not there does not keep the others from being looked at; what holds nothing does not pass.
cp "$DATA/scan/good/plain2.pkl" .
ckpt scan nothing text.bin plain2.pkl || echo "exit $?"
mkdir -p empty/deep && ckpt scan empty || echo "exit $?"

# A model of the Hugging Face cache by its name.
export HF_HUB_CACHE=$work/hub
mkdir -p hub/models--org--name/refs hub/models--org--name/snapshots/1234 hub/models--org--name/blobs
printf 1234 > hub/models--org--name/refs/main
cp "$DATA/scan/bad/reduce2.pkl" hub/models--org--name/blobs/abcd
ln -s ../../blobs/abcd hub/models--org--name/snapshots/1234/pytorch_model.bin
ckpt scan org/name | sed "s|$work/||" | grep '^problem'
ckpt scan org/other 2>&1 || echo "exit $?"

# No more memory than is said.
{ printf '\200\002'; head -c 4000000 /dev/zero | tr '\000' ']'; } > lists.pkl
ckpt scan --memory 64M lists.pkl || echo "exit $?"
ckpt scan 2>&1
