/* check.c - from rows to outputs: descriptions are normalized, laid out, and tied back to the rows that fill them. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batch.h"
#include "checked.h"
#include "cover.h"
#include "dtype.h"
#include "encode.h"
#include "error.h"
#include "lower.h"

#define DEFAULT_MEMORY (UINT64_C(128) << 20)

/* Gives each described tensor its places in the output, as extents that scattering walks. */
static ckpt_status place_tensors(ckpt_output *output, ckpt_error *err) {
  ckpt_index *described = output->described;
  ckpt_arena *arena = &described->arena;
  for (uint32_t f = 0; f < output->layout.n_files; f++)
    for (uint32_t s = 0; s < output->layout.files[f].n_segments; s++) {
      const ckpt_segment *segment = &output->layout.files[f].segments[s];
      if (segment->kind == CKPT_SEGMENT_TENSOR) described->tensors[segment->tensor].n_extents++;
    }
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    ckpt_tensor *tensor = &described->tensors[i];
    tensor->extents = ckpt_arena_array(arena, tensor->n_extents, sizeof *tensor->extents);
    CKPT_TRY_ALLOC(tensor->extents, err);
    tensor->n_extents = 0;
  }
  for (uint32_t f = 0; f < output->layout.n_files; f++)
    for (uint32_t s = 0; s < output->layout.files[f].n_segments; s++) {
      const ckpt_segment *segment = &output->layout.files[f].segments[s];
      if (segment->kind != CKPT_SEGMENT_TENSOR) continue;
      ckpt_tensor *tensor = &described->tensors[segment->tensor];
      ckpt_extent extent = {.file = f, .offset = segment->offset, .n_stored = segment->n_raw};
      extent.start = 0;
      extent.count = tensor->n_elements / ckpt_dtype_get(tensor->dtype)->block_elements;
      if (segment->box != NULL) extent.box = segment->box;
      tensor->extent_form = segment->box != NULL ? CKPT_EXTENT_BOX : CKPT_EXTENT_FLAT;
      ((ckpt_extent *)tensor->extents)[tensor->n_extents++] = extent;
    }
  for (uint32_t i = 0; i < described->n_tensors; i++) /* whatever order the files have them in */
    if (described->tensors[i].extent_form == CKPT_EXTENT_BOX) ckpt_sort_boxes(&described->tensors[i]);
  return CKPT_OK;
}

static ckpt_status prepare_output(ckpt_plan *plan, ckpt_output *output, ckpt_error *err) {
  if (output->is_laid_out) return CKPT_OK;
  if (output->is_started) /* normalize cannot be undone, so neither can a failure */
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "the plan failed its check before; make a new one");
  output->is_started = true;
  ckpt_index *described = output->described;
  output->losses.arena = &described->arena;
  CKPT_TRY(ckpt_normalize(output->format, described, &output->losses, err));
  output->layout =
      (ckpt_layout){.arena = &described->arena, .index = described, .is_folder = output->options.is_folder};
  CKPT_TRY(output->format->layout(&output->layout, &output->options, err));
  CKPT_TRY(ckpt_layout_finish(&output->layout, err));
  CKPT_TRY(place_tensors(output, err));
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    const ckpt_tensor *tensor = &described->tensors[i];
    ckpt_row *row = &plan->rows[tensor->origin];
    row->tensor = tensor;
    ckpt_status status = ckpt_expr_cast(&row->expr, plan, row->expr, (ckpt_dtype)tensor->dtype, err);
    if (status != CKPT_OK) return ckpt_fail_at(status, err, NULL, tensor->name);
  }
  output->is_laid_out = true;
  return CKPT_OK;
}

/* The row's file behind an encoder, plus one, counted over all outputs, and its segment there; 0 for all others. */
static uint32_t lane_of(const ckpt_plan *plan, const ckpt_row *row, uint64_t *segment) {
  if (row->sink >= plan->n_outputs || row->tensor->n_extents == 0) return 0;
  const ckpt_layout *layout = &plan->outputs[row->sink].layout;
  uint32_t lane = 1, file = row->tensor->extents[0].file;
  for (uint32_t i = 0; i < row->sink; i++) lane += plan->outputs[i].layout.n_files;
  for (uint32_t s = 0; s < layout->files[file].n_segments; s++) {
    const ckpt_segment *at = &layout->files[file].segments[s];
    if (at->kind == CKPT_SEGMENT_TENSOR && at->tensor == (uint32_t)(row->tensor - layout->index->tensors)) *segment = s;
  }
  return layout->files[file].has_encoder ? lane + file : 0;
}

static bool has_encoder(const ckpt_output *output) {
  for (uint32_t f = 0; f < output->layout.n_files; f++)
    if (output->layout.files[f].has_encoder) return true;
  return false;
}

/* Cuts an expression at its leading concats into pieces. */
static ckpt_status cut(ckpt_batcher *batcher, uint32_t row, ckpt_expr *node, uint64_t begin, ckpt_error *err) {
  if (!ckpt_concat_is_leading(node)) {
    ckpt_piece piece = {.row = row, .next = UINT32_MAX, .begin = begin, .n_elements = node->n_elements, .expr = node};
    return node->n_elements == 0 ? CKPT_OK : ckpt_batcher_add(batcher, piece, err);
  }
  for (uint32_t i = 0; i < node->n_args; i++) {
    if (begin % ckpt_dtype_get(node->dtype)->block_elements != 0)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "a concat cuts a block of %s", ckpt_dtype_name(node->dtype));
    CKPT_TRY(cut(batcher, row, node->args[i], begin, err));
    begin += node->args[i]->n_elements;
  }
  return CKPT_OK;
}

static ckpt_status prepare_row(ckpt_plan *plan, ckpt_batcher *batcher, uint32_t number, const bool *encodes,
                               ckpt_error *err) {
  ckpt_row *row = &plan->rows[number];
  if (row->sink < plan->n_outputs && row->tensor == NULL) return CKPT_OK; /* the format dropped it */
  ckpt_expr *lowered;
  CKPT_TRY(ckpt_lower(&lowered, &plan->work, row->expr, err));
  batcher->lane = 0;
  if (row->sink < plan->n_outputs && encodes[row->sink]) batcher->lane = lane_of(plan, row, &batcher->segment);
  if (row->sink < plan->n_outputs) plan->n_bytes_written += row->tensor->n_bytes;
  return cut(batcher, number, lowered, 0, err);
}

ckpt_status ckpt_plan_prepare(ckpt_plan *plan, const ckpt_run_options *options, ckpt_error *err) {
  uint64_t memory = options != NULL && options->memory != 0 ? options->memory : DEFAULT_MEMORY;
  uint32_t n_threads =
      options != NULL && options->n_threads != 0 ? options->n_threads : (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
  if (plan->is_checked && plan->memory == memory && plan->n_threads == n_threads) return CKPT_OK;
  ckpt_arena_free(&plan->work);
  plan->n_pieces = plan->n_batches = 0;
  plan->n_bytes_read = plan->n_bytes_written = 0;
  plan->memory = memory;
  plan->n_threads = n_threads;
  bool *encodes = ckpt_arena_array(&plan->work, plan->n_outputs, sizeof *encodes);
  CKPT_TRY_ALLOC(encodes, err);
  for (uint32_t i = 0; i < plan->n_outputs; i++) {
    ckpt_status status = prepare_output(plan, &plan->outputs[i], err);
    if (status != CKPT_OK) return ckpt_fail_at(status, err, plan->outputs[i].path, NULL);
    encodes[i] = has_encoder(&plan->outputs[i]);
  }
  ckpt_batcher batcher;
  CKPT_TRY(ckpt_batcher_start(&batcher, plan, err));
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < plan->n_rows && status == CKPT_OK; i++) {
    status = prepare_row(plan, &batcher, i, encodes, err);
    if (status != CKPT_OK) ckpt_fail_at(status, err, NULL, plan->rows[i].name);
  }
  if (status == CKPT_OK) status = ckpt_plan_tiles(plan, err);
  ckpt_batcher_end(&batcher);
  plan->is_checked = status == CKPT_OK;
  return status;
}

ckpt_status ckpt_plan_check(ckpt_plan *plan, const ckpt_run_options *options, uint64_t *peak, size_t *n_rows,
                            ckpt_error *err) {
  CKPT_TRY(ckpt_plan_prepare(plan, options, err));
  if (peak != NULL) *peak = plan->peak;
  if (n_rows != NULL) *n_rows = plan->n_rows;
  return CKPT_OK;
}
