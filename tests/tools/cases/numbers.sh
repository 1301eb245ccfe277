# Every kind of numeric option at and past its limits.
cp "$DATA/gpt2-tiny/model.safetensors" m.safetensors
for value in 0 -1 -.5 -inf 4096 4097 99999999999999999999 1e400 nan '' 0x10 ' 5' 1.5 16777215T 16777216T; do
  for line in 'ls m.safetensors --quiet --threads' 'ls m.safetensors --memory' 'diff m.safetensors m.safetensors --atol'; do
    printf '%s [%s]: ' "${line##* }" "$value"
    ckpt $line "$value" 2>&1 | tail -n 1 | sed 's/^transformer.*/ok/'
  done
done
ckpt convert m.safetensors -o one.safetensors --shard-size 1M 2>&1
echo "exit $?"
ckpt convert m.safetensors -o one.safetensors -o folder --shard-size 100K --quiet && ls folder

# A bound that nothing fits: whose it is, for every verb that plans
for line in 'hash m.safetensors' 'verify m.safetensors' 'diff m.safetensors folder' 'ls m.safetensors --stats' 'convert m.safetensors -o n' 'cat m.safetensors transformer.wpe.weight'; do
  ckpt $line --memory 1K 2>&1 | tail -n 1
done
# What the message asks for is enough.
ckpt convert m.safetensors -o n --memory 1572900 2>&1
needed=$(ckpt convert m.safetensors -o n --memory 1572900 2>&1 | sed 's/.*--memory \([0-9]*\) would.*/\1/')
ckpt convert m.safetensors -o n --memory "$needed" --quiet && ckpt hash m.safetensors n | cut -d' ' -f1 | uniq | wc -l
# A cast that fails names the file that it casts.
ckpt diff folder m.safetensors --cast f4_e2m1 2>&1
