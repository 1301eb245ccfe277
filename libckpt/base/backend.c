/* backend.c - the backends that every build has, by name; what casts may not do. */
#include "libckpt/base/backend.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"

typedef unsigned long long ull;

const ckpt_backend *ckpt_backend_find(const char *name) {
  if (strcmp(name, ckpt_backend_cpu.name) == 0) return &ckpt_backend_cpu;
  return strcmp(name, ckpt_backend_reference.name) == 0 ? &ckpt_backend_reference : NULL;
}

bool ckpt_backend_can_read(const ckpt_backend *backend, ckpt_dtype src, ckpt_dtype dst) {
  return ckpt_dtype_is_block(src) ? ckpt_dtype_is_float(dst) : backend->can_cast(src, dst);
}

void ckpt_backend_read(const ckpt_backend *backend, ckpt_dtype dst_dtype, void *dst, ckpt_dtype src_dtype,
                       const void *src, size_t n_elements, ckpt_cast_stats *stats) {
  enum { WINDOW = 1024 }; /* a multiple of every block */
  const ckpt_dtype_row *from = ckpt_dtype_get(src_dtype), *to = ckpt_dtype_get(dst_dtype);
  const uint8_t *in = src;
  uint8_t *out = dst;
  float window[WINDOW];
  if (!ckpt_dtype_is_block(src_dtype)) {
    backend->cast(dst_dtype, dst, src_dtype, src, n_elements, stats);
    return;
  }
  for (size_t n; n_elements > 0; n_elements -= n) {
    n = n_elements < WINDOW ? n_elements : WINDOW;
    backend->dequantize(src_dtype, window, in, n);
    backend->cast(dst_dtype, out, CKPT_F32, window, n, stats);
    in += n / from->block_elements * from->block_bytes;
    out += n / to->block_elements * to->block_bytes;
  }
}

bool ckpt_cast_damages(const ckpt_cast_stats *stats) {
  return stats->n_overflow + stats->n_nan_lost != 0 || (stats->n_underflow != 0 && !stats->has_nonzero);
}

ckpt_status ckpt_cast_refuse(const ckpt_cast_stats *stats, ckpt_dtype to, const char *name, uint64_t n_more,
                             ckpt_error *err) {
  char more[64] = "";
  if (n_more != 0) snprintf(more, sizeof more, "; %llu more tensor%s too", (ull)n_more, ckpt_plural(n_more));
  if (stats->n_overflow != 0)
    return ckpt_fail(err, CKPT_EVALUE, NULL, name, "%llu of its values %s not fit %s, the largest is %g%s",
                     (ull)stats->n_overflow, stats->n_overflow == 1 ? "does" : "do", ckpt_dtype_name(to),
                     stats->largest, more);
  if (stats->n_nan_lost != 0)
    return ckpt_fail(err, CKPT_EVALUE, NULL, name, "%llu NaN %s no form in %s%s", (ull)stats->n_nan_lost,
                     stats->n_nan_lost == 1 ? "has" : "have", ckpt_dtype_name(to), more);
  return ckpt_fail(err, CKPT_EVALUE, NULL, name, "nothing but zeros is left in %s: %llu value%s were others%s",
                   ckpt_dtype_name(to), (ull)stats->n_underflow, ckpt_plural(stats->n_underflow), more);
}
