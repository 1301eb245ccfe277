/* cover.c - exact cover in n log n: flat ranges by sorting, boxes by their signed corners.
 *
 * A set of boxes covers a box exactly when the sum of their indicator functions is its indicator function; mixed
 * differences turn that into an equation of signed corner points (2^rank per box), which are compared as two sums of
 * 64-bit hashes. A forged collision would let a hole pass here; gathering counts bytes again (place.c). */
#include "libckpt/index/cover.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/index/index.h"

typedef unsigned long long ull;

/* Highest decoded unit that a strided box touches, relative to its first; false on overflow or a negative stride. */
static bool stride_reach(const uint64_t *box, uint32_t rank, uint64_t *reach) {
  *reach = 0;
  for (uint32_t axis = 0; axis < rank; axis++) {
    uint64_t stride = box[2 * rank + axis], last = box[rank + axis] - 1, far;
    if (stride > INT64_MAX || !ckpt_mul_u64(stride, last, &far) || !ckpt_add_u64(*reach, far, reach)) return false;
  }
  return *reach < INT64_MAX;
}

/* Whether n_units from the extent's first unit fit its decoded bytes, where those are known. */
static ckpt_status check_bytes(const ckpt_tensor *tensor, const ckpt_extent *extent, uint64_t n_units,
                               const ckpt_source *source, ckpt_error *err) {
  uint64_t block_bytes = ckpt_dtype_get(tensor->dtype)->block_bytes, n_bytes, end;
  if (!ckpt_mul_u64(n_units, block_bytes, &n_bytes) || !ckpt_add_u64(extent->skip, n_bytes, &end))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "a stored piece reaches outside its bytes");
  if (extent->file == CKPT_FILE_LITERAL) return CKPT_OK;
  if (extent->file >= ckpt_source_count(source))
    return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "extent of file %u", extent->file);
  uint64_t size = ckpt_source_size(source, extent->file);
  const char *file = ckpt_source_path(source, extent->file);
  if (!ckpt_range_within(extent->offset, extent->n_stored, size))
    return ckpt_fail(err, CKPT_EFORMAT, file, NULL,
                     "bytes %llu to %llu lie past the end of the file (%llu byte%s); it is truncated or lies",
                     (ull)extent->offset, (ull)(extent->offset + extent->n_stored), (ull)size, ckpt_plural(size));
  bool plain = extent->chain[0] == CKPT_DECODE_RAW || extent->chain[0] == CKPT_DECODE_SWAPPED;
  if (plain && end > extent->n_stored)
    return ckpt_fail(err, CKPT_EFORMAT, file, NULL, "needs %llu byte%s, %llu are stored", (ull)end, ckpt_plural(end),
                     (ull)extent->n_stored);
  return CKPT_OK;
}

/* Of replicas the one that lies first stays, whatever the sort does with equals. */
static int compare_places(const ckpt_extent *x, const ckpt_extent *y) {
  return x->file != y->file ? (x->file < y->file ? -1 : 1) : (x->offset > y->offset) - (x->offset < y->offset);
}

static bool is_same_flat(const ckpt_extent *x, const ckpt_extent *y) {
  return x->start == y->start && x->count == y->count;
}

static int compare_flat(const void *a, const void *b) {
  const ckpt_extent *x = a, *y = b;
  return x->start != y->start   ? (x->start < y->start ? -1 : 1)
         : x->count != y->count ? (x->count < y->count ? -1 : 1)
                                : compare_places(x, y);
}

static ckpt_status check_flat(ckpt_tensor *tensor, ckpt_extent *extents, uint64_t n_units, const ckpt_source *source,
                              ckpt_error *err) {
  if (tensor->n_extents > 1) qsort(extents, tensor->n_extents, sizeof *extents, compare_flat);
  uint64_t next = 0;
  uint32_t n_kept = 0;
  for (uint32_t i = 0; i < tensor->n_extents; i++) {
    const ckpt_extent *extent = &extents[i];
    if (extent->count == 0) continue;
    bool is_replica = n_kept != 0 && is_same_flat(extent, &extents[n_kept - 1]);
    if (!is_replica && extent->start != next)
      return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s at element %llu (stored pieces reach %llu of %llu)",
                       extent->start < next ? "stored pieces overlap" : "a stored piece is missing",
                       (ull)(extent->start < next ? extent->start : next), (ull)next, (ull)n_units);
    if (extent->count > n_units - extent->start)
      return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "stored pieces hold more than its %llu element%s", (ull)n_units,
                       ckpt_plural(n_units));
    CKPT_TRY(check_bytes(tensor, extent, extent->count, source, err));
    if (is_replica) continue;
    next += extent->count;
    extents[n_kept++] = *extent;
  }
  if (next != n_units)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%llu of %llu element%s are stored", (ull)next, (ull)n_units,
                     ckpt_plural(n_units));
  tensor->n_extents = n_kept;
  return CKPT_OK;
}

static int compare_boxes(const void *a, const void *b, void *rank) {
  const uint64_t *x = ((const ckpt_extent *)a)->box, *y = ((const ckpt_extent *)b)->box;
  for (uint32_t i = 0; i < 2 * *(const uint32_t *)rank; i++)
    if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
  return compare_places(a, b);
}

void ckpt_sort_boxes(ckpt_tensor *tensor) {
  uint64_t units[CKPT_MAX_RANK];
  uint32_t rank = ckpt_tensor_units(tensor, units);
  ckpt_extent *extents = (ckpt_extent *)tensor->extents;
  if (tensor->n_extents > 1) qsort_r(extents, tensor->n_extents, sizeof *extents, compare_boxes, &rank);
  tensor->details->longest = 0;
  for (uint32_t i = 0; i < tensor->n_extents; i++)
    if (extents[i].box[rank] > tensor->details->longest) tensor->details->longest = extents[i].box[rank];
}

static uint64_t mix(uint64_t x) {
  x ^= x >> 30, x *= UINT64_C(0xbf58476d1ce4e5b9);
  x ^= x >> 27, x *= UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

/* Adds the signed corners of a box to two running sums. */
static void add_corners(const uint64_t *start, const uint64_t *count, uint32_t rank, uint64_t sums[2]) {
  for (uint32_t corner = 0; corner < UINT32_C(1) << rank; corner++) {
    uint64_t a = UINT64_C(0x9e3779b97f4a7c15), b = UINT64_C(0xd1b54a32d192ed03);
    for (uint32_t axis = 0; axis < rank; axis++) {
      uint64_t at = start[axis] + (corner >> axis & 1 ? count[axis] : 0);
      a = mix(a + at), b = mix(b ^ (at * UINT64_C(0x2545f4914f6cdd1d) + axis));
    }
    bool negative = __builtin_popcount(corner) & 1;
    sums[0] += negative ? -a : a;
    sums[1] += negative ? -b : b;
  }
}

static ckpt_status check_boxes(ckpt_tensor *tensor, ckpt_extent *extents, const uint64_t *units, uint32_t rank,
                               uint64_t n_units, const ckpt_source *source, ckpt_error *err) {
  ckpt_sort_boxes(tensor);
  static const uint64_t zeros[CKPT_MAX_RANK];
  uint64_t want[2] = {0, 0}, have[2] = {0, 0}, n_held = 0;
  uint32_t n_kept = 0;
  for (uint32_t i = 0; i < tensor->n_extents; i++) {
    const ckpt_extent *extent = &extents[i];
    const uint64_t *start = extent->box, *count = extent->box + rank;
    uint64_t volume;
    for (uint32_t axis = 0; axis < rank; axis++)
      if (!ckpt_range_within(start[axis], count[axis], units[axis]))
        return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "a stored box reaches %llu on axis %u of %llu",
                         (ull)(start[axis] + count[axis]), axis, (ull)units[axis]);
    if (!ckpt_product_u64(count, rank, &volume)) return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "a box overflows");
    if (volume == 0) continue;
    uint64_t last = volume - 1;
    if (tensor->details->extent_form == CKPT_EXTENT_STRIDED && !stride_reach(extent->box, rank, &last))
      return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "strides are negative or too large");
    CKPT_TRY(check_bytes(tensor, extent, last + 1, source, err));
    if (n_kept != 0 && memcmp(extent->box, extents[n_kept - 1].box, 2 * rank * sizeof *extent->box) == 0) continue;
    add_corners(start, count, rank, have);
    n_held += volume;
    extents[n_kept++] = *extent;
  }
  if (n_units != 0) add_corners(zeros, units, rank, want);
  if (n_held != n_units || have[0] != want[0] || have[1] != want[1])
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "stored boxes %s (%llu element%s in boxes, %llu in the tensor)",
                     n_held < n_units ? "leave holes" : "overlap", (ull)n_held, ckpt_plural(n_held), (ull)n_units);
  tensor->n_extents = n_kept;
  return CKPT_OK;
}

ckpt_status ckpt_cover_check(ckpt_tensor *tensor, const ckpt_source *source, ckpt_error *err) {
  uint64_t units[CKPT_MAX_RANK];
  uint32_t rank = ckpt_tensor_units(tensor, units);
  uint64_t n_units = tensor->n_elements / ckpt_dtype_get(tensor->dtype)->block_elements;
  ckpt_extent *extents = (ckpt_extent *)tensor->extents; /* the index's own copy, not frozen yet */
  return tensor->details->extent_form == CKPT_EXTENT_FLAT
             ? check_flat(tensor, extents, n_units, source, err)
             : check_boxes(tensor, extents, units, rank, n_units, source, err);
}
