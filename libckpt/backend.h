/* backend.h - the kernels a run may use: a const row, given in the run options.
 *
 * An empty slot means the reference one (kernels/ref, declared extern as ckpt_backend_reference). All slots work on
 * packed buffers in host memory, are pure, and may be called from many threads at once. */
#ifndef CKPT_BACKEND_H
#define CKPT_BACKEND_H

#include "ckpt.h"

/* What a cast did to finite values: kept per tile, merged by addition and max. */
typedef struct ckpt_cast_stats {
  uint64_t n_overflow; /* finite sources that became infinite or were clamped to the largest value */
  double largest;      /* largest magnitude among those */
  uint64_t n_nan_lost; /* NaN sources that the target cannot hold (f8_e8m0 can, f4 and f6 cannot) */
} ckpt_cast_stats;

/* Adds what happened in another part of the same values. */
static inline void ckpt_cast_stats_add(ckpt_cast_stats *into, const ckpt_cast_stats *from) {
  into->n_overflow += from->n_overflow;
  into->n_nan_lost += from->n_nan_lost;
  if (from->largest > into->largest) into->largest = from->largest;
}

struct ckpt_backend {
  const char *name;
  /* Whether src can be cast to dst. */
  bool (*can_cast)(ckpt_dtype src, ckpt_dtype dst);
  /* n_elements (whole blocks of both dtypes) from src to dst; buffers do not overlap. Rounds once, to nearest even.
   * Infinity goes to infinity where dst has one, else to NaN where it has that, else it is clamped; finite values past
   * dst's range follow the same rule and are counted in *stats (added to). */
  void (*cast)(ckpt_dtype dst_dtype, void *dst, ckpt_dtype src_dtype, const void *src, size_t n_elements,
               ckpt_cast_stats *stats);
};

extern const ckpt_backend ckpt_backend_reference; /* kernels/ref: the definition */
extern const ckpt_backend ckpt_backend_cpu;       /* kernels/cpu: dispatched at run time, equal bit for bit */

#endif
