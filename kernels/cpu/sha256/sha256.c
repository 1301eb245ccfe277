/* sha256.c - which leaves are hashed in lanes. */
#include "kernels/cpu/sha256/sha256.h"

#include <string.h>

#include "libckpt/base/digest.h"

/* With fewer leaves OpenSSL, one after the other, is as fast as eight lanes; with fewer, those and OpenSSL are as fast
 * as sixteen. */
enum { FEWEST_OF_8 = 5, FEWEST_OF_16 = 11, MOST = 16 };

size_t ckpt_sha256_leaves(const uint8_t *const *leaves, size_t n, uint8_t (*digests)[32]) {
  size_t n_done = 0;
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512bw"))
    return 0;
  while (n - n_done >= FEWEST_OF_8) {
    const size_t n_left = n - n_done, n_lanes = n_left < FEWEST_OF_16 ? 8 : 16,
                 n_now = n_left < n_lanes ? n_left : n_lanes;
    const uint8_t *messages[MOST];
    uint8_t results[MOST][32];
    for (size_t lane = 0; lane < n_lanes; lane++) /* those too many hash the last once more */
      messages[lane] = leaves[n_done + (lane < n_now ? lane : n_now - 1)];
    (n_lanes == 8 ? ckpt_sha256_x8 : ckpt_sha256_x16)(messages, CKPT_LEAF_BYTES, results);
    memcpy(digests + n_done, results, n_now * sizeof *results);
    n_done += n_now;
  }
#else
  (void)leaves, (void)n, (void)digests;
#endif
  return n_done;
}
