#!/bin/bash
# quant_against_ggml.sh - our quantizers beside ggml's own C. Usage, from the root of the repository:
#
#   CKPT_GGML=<llama.cpp>/ggml tests/kernels/quant/quant_against_ggml.sh > tests/data/quant.tsv   compares, prints the goldens
#   CKPT_GGML=... tests/kernels/quant/quant_against_ggml.sh control                              shows that it can fail
#
# ggml-quants.c is built without contraction of a * b + c, as the bytes that we promise are defined. The control builds
# it with contraction, and our own search with one divisor an ulp off: both have to be noticed.
set -euo pipefail
: "${CKPT_GGML:?the ggml folder of llama.cpp, of the version that libckpt/base/dtype.def names}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
flags=(-O2 -std=gnu17 -D_GNU_SOURCE -w -I. -Ikernels/ref -Itests/kernels "-I$CKPT_GGML/include" "-I$CKPT_GGML/src")

build() { # program, flags of theirs, our search
  "${CC:-cc}" "${flags[@]}" -DNDEBUG $2 -c "$CKPT_GGML/src/ggml-quants.c" -o "$folder/theirs.o"
  "${CC:-cc}" "${flags[@]}" -ffp-contract=off tests/kernels/quant/quant_against_ggml.c "$3" libckpt/base/dtype.c "$folder/theirs.o" \
    $(ls kernels/ref/quant/*.c | grep -v search) -o "$folder/$1" -lcrypto -lm
}

if [ "${1:-}" = control ]; then
  build contracted "-mavx2 -mfma -ffp-contract=fast" kernels/ref/quant/search.c
  sed 's|/ determinant;|/ nextafterf(determinant, 0);|' kernels/ref/quant/search.c > "$folder/quant_search.c"
  build off_by_an_ulp "-ffp-contract=off" "$folder/quant_search.c"
  for program in contracted off_by_an_ulp; do
    if "$folder/$program" > /dev/null 2> "$folder/log"; then echo "$program: not noticed" >&2 && exit 1; fi
    echo "$program: $(tail -n 1 "$folder/log")"
  done
else
  build program "-ffp-contract=off" kernels/ref/quant/search.c
  sed -n 's/.*\(ggml [0-9.]* \)(\(commit [0-9a-f]*\) .*/# \1\2: type, importance, SHA-256 of blocks and values/p' libckpt/base/dtype.def
  "$folder/program"
fi
