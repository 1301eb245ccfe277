# States that are not read are not left behind without a word.
for name in whole-state-missing whole-step-alone whole-slices whole-masters-missing flat-missing flat-of-two-groups; do
  cp -r "$DATA/../golden-errors/zero/noted-$name" in
  for to in universal 'dcp --world 2'; do
    ckpt reshard in -o out --to $to --quiet || echo exit $?
  done
  ckpt reshard in -o out --to universal --drop optimizer --quiet || echo exit $?
  ls out
  rm -rf in out
done
