/* crc32.c - see crc32.h. Long inputs take carry-less multiplication of 64 bytes at once, as in V. Gopal et al., "Fast
 * CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009); everything else is libdeflate's.
 */
#include "libckpt/base/crc32.h"

#include <libdeflate.h>

#if defined(__x86_64__)
#include <immintrin.h>
#include <stdbool.h>

#define TARGET __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))

enum { STEP = 4 * 64, MIN_BYTES = 4 * STEP };

/* What takes 16 bytes over the n bits behind them: x^(n + 63) for the first 8, x^(n - 1) for the last 8, modulo the
 * polynomial, each with its 64 bits reversed. */
#define OVER(first, last) _mm_set_epi64x((long long)(last), (long long)(first))
#define OVER_2048 OVER(0x7cc8e1e700000000, 0x03f9f86300000000)
#define OVER_512 OVER(0x653d982200000000, 0xcad38e8f00000000)
#define OVER_128 OVER(0x65673b4600000000, 0x9ba54c6f00000000)

TARGET static inline __m512i fold(__m512i x, __m512i over, __m512i onto) {
  const __m512i first = _mm512_clmulepi64_epi128(x, over, 0x00), last = _mm512_clmulepi64_epi128(x, over, 0x11);
  return _mm512_ternarylogic_epi64(first, last, onto, 0x96); /* the exclusive or of three */
}

TARGET static inline __m128i fold_one(__m128i x, __m128i onto) {
  const __m128i first = _mm_clmulepi64_si128(x, OVER_128, 0x00), last = _mm_clmulepi64_si128(x, OVER_128, 0x11);
  return _mm_xor_si128(_mm_xor_si128(first, last), onto);
}

/* Whole steps, at least one, to 16 bytes that have their sum if nothing stood before them. */
TARGET static void fold_steps(uint8_t (*sum)[16], uint32_t crc, const uint8_t *bytes, size_t n_steps) {
  const __m512i over = _mm512_broadcast_i32x4(OVER_2048), beside = _mm512_broadcast_i32x4(OVER_512);
  const __m512i *at = (const __m512i *)bytes;
  __m512i a = _mm512_loadu_si512(at), b = _mm512_loadu_si512(at + 1), c = _mm512_loadu_si512(at + 2),
          d = _mm512_loadu_si512(at + 3);
  a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
  for (at += 4; --n_steps != 0; at += 4) {
    a = fold(a, over, _mm512_loadu_si512(at));
    b = fold(b, over, _mm512_loadu_si512(at + 1));
    c = fold(c, over, _mm512_loadu_si512(at + 2));
    d = fold(d, over, _mm512_loadu_si512(at + 3));
  }
  d = fold(fold(fold(a, beside, b), beside, c), beside, d);
  __m128i one = _mm512_castsi512_si128(d);
  one = fold_one(one, _mm512_extracti32x4_epi32(d, 1));
  one = fold_one(one, _mm512_extracti32x4_epi32(d, 2));
  one = fold_one(one, _mm512_extracti32x4_epi32(d, 3));
  _mm_storeu_si128((__m128i *)*sum, one);
}

static bool can_fold(void) { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"); }

uint32_t ckpt_crc32(uint32_t crc, const void *bytes, size_t n_bytes) {
  const uint8_t *at = bytes;
  if (n_bytes >= MIN_BYTES && can_fold()) {
    uint8_t sum[16];
    const size_t n_folded = n_bytes - n_bytes % STEP;
    fold_steps(&sum, crc, at, n_folded / STEP);
    crc = libdeflate_crc32(UINT32_MAX, sum, sizeof sum); /* UINT32_MAX: a state of zeros, of nothing before */
    at += n_folded;
    n_bytes -= n_folded;
  }
  return n_bytes == 0 ? crc : libdeflate_crc32(crc, at, n_bytes); /* which begins anew at NULL */
}
#else
uint32_t ckpt_crc32(uint32_t crc, const void *bytes, size_t n_bytes) {
  return n_bytes == 0 ? crc : libdeflate_crc32(crc, bytes, n_bytes); /* which begins anew at NULL */
}
#endif
