#!/bin/bash
# quant.sh - weights per second of the quantizers on one core, in millions, beside ggml's own C at -O3; at the end the
# f32 that the highest level takes or gives, in GB per second, which is the bar of types with one scale.
#
#   CKPT_GGML=<llama.cpp>/ggml bench/quant.sh [TYPE]...     from the root of the repository
#   CKPT_GGML=... bench/quant.sh Q4_0 Q4_1 Q5_0 Q5_1 Q8_0
set -euo pipefail
: "${CKPT_GGML:?the ggml folder of llama.cpp, of the version that libckpt/base/dtype.def names}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
flags=(-O3 -std=gnu17 -D_GNU_SOURCE -w -DNDEBUG -ffp-contract=off -I. "-I$CKPT_GGML/include" "-I$CKPT_GGML/src")
"${CC:-cc}" "${flags[@]}" bench/quant.c kernels/ref/quant*.c kernels/cpu/quant*.c libckpt/base/dtype.c \
  "$CKPT_GGML/src/ggml-quants.c" -o "$folder/bench" -lm
echo "| type | job | ggml | reference | x | avx2 | x | avx512 | x | GB/s of f32 |"
echo "|---|---|---|---|---|---|---|---|---|---|"
taskset -c "${CPU:-1}" "$folder/bench" "$@"
