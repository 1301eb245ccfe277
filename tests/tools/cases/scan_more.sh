# --plan of scan; and --memory, not the file, is what a scan that ends early blames.
ckpt scan --plan "$DATA/torch/training.pt" "$DATA/torch/protocol2.pt" | sed 's/memory .*//'
ckpt scan --memory 1K "$DATA/torch/training.pt" | grep -c 'problem.*needs more than the memory limit.*--memory'
ckpt scan --memory 1K "$DATA/torch/training.pt" | grep 'readers differ'
ckpt scan nowhere --plan 2>&1
echo "exit $?"
# What stands behind a pickle and is none is not passed over: a reader that skips it finds the next one.
{ cat "$DATA/scan/good/plain2.pkl"; printf '\000\000\000\000'; cat "$DATA/scan/bad/reduce2.pkl"; } > gap.pkl
ckpt scan gap.pkl || echo "exit $?"
{ cat "$DATA/scan/good/plain2.pkl"; printf '\000\000\000\n'; } > padded.pkl
ckpt scan padded.pkl
