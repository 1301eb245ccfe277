/* quant_avx2.c - levels for block types; see kernels/cpu/quant.h. */
#if defined(__x86_64__)
#include "kernels/cpu/quant.h"

const ckpt_quant_level ckpt_quant_avx2 = {.name = "avx2"};
const ckpt_quant_level ckpt_quant_avx512 = {.name = "avx512"};
#endif
