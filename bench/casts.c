/* casts.c - GB/s of source bytes per core for each cast kernel, per level of the processor, from tiles in L2.
 *
 *   casts [seconds per pair]     best of as many tiles as fit the time; tile of 256 KiB of source */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cpu/cast/cast.h"
#include "libckpt/base/dtype.h"

#define TILE (256 << 10)

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double rate(const ckpt_convert_level *level, ckpt_dtype dst, void *to, ckpt_dtype src, const void *from,
                   double seconds) {
  size_t n = TILE / ckpt_dtype_get(src)->block_bytes;
  ckpt_cast_stats stats = {0};
  double best = 1e9, start = now();
  for (double t = start; t < start + seconds;) {
    ckpt_convert_cast(level, dst, to, src, from, n, &stats);
    double end = now();
    if (end - t < best) best = end - t;
    t = end;
  }
  return TILE / best / 1e9;
}

/* Values like weights: normal numbers of magnitude 2^-12 to 1, none of which overflows any target. */
static void fill(ckpt_dtype src, void *from) {
  static float weights[TILE / 4];
  ckpt_cast_stats stats = {0};
  uint32_t seed = 1;
  for (size_t i = 0; i < TILE / 4; i++) {
    seed = seed * 1664525 + 1013904223;
    uint32_t bits = (seed & 0x807fffff) | (115 + (seed >> 25) % 12) << 23;
    memcpy(&weights[i], &bits, 4);
  }
  size_t n = TILE / ckpt_dtype_get(src)->block_bytes;
  for (size_t done = 0; done < n; done += TILE / 4)
    ckpt_backend_reference.cast(src, (char *)from + done * ckpt_dtype_get(src)->block_bytes, CKPT_F32, weights,
                                n - done < TILE / 4 ? n - done : TILE / 4, &stats);
}

int main(int argc, char **argv) {
  static const ckpt_dtype pairs[][2] = {
      {CKPT_F32, CKPT_BF16},     {CKPT_F32, CKPT_F16},     {CKPT_BF16, CKPT_F32},     {CKPT_F16, CKPT_F32},
      {CKPT_F16, CKPT_BF16},     {CKPT_BF16, CKPT_F16},    {CKPT_F32, CKPT_F8_E4M3},  {CKPT_F32, CKPT_F8_E5M2},
      {CKPT_BF16, CKPT_F8_E4M3}, {CKPT_F8_E4M3, CKPT_F32}, {CKPT_F8_E4M3, CKPT_BF16}, {CKPT_F64, CKPT_F32},
      {CKPT_F32, CKPT_F64},      {CKPT_F64, CKPT_BF16},    {CKPT_F32, CKPT_F4_E2M1},  {CKPT_F32, CKPT_F8_E8M0},
  };
  double seconds = argc > 1 ? strtod(argv[1], NULL) : 0.1;
  void *from = malloc(TILE), *to = malloc(TILE * 8);
  if (!from || !to) return 1;
  memset(to, 0, TILE * 8);
  for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
    ckpt_dtype src = pairs[p][0], dst = pairs[p][1];
    fill(src, from);
    printf("%-8s -> %-8s GB/s", ckpt_dtype_name(src), ckpt_dtype_name(dst));
    const ckpt_convert_level *level;
    for (size_t i = 0; (level = ckpt_convert_level_at(i)); i++)
      printf("  %s %.2f", level->name, rate(level, dst, to, src, from, seconds));
    printf("\n");
  }
  free(from);
  free(to);
  return 0;
}
