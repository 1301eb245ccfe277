/* checksum.c - see checksum.h. */
#include "libckpt/extents/checksum.h"

#include <zlib.h>

#include "libckpt/base/crc32.h"

/* The tensor segment that starts at this place and has bytes; NULL if there is none. Offsets rise within a file. */
static ckpt_segment *find_segment(ckpt_layout *layout, uint32_t file, uint64_t offset) {
  ckpt_layout_file *f = &layout->files[file];
  uint32_t low = 0;
  for (uint32_t high = f->n_segments; low < high;) {
    uint32_t middle = low + (high - low) / 2;
    if (f->segments[middle].offset < offset)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < f->n_segments && f->segments[low].offset == offset; low++) /* empty segments share their place */
    if (f->segments[low].kind == CKPT_SEGMENT_TENSOR && f->segments[low].n_raw != 0) return &f->segments[low];
  return NULL;
}

void ckpt_checksum_add(ckpt_layout *layout, const ckpt_extent *extent, uint64_t at, const void *bytes, size_t n_bytes) {
  ckpt_segment *segment = find_segment(layout, extent->file, extent->offset);
  if (segment == NULL || segment->checksum != CKPT_CHECKSUM_CRC32) return;
  uint32_t piece = ckpt_crc32(0, bytes, n_bytes);
  uint64_t n_behind = segment->n_raw - at - n_bytes;
  __atomic_fetch_xor(&segment->crc32, (uint32_t)crc32_combine(piece, 0, (z_off_t)n_behind), __ATOMIC_RELAXED);
}
