/* place.h - moves a part of a tensor between a packed buffer and the extents that hold it, in large runs.
 *
 * The part is a flat, row-major range of a box of the tensor (all in units, see extent.h). Reading gathers it from the
 * extents of an index, through decoders; writing scatters it to the extents of a layout. Both are one walk: each extent
 * is intersected with the part, adjacent axes are merged, and what remains are runs of equal length. Long runs move
 * directly; short ones that lie close together are read through a window and copied out of it, or packed into a window
 * and written at once. */
#ifndef CKPT_EXTENTS_PLACE_H
#define CKPT_EXTENTS_PLACE_H

#include "libckpt/extents/checksum.h"
#include "libckpt/extents/decode.h"
#include "libckpt/index/index.h"
#include "libckpt/io/sink.h"

#define CKPT_WINDOW_BYTES (256u << 10)

/* One thread's means of moving bytes: either a reader (gather) or a sink (scatter). */
typedef struct ckpt_mover {
  ckpt_reader reader;
  ckpt_sink *sink;     /* NULL: gather */
  ckpt_layout *layout; /* scatter: keeps the checksums of what is written; may be NULL */
  uint8_t *window;     /* CKPT_WINDOW_BYTES, the caller's */
} ckpt_mover;

/* Whether the gap between two runs of a file is read with them: it is small, or no longer than they are. */
static inline bool ckpt_gap_is_read(uint64_t run_bytes, uint64_t gap_bytes) {
  return gap_bytes <= (4 << 10) || gap_bytes <= run_bytes;
}

/* Moves units [begin, begin + n) of the box (start, count; tensor's unit rank) between the tensor's extents and buffer,
 * which holds n units row-major. Fails with EIO, EFORMAT (decoders; extents that do not cover the range). */
ckpt_status ckpt_place(ckpt_mover *mover, const ckpt_tensor *tensor, const uint64_t *start, const uint64_t *count,
                       uint64_t begin, uint64_t n, void *buffer, ckpt_error *err);

/* Bytes of the file that ckpt_place reads for a whole box of `count` in a tensor of `units` that is stored in one
 * piece, plain: the box, and the gaps that are read with its runs. 0 for an empty box. */
uint64_t ckpt_place_fetched(uint32_t rank, const uint64_t *units, const uint64_t *count, uint32_t unit_bytes);

/* Writes n_bytes at position `at` of a raw tensor segment of the layout's file. */
ckpt_status ckpt_place_segment(ckpt_mover *mover, uint32_t file, const ckpt_segment *segment, uint64_t at,
                               const void *bytes, size_t n_bytes, ckpt_error *err);

/* The same as ckpt_place for a tensor whose bytes are all in one block of memory, row-major: copies. */
void ckpt_place_memory(const void *bytes, uint32_t unit_bytes, uint32_t rank, const uint64_t *units,
                       const uint64_t *start, const uint64_t *count, uint64_t begin, uint64_t n, void *buffer);

/* Splits a flat range [begin, begin + n) of a box of `count` into at most 2 rank - 1 boxes and calls visit for each, in
 * order. box_start is relative to the box. */
typedef ckpt_status ckpt_box_visit(void *arg, const uint64_t *box_start, const uint64_t *box_count, ckpt_error *err);
ckpt_status ckpt_split_range(uint32_t rank, const uint64_t *count, uint64_t begin, uint64_t n, ckpt_box_visit *visit,
                             void *arg, ckpt_error *err); /* as above */

/* Copies the box (start, count) of a packed array of shape `held`, its axes in another order: axis i of out is axis
 * order[i] of the box. */
void ckpt_view_copy(const void *in, void *out, uint32_t rank, const uint64_t *held, const uint64_t *start,
                    const uint64_t *count, const uint8_t *order, uint32_t unit_bytes);

#endif
