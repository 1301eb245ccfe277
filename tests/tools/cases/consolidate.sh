# What four FSDP2 ranks left, as a folder and as one file; every refusal leaves nothing.
IN=$DATA/dcp/fsdp4
ckpt consolidate "$IN" -o model --quiet
ckpt diff model "$DATA/dcp/fsdp4.safetensors"
ckpt consolidate "$IN" -o all.safetensors --include all --quiet
ckpt ls all.safetensors --include all | cut -d ' ' -f 1
ckpt consolidate "$IN" -o half.safetensors --dtype bf16 --receipt half.json --json --quiet | sed "s,\"seconds.*\"notes\",\"notes\","
ckpt verify half.safetensors --receipt half.json
ckpt consolidate "$IN" -o ranks --to dcp 2>&1; echo "exit $?"
cp -r "$DATA/dcp/accelerate" .
ckpt reshard accelerate -o ranks --to dcp --quiet 2>&1; echo "exit $?"
cp -r "$DATA/llama-tiny" tiny; chmod u+w tiny; echo > "tiny/training state.bin" # a name is none
ckpt reshard tiny -o tiny-ranks --to dcp --quiet > digest 2>&1; echo "exit $?"
ckpt reshard "$IN" -o ranks --to dcp --world 0 2>&1; echo "exit $?"
ckpt reshard "$IN" -o ranks --to dcp --dp 4097 2>&1; echo "exit $?"
ckpt convert "$IN" -o steps.pt --dtype bf16 --quiet
ckpt ls steps.pt --include all --match '*weight*'
ckpt convert "$IN" -o packed.safetensors --zstd 3 2>&1; echo "exit $?"

# One rank's part is no model, and nothing that other ranks go on from.
cp "$DATA/torch/parts.pt" "$DATA/torch/summand.pt" .
ckpt consolidate parts.pt -o part.safetensors --quiet 2>&1; echo "exit $?"
ckpt reshard summand.pt -o part --to dcp --quiet 2>&1; echo "exit $?"
ckpt convert parts.pt -o rank0.safetensors 2>&1 >/dev/null | grep warning
ckpt verify parts.pt 2>&1 | grep problem
cp -r "$DATA/dcp/parts" items # of a planner that does not flatten, an item of bytes is one rank's
ckpt inspect items | grep part
ckpt consolidate items -o part.safetensors --quiet 2>&1; echo "exit $?"
ckpt reshard items -o part --to dcp --quiet 2>&1; echo "exit $?"
ls
