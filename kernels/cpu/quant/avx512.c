/* avx512.c - block types with sixteen sub-blocks at a time; see lanes.h. The compiler must not contract
 * products, as nowhere else: the build says so. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/quant/quant.h"

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#define ALWAYS_INLINE __attribute__((always_inline))
enum { LANES = 16 };
typedef __m512 vf;
typedef __mmask16 vm;

TARGET static inline vf vf_set(float x) { return _mm512_set1_ps(x); }
TARGET static inline vf vf_load(const float *x) { return _mm512_loadu_ps(x); }
TARGET static inline void vf_store(float *x, vf v) { _mm512_storeu_ps(x, v); }
TARGET static inline vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
TARGET static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
TARGET static inline vf vf_sqrt(vf x) { return _mm512_sqrt_ps(x); }
TARGET static inline vf vf_abs(vf x) { return _mm512_abs_ps(x); }
TARGET static inline vf vf_negate(vf x) { return _mm512_xor_ps(_mm512_set1_ps(-0.0f), x); }
TARGET static inline vm vf_less(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
TARGET static inline vm vf_equal(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
TARGET static inline vf vf_select(vm mask, vf a, vf b) { return _mm512_mask_blend_ps(mask, b, a); }
TARGET static inline vm vm_none(void) { return 0; }
TARGET static inline vm vm_and(vm a, vm b) { return (vm)(a & b); }
TARGET static inline vm vm_or(vm a, vm b) { return (vm)(a | b); }
TARGET static inline vm vm_not(vm a) { return (vm)~a; }
TARGET static inline unsigned vm_bits(vm a) { return a; }

/* Of every four lanes: those of one half of a and b in turn, and the lower or upper two of a and of b. */
TARGET static inline vf vf_zip_low(vf a, vf b) { return _mm512_unpacklo_ps(a, b); }
TARGET static inline vf vf_zip_high(vf a, vf b) { return _mm512_unpackhi_ps(a, b); }
TARGET static inline vf vf_join_low(vf a, vf b) { return _mm512_shuffle_ps(a, b, 0x44); }
TARGET static inline vf vf_join_high(vf a, vf b) { return _mm512_shuffle_ps(a, b, 0xee); }

/* Four elements of rows 0, 4, 8 and 12. */
TARGET static inline vf vf_load_rows(const float *x, int n, const int *places) {
  __m512 rows = _mm512_castps128_ps512(_mm_loadu_ps(x + n * places[0]));
  rows = _mm512_insertf32x4(rows, _mm_loadu_ps(x + n * places[4]), 1);
  rows = _mm512_insertf32x4(rows, _mm_loadu_ps(x + n * places[8]), 2);
  return _mm512_insertf32x4(rows, _mm_loadu_ps(x + n * places[12]), 3);
}

#include "kernels/cpu/quant/lanes.h"
#include "kernels/cpu/quant/lanes_iq4.h"
#include "kernels/cpu/quant/lanes_symmetric.h"

LEGACY_TYPE(q4_0, ckpt_quant_avx512_q4_0)
LEGACY_TYPE(q4_1, ckpt_quant_avx512_q4_1)
LEGACY_TYPE(q5_0, ckpt_quant_avx512_q5_0)
LEGACY_TYPE(q5_1, ckpt_quant_avx512_q5_1)

const ckpt_quant_level ckpt_quant_avx512 = {
    .name = "avx512",
    .types = {[CKPT_IQ4_NL] = {.quantize = quantize_iq4_nl},
              [CKPT_IQ4_XS] = {.quantize = quantize_iq4_xs},
              [CKPT_Q2_K] = {.quantize = quantize_q2_k},
              [CKPT_Q3_K] = {.quantize = quantize_q3_k},
              [CKPT_Q4_K] = {.quantize = quantize_q4_k},
              [CKPT_Q5_K] = {.quantize = quantize_q5_k},
              [CKPT_Q6_K] = {.quantize = quantize_q6_k},
              [CKPT_Q4_0] = {.quantize = quantize_q4_0},
              [CKPT_Q4_1] = {.quantize = quantize_q4_1},
              [CKPT_Q5_0] = {.quantize = quantize_q5_0},
              [CKPT_Q5_1] = {.quantize = quantize_q5_1},
              [CKPT_Q8_0] = {.quantize = ckpt_quant_avx512_q8_0}},
};

#endif
