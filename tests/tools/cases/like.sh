# The config of --like names an input that has none, and ties its tensors, for every verb.
gpt2=$DATA/gpt2-tiny
ckpt hash $gpt2 -o manifest.json | cut -d' ' -f1 > wanted
ckpt convert $gpt2 -o tied.pt --quiet > sums
ckpt convert tied.pt -o kept.safetensors -o folder --quiet >> sums
ckpt convert tied.pt -o dcp --to dcp --quiet >> sums
ckpt convert $gpt2 -o bare.pt --rename 's/^transformer\.//' --quiet >> sums
ckpt hash --check sums
for input in tied.pt kept.safetensors folder dcp bare.pt; do
  echo "# $input"
  ckpt hash $input | cut -d' ' -f1 | cmp -s - wanted && echo named already
  ckpt hash $input --like $gpt2 | cut -d' ' -f1 | diff - wanted
  ckpt ls $input --like $gpt2 --match lm_head.weight
  ckpt diff $input --like $gpt2 $gpt2
  ckpt diff $gpt2 $input --like $gpt2
  ckpt verify $input --like $gpt2 --manifest manifest.json | grep ' are those of '
  rm -rf out again.pt r.json
  ckpt convert $input --like $gpt2 -o out -o again.pt --receipt r.json --quiet > outputs
  ckpt hash --check outputs
  head -1 outputs | cut -d' ' -f1 | diff - wanted
  diff $gpt2/config.json out/config.json
  ckpt verify out --receipt r.json | grep 'run again'
  ckpt verify again.pt --receipt r.json | grep 'run again'
done
echo '# lists'
ckpt hash tied.pt --like $gpt2 dcp --like $gpt2 > sums
ckpt hash --check sums --like $gpt2
ckpt hash --check sums 2> said
echo '# stored names are asked for'
cp -r $gpt2 gpt2
ckpt ls kept.safetensors --like gpt2 --names stored 2>&1 || echo "exit $?"
echo '# a config that its own weights contradict is said, and carried'
chmod -R u+w gpt2 && sed -i 's/"vocab_size": [0-9]*/"vocab_size": 7/' gpt2/config.json
ckpt convert kept.safetensors --like gpt2 -o said-of 2>&1 | grep contradict
ckpt convert kept.safetensors --like gpt2 -o said-of.safetensors 2>&1 | grep contradict || echo no config is carried
