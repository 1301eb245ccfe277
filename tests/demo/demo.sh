# shellcheck shell=bash
# The commands of `./dev demo`; frame.sh defines say, run and $data. Each feature adds its lines here.

say 'what is in a checkpoint?'
run "ckpt inspect $data/llama-tiny"
run "ckpt ls $data/llama-tiny"
