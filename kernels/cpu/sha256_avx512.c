/* sha256_avx512.c - eight SHA-256 (FIPS 180-4) beside each other: lane i of every vector is of message i. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "sha256.h"

#define TARGET __attribute__((target("avx512f,avx512vl,avx2")))

enum { XOR3 = 0x96, CHOOSE = 0xCA, MAJORITY = 0xE8 }; /* functions of three bits, as truth tables */

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static const uint32_t first_state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

TARGET static inline __m256i add(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }

/* Row i becomes column i. */
TARGET static inline void transpose(__m256i rows[8]) {
  __m256i pairs[8], fours[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    fours[i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
  for (int i = 0; i < 4; i++) {
    rows[i] = _mm256_permute2x128_si256(fours[i], fours[4 + i], 0x20);
    rows[4 + i] = _mm256_permute2x128_si256(fours[i], fours[4 + i], 0x31);
  }
}

/* Within each word, the last byte comes first. */
TARGET static inline __m256i swap_bytes(__m256i x) {
  const __m256i order = _mm256_broadcastsi128_si256(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
  return _mm256_shuffle_epi8(x, order);
}

/* The 16 words of a block, of each message. */
TARGET static inline void load(__m256i words[16], const uint8_t *const messages[CKPT_SHA256_LANES], size_t at) {
  for (int half = 0; half < 16; half += 8) {
    for (int lane = 0; lane < 8; lane++)
      words[half + lane] = swap_bytes(_mm256_loadu_si256((const __m256i *)(messages[lane] + at) + half / 8));
    transpose(words + half);
  }
}

/* The word that replaces the one of 16 steps ago. */
TARGET static inline __m256i next_word(const __m256i words[16], int i) {
  const __m256i a = words[(i + 1) & 15], b = words[(i + 14) & 15];
  const __m256i small0 =
      _mm256_ternarylogic_epi32(_mm256_ror_epi32(a, 7), _mm256_ror_epi32(a, 18), _mm256_srli_epi32(a, 3), XOR3);
  const __m256i small1 =
      _mm256_ternarylogic_epi32(_mm256_ror_epi32(b, 17), _mm256_ror_epi32(b, 19), _mm256_srli_epi32(b, 10), XOR3);
  return add(add(words[i & 15], small0), add(words[(i + 9) & 15], small1));
}

/* One step; a to h are the standard's, in s from place -i on, so that nothing is moved. */
TARGET static inline void step(__m256i s[8], __m256i word, int i) {
  __m256i *const d = &s[(3 - i) & 7], *const h = &s[(7 - i) & 7];
  const __m256i a = s[-i & 7], b = s[(1 - i) & 7], c = s[(2 - i) & 7];
  const __m256i e = s[(4 - i) & 7], f = s[(5 - i) & 7], g = s[(6 - i) & 7];
  const __m256i big0 =
      _mm256_ternarylogic_epi32(_mm256_ror_epi32(a, 2), _mm256_ror_epi32(a, 13), _mm256_ror_epi32(a, 22), XOR3);
  const __m256i big1 =
      _mm256_ternarylogic_epi32(_mm256_ror_epi32(e, 6), _mm256_ror_epi32(e, 11), _mm256_ror_epi32(e, 25), XOR3);
  const __m256i sum = add(add(*h, add(word, _mm256_set1_epi32((int)constants[i]))),
                          add(big1, _mm256_ternarylogic_epi32(e, f, g, CHOOSE)));
  *d = add(*d, sum);
  *h = add(sum, add(big0, _mm256_ternarylogic_epi32(a, b, c, MAJORITY)));
}

TARGET static inline void take_block(__m256i state[8], __m256i words[16]) {
  __m256i s[8];
  for (int i = 0; i < 8; i++) s[i] = state[i];
#pragma GCC unroll 64
  for (int i = 0; i < 64; i++) {
    if (i >= 16) words[i & 15] = next_word(words, i);
    step(s, words[i & 15], i);
  }
  for (int i = 0; i < 8; i++) state[i] = add(state[i], s[i]);
}

TARGET void ckpt_sha256_avx512(const uint8_t *const messages[CKPT_SHA256_LANES], size_t n_bytes,
                               uint8_t digests[CKPT_SHA256_LANES][32]) {
  __m256i state[8], words[16];
  for (int i = 0; i < 8; i++) state[i] = _mm256_set1_epi32((int)first_state[i]);
  for (size_t at = 0; at < n_bytes; at += 64) {
    load(words, messages, at);
    take_block(state, words);
  }
  const uint64_t n_bits = (uint64_t)n_bytes * 8;
  for (int i = 0; i < 16; i++) words[i] = _mm256_setzero_si256();
  words[0] = _mm256_set1_epi32((int)0x80000000);
  words[14] = _mm256_set1_epi32((int)(uint32_t)(n_bits >> 32));
  words[15] = _mm256_set1_epi32((int)(uint32_t)n_bits);
  take_block(state, words);
  transpose(state);
  for (int lane = 0; lane < 8; lane++) _mm256_storeu_si256((__m256i *)digests[lane], swap_bytes(state[lane]));
}
#endif
