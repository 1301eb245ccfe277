/* read.c - one tensor, or a box of it, into the caller's memory: what an inference server or a Python module needs.
 * Casts go through a window, so that no second copy of the tensor exists. See read.h. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/backend.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/float_env.h"
#include "libckpt/extents/place.h"
#include "libckpt/plan/op.h"
#include "libckpt/run/read.h"
#include "libckpt/run/read_derived.h"

typedef unsigned long long ull;

enum { CAST_WINDOW_BYTES = 1 << 20 };

/* Rows of a tensor whose units are flat begin anywhere in a unit. A box of it that is one run of elements, from unit to
 * unit, has units all the same. */
static bool run_in_units(const ckpt_tensor *tensor, const ckpt_box *box, uint32_t block, uint64_t *start,
                         uint64_t *count) {
  uint64_t first = 0, n = 1;
  bool is_open = false; /* axes after the first one of several indices must be whole */
  for (uint32_t axis = 0; axis < tensor->rank; axis++) {
    if (is_open && box->count[axis] != tensor->shape[axis]) return false;
    is_open = is_open || box->count[axis] != 1;
    first = first * tensor->shape[axis] + box->start[axis];
    n *= box->count[axis];
  }
  *start = first / block;
  *count = n / block;
  return first % block == 0 && n % block == 0;
}

/* The wanted box in units of the stored dtype; the whole tensor without one. A box that begins or ends within a unit
 * is cut: it has none of its own. */
static ckpt_status box_in_units(const ckpt_tensor *tensor, const ckpt_box *box, uint64_t *start, uint64_t *count,
                                uint64_t *n_units, bool *is_cut, ckpt_error *err) {
  uint32_t block = ckpt_dtype_get(tensor->dtype)->block_elements, rank = ckpt_tensor_units(tensor, count);
  memset(start, 0, CKPT_MAX_RANK * sizeof *start);
  *is_cut = false;
  for (uint32_t axis = 0; box != NULL && axis < tensor->rank; axis++) {
    uint64_t unit = axis + 1 == tensor->rank ? block : 1;
    if (!ckpt_range_within(box->start[axis], box->count[axis], tensor->shape[axis]))
      return ckpt_fail(err, CKPT_EINVAL, NULL, tensor->name, "box [%llu, %llu) on axis %u of %llu",
                       (ull)box->start[axis], (ull)(box->start[axis] + box->count[axis]), axis,
                       (ull)tensor->shape[axis]);
    if (rank != tensor->rank) continue;
    *is_cut = *is_cut || box->start[axis] % unit != 0 || box->count[axis] % unit != 0;
    start[axis] = box->start[axis] / unit;
    count[axis] = box->count[axis] / unit;
  }
  if (box != NULL && rank != tensor->rank) *is_cut = !run_in_units(tensor, box, block, start, count);
  *n_units = 1;
  for (uint32_t axis = 0; axis < rank; axis++) *n_units *= count[axis];
  return CKPT_OK;
}

/* What ckpt_plan_run refuses too, but for zeros: a box may well hold nothing but small values. */
static ckpt_status check_damage(const ckpt_tensor *tensor, const ckpt_cast_stats *stats, ckpt_dtype as,
                                ckpt_error *err) {
  ckpt_cast_stats counted = *stats;
  counted.n_underflow = 0;
  if (!ckpt_cast_damages(&counted)) return CKPT_OK;
  return ckpt_advise(ckpt_cast_refuse(&counted, as, tensor->name, 0, err), err, "another dtype");
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
    ckpt_backend_read(&ckpt_backend_cpu, as, dst, (ckpt_dtype)tensor->dtype, window, (size_t)n_elements, &stats);
    dst += n_elements / to->block_elements * to->block_bytes;
  }
  free(window);
  return status == CKPT_OK ? check_damage(tensor, &stats, as, err) : status;
}

/* ---- boxes that cut blocks ---- */

/* A walk over the rows of a box along the last axis. */
typedef struct cut_reader {
  ckpt_mover *mover;
  const ckpt_tensor *tensor;
  ckpt_dtype as;              /* without blocks */
  uint32_t rank;              /* of the units: 1 where rows of the last axis do not end at a unit */
  uint64_t at[CKPT_MAX_RANK]; /* the row: its place on every axis but the last */
  uint8_t *units, *elements;  /* CUT_UNITS of them, as stored and as wanted */
  ckpt_cast_stats stats;
} cut_reader;

enum { CUT_UNITS = 1024 };

/* Elements [first, first + n) of the row at r->at: the units around them are read, and their middle kept. */
static ckpt_status read_cut_row(cut_reader *r, uint64_t first, uint64_t n, uint8_t **dst, ckpt_error *err) {
  const ckpt_tensor *tensor = r->tensor;
  uint64_t block = ckpt_dtype_get(tensor->dtype)->block_elements, start[CKPT_MAX_RANK], count[CKPT_MAX_RANK];
  size_t width = ckpt_dtype_get(r->as)->block_bytes;
  uint32_t last = r->rank - 1;
  if (r->rank != tensor->rank) { /* flat: the row begins anywhere */
    uint64_t row = 0;
    for (uint32_t axis = 0; axis + 1 < tensor->rank; axis++) row = row * tensor->shape[axis] + r->at[axis];
    first += row * tensor->shape[tensor->rank - 1];
  }
  for (uint32_t axis = 0; axis < last; axis++) start[axis] = r->at[axis], count[axis] = 1;
  while (n != 0) {
    uint64_t skip = first % block, n_units = (skip + n + block - 1) / block;
    if (n_units > CUT_UNITS) n_units = CUT_UNITS;
    uint64_t n_taken = n_units * block - skip < n ? n_units * block - skip : n;
    start[last] = first / block;
    count[last] = n_units;
    CKPT_TRY(ckpt_place(r->mover, tensor, start, count, 0, n_units, r->units, err));
    ckpt_backend_read(&ckpt_backend_cpu, r->as, r->elements, (ckpt_dtype)tensor->dtype, r->units,
                      (size_t)(n_units * block), &r->stats);
    memcpy(*dst, r->elements + skip * width, (size_t)n_taken * width);
    *dst += n_taken * width;
    first += n_taken;
    n -= n_taken;
  }
  return CKPT_OK;
}

/* The elements of a cut box, row by row. */
static ckpt_status read_cut(ckpt_mover *mover, const ckpt_tensor *tensor, const ckpt_box *box, ckpt_dtype as,
                            uint8_t *dst, ckpt_error *err) {
  uint64_t units[CKPT_MAX_RANK], n_rows = 1;
  uint32_t last = tensor->rank - 1;
  const ckpt_dtype_row *from = ckpt_dtype_get(tensor->dtype);
  cut_reader r = {.mover = mover, .tensor = tensor, .as = as, .rank = ckpt_tensor_units(tensor, units)};
  r.units = calloc(CUT_UNITS, from->block_bytes);
  r.elements = calloc(CUT_UNITS, (size_t)from->block_elements * ckpt_dtype_get(as)->block_bytes);
  ckpt_status status =
      r.units != NULL && r.elements != NULL ? CKPT_OK : ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint32_t axis = 0; axis < last; axis++) {
    r.at[axis] = box->start[axis];
    n_rows *= box->count[axis];
  }
  for (uint64_t row = 0; row < n_rows && status == CKPT_OK; row++) {
    status = read_cut_row(&r, box->start[last], box->count[last], &dst, err);
    for (uint32_t axis = last; axis-- > 0;) { /* the next one, as an odometer */
      if (++r.at[axis] < box->start[axis] + box->count[axis]) break;
      r.at[axis] = box->start[axis];
    }
  }
  free(r.units);
  free(r.elements);
  return status == CKPT_OK ? check_damage(tensor, &r.stats, as, err) : status;
}

/* Units around the elements of a cut box, row by row as read_cut reads them. */
static uint64_t cut_units(const ckpt_tensor *tensor, const ckpt_box *box, uint32_t rank) {
  const uint32_t last = tensor->rank - 1, block = ckpt_dtype_get(tensor->dtype)->block_elements;
  const uint64_t first = box->start[last], n = box->count[last];
  uint64_t n_rows = 1, n_units = 0, at[CKPT_MAX_RANK];
  for (uint32_t axis = 0; axis < last; axis++) {
    at[axis] = box->start[axis];
    n_rows *= box->count[axis];
  }
  if (n == 0) return 0;
  if (rank == tensor->rank) return n_rows * ((first + n - 1) / block - first / block + 1);
  for (uint64_t row = 0; row < n_rows; row++) { /* flat: each begins anywhere in a unit */
    uint64_t flat = 0;
    for (uint32_t axis = 0; axis < last; axis++) flat = flat * tensor->shape[axis] + at[axis];
    flat = flat * tensor->shape[last] + first;
    n_units += (flat + n - 1) / block - flat / block + 1;
    for (uint32_t axis = last; axis-- > 0; at[axis] = box->start[axis])
      if (++at[axis] < box->start[axis] + box->count[axis]) break;
  }
  return n_units;
}

ckpt_status ckpt_read_cost(const ckpt_index *index, const ckpt_tensor *tensor, const ckpt_box *box, uint64_t *n_read,
                           uint64_t *n_fetched, ckpt_error *err) {
  uint64_t units[CKPT_MAX_RANK], start[CKPT_MAX_RANK], count[CKPT_MAX_RANK], n_units = 0;
  const uint32_t unit_bytes = ckpt_dtype_get(tensor->dtype)->block_bytes, rank = ckpt_tensor_units(tensor, units);
  bool is_cut;
  CKPT_TRY(box_in_units(tensor, box, start, count, &n_units, &is_cut, err));
  if (tensor->details->derived != NULL) return ckpt_read_derived_cost(index, tensor, box, n_read, n_fetched, err);
  *n_read = *n_fetched = (is_cut ? cut_units(tensor, box, rank) : n_units) * unit_bytes;
  if (!is_cut) *n_fetched = ckpt_place_fetched(rank, units, count, unit_bytes);
  return CKPT_OK;
}

/* Elements of a box that has been checked: they are no more than the tensor's. */
static uint64_t box_elements(const ckpt_tensor *tensor, const ckpt_box *box) {
  uint64_t n = 1;
  for (uint32_t axis = 0; axis < tensor->rank; axis++) n *= box->count[axis];
  return n;
}

ckpt_status ckpt_read_checks_new(ckpt_record_checks **out, const ckpt_index *index, const ckpt_tensor *tensor,
                                 ckpt_error *err) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < tensor->n_extents && tensor->details->derived == NULL; i++)
    n += ckpt_extent_has_record(index->source, &tensor->extents[i]);
  *out = NULL;
  if (n == 0) return CKPT_OK;
  CKPT_TRY(ckpt_record_checks_new(out, n, err));
  ckpt_record_checks_want(*out, index->source, tensor, tensor->n_bytes);
  ckpt_record_checks_begin(*out);
  return CKPT_OK;
}

ckpt_status ckpt_read_checks_end(ckpt_record_checks *checks, const ckpt_index *index, const ckpt_tensor *tensor,
                                 ckpt_status status, ckpt_error *err) {
  if (checks == NULL) return status;
  uint8_t *window = status != CKPT_OK ? NULL : malloc(CKPT_WINDOW_BYTES);
  if (status == CKPT_OK && window == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  if (status == CKPT_OK) status = ckpt_record_checks_end(checks, window, CKPT_WINDOW_BYTES, err);
  if (status == CKPT_OK) ckpt_record_checks_tell(checks, index->source, tensor);
  ckpt_record_checks_free(checks);
  free(window);
  return status;
}

/* Whether a box is all of its tensor. */
static bool is_all(const ckpt_tensor *tensor, const ckpt_box *box) {
  for (uint32_t axis = 0; box != NULL && axis < tensor->rank; axis++)
    if (box->count[axis] != tensor->shape[axis]) return false;
  return true;
}

ckpt_status ckpt_read(const ckpt_index *index, const ckpt_tensor *tensor, const ckpt_box *box, ckpt_dtype as, void *dst,
                      size_t n_bytes, ckpt_error *err) {
  ckpt_record_checks *checks = NULL;
  if (is_all(tensor, box)) CKPT_TRY(ckpt_read_checks_new(&checks, index, tensor, err));
  const ckpt_status status = ckpt_read_piece(index, tensor, box, as, dst, n_bytes, checks, err);
  return ckpt_read_checks_end(checks, index, tensor, status, err);
}

ckpt_status ckpt_read_piece(const ckpt_index *index, const ckpt_tensor *tensor, const ckpt_box *box, ckpt_dtype as,
                            void *dst, size_t n_bytes, ckpt_record_checks *checks, ckpt_error *err) {
  CKPT_DEFAULT_FLOAT_ENV();
  uint64_t start[CKPT_MAX_RANK], count[CKPT_MAX_RANK], n_units = 0, n_wanted = 0;
  bool is_cut;
  CKPT_TRY(box_in_units(tensor, box, start, count, &n_units, &is_cut, err));
  ckpt_dtype to = as == CKPT_DTYPE_NONE ? (ckpt_dtype)tensor->dtype : as;
  bool casts = to != (ckpt_dtype)tensor->dtype;
  if (casts && !ckpt_backend_can_read(&ckpt_backend_reference, (ckpt_dtype)tensor->dtype, to))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name, "no cast from %s to %s",
                     ckpt_dtype_name((ckpt_dtype)tensor->dtype), ckpt_dtype_name(to));
  uint32_t block = ckpt_dtype_get(tensor->dtype)->block_elements;
  if (is_cut && ckpt_dtype_get(to)->block_elements > 1)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name,
                     "%u elements of %s are stored together, and this box cuts them (begin and end at a multiple, or "
                     "read it as f32)",
                     block, ckpt_dtype_name((ckpt_dtype)tensor->dtype));
  uint64_t n_elements = is_cut ? box_elements(tensor, box) : n_units * block;
  if (!ckpt_dtype_bytes(to, n_elements, &n_wanted) || n_wanted != n_bytes)
    return ckpt_fail(err, CKPT_EINVAL, NULL, tensor->name, "a buffer of %llu byte%s for %llu", (ull)n_bytes,
                     ckpt_plural(n_bytes), (ull)n_wanted);
  if (tensor->details->derived != NULL) return ckpt_read_derived(index, tensor, box, to, dst, n_bytes, err);
  ckpt_mover mover = {.reader = {.source = index->source, .checks = checks}, .window = malloc(CKPT_WINDOW_BYTES)};
  CKPT_TRY_ALLOC(mover.window, err);
  ckpt_status status = is_cut  ? read_cut(&mover, tensor, box, to, dst, err)
                       : casts ? read_cast(&mover, tensor, start, count, n_units, to, dst, err)
                               : ckpt_place(&mover, tensor, start, count, 0, n_units, dst, err);
  ckpt_reader_reset(&mover.reader);
  free(mover.window);
  return ckpt_fail_at(status, err, index->path, tensor->name);
}
