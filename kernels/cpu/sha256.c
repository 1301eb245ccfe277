/* sha256.c - which leaves are hashed in lanes. */
#include "sha256.h"

#include <string.h>

#include "libckpt/digest.h"

/* With fewer leaves OpenSSL, one after the other, is as fast. */
enum { FEWEST = 5 };

size_t ckpt_sha256_leaves(const uint8_t *const *leaves, size_t n, uint8_t (*digests)[32]) {
  size_t n_done = 0;
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512vl")) return 0;
  while (n - n_done >= FEWEST) {
    const size_t n_now = n - n_done < CKPT_SHA256_LANES ? n - n_done : CKPT_SHA256_LANES;
    const uint8_t *messages[CKPT_SHA256_LANES];
    uint8_t results[CKPT_SHA256_LANES][32];
    for (size_t lane = 0; lane < CKPT_SHA256_LANES; lane++) /* those too many hash the last once more */
      messages[lane] = leaves[n_done + (lane < n_now ? lane : n_now - 1)];
    ckpt_sha256_avx512(messages, CKPT_LEAF_BYTES, results);
    memcpy(digests + n_done, results, n_now * sizeof *results);
    n_done += n_now;
  }
#else
  (void)leaves, (void)n, (void)digests;
#endif
  return n_done;
}
