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
for line in 'hash m.safetensors' 'verify m.safetensors' 'diff m.safetensors folder' 'ls m.safetensors --stats' 'convert m.safetensors -o n'; do
  ckpt $line --memory 1K 2>&1 | tail -n 1
done
