/* avx512.c - eight and sixteen SHA-256 beside each other, in vectors of 32 and of 64 bytes (lanes.h). */
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/sha256/sha256.h"

#define TARGET __attribute__((target("avx512f,avx512vl,avx512bw,avx2")))

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

/* Within each word, the last byte comes first. */
#define BYTE_ORDER_OF_WORDS _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3)

TARGET static inline __m256i load_row_x8(const uint8_t *const *message, size_t at) {
  return _mm256_loadu_si256((const __m256i *)(*message + at));
}
TARGET static inline void store_row_x8(uint8_t (*digest)[32], __m256i row) {
  _mm256_storeu_si256((__m256i *)*digest, row);
}
TARGET static inline __m256i join_low_x8(__m256i a, __m256i b) { return _mm256_permute2x128_si256(a, b, 0x20); }
TARGET static inline __m256i join_high_x8(__m256i a, __m256i b) { return _mm256_permute2x128_si256(a, b, 0x31); }
TARGET static inline __m256i swap_bytes_x8(__m256i x) {
  return _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(BYTE_ORDER_OF_WORDS));
}

/* A row of sixteen is one of the first eight messages, then the one eight places behind it. */
TARGET static inline __m512i load_row_x16(const uint8_t *const *message, size_t at) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(load_row_x8(message, at)), load_row_x8(message + 8, at), 1);
}
TARGET static inline void store_row_x16(uint8_t (*digest)[32], __m512i row) {
  store_row_x8(digest, _mm512_castsi512_si256(row));
  store_row_x8(digest + 8, _mm512_extracti64x4_epi64(row, 1));
}
TARGET static inline __m512i join_low_x16(__m512i a, __m512i b) {
  return _mm512_permutex2var_epi64(a, _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13), b);
}
TARGET static inline __m512i join_high_x16(__m512i a, __m512i b) {
  return _mm512_permutex2var_epi64(a, _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15), b);
}
TARGET static inline __m512i swap_bytes_x16(__m512i x) {
  return _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(BYTE_ORDER_OF_WORDS));
}

#define LANES 8
#define NAME(name) name##_x8
#define V(name) _mm256_##name
typedef __m256i vi8;
#define vi vi8
#include "kernels/cpu/sha256/lanes.h"
#undef LANES
#undef NAME
#undef V
#undef vi

#define LANES 16
#define NAME(name) name##_x16
#define V(name) _mm512_##name
typedef __m512i vi16;
#define vi vi16
#include "kernels/cpu/sha256/lanes.h"
#endif
