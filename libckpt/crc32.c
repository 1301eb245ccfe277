/* crc32.c - see crc32.h.
 *
 * Carry-less multiplication by powers of x modulo the polynomial carries 16 bytes over those that follow: four such
 * strips are folded beside each other, 64 bytes at a time, then into one, which Barrett's reduction brings to 32 bits
 * (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009; bits are
 * reflected, so constants are those of its last table). zlib takes what is short, and all of it elsewhere. */
#include "crc32.h"

#include <zlib.h>

#if defined(__x86_64__)
#include <immintrin.h>

enum { STRIP = 16, BLOCK = 4 * STRIP };
#define TARGET __attribute__((target("pclmul,sse4.1")))

static TARGET __m128i load(const uint8_t *at) { return _mm_loadu_si128((const __m128i *)(const void *)at); }

/* A strip carried over the distance that `by` stands for, and what stands there. */
static TARGET __m128i fold(__m128i strip, __m128i by, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(strip, by, 0x00), high = _mm_clmulepi64_si128(strip, by, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

static TARGET uint32_t reduce(__m128i strip) {
  const __m128i by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0), by_8 = _mm_set_epi64x(0, 0x0163cd6124);
  const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641), low = _mm_setr_epi32(-1, 0, -1, 0);
  __m128i x = _mm_xor_si128(_mm_srli_si128(strip, 8), _mm_clmulepi64_si128(strip, by_16, 0x10));
  x = _mm_xor_si128(_mm_srli_si128(x, 4), _mm_clmulepi64_si128(_mm_and_si128(x, low), by_8, 0x00));
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(x, low), barrett, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low), barrett, 0x00);
  return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x, quotient), 1);
}

/* n_bytes: a multiple of 16, 64 at least. The register is that inside of CRC-32, whose bits are turned around. */
static TARGET uint32_t multiply(uint32_t reg, const uint8_t *bytes, size_t n_bytes) {
  const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4), by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
  __m128i a = _mm_xor_si128(load(bytes), _mm_cvtsi32_si128((int)reg)), b = load(bytes + STRIP);
  __m128i c = load(bytes + 2 * STRIP), d = load(bytes + 3 * STRIP);
  size_t at = BLOCK;
  for (; at + BLOCK <= n_bytes; at += BLOCK) {
    a = fold(a, by_64, load(bytes + at));
    b = fold(b, by_64, load(bytes + at + STRIP));
    c = fold(c, by_64, load(bytes + at + 2 * STRIP));
    d = fold(d, by_64, load(bytes + at + 3 * STRIP));
  }
  a = fold(fold(fold(a, by_16, b), by_16, c), by_16, d);
  for (; at + STRIP <= n_bytes; at += STRIP) a = fold(a, by_16, load(bytes + at));
  return reduce(a);
}
#endif

uint32_t ckpt_crc32(uint32_t crc, const void *bytes, size_t n_bytes) {
#if defined(__x86_64__)
  const size_t n_strips = n_bytes & ~(size_t)(STRIP - 1);
  if (n_strips >= BLOCK && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
    crc = ~multiply(~crc, bytes, n_strips);
    if (n_strips == n_bytes) return crc;
    bytes = (const uint8_t *)bytes + n_strips;
    n_bytes -= n_strips;
  }
#endif
  return n_bytes == 0 ? crc : (uint32_t)crc32_z(crc, bytes, n_bytes);
}
