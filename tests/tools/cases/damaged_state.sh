# An optimizer that a trainer saved and that is damaged is never left behind without a word: whoever asks for it is refused.
SAID=$(mktemp)
trap 'rm "$SAID"' EXIT
try() {
  echo "\$ ckpt $*"
  ckpt "$@" --quiet > "$SAID" 2>&1
  code=$?
  grep -v 'proven:\|warning' "$SAID"
  echo "exit $code"
}
damage() {
  rm -rf in && cp -r "$DATA/trainer/llama" in && chmod -R u+w in
  case $1 in
    zeros) head -c 27000 /dev/zero > in/optimizer.pt ;;
    first) printf 'X' | dd of=in/optimizer.pt conv=notrunc status=none ;;
    cut) head -c 9000 "$DATA/trainer/llama/optimizer.pt" > in/optimizer.pt ;;
    words) echo words > in/optimizer.pt ;;
  esac
}
for kind in zeros first cut words; do
  echo "# $kind"
  damage $kind
  try verify in --headers
  try hash in --include all
  try hash in --include optimizer
  try convert in -o one.pt
  try convert in -o all --include all
  try convert in -o states.safetensors --include optimizer
  try reshard in -o many --to dcp
  ls
done
echo '# without it'
try hash in
try convert in -o model
try convert in -o one.pt --include model
try reshard in -o many --to dcp --drop optimizer
ls
echo '# two that cannot be read are not equal'
try diff in in --include all
ckpt diff in in --include all --json --quiet 2> err | grep -o '"not_read":[^]]*]'
try diff in in
echo '# what is whole, but not understood, goes along as a file, and nowhere else'
cp "$DATA/torch/views.pt" in/optimizer.pt
try convert in -o along --include all
cmp in/optimizer.pt along/optimizer.pt
try convert in -o other.pt
try hash in --include all
try hash in --include all -o all.json
grep -A2 optimizer.pt all.json
echo '# other files of a trainer'
cp "$DATA/trainer/llama/optimizer.pt" in
for name in scheduler.pt scaler.pt rng_state.pth training_args.bin; do head -c 900 /dev/zero > in/$name; done
ckpt verify in 2>&1 | grep problem
