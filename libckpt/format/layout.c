/* layout.c - collecting segments and computing where each stands; see layout.h. */
#include "libckpt/format/layout.h"

#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"

/* Moves an array of n items to one of `wanted`. */
static ckpt_status move(ckpt_arena *arena, void *items, uint32_t n, uint32_t wanted, uint32_t *capacity,
                        size_t item_bytes, ckpt_error *err) {
  void *moved = wanted < *capacity ? NULL : ckpt_arena_array(arena, wanted, item_bytes);
  CKPT_TRY_ALLOC(moved, err);
  if (n != 0) memcpy(moved, *(void **)items, n * item_bytes);
  *(void **)items = moved;
  *capacity = wanted;
  return CKPT_OK;
}

static ckpt_status grow(ckpt_arena *arena, void *items, uint32_t n, uint32_t *capacity, size_t item_bytes,
                        ckpt_error *err) {
  if (n < *capacity) return CKPT_OK;
  return move(arena, items, n, *capacity == 0 ? 4 : *capacity * 2, capacity, item_bytes, err);
}

ckpt_status ckpt_layout_file_add(ckpt_layout *layout, const char *name, ckpt_error *err) {
  CKPT_TRY(grow(layout->arena, &layout->files, layout->n_files, &layout->capacity, sizeof *layout->files, err));
  ckpt_layout_file file = {0};
  if (name != NULL) {
    file.name = ckpt_arena_copy(layout->arena, name);
    CKPT_TRY_ALLOC(file.name, err);
  }
  layout->files[layout->n_files++] = file;
  return CKPT_OK;
}

static ckpt_status add(ckpt_layout *layout, ckpt_segment segment, ckpt_error *err) {
  ckpt_layout_file *file = &layout->files[layout->n_files - 1];
  CKPT_TRY(grow(layout->arena, &file->segments, file->n_segments, &file->capacity, sizeof *file->segments, err));
  file->segments[file->n_segments++] = segment;
  return CKPT_OK;
}

ckpt_status ckpt_layout_reserve(ckpt_layout *layout, uint32_t n, ckpt_error *err) {
  ckpt_layout_file *file = &layout->files[layout->n_files - 1];
  if (n > UINT32_MAX - file->n_segments) return ckpt_fail(err, CKPT_ELIMIT, file->name, NULL, "too many tensors");
  if (file->n_segments + n <= file->capacity) return CKPT_OK;
  return move(layout->arena, &file->segments, file->n_segments, file->n_segments + n, &file->capacity,
              sizeof *file->segments, err);
}

ckpt_status ckpt_layout_literal(ckpt_layout *layout, ckpt_generator *print, const void *arg, ckpt_error *err) {
  return add(layout, (ckpt_segment){.kind = CKPT_SEGMENT_LITERAL, .print = print, .arg = arg}, err);
}

ckpt_status ckpt_layout_tensor(ckpt_layout *layout, uint32_t tensor, const uint64_t *box, ckpt_checksum checksum,
                               ckpt_error *err) {
  ckpt_segment segment = {.kind = CKPT_SEGMENT_TENSOR, .checksum = checksum, .tensor = tensor, .box = box};
  return add(layout, segment, err);
}

ckpt_status ckpt_layout_range(ckpt_layout *layout, uint32_t tensor, const ckpt_segment_range *range,
                              ckpt_checksum checksum, ckpt_error *err) {
  ckpt_segment segment = {.kind = CKPT_SEGMENT_TENSOR, .checksum = checksum, .tensor = tensor, .range = *range};
  return add(layout, segment, err);
}

void ckpt_layout_frame(ckpt_layout *layout, uint32_t n, int level) {
  ckpt_layout_file *file = &layout->files[layout->n_files - 1];
  for (uint32_t i = file->n_segments - n; i < file->n_segments; i++) {
    file->segments[i].encoder = CKPT_ENCODE_ZSTD;
    file->segments[i].level = (uint8_t)level;
    file->segments[i].is_joined = i != file->n_segments - n;
  }
}

ckpt_status ckpt_layout_side_file(ckpt_layout *layout, const ckpt_side_file *side, ckpt_error *err) {
  return add(layout, (ckpt_segment){.kind = CKPT_SEGMENT_SIDE_FILE, .side = side, .n_bytes = side->n_bytes}, err);
}

const ckpt_side_file *ckpt_layout_carried(const ckpt_layout_file *file) {
  bool is_carried = file->n_segments == 1 && file->segments[0].kind == CKPT_SEGMENT_SIDE_FILE;
  return is_carried ? file->segments[0].side : NULL;
}

ckpt_status ckpt_layout_footer(ckpt_layout *layout, ckpt_generator *print, const void *arg, ckpt_error *err) {
  return add(layout, (ckpt_segment){.kind = CKPT_SEGMENT_FOOTER, .print = print, .arg = arg}, err);
}

ckpt_status ckpt_layout_trailer(ckpt_layout *layout, ckpt_generator *print, const void *arg, ckpt_error *err) {
  return add(layout, (ckpt_segment){.kind = CKPT_SEGMENT_TRAILER, .print = print, .arg = arg}, err);
}

static void print_zeros(const ckpt_layout *layout, const void *arg, ckpt_stream *out) {
  (void)layout;
  ckpt_stream_fill(out, 0, *(const uint64_t *)arg);
}

ckpt_status ckpt_layout_zeros(ckpt_layout *layout, uint64_t n_bytes, ckpt_error *err) {
  if (n_bytes == 0) return CKPT_OK;
  uint64_t *arg = ckpt_arena_alloc(layout->arena, sizeof *arg);
  CKPT_TRY_ALLOC(arg, err);
  *arg = n_bytes;
  return ckpt_layout_literal(layout, print_zeros, arg, err);
}

ckpt_status ckpt_layout_elsewhere(ckpt_layout *layout, uint32_t tensor, ckpt_error *err) {
  if (layout->is_elsewhere == NULL)
    layout->is_elsewhere = ckpt_arena_array(layout->arena, layout->index->n_tensors, sizeof *layout->is_elsewhere);
  CKPT_TRY_ALLOC(layout->is_elsewhere, err);
  layout->is_elsewhere[tensor] = true;
  return CKPT_OK;
}

/* What was placed of a tensor. */
typedef struct place {
  uint64_t n_bytes;
  uint32_t whole_in; /* the last file that has all of it, + 1: a copy stands in another one */
} place;

/* Bytes of a tensor segment before its encoder. */
static ckpt_status measure_tensor(const ckpt_layout *layout, uint32_t file, ckpt_segment *segment, place *placed,
                                  ckpt_error *err) {
  if (segment->tensor >= layout->index->n_tensors)
    return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "layout places tensor number %u", segment->tensor);
  const ckpt_tensor *tensor = &layout->index->tensors[segment->tensor];
  segment->n_raw = tensor->n_bytes;
  if (segment->range.count != 0) segment->n_raw = segment->range.count * ckpt_dtype_get(tensor->dtype)->block_bytes;
  if (segment->box != NULL) {
    uint64_t units[CKPT_MAX_RANK], volume;
    uint32_t rank = ckpt_tensor_units(tensor, units);
    if (!ckpt_product_u64(segment->box + rank, rank, &volume))
      return ckpt_fail(err, CKPT_EINTERNAL, NULL, tensor->name, "layout places a box that overflows");
    segment->n_raw = volume * ckpt_dtype_get(tensor->dtype)->block_bytes;
  }
  const bool is_whole = segment->box == NULL && segment->range.count == 0;
  if (is_whole && placed[segment->tensor].whole_in == file + 1)
    return ckpt_fail(err, CKPT_EINTERNAL, NULL, tensor->name, "layout places it twice in one file");
  if (is_whole) placed[segment->tensor].whole_in = file + 1;
  if (!is_whole || placed[segment->tensor].n_bytes == 0) placed[segment->tensor].n_bytes += segment->n_raw;
  return CKPT_OK;
}

static ckpt_status place_file(ckpt_layout *layout, uint32_t number, place *placed, ckpt_error *err) {
  ckpt_layout_file *file = &layout->files[number];
  uint64_t offset = 0;
  bool has_footer = false;
  for (uint32_t i = 0; i < file->n_segments; i++) {
    ckpt_segment *segment = &file->segments[i];
    segment->offset = offset;
    file->has_encoder = file->has_encoder || segment->encoder != CKPT_ENCODE_RAW;
    bool is_sized = segment->kind == CKPT_SEGMENT_LITERAL || segment->kind == CKPT_SEGMENT_TRAILER;
    has_footer = has_footer || segment->kind == CKPT_SEGMENT_FOOTER;
    if (has_footer && !is_sized && segment->kind != CKPT_SEGMENT_FOOTER)
      return ckpt_fail(err, CKPT_EINTERNAL, file->name, NULL, "layout has a tensor behind a footer");
    if (segment->encoder != CKPT_ENCODE_RAW && !is_sized && segment->kind != CKPT_SEGMENT_TENSOR)
      return ckpt_fail(err, CKPT_EINTERNAL, file->name, NULL, "layout has a side file or a footer in a frame");
    if (segment->kind == CKPT_SEGMENT_SIDE_FILE) segment->n_raw = segment->n_bytes;
    if (segment->kind == CKPT_SEGMENT_TENSOR) CKPT_TRY(measure_tensor(layout, number, segment, placed, err));
    if (is_sized) {
      ckpt_stream out;
      ckpt_stream_count(&out, err);
      segment->print(layout, segment->arg, &out);
      CKPT_TRY(ckpt_stream_end(&out));
      segment->n_raw = out.n_bytes;
    }
    bool is_known = segment->kind != CKPT_SEGMENT_FOOTER && segment->encoder == CKPT_ENCODE_RAW;
    segment->n_bytes = is_known ? segment->n_raw : CKPT_SIZE_UNKNOWN;
    if (offset == CKPT_SIZE_UNKNOWN || segment->n_bytes == CKPT_SIZE_UNKNOWN)
      offset = CKPT_SIZE_UNKNOWN;
    else if (!ckpt_add_u64(offset, segment->n_bytes, &offset) || offset > INT64_MAX)
      return ckpt_fail(err, CKPT_ELIMIT, file->name, NULL, "the file would be larger than 2^63 bytes");
  }
  file->n_bytes = offset;
  return CKPT_OK;
}

ckpt_status ckpt_segment_printed(ckpt_segment *segment, ckpt_stream *out, ckpt_error *err) {
  CKPT_TRY(ckpt_stream_end(out));
  if (segment->kind == CKPT_SEGMENT_FOOTER) segment->n_bytes = segment->n_raw = out->n_bytes;
  if (segment->n_raw != out->n_bytes)
    return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "a literal of %llu bytes now has %llu",
                     (unsigned long long)segment->n_raw, (unsigned long long)out->n_bytes);
  return CKPT_OK;
}

ckpt_status ckpt_layout_finish(ckpt_layout *layout, ckpt_error *err) {
  const ckpt_index *index = layout->index;
  place *placed = ckpt_arena_array(layout->arena, index->n_tensors, sizeof *placed);
  CKPT_TRY_ALLOC(placed, err);
  for (uint32_t i = 0; i < layout->n_files; i++) CKPT_TRY(place_file(layout, i, placed, err));
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    const bool is_elsewhere = layout->is_elsewhere != NULL && layout->is_elsewhere[i];
    const uint64_t n_bytes = is_elsewhere ? 0 : index->tensors[i].n_bytes;
    if (placed[i].n_bytes != n_bytes)
      return ckpt_fail(err, CKPT_EINTERNAL, NULL, index->tensors[i].name, "layout places %llu of %llu bytes",
                       (unsigned long long)placed[i].n_bytes, (unsigned long long)n_bytes);
  }
  return CKPT_OK;
}
