#!/usr/bin/env bash
# Runs the programs of docs/examples on a real checkpoint, against an installed copy and nothing of the source tree: a
# program that nobody runs is wrong within a year.
#
#   examples.sh c | python BUILD SOURCE CMAKE CC        exit 77: skipped, this machine lacks Python or numpy
set -euo pipefail
which=$1 build=$2 source=$3 cmake=$4 cc=$5
model=$source/tests/data/llama-tiny
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

quietly() { "$@" > "$root/log" 2>&1 || { cat "$root/log"; echo "failed: $*"; exit 1; }; }

# Where the library went below the prefix depends on the system.
quietly "$cmake" --install "$build" --prefix "$root/usr"
lib=$(dirname "$(find "$root/usr" -name 'libckpt.so.0')")
export LD_LIBRARY_PATH=$lib PKG_CONFIG_PATH=$lib/pkgconfig

if [ "$which" = c ]; then
  cp "$source/docs/examples/list.c" "$root"
  # shellcheck disable=SC2046
  "$cc" -std=c17 -Wall -Wextra -Werror -Wpedantic "$root/list.c" -o "$root/list" $(pkg-config --cflags --libs libckpt)
  cp "$source/tests/install/package/CMakeLists.txt" "$source/tests/install/consumer.c" "$root"
  quietly "$cmake" -S "$root" -B "$root/package" -DCMAKE_PREFIX_PATH="$root/usr" -DCMAKE_C_COMPILER="$cc"
  quietly "$cmake" --build "$root/package"
  "$root/package/consumer"
  for list in "$root/list" "$root/package/list"; do
    "$list" "$model" model.norm.weight | diff "$source/tests/install/list.stdout" -
    "$list" "$model" none | grep -qx 'no tensor is called none'
    if "$list" "$source/tests/data" none 2> /dev/null; then echo "$list: exit 0 for what is no checkpoint" && exit 1; fi
  done
else
  for python in "${CKPT_PYTHON:-python3}" /usr/bin/python3 none; do
    if "$python" -c 'import numpy' 2> /dev/null; then break; fi
  done
  if [ "$python" = none ]; then
    echo "SKIPPED: docs/examples/ckpt.py needs a Python with numpy (apt-get install python3-numpy, or CKPT_PYTHON)"
    exit 77
  fi
  mkdir "$root/python"
  cp "$source/docs/examples/ckpt.py" "$root/python"
  unset CKPT_LIBRARY # the loader finds the installed one by its SONAME
  PYTHONPATH=$root/python "$python" -B "$source/tests/install/ckpt_py.py" "$source/tests/data"
fi
