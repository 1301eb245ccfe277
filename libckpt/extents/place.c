/* place.c - the walk behind gathering and scattering: see place.h. */
#include "libckpt/extents/place.h"

#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"

/* One axis of a walk, in bytes on both sides. */
typedef struct walk_axis {
  uint64_t count;
  int64_t stored, packed; /* strides */
} walk_axis;

/* Runs of run_bytes: first at (stored_at, packed_at), then along the axes, outermost first. */
typedef struct walk {
  walk_axis axes[CKPT_MAX_RANK];
  uint32_t n_axes;
  uint64_t run_bytes;
  int64_t stored_at, packed_at;
} walk;

static void row_major(uint32_t rank, const uint64_t *count, int64_t *strides) {
  int64_t stride = 1;
  for (uint32_t axis = rank; axis-- > 0;) {
    strides[axis] = stride;
    stride *= (int64_t)count[axis];
  }
}

/* Merges axes that are adjacent on both sides, sorts the rest by stored stride, and takes the innermost into the run.
 */
static void walk_finish(walk *w, uint32_t unit_bytes) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < w->n_axes; i++) {
    walk_axis axis = w->axes[i];
    if (axis.count == 1) continue;
    walk_axis *outer = n == 0 ? NULL : &w->axes[n - 1];
    if (outer != NULL && outer->stored == axis.stored * (int64_t)axis.count &&
        outer->packed == axis.packed * (int64_t)axis.count) {
      *outer = (walk_axis){outer->count * axis.count, axis.stored, axis.packed};
    } else {
      w->axes[n++] = axis;
    }
  }
  for (uint32_t i = 1; i < n; i++) /* by falling stored stride, so that a walk goes forward in the file */
    for (uint32_t k = i; k > 0 && w->axes[k].stored > w->axes[k - 1].stored; k--) {
      walk_axis swap = w->axes[k];
      w->axes[k] = w->axes[k - 1];
      w->axes[k - 1] = swap;
    }
  w->run_bytes = unit_bytes;
  if (n != 0 && w->axes[n - 1].stored == unit_bytes && w->axes[n - 1].packed == unit_bytes)
    w->run_bytes *= w->axes[--n].count;
  w->n_axes = n;
}

/* Steps an odometer over the walk's axes; false after the last run. */
static bool walk_next(const walk *w, uint64_t *at, int64_t *stored, int64_t *packed) {
  for (uint32_t i = w->n_axes; i-- > 0;) {
    *stored += w->axes[i].stored, *packed += w->axes[i].packed;
    if (++at[i] < w->axes[i].count) return true;
    *stored -= w->axes[i].stored * (int64_t)at[i], *packed -= w->axes[i].packed * (int64_t)at[i];
    at[i] = 0;
  }
  return false;
}

/* The window of a walk under way: decoded (or to be written) bytes [from, from + n). */
typedef struct window {
  int64_t from;
  size_t n;
} window;

static ckpt_status read_run(ckpt_mover *mover, const ckpt_extent *extent, uint32_t unit_bytes, uint64_t run_bytes,
                            int64_t at, int64_t end, window *held, uint8_t *dst, ckpt_error *err) {
  if (run_bytes >= CKPT_WINDOW_BYTES / 2)
    return ckpt_reader_read(&mover->reader, extent, unit_bytes, (uint64_t)at, dst, run_bytes, err);
  if (at < held->from || (uint64_t)(at - held->from) + run_bytes > held->n) {
    uint64_t n = (uint64_t)(end - at);
    held->from = at;
    held->n = 0;
    size_t n_window = CKPT_WINDOW_BYTES / unit_bytes * unit_bytes;
    if (n > n_window) n = n_window;
    CKPT_TRY(ckpt_reader_read(&mover->reader, extent, unit_bytes, (uint64_t)at, mover->window, n, err));
    held->n = n;
  }
  memcpy(dst, mover->window + (at - held->from), run_bytes);
  return CKPT_OK;
}

/* Every byte of an output's raw tensors goes through here. */
static ckpt_status write_bytes(ckpt_mover *mover, const ckpt_extent *extent, uint64_t at, const uint8_t *bytes,
                               size_t n_bytes, ckpt_error *err) {
  if (mover->layout != NULL) ckpt_checksum_add(mover->layout, extent, at, bytes, n_bytes);
  return ckpt_sink_write(mover->sink, extent->file, extent->offset + at, bytes, n_bytes, err);
}

ckpt_status ckpt_place_segment(ckpt_mover *mover, uint32_t file, const ckpt_segment *segment, uint64_t at,
                               const void *bytes, size_t n_bytes, ckpt_error *err) {
  return write_bytes(mover, &(ckpt_extent){.file = file, .offset = segment->offset}, at, bytes, n_bytes, err);
}

static ckpt_status flush(ckpt_mover *mover, const ckpt_extent *extent, window *held, ckpt_error *err) {
  if (held->n == 0) return CKPT_OK;
  size_t n = held->n;
  held->n = 0;
  return write_bytes(mover, extent, (uint64_t)held->from, mover->window, n, err);
}

static ckpt_status write_run(ckpt_mover *mover, const ckpt_extent *extent, uint64_t run_bytes, int64_t at, window *held,
                             const uint8_t *src, ckpt_error *err) {
  bool follows = held->n != 0 && at == held->from + (int64_t)held->n && held->n + run_bytes <= CKPT_WINDOW_BYTES;
  if (!follows) CKPT_TRY(flush(mover, extent, held, err));
  if (run_bytes >= CKPT_WINDOW_BYTES / 2) return write_bytes(mover, extent, (uint64_t)at, src, run_bytes, err);
  if (!follows) held->from = at;
  memcpy(mover->window + held->n, src, run_bytes);
  held->n += run_bytes;
  return CKPT_OK;
}

/* Whether what has been read up to `span` goes on over a gap: not where a window does not hold the run behind it too.
 */
static bool reads_on(uint64_t run, uint64_t span, uint64_t gap) {
  return gap == 0 || (run < CKPT_WINDOW_BYTES / 2 && gap <= CKPT_WINDOW_BYTES - 2 * run && ckpt_gap_is_read(span, gap));
}

/* As far as a window from the run at `stored` reaches, `end` at most: where it cannot hold what is left of the
 * innermost axis, to the end of a run, so that nothing is read twice. */
static int64_t window_end(const walk *w, const uint64_t *at, int64_t stored, int64_t end) {
  if (w->n_axes == 0 || w->run_bytes >= CKPT_WINDOW_BYTES / 2) return end;
  const walk_axis *inner = &w->axes[w->n_axes - 1];
  if (inner->stored <= 0) return end;
  const uint64_t n_fit = (CKPT_WINDOW_BYTES - w->run_bytes) / (uint64_t)inner->stored;
  const int64_t cut = stored + (int64_t)(w->run_bytes + n_fit * (uint64_t)inner->stored);
  return n_fit < inner->count - 1 - at[w->n_axes - 1] && cut < end ? cut : end;
}

uint64_t ckpt_place_fetched(uint32_t rank, const uint64_t *units, const uint64_t *count, uint32_t unit_bytes) {
  uint64_t stride = unit_bytes, span = unit_bytes, run = 0; /* of one step along the axis; read at once; without gaps */
  for (uint32_t axis = rank; axis-- > 0;) {
    if (run == 0 && span != stride) run = span;
    if (count[axis] > 1 && reads_on(run, span, stride - span)) {
      span += stride * (count[axis] - 1);
    } else if (count[axis] != 1) {
      for (uint32_t i = 0; i <= axis; i++) span *= count[i];
      return span;
    }
    stride *= units[axis];
  }
  return span;
}

/* Moves every run of the walk. Reading fills the window past the run only where the next runs lie close: along the
 * axes from `first`, which span so many bytes. */
static ckpt_status walk_move(ckpt_mover *mover, const ckpt_extent *extent, const walk *w, uint32_t unit_bytes,
                             uint8_t *buffer, ckpt_error *err) {
  uint64_t at[CKPT_MAX_RANK] = {0};
  int64_t stored = w->stored_at, packed = w->packed_at, span = (int64_t)w->run_bytes;
  uint32_t first = w->n_axes;
  for (const bool is_sequential = ckpt_extent_is_sequential(extent); first > 0; first--) {
    const walk_axis *axis = &w->axes[first - 1];
    const int64_t gap = axis->stored > span ? axis->stored - span : 0;
    if (!is_sequential && !reads_on(w->run_bytes, (uint64_t)span, (uint64_t)gap)) break;
    span += axis->stored * (int64_t)(axis->count - 1);
  }
  window held = {0, 0};
  do {
    uint8_t *bytes = buffer + packed;
    int64_t reach = stored + span;
    for (uint32_t i = first; i < w->n_axes; i++) reach -= w->axes[i].stored * (int64_t)at[i];
    reach = window_end(w, at, stored, reach);
    CKPT_TRY(mover->sink == NULL ? read_run(mover, extent, unit_bytes, w->run_bytes, stored, reach, &held, bytes, err)
                                 : write_run(mover, extent, w->run_bytes, stored, &held, bytes, err));
  } while (walk_next(w, at, &stored, &packed));
  return mover->sink == NULL ? CKPT_OK : flush(mover, extent, &held, err);
}

/* What one call moves: a box of the tensor, packed row-major in buffer. */
typedef struct part {
  ckpt_mover *mover;
  const ckpt_tensor *tensor;
  uint32_t rank, unit_bytes;
  uint32_t swap_bytes;               /* what `swapped` turns around: half of a complex unit */
  uint64_t units[CKPT_MAX_RANK];     /* the tensor's */
  const uint64_t *start;             /* of the outer box, tensor coordinates */
  uint64_t box_start[CKPT_MAX_RANK]; /* of this box, tensor coordinates */
  uint64_t box_count[CKPT_MAX_RANK];
  uint8_t *buffer;
  uint64_t n_moved, n_wanted; /* units */
} part;

/* Decoded bytes of an extent, where its form alone tells: an archive's record must have them. One with strides tells
 * where it leaves nothing out and takes nothing twice. */
static uint64_t expected_bytes(const part *p, const ckpt_extent *extent) {
  if (extent->skip != 0) return 0;
  uint64_t n_units = extent->count, n_spanned = 1;
  if (p->tensor->details->extent_form == CKPT_EXTENT_FLAT) return n_units * p->unit_bytes;
  const uint64_t *count = extent->box + p->rank, *strides = count + p->rank;
  (void)ckpt_product_u64(count, p->rank, &n_units);
  if (p->tensor->details->extent_form == CKPT_EXTENT_BOX) return n_units * p->unit_bytes;
  for (uint32_t axis = 0; axis < p->rank && n_units != 0; axis++) n_spanned += (count[axis] - 1) * strides[axis];
  return n_spanned == n_units ? n_units * p->unit_bytes : 0;
}

/* The box of an extent that is a box or a whole tensor, or NULL. */
static const uint64_t *expected_counts(const part *p, const ckpt_extent *extent) {
  uint64_t n_units;
  if (p->tensor->details->extent_form == CKPT_EXTENT_BOX) return extent->box + p->rank;
  if (p->tensor->details->extent_form != CKPT_EXTENT_FLAT || extent->start != 0) return NULL;
  return ckpt_product_u64(p->units, p->rank, &n_units) && n_units == extent->count ? p->units : NULL;
}

/* Moves the intersection of the part with a box [from, from + count) whose first unit decodes at base_units and whose
 * axes have these strides there. */
static ckpt_status move_box(part *p, const ckpt_extent *extent, const uint64_t *from, const uint64_t *count,
                            const int64_t *strides, int64_t base_units, ckpt_error *err) {
  walk w = {.n_axes = p->rank};
  int64_t packed[CKPT_MAX_RANK], stored_at = base_units, packed_at = 0;
  uint64_t n = 1;
  row_major(p->rank, p->box_count, packed);
  for (uint32_t axis = 0; axis < p->rank; axis++) {
    uint64_t low = from[axis] > p->box_start[axis] ? from[axis] : p->box_start[axis];
    uint64_t high_a = from[axis] + count[axis], high_b = p->box_start[axis] + p->box_count[axis];
    uint64_t high = high_a < high_b ? high_a : high_b;
    if (low >= high) return CKPT_OK;
    n *= high - low;
    stored_at += (int64_t)(low - from[axis]) * strides[axis];
    packed_at += (int64_t)(low - p->box_start[axis]) * packed[axis];
    w.axes[axis] = (walk_axis){high - low, strides[axis] * p->unit_bytes, packed[axis] * p->unit_bytes};
  }
  w.stored_at = stored_at * p->unit_bytes + (int64_t)(p->mover->sink == NULL ? extent->skip : 0);
  w.packed_at = packed_at * p->unit_bytes;
  walk_finish(&w, p->unit_bytes);
  p->mover->reader.n_expected = expected_bytes(p, extent);
  p->mover->reader.dtype = (ckpt_dtype)p->tensor->dtype;
  p->mover->reader.counts = expected_counts(p, extent);
  p->mover->reader.rank = p->rank;
  p->mover->reader.is_strided = p->tensor->details->extent_form == CKPT_EXTENT_STRIDED;
  CKPT_TRY(walk_move(p->mover, extent, &w, p->swap_bytes, p->buffer, err));
  p->n_moved += n;
  return CKPT_OK;
}

typedef struct flat_visit {
  part *p;
  const ckpt_extent *extent;
} flat_visit;

/* One of the boxes that a flat extent consists of. */
static ckpt_status visit_flat(void *arg, const uint64_t *from, const uint64_t *count, ckpt_error *err) {
  flat_visit *v = arg;
  int64_t strides[CKPT_MAX_RANK], base = -(int64_t)v->extent->start;
  row_major(v->p->rank, v->p->units, strides);
  for (uint32_t axis = 0; axis < v->p->rank; axis++) base += (int64_t)from[axis] * strides[axis];
  return move_box(v->p, v->extent, from, count, strides, base, err);
}

/* First and one past the last flat index of the part's box. */
static void flat_hull(const part *p, uint64_t *low, uint64_t *high) {
  int64_t strides[CKPT_MAX_RANK];
  row_major(p->rank, p->units, strides);
  *low = 0, *high = 1;
  for (uint32_t axis = 0; axis < p->rank; axis++) {
    *low += p->box_start[axis] * (uint64_t)strides[axis];
    *high += (p->box_start[axis] + p->box_count[axis] - 1) * (uint64_t)strides[axis];
  }
}

static ckpt_status move_flat(part *p, ckpt_error *err) {
  static const uint64_t zeros[CKPT_MAX_RANK];
  const ckpt_extent *extents = p->tensor->extents;
  uint64_t low, high;
  flat_hull(p, &low, &high);
  uint32_t first = 0;
  for (uint32_t last = p->tensor->n_extents; first < last;) { /* the first extent that ends past low */
    uint32_t middle = first + (last - first) / 2;
    if (extents[middle].start + extents[middle].count <= low)
      first = middle + 1;
    else
      last = middle;
  }
  for (uint32_t i = first; i < p->tensor->n_extents && extents[i].start < high; i++) {
    flat_visit v = {p, &extents[i]};
    if (extents[i].start <= low && extents[i].start + extents[i].count >= high)
      CKPT_TRY(visit_flat(&v, zeros, p->units, err));
    else
      CKPT_TRY(ckpt_split_range(p->rank, p->units, extents[i].start, extents[i].count, visit_flat, &v, err));
  }
  return CKPT_OK;
}

static ckpt_status move_boxes(part *p, ckpt_error *err) {
  const ckpt_extent *extents = p->tensor->extents;
  uint32_t first = 0;
  for (uint32_t last = p->tensor->n_extents; first < last;) { /* the first box that can reach the part */
    uint32_t middle = first + (last - first) / 2;
    if (extents[middle].box[0] + p->tensor->details->longest <= p->box_start[0])
      first = middle + 1;
    else
      last = middle;
  }
  for (uint32_t i = first; i < p->tensor->n_extents; i++) {
    const ckpt_extent *extent = &extents[i];
    const uint64_t *count = extent->box + p->rank;
    if (extent->box[0] >= p->box_start[0] + p->box_count[0]) break; /* sorted by their first axis */
    int64_t strides[CKPT_MAX_RANK];
    row_major(p->rank, count, strides);
    if (p->tensor->details->extent_form == CKPT_EXTENT_STRIDED)
      memcpy(strides, extent->box + 2 * p->rank, p->rank * sizeof *strides);
    CKPT_TRY(move_box(p, extent, extent->box, count, strides, 0, err));
  }
  return CKPT_OK;
}

/* One of the boxes that the wanted range consists of: the next part of the buffer. */
static ckpt_status visit_part(void *arg, const uint64_t *from, const uint64_t *count, ckpt_error *err) {
  part *p = arg;
  uint64_t n = 1;
  for (uint32_t axis = 0; axis < p->rank; axis++) {
    p->box_start[axis] = p->start[axis] + from[axis];
    p->box_count[axis] = count[axis];
    n *= count[axis];
  }
  p->n_moved = 0;
  CKPT_TRY(p->tensor->details->extent_form == CKPT_EXTENT_FLAT ? move_flat(p, err) : move_boxes(p, err));
  if (p->n_moved == 0 || p->n_moved % n != 0) /* an output may have copies of it */
    return ckpt_fail(err, CKPT_EFORMAT, NULL, p->tensor->name, "stored pieces do not cover it exactly (%llu of %llu)",
                     (unsigned long long)p->n_moved, (unsigned long long)n);
  p->buffer += n * p->unit_bytes;
  return CKPT_OK;
}

ckpt_status ckpt_place(ckpt_mover *mover, const ckpt_tensor *tensor, const uint64_t *start, const uint64_t *count,
                       uint64_t begin, uint64_t n, void *buffer, ckpt_error *err) {
  part p = {.mover = mover, .tensor = tensor, .start = start, .buffer = buffer};
  const ckpt_dtype_row *dtype = ckpt_dtype_get(tensor->dtype);
  p.unit_bytes = dtype->block_bytes;
  p.swap_bytes = dtype->kind == CKPT_KIND_COMPLEX ? dtype->block_bytes / 2 : dtype->block_bytes;
  p.rank = ckpt_tensor_units(tensor, p.units);
  return ckpt_fail_at(ckpt_split_range(p.rank, count, begin, n, visit_part, &p, err), err, NULL, tensor->name);
}

ckpt_status ckpt_split_range(uint32_t rank, const uint64_t *count, uint64_t begin, uint64_t n, ckpt_box_visit *visit,
                             void *arg, ckpt_error *err) {
  while (n != 0) {
    uint64_t from[CKPT_MAX_RANK], box[CKPT_MAX_RANK], rest = begin, inner = 1;
    for (uint32_t axis = rank; axis-- > 0; rest /= count[axis]) from[axis] = rest % count[axis];
    uint32_t axis = rank - 1; /* the outermost axis along which a box can start here: all inner positions are zero */
    while (axis > 0 && from[axis] == 0 && inner * count[axis] <= n) inner *= count[axis--];
    uint64_t n_steps = n / inner;
    if (n_steps > count[axis] - from[axis]) n_steps = count[axis] - from[axis];
    for (uint32_t i = 0; i < rank; i++) box[i] = i < axis ? 1 : i == axis ? n_steps : count[i];
    CKPT_TRY(visit(arg, from, box, err));
    begin += n_steps * inner;
    n -= n_steps * inner;
  }
  return CKPT_OK;
}

static void copy_unit_runs(const walk *w, const uint8_t *stored_base, uint8_t *packed_base) {
  uint64_t at[CKPT_MAX_RANK] = {0};
  int64_t stored = w->stored_at, packed = w->packed_at;
  do {
    switch (w->run_bytes) {
      case 1: packed_base[packed] = stored_base[stored]; break;
      case 2: memcpy(packed_base + packed, stored_base + stored, 2); break;
      case 4: memcpy(packed_base + packed, stored_base + stored, 4); break;
      case 8: memcpy(packed_base + packed, stored_base + stored, 8); break;
      default: memcpy(packed_base + packed, stored_base + stored, w->run_bytes);
    }
  } while (walk_next(w, at, &stored, &packed));
}

typedef struct memory_visit {
  const uint8_t *bytes;
  uint8_t *buffer;
  uint32_t rank, unit_bytes;
  const uint64_t *units, *start;
} memory_visit;

static ckpt_status visit_memory(void *arg, const uint64_t *from, const uint64_t *count, ckpt_error *err) {
  (void)err;
  memory_visit *v = arg;
  walk w = {.n_axes = v->rank};
  int64_t stored[CKPT_MAX_RANK], packed[CKPT_MAX_RANK];
  uint64_t n = 1;
  row_major(v->rank, v->units, stored);
  row_major(v->rank, count, packed);
  for (uint32_t axis = 0; axis < v->rank; axis++) {
    w.stored_at += (int64_t)(v->start[axis] + from[axis]) * stored[axis] * v->unit_bytes;
    w.axes[axis] = (walk_axis){count[axis], stored[axis] * v->unit_bytes, packed[axis] * v->unit_bytes};
    n *= count[axis];
  }
  walk_finish(&w, v->unit_bytes);
  copy_unit_runs(&w, v->bytes, v->buffer);
  v->buffer += n * v->unit_bytes;
  return CKPT_OK;
}

void ckpt_place_memory(const void *bytes, uint32_t unit_bytes, uint32_t rank, const uint64_t *units,
                       const uint64_t *start, const uint64_t *count, uint64_t begin, uint64_t n, void *buffer) {
  memory_visit v = {bytes, buffer, rank, unit_bytes, units, start};
  (void)ckpt_split_range(rank, count, begin, n, visit_memory, &v, NULL); /* copying cannot fail */
}

void ckpt_view_copy(const void *in, void *out, uint32_t rank, const uint64_t *held, const uint64_t *start,
                    const uint64_t *count, const uint8_t *order, uint32_t unit_bytes) {
  int64_t in_strides[CKPT_MAX_RANK], out_strides[CKPT_MAX_RANK];
  uint64_t out_count[CKPT_MAX_RANK];
  walk w = {.n_axes = rank};
  row_major(rank, held, in_strides);
  for (uint32_t axis = 0; axis < rank; axis++) {
    out_count[axis] = count[order[axis]];
    if (out_count[axis] == 0) return;
    w.stored_at += (int64_t)start[axis] * in_strides[axis] * unit_bytes;
  }
  row_major(rank, out_count, out_strides);
  for (uint32_t axis = 0; axis < rank; axis++)
    w.axes[axis] = (walk_axis){out_count[axis], in_strides[order[axis]] * unit_bytes, out_strides[axis] * unit_bytes};
  walk_finish(&w, unit_bytes);
  copy_unit_runs(&w, in, out);
}
