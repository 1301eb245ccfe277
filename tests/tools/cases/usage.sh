# Every kind of wrong usage: exit 2, what is wrong, and what would be right.
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1
  echo "exit $?"
}
try
try --version extra
try --version --json extra
try convert a -o b --tied untie
try lst
try frobnicate
try merge base --adapter x
try help mrege
try help --man --markdown
try --help mrege
try help merge
try ls
try ls a b
try ls --mtach x p
try ls a --adapter x
try ls --include modle p
try ls a --progress sometimes
try convert a
try convert a -o
try convert a -o b --dtype bf61
try convert a -o b --dtype 'x*='
try convert a -o b --to megatron
try convert a -o b --to ggfu
try convert a -o b --memory 12Q
try convert a -o b --memory 0
try convert a -o b --threads two
try convert a -o b --force=1
try convert a -o b --opset 3
try convert a -o b --force --receipt
try split a -o b
try diff a
try diff a b --atol=-1
try diff --weights master a b
try ls a --memory 1M --memory 2M
try "$(printf 'a\033[2Jb')"
try convert a b
try convert '' -o x
try LS a
try --vers
try ls --JSON a
try convert a -o b --dtype bf17
try convert a -o b --dtype =bf16
ln -s "$DATA/llama-tiny" in
try convert in -o none --to dcp --zstd 23
# What belongs together, and what belongs to other verbs.
try ls in --weights model --weights master
try ls in --tied untie
try hash in --allow-noop
try convert in -o none --combine cat --allow-partial
try ls in --exclude x
try ls in -t Q8_0
try ppl in -f text --ctx 0
try ppl in -f text --chunks 1K
# Two that belong to one model, with a reference between them.
try ppl --like in --against in --like in in --like in -f text
try ppl in -f text --names stored --against in --names stored --weights model --weights master
# A size of shards that no output is cut by.
try convert in -o none --to dcp --shard-size 100K
try convert in -o none.pt --shard-size 100K
