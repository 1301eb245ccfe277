/* avx2.c - block types with eight sub-blocks at a time; see lanes.h. FMA is not among the instructions: a
 * contracted product would be another result. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/quant/quant.h"

#define TARGET __attribute__((target("avx2")))
#define ALWAYS_INLINE __attribute__((always_inline))
enum { LANES = 8 };
typedef __m256 vf, vm;

TARGET static inline vf vf_set(float x) { return _mm256_set1_ps(x); }
TARGET static inline vf vf_load(const float *x) { return _mm256_loadu_ps(x); }
TARGET static inline void vf_store(float *x, vf v) { _mm256_storeu_ps(x, v); }
TARGET static inline vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
TARGET static inline vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
TARGET static inline vf vf_sqrt(vf x) { return _mm256_sqrt_ps(x); }
TARGET static inline vf vf_abs(vf x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
TARGET static inline vf vf_negate(vf x) { return _mm256_xor_ps(_mm256_set1_ps(-0.0f), x); }
TARGET static inline vm vf_less(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
TARGET static inline vm vf_equal(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
TARGET static inline vf vf_select(vm mask, vf a, vf b) { return _mm256_blendv_ps(b, a, mask); }
TARGET static inline vm vm_none(void) { return _mm256_setzero_ps(); }
TARGET static inline vm vm_and(vm a, vm b) { return _mm256_and_ps(a, b); }
TARGET static inline vm vm_or(vm a, vm b) { return _mm256_or_ps(a, b); }
TARGET static inline vm vm_not(vm a) { return _mm256_xor_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(-1))); }
TARGET static inline unsigned vm_bits(vm a) { return (unsigned)_mm256_movemask_ps(a); }

/* Of every four lanes: those of one half of a and b in turn, and the lower or upper two of a and of b. */
TARGET static inline vf vf_zip_low(vf a, vf b) { return _mm256_unpacklo_ps(a, b); }
TARGET static inline vf vf_zip_high(vf a, vf b) { return _mm256_unpackhi_ps(a, b); }
TARGET static inline vf vf_join_low(vf a, vf b) { return _mm256_shuffle_ps(a, b, 0x44); }
TARGET static inline vf vf_join_high(vf a, vf b) { return _mm256_shuffle_ps(a, b, 0xee); }

/* Four elements of rows 0 and 4. */
TARGET static inline vf vf_load_rows(const float *x, int n, const int *places) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(x + n * places[0])), _mm_loadu_ps(x + n * places[4]),
                              1);
}

#include "kernels/cpu/quant/lanes.h"
#include "kernels/cpu/quant/lanes_iq4.h"
#include "kernels/cpu/quant/lanes_symmetric.h"

LEGACY_TYPE(q4_0, ckpt_quant_avx2_q4_0)
LEGACY_TYPE(q4_1, ckpt_quant_avx2_q4_1)
LEGACY_TYPE(q5_0, ckpt_quant_avx2_q5_0)
LEGACY_TYPE(q5_1, ckpt_quant_avx2_q5_1)

const ckpt_quant_level ckpt_quant_avx2 = {
    .name = "avx2",
    .types = {[CKPT_IQ2_S] = {.quantize = ckpt_quant_avx2_iq2_s, .dequantize = ckpt_dequant_avx2_iq2_s},
              [CKPT_IQ3_XXS] = {.quantize = ckpt_quant_avx2_iq3_xxs, .dequantize = ckpt_dequant_avx2_iq3_xxs},
              [CKPT_IQ3_S] = {.quantize = ckpt_quant_avx2_iq3_s, .dequantize = ckpt_dequant_avx2_iq3_s},
              [CKPT_IQ1_S] = {.quantize = ckpt_quant_avx2_iq1_s, .dequantize = ckpt_dequant_avx2_iq1_s},
              [CKPT_IQ1_M] = {.quantize = ckpt_quant_avx2_iq1_m, .dequantize = ckpt_dequant_avx2_iq1_m},
              [CKPT_IQ2_XXS] = {.quantize = ckpt_quant_avx2_iq2_xxs, .dequantize = ckpt_dequant_avx2_iq2_xxs},
              [CKPT_IQ2_XS] = {.quantize = ckpt_quant_avx2_iq2_xs, .dequantize = ckpt_dequant_avx2_iq2_xs},
              [CKPT_IQ4_NL] = {.quantize = quantize_iq4_nl, .dequantize = ckpt_dequant_avx2_iq4_nl},
              [CKPT_IQ4_XS] = {.quantize = quantize_iq4_xs, .dequantize = ckpt_dequant_avx2_iq4_xs},
              [CKPT_Q4_0] = {.quantize = quantize_q4_0, .dequantize = ckpt_dequant_avx2_q4_0},
              [CKPT_Q4_1] = {.quantize = quantize_q4_1, .dequantize = ckpt_dequant_avx2_q4_1},
              [CKPT_Q5_0] = {.quantize = quantize_q5_0, .dequantize = ckpt_dequant_avx2_q5_0},
              [CKPT_Q5_1] = {.quantize = quantize_q5_1, .dequantize = ckpt_dequant_avx2_q5_1},
              [CKPT_Q8_0] = {.quantize = ckpt_quant_avx2_q8_0, .dequantize = ckpt_dequant_avx2_q8_0},
              [CKPT_Q2_K] = {.quantize = quantize_q2_k, .dequantize = ckpt_dequant_avx2_q2_k},
              [CKPT_Q3_K] = {.quantize = quantize_q3_k, .dequantize = ckpt_dequant_avx2_q3_k},
              [CKPT_Q4_K] = {.quantize = quantize_q4_k, .dequantize = ckpt_dequant_avx2_q4_k},
              [CKPT_Q5_K] = {.quantize = quantize_q5_k, .dequantize = ckpt_dequant_avx2_q5_k},
              [CKPT_Q6_K] = {.quantize = quantize_q6_k, .dequantize = ckpt_dequant_avx2_q6_k},
              [CKPT_MXFP4] = {.dequantize = ckpt_dequant_avx2_mxfp4},
              [CKPT_Q1_0] = {.dequantize = ckpt_dequant_avx2_q1_0},
              [CKPT_Q2_0] = {.dequantize = ckpt_dequant_avx2_q2_0},
              [CKPT_TQ1_0] = {.dequantize = ckpt_dequant_avx2_tq1_0},
              [CKPT_TQ2_0] = {.dequantize = ckpt_dequant_avx2_tq2_0}},
};

#endif
