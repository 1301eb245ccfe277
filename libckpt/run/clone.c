/* clone.c - see clone.h. Digests are still computed from what is read: a clone saves the writing, not the proof. */
#include "libckpt/run/clone.h"

#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/run/output.h"

enum { MAX_LITERAL_BYTES = 4 << 20, COMPARE_BYTES = 16 << 10 };

/* An input file that may equal an output file. */
typedef struct original {
  ckpt_source *source;
  uint32_t file;
} original;

static ckpt_row *row_of(const ckpt_plan *plan, const ckpt_layout *layout, const ckpt_segment *segment) {
  return &plan->rows[layout->index->tensors[segment->tensor].details->origin];
}

/* Whether the segment's bytes are read, as they are stored, from the same place of one input file; notes which. */
static bool is_in_place(const ckpt_plan *plan, const ckpt_layout *layout, const ckpt_segment *segment, original *from) {
  if (segment->kind == CKPT_SEGMENT_SIDE_FILE) return false;
  if (segment->kind != CKPT_SEGMENT_TENSOR || segment->n_raw == 0) return segment->kind < CKPT_SEGMENT_FOOTER;
  const ckpt_expr *expr = row_of(plan, layout, segment)->expr;
  if (segment->box != NULL || segment->encoder != CKPT_ENCODE_RAW || expr->op != &ckpt_op_read || expr->view != NULL)
    return false;
  const ckpt_tensor *tensor = expr->tensor;
  const ckpt_extent *extent = tensor->extents;
  if (tensor->n_extents != 1 || tensor->details->extent_form != CKPT_EXTENT_FLAT ||
      extent->chain[0] != CKPT_DECODE_RAW || extent->signs != 0 || extent->file == CKPT_FILE_LITERAL ||
      extent->offset + extent->skip != segment->offset)
    return false;
  if (from->source == NULL) *from = (original){expr->index->source, extent->file};
  return from->source == expr->index->source && from->file == extent->file;
}

static ckpt_status literal_equals(const ckpt_layout *layout, const ckpt_segment *segment, const original *from,
                                  bool *equal, ckpt_error *err) {
  const ckpt_sink_file file = {"literal", segment->n_bytes};
  uint8_t window[COMPARE_BYTES], stored[COMPARE_BYTES];
  ckpt_sink *sink;
  ckpt_stream out;
  *equal = false;
  CKPT_TRY(ckpt_sink_memory(&sink, err));
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_sink_open(sink, &file, 1, err));
  ckpt_stream_sink(&out, sink, 0, 0, window, sizeof window, err);
  segment->print(layout, segment->arg, &out);
  CKPT_TRY_GOTO(ckpt_stream_end(&out));
  uint64_t n_bytes;
  const uint8_t *printed = ckpt_sink_bytes(sink, 0, &n_bytes);
  *equal = printed != NULL && n_bytes == segment->n_bytes;
  for (uint64_t at = 0; *equal && at < n_bytes; at += sizeof stored) {
    size_t n = n_bytes - at < sizeof stored ? (size_t)(n_bytes - at) : sizeof stored;
    CKPT_TRY_GOTO(ckpt_source_read(from->source, from->file, segment->offset + at, stored, n, err));
    *equal = memcmp(printed + at, stored, n) == 0;
  }
done:
  ckpt_sink_free(sink);
  return status;
}

static ckpt_status equals_original(const ckpt_plan *plan, const ckpt_layout *layout, const ckpt_layout_file *file,
                                   original *from, bool *equal, ckpt_error *err) {
  *equal = false;
  for (uint32_t s = 0; s < file->n_segments; s++)
    if (!is_in_place(plan, layout, &file->segments[s], from)) return CKPT_OK;
  if (from->source == NULL || ckpt_source_size(from->source, from->file) != file->n_bytes) return CKPT_OK;
  *equal = true;
  for (uint32_t s = 0; s < file->n_segments && *equal; s++) {
    const ckpt_segment *segment = &file->segments[s];
    if (segment->kind != CKPT_SEGMENT_LITERAL) continue;
    *equal = segment->n_bytes <= MAX_LITERAL_BYTES;
    if (*equal) CKPT_TRY(literal_equals(layout, segment, from, equal, err));
  }
  return CKPT_OK;
}

/* Whether a segment is a whole tensor that `from` has at the same place. */
static bool is_shareable(const ckpt_plan *plan, const ckpt_layout *layout, const ckpt_segment *segment,
                         original *from) {
  return segment->kind == CKPT_SEGMENT_TENSOR && segment->n_raw != 0 &&
         row_of(plan, layout, segment)->tensor->n_extents == 1 && is_in_place(plan, layout, segment, from);
}

/* Finds the input file to clone: the one that has the first tensor that lies at its place. False where its size
 * differs. */
static bool find_resembling(const ckpt_plan *plan, const ckpt_layout *layout, const ckpt_layout_file *file,
                            original *from) {
  *from = (original){0};
  for (uint32_t s = 0; s < file->n_segments && from->source == NULL; s++) {
    original its = {0};
    if (is_shareable(plan, layout, &file->segments[s], &its)) *from = its;
  }
  for (uint32_t s = 0; s < file->n_segments; s++) { /* a sum is one of what is written */
    const ckpt_segment *segment = &file->segments[s];
    if (segment->kind != CKPT_SEGMENT_LITERAL && segment->kind != CKPT_SEGMENT_TENSOR) return false;
    if (segment->encoder != CKPT_ENCODE_RAW || segment->checksum != CKPT_CHECKSUM_NONE) return false;
  }
  return from->source != NULL && ckpt_source_size(from->source, from->file) == file->n_bytes;
}

/* Once the file is a clone, the run writes over it all that is not the original's. */
static void share_rows(const ckpt_plan *plan, const ckpt_layout *layout, const ckpt_layout_file *file, original *from) {
  for (uint32_t s = 0; s < file->n_segments; s++)
    if (is_shareable(plan, layout, &file->segments[s], from))
      row_of(plan, layout, &file->segments[s])->is_shared = true;
}

ckpt_status ckpt_clone_files(ckpt_plan *plan, ckpt_output *output, ckpt_error *err) {
  for (uint32_t f = 0; f < output->layout.n_files; f++) {
    ckpt_layout_file *file = &output->layout.files[f];
    original from = {0};
    bool equal = false;
    file->is_cloned = false;
    if (!ckpt_plan_writes(plan, file)) continue; /* its rank may have begun to write it */
    const ckpt_side_file *side = ckpt_layout_carried(file);
    if (side != NULL) {
      from = (original){ckpt_output_side_source(output, side), side->file};
      equal = side->text == NULL && from.source != NULL;
    } else {
      CKPT_TRY(equals_original(plan, &output->layout, file, &from, &equal, err));
    }
    int fd;
    const bool resembles = !equal && side == NULL && find_resembling(plan, &output->layout, file, &from);
    if ((!equal && !resembles) || !ckpt_source_lend(from.source, from.file, &fd)) continue;
    const bool is_cloned = ckpt_sink_clone(output->sink, f, fd);
    ckpt_source_take_back(from.source, from.file);
    file->is_cloned = is_cloned && equal;
    if (is_cloned && resembles) share_rows(plan, &output->layout, file, &from);
  }
  return CKPT_OK;
}
