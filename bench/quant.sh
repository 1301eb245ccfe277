#!/bin/bash
# quant.sh - weights per second of the quantizers on one core, in millions, beside ggml's own C at -O3.
#
#   CKPT_GGML=<llama.cpp>/ggml bench/quant.sh [TYPE]     from the root of the repository
set -euo pipefail
: "${CKPT_GGML:?the ggml folder of llama.cpp, of the version that libckpt/dtype.def names}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
flags=(-O3 -std=gnu17 -D_GNU_SOURCE -w -DNDEBUG -ffp-contract=off -I. "-I$CKPT_GGML/include" "-I$CKPT_GGML/src")
"${CC:-cc}" "${flags[@]}" bench/quant.c kernels/ref/quant*.c kernels/cpu/quant*.c libckpt/dtype.c \
  "$CKPT_GGML/src/ggml-quants.c" -o "$folder/bench" -lm
echo "| type | job | ggml | reference | x | avx2 | x | avx512 | x |"
echo "|---|---|---|---|---|---|---|---|---|"
taskset -c "${CPU:-1}" "$folder/bench" "$@"
