/* read.c - one tensor, or a box of it, into the caller's memory: what an inference server or a Python module needs.
 * Casts go through a window, so that no second copy of the tensor exists. */
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "checked.h"
#include "dtype.h"
#include "error.h"
#include "place.h"

typedef unsigned long long ull;

enum { CAST_WINDOW_BYTES = 1 << 20 };

/* The wanted box in units of the stored dtype; the whole tensor without one. */
static ckpt_status box_in_units(const ckpt_tensor *tensor, const ckpt_box *box, uint64_t *start, uint64_t *count,
                                uint64_t *n_units, ckpt_error *err) {
  uint32_t block = ckpt_dtype_get(tensor->dtype)->block_elements, rank = ckpt_tensor_units(tensor, count);
  memset(start, 0, CKPT_MAX_RANK * sizeof *start);
  for (uint32_t axis = 0; box != NULL && axis < tensor->rank; axis++) {
    uint64_t unit = axis + 1 == tensor->rank ? block : 1;
    if (!ckpt_range_within(box->start[axis], box->count[axis], tensor->shape[axis]))
      return ckpt_fail(err, CKPT_EINVAL, NULL, tensor->name, "box [%llu, %llu) on axis %u of %llu",
                       (ull)box->start[axis], (ull)(box->start[axis] + box->count[axis]), axis,
                       (ull)tensor->shape[axis]);
    if (rank != tensor->rank || box->start[axis] % unit != 0 || box->count[axis] % unit != 0)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name, "a box that cuts a block of %u elements", block);
    start[axis] = box->start[axis] / unit;
    count[axis] = box->count[axis] / unit;
  }
  *n_units = 1;
  for (uint32_t axis = 0; axis < rank; axis++) *n_units *= count[axis];
  return CKPT_OK;
}

static ckpt_status read_cast(ckpt_mover *mover, const ckpt_tensor *tensor, const uint64_t *start, const uint64_t *count,
                             uint64_t n_units, ckpt_dtype as, uint8_t *dst, ckpt_error *err) {
  const ckpt_dtype_row *from = ckpt_dtype_get(tensor->dtype), *to = ckpt_dtype_get(as);
  ckpt_cast_stats stats = {0};
  uint8_t *window = malloc(CAST_WINDOW_BYTES);
  CKPT_TRY_ALLOC(window, err);
  /* whole blocks of both dtypes at a time */
  uint64_t n_step = CAST_WINDOW_BYTES / from->block_bytes / 8 * 8;
  ckpt_status status = CKPT_OK;
  for (uint64_t at = 0; at < n_units && status == CKPT_OK; at += n_step) {
    uint64_t n = n_units - at < n_step ? n_units - at : n_step, n_elements = n * from->block_elements;
    status = ckpt_place(mover, tensor, start, count, at, n, window, err);
    if (status != CKPT_OK) break;
    ckpt_backend_cpu.cast(as, dst, (ckpt_dtype)tensor->dtype, window, (size_t)n_elements, &stats);
    dst += n_elements / to->block_elements * to->block_bytes;
  }
  free(window);
  if (status == CKPT_OK && stats.n_overflow != 0)
    status = ckpt_fail(err, CKPT_EVALUE, NULL, tensor->name, "%llu values do not fit %s, the largest is %g",
                       (ull)stats.n_overflow, to->name, stats.largest);
  return status;
}

ckpt_status ckpt_read(const ckpt_index *index, const ckpt_tensor *tensor, const ckpt_box *box, ckpt_dtype as, void *dst,
                      size_t n_bytes, ckpt_error *err) {
  uint64_t start[CKPT_MAX_RANK], count[CKPT_MAX_RANK], n_units = 0, n_wanted = 0;
  CKPT_TRY(box_in_units(tensor, box, start, count, &n_units, err));
  ckpt_dtype to = as == CKPT_DTYPE_NONE ? (ckpt_dtype)tensor->dtype : as;
  bool casts = to != (ckpt_dtype)tensor->dtype;
  if (casts && !ckpt_backend_reference.can_cast((ckpt_dtype)tensor->dtype, to))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name, "no cast from %s to %s",
                     ckpt_dtype_name((ckpt_dtype)tensor->dtype), ckpt_dtype_name(to));
  uint64_t n_elements = n_units * ckpt_dtype_get(tensor->dtype)->block_elements;
  if (!ckpt_dtype_bytes(to, n_elements, &n_wanted) || n_wanted != n_bytes)
    return ckpt_fail(err, CKPT_EINVAL, NULL, tensor->name, "a buffer of %llu bytes for %llu", (ull)n_bytes,
                     (ull)n_wanted);
  ckpt_mover mover = {.reader.source = index->source, .window = malloc(CKPT_WINDOW_BYTES)};
  CKPT_TRY_ALLOC(mover.window, err);
  ckpt_status status = casts ? read_cast(&mover, tensor, start, count, n_units, to, dst, err)
                             : ckpt_place(&mover, tensor, start, count, 0, n_units, dst, err);
  ckpt_reader_reset(&mover.reader);
  free(mover.window);
  return ckpt_fail_at(status, err, index->path, tensor->name);
}
