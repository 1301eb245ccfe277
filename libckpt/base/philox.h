/* philox.h - random words by counter: Philox4x32-10 (Salmon and others, SC 2011). The same key and counter always give
 * the same four words. So there is no state, and a word does not depend on who makes it. Static, for the file that
 * includes it; a compiler for devices has CKPT_DEVICE defined before. */
#ifndef CKPT_BASE_PHILOX_H
#define CKPT_BASE_PHILOX_H

#include <stddef.h>
#include <stdint.h>

#ifndef CKPT_DEVICE
#define CKPT_DEVICE
#endif
#ifndef CKPT_RESTRICT
#define CKPT_RESTRICT __restrict__
#endif

/* One round of n counters: c[w * n + i] is word w of counter i. */
static inline CKPT_DEVICE void philox_round(uint32_t *CKPT_RESTRICT c, size_t n, uint32_t k0, uint32_t k1) {
  uint32_t *CKPT_RESTRICT c0 = c, *CKPT_RESTRICT c1 = c + n, *CKPT_RESTRICT c2 = c + 2 * n,
                          *CKPT_RESTRICT c3 = c + 3 * n;
  for (size_t i = 0; i < n; i++) {
    const uint64_t a = (uint64_t)0xD2511F53u * c0[i], b = (uint64_t)0xCD9E8D57u * c2[i];
    c0[i] = (uint32_t)(b >> 32) ^ c1[i] ^ k0;
    c2[i] = (uint32_t)(a >> 32) ^ c3[i] ^ k1;
    c1[i] = (uint32_t)b;
    c3[i] = (uint32_t)a;
  }
}

/* Counters become words, in place; their layout is that of philox_round. */
static inline CKPT_DEVICE void philox(uint32_t *c, size_t n, uint64_t key) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  for (int i = 0; i < 10; i++) {
    philox_round(c, n, k0, k1);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

#endif
