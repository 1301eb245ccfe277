# Ranks that saved without collectives: what they have of their own stands beside it, and is said; drifted parts are not.
cp -r "$DATA/dcp/rank-local" "$DATA/dcp/rank-equal" "$DATA/../golden-errors/dcp/rank-drift" .
for path in rank-local rank-equal rank-drift; do
  ckpt ls $path --include all 2>&1
  echo "exit $?"
  ckpt verify $path 2>&1
  echo "exit $?"
done
ckpt reshard rank-local -o again --to dcp --world 2 2> said
grep 'values of their own' said
ckpt diff rank-local again --include all
echo "exit $?"
# A bit of a replica that is not read: verify tells.
chmod -R u+w rank-equal
at=$(LC_ALL=C grep -aobP 'archive/data/0' rank-equal/__1_0.distcp | head -n 1 | cut -d : -f 1)
n=$(od -An -tu2 -j $((at - 2)) -N 2 rank-equal/__1_0.distcp | tr -d ' ')
printf '\377' | dd of=rank-equal/__1_0.distcp bs=1 seek=$((at + 14 + n)) conv=notrunc 2> /dev/null
ckpt verify rank-equal
echo "exit $?"
