#!/usr/bin/env bash
# Runs the programs of docs/examples on a real checkpoint: a program that nobody runs is wrong within a year.
#
#   examples.sh c | python BUILD SOURCE CC        exit 77: skipped, this machine lacks Python or numpy
set -euo pipefail
which=$1 build=$2 source=$3 cc=$4
model=$source/tests/data/llama-tiny
export LD_LIBRARY_PATH=$build

if [ "$which" = c ]; then
  program=$(mktemp -d)/list
  trap 'rm -rf "$(dirname "$program")"' EXIT
  "$cc" -std=c17 -Wall -Wextra -Werror -Wpedantic -I"$source/libckpt" "$source/docs/examples/list.c" -o "$program" \
    -L"$build" -lckpt
  "$program" "$model" model.norm.weight | diff "$source/tests/install/list.stdout" -
  "$program" "$model" none | grep -qx 'no tensor is called none'
  if "$program" "$source/tests/data" none 2> /dev/null; then echo "list: exit 0 for what is no checkpoint" && exit 1; fi
else
  for python in "${CKPT_PYTHON:-python3}" /usr/bin/python3 none; do
    if "$python" -c 'import numpy' 2> /dev/null; then break; fi
  done
  if [ "$python" = none ]; then
    echo "SKIPPED: docs/examples/ckpt.py needs a Python with numpy (apt-get install python3-numpy, or CKPT_PYTHON)"
    exit 77
  fi
  PYTHONPATH=$source/docs/examples CKPT_LIBRARY=$build/libckpt.so "$python" -B "$source/tests/install/ckpt_py.py" \
    "$source/tests/data"
fi
