# --plan of scan; and --memory, not the file, is what a scan that ends early blames.
ckpt scan --plan "$DATA/torch/training.pt" "$DATA/torch/protocol2.pt" | sed 's/memory .*//'
ckpt scan --memory 1K "$DATA/torch/training.pt" | grep -c 'problem.*needs more than the memory limit.*--memory'
ckpt scan --memory 1K "$DATA/torch/training.pt" | grep 'readers differ'
ckpt scan nowhere --plan 2>&1
echo "exit $?"
