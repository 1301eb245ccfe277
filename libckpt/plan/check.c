/* check.c - from rows to outputs: descriptions are normalized, laid out, and tied back to the rows that fill them. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/options.h"
#include "libckpt/base/text.h"
#include "libckpt/index/cover.h"
#include "libckpt/index/overlap.h"
#include "libckpt/plan/batch.h"
#include "libckpt/plan/duplicates.h"
#include "libckpt/plan/lower.h"

#define DEFAULT_MEMORY (UINT64_C(128) << 20)

/* Room for one extent per segment of each tensor. */
static ckpt_status count_places(ckpt_output *output, ckpt_error *err) {
  ckpt_index *described = output->described;
  for (uint32_t i = 0; i < described->n_tensors; i++) described->tensors[i].n_extents = 0; /* what it was read from */
  for (uint32_t f = 0; f < output->layout.n_files; f++)
    for (uint32_t s = 0; s < output->layout.files[f].n_segments; s++) {
      const ckpt_segment *segment = &output->layout.files[f].segments[s];
      if (segment->kind == CKPT_SEGMENT_TENSOR) described->tensors[segment->tensor].n_extents++;
    }
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    ckpt_tensor *tensor = &described->tensors[i];
    tensor->extents = ckpt_arena_array(&described->arena, tensor->n_extents, sizeof *tensor->extents);
    CKPT_TRY_ALLOC(tensor->extents, err);
  }
  return CKPT_OK;
}

static int compare_starts(const void *x, const void *y) {
  const ckpt_extent *a = x, *b = y;
  return (a->start > b->start) - (a->start < b->start);
}

void ckpt_output_place(ckpt_output *output) {
  ckpt_index *described = output->described;
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    described->tensors[i].n_extents = 0;
    described->tensors[i].details->extent_form = CKPT_EXTENT_FLAT;
  }
  for (uint32_t f = 0; f < output->layout.n_files; f++) {
    uint64_t skip = 0, n_raw = 0; /* of the frame: before the segment, and in the one before */
    for (uint32_t s = 0; s < output->layout.files[f].n_segments; s++) {
      const ckpt_segment *segment = &output->layout.files[f].segments[s];
      skip = segment->is_joined ? skip + n_raw : 0;
      n_raw = segment->n_raw;
      if (segment->kind != CKPT_SEGMENT_TENSOR) continue;
      ckpt_tensor *tensor = &described->tensors[segment->tensor];
      ckpt_extent extent = {.file = f, .offset = segment->offset, .n_stored = segment->n_bytes, .skip = skip};
      if (segment->encoder == CKPT_ENCODE_ZSTD) extent.chain[0] = CKPT_DECODE_ZSTD;
      extent.start = 0;
      extent.count = tensor->n_elements / ckpt_dtype_get(tensor->dtype)->block_elements;
      if (segment->range.count != 0) extent.start = segment->range.start, extent.count = segment->range.count;
      if (segment->box != NULL) extent.box = segment->box;
      tensor->details->extent_form = segment->box != NULL ? CKPT_EXTENT_BOX : CKPT_EXTENT_FLAT;
      ((ckpt_extent *)tensor->extents)[tensor->n_extents++] = extent;
    }
  }
  for (uint32_t i = 0; i < described->n_tensors; i++) /* whatever order the files have them in */
    if (described->tensors[i].details->extent_form == CKPT_EXTENT_BOX)
      ckpt_sort_boxes(&described->tensors[i]);
    else if (described->tensors[i].n_extents > 1)
      qsort((ckpt_extent *)described->tensors[i].extents, described->tensors[i].n_extents, sizeof(ckpt_extent),
            compare_starts);
}

/* Bytes of a file; of one whose size is not known before the run, as if nothing in it were compressed, and with a
 * footer that states no size yet. */
static uint64_t file_bytes(const ckpt_layout *layout, const ckpt_layout_file *file) {
  uint64_t n_bytes = 0;
  if (file->n_bytes != CKPT_SIZE_UNKNOWN) return file->n_bytes;
  for (uint32_t s = 0; s < file->n_segments; s++) {
    const ckpt_segment *segment = &file->segments[s];
    ckpt_stream out;
    ckpt_stream_count(&out, NULL);
    if (segment->kind == CKPT_SEGMENT_FOOTER) segment->print(layout, segment->arg, &out);
    n_bytes += segment->kind == CKPT_SEGMENT_FOOTER ? out.n_bytes : segment->n_raw;
  }
  return n_bytes;
}

uint64_t ckpt_output_bytes(const ckpt_output *output) {
  uint64_t n_bytes = 0;
  for (uint32_t i = 0; i < output->layout.n_files; i++)
    n_bytes += file_bytes(&output->layout, &output->layout.files[i]);
  return n_bytes;
}

/* Says which rows do nothing but read, where the format makes use of that. */
static ckpt_status note_reads(const ckpt_plan *plan, ckpt_output *output, ckpt_error *err) {
  const ckpt_index *described = output->described;
  const ckpt_caps *caps = &output->format->caps;
  if (!caps->graph && !caps->masters && !caps->items) return CKPT_OK;
  ckpt_layout_read *reads = ckpt_arena_array(output->layout.arena, described->n_tensors, sizeof *reads);
  CKPT_TRY_ALLOC(reads, err);
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    const ckpt_expr *expr = plan->rows[described->tensors[i].details->origin].expr;
    const ckpt_tensor *tensor = ckpt_expr_tensor(expr);
    if (tensor != NULL && expr->dtype == described->tensors[i].dtype)
      reads[i] = (ckpt_layout_read){expr->index, tensor};
  }
  output->layout.reads = reads;
  return CKPT_OK;
}

/* A file beside an output is one too. */
static ckpt_status check_beside(const ckpt_plan *plan, const ckpt_output *output, ckpt_error *err) {
  const ckpt_layout *layout = &output->layout;
  for (uint32_t f = 0; f < layout->n_files && output->is_at_path && !layout->is_folder; f++) {
    char path[PATH_MAX];
    const char *name = layout->files[f].name;
    const int n_folder = (int)(ckpt_path_name(output->path) - output->path);
    if (name == NULL || snprintf(path, sizeof path, "%.*s%s", n_folder, output->path, name) >= (int)sizeof path)
      continue; /* what is too long cannot be opened either */
    CKPT_TRY(ckpt_plan_keeps_apart(plan, path, err));
    for (uint32_t i = 0; i < plan->n_outputs; i++)
      if (plan->outputs[i].is_at_path)
        CKPT_TRY(ckpt_refuse_output_overlap(path, plan->outputs[i].path, plan->outputs[i].options.is_folder, err));
  }
  return CKPT_OK;
}

static ckpt_status prepare_output(ckpt_plan *plan, ckpt_output *output, ckpt_error *err) {
  if (output->is_laid_out) return CKPT_OK;
  if (output->options.world > CKPT_MAX_RANKS)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%u ranks (at most %d)", output->options.world, CKPT_MAX_RANKS);
  if (output->is_started) /* normalize cannot be undone, so neither can a failure */
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "the plan failed its check before; make a new one");
  output->is_started = true;
  ckpt_index *described = output->described;
  output->losses.arena = &described->arena;
  CKPT_TRY(ckpt_normalize(output->format, described, &output->losses, err));
  output->layout =
      (ckpt_layout){.arena = &described->arena, .index = described, .is_folder = output->options.is_folder};
  CKPT_TRY(note_reads(plan, output, err));
  CKPT_TRY(output->format->layout(&output->layout, &output->options, err));
  CKPT_TRY(ckpt_layout_finish(&output->layout, err));
  CKPT_TRY(check_beside(plan, output, err));
  CKPT_TRY(count_places(output, err));
  ckpt_output_place(output);
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    const ckpt_tensor *tensor = &described->tensors[i];
    ckpt_row *row = &plan->rows[tensor->details->origin];
    row->tensor = tensor;
    if (output->layout.is_elsewhere != NULL && output->layout.is_elsewhere[i])
      row->sink = CKPT_NO_SINK; /* digested all the same */
    ckpt_status status = ckpt_expr_cast(&row->expr, plan, row->expr, (ckpt_dtype)tensor->dtype, err);
    if (status != CKPT_OK) return ckpt_fail_at(status, err, NULL, tensor->name);
  }
  output->is_laid_out = true;
  return CKPT_OK;
}

/* Describes an output in no more memory than a plan of it may take (tiles.c): many ranks of many tensors are refused
 * before they take more. */
static ckpt_status prepare_within(ckpt_plan *plan, ckpt_output *output, ckpt_error *err) {
  ckpt_arena *arena = &output->described->arena;
  const uint64_t limit = arena->limit;
  uint64_t room = plan->memory, n_allowed = output->described->n_tensors;
  for (uint32_t i = 0; i < plan->n_inputs; i++) n_allowed += plan->inputs[i].index->n_extents;
  if (!ckpt_add_u64(room, n_allowed * CKPT_INDEX_ALLOWANCE + CKPT_PLAN_ALLOWANCE, &room)) room = limit;
  arena->limit = room < arena->n_taken ? arena->n_taken : room < limit ? room : limit;
  arena->is_full = false;
  ckpt_error why = {.status = CKPT_OK};
  ckpt_status status = prepare_output(plan, output, &why);
  if (status == CKPT_ENOMEM && arena->is_full)
    status = ckpt_advise(
        ckpt_fail(
            err, CKPT_ELIMIT, NULL, NULL,
            "the files of %u tensors for %u ranks take more than %llu bytes to describe, and the memory limit is %llu",
            output->described->n_tensors, output->options.world == 0 ? 1 : output->options.world,
            (unsigned long long)arena->limit, (unsigned long long)plan->memory),
        err, "raise %memory");
  else if (status != CKPT_OK && err != NULL)
    *err = why;
  arena->limit = limit;
  return status;
}

static bool has_encoder(const ckpt_output *output) {
  for (uint32_t f = 0; f < output->layout.n_files; f++)
    if (output->layout.files[f].has_encoder) return true;
  return false;
}

bool ckpt_plan_writes(const ckpt_plan *plan, const ckpt_layout_file *file) {
  return file->rank % plan->n_ranks == plan->rank;
}

bool ckpt_row_is_boxed(const ckpt_plan *plan, const ckpt_row *row) {
  return row->sink < plan->n_outputs && row->tensor != NULL && plan->outputs[row->sink].by_segment &&
         (row->tensor->details->extent_form == CKPT_EXTENT_BOX || row->tensor->n_extents > 1);
}

bool ckpt_plan_digests(const ckpt_plan *plan, uint32_t number) {
  const ckpt_row *row = &plan->rows[number];
  if (!row->wants_digest || row->same_as != CKPT_NO_ROW || row->sink == CKPT_VALUE_SINK) return false;
  if (row->sink < plan->n_outputs && row->tensor == NULL) return false; /* the format dropped it */
  bool is_in_one_file = row->sink < plan->n_outputs && row->tensor->n_extents == 1;
  if (!is_in_one_file || ckpt_row_is_boxed(plan, row)) return number % plan->n_ranks == plan->rank;
  return ckpt_plan_writes(plan, &plan->outputs[row->sink].layout.files[row->tensor->extents[0].file]);
}

/* Cuts an expression at its leading concats into pieces; `piece` says what they fill. */
static ckpt_status cut(ckpt_batcher *batcher, ckpt_piece *piece, ckpt_expr *node, ckpt_error *err) {
  if (!ckpt_concat_is_leading(node)) {
    piece->n_elements = node->n_elements;
    piece->expr = node;
    if (node->n_elements != 0) CKPT_TRY(ckpt_batcher_add(batcher, *piece, err));
    piece->begin += node->n_elements;
    return CKPT_OK;
  }
  for (uint32_t i = 0; i < node->n_args; i++) {
    if (piece->begin % ckpt_dtype_get(node->dtype)->block_elements != 0)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "a concat cuts a block of %s", ckpt_dtype_name(node->dtype));
    CKPT_TRY(cut(batcher, piece, node->args[i], err));
  }
  return CKPT_OK;
}

static ckpt_status prepare_row(ckpt_plan *plan, ckpt_batcher *batcher, uint32_t number, ckpt_error *err) {
  ckpt_row *row = &plan->rows[number];
  ckpt_expr *lowered;
  if (row->sink < plan->n_outputs) {
    if (row->tensor == NULL || plan->outputs[row->sink].by_segment) return CKPT_OK; /* dropped, or cut by segment */
    plan->n_bytes_written += row->tensor->n_bytes;
  } else if (row->sink == CKPT_NO_SINK && (number % plan->n_ranks != plan->rank || row->same_as != CKPT_NO_ROW)) {
    return CKPT_OK;
  }
  CKPT_TRY(ckpt_lower(&lowered, &plan->work, row->expr, err));
  return cut(batcher, &(ckpt_piece){.row = number, .next = UINT32_MAX}, lowered, err);
}

/* What a segment holds of its row's result. */
static ckpt_status slice_box(ckpt_expr **out, ckpt_plan *plan, ckpt_expr *x, const uint64_t *box, ckpt_error *err) {
  uint32_t rank = x->rank;
  for (uint32_t axis = 0; axis < rank; axis++) {
    uint64_t unit = axis + 1 == rank ? ckpt_dtype_get(x->dtype)->block_elements : 1;
    if (box[rank + axis] * unit != x->shape[axis])
      CKPT_TRY(ckpt_expr_slice_in(&x, &plan->work, x, axis, box[axis] * unit, box[rank + axis] * unit, err));
  }
  *out = x;
  return CKPT_OK;
}

static ckpt_status slice_range(ckpt_expr **out, ckpt_plan *plan, ckpt_expr *x, const ckpt_segment_range *range,
                               ckpt_error *err) {
  const uint64_t unit = ckpt_dtype_get(x->dtype)->block_elements;
  CKPT_TRY(ckpt_expr_reshape(&x, plan, x, 1, &x->n_elements, err));
  return ckpt_expr_slice_in(out, &plan->work, x, 0, range->start * unit, range->count * unit, err);
}

/* Pieces for every segment of the rank's own files. */
static ckpt_status prepare_segments(ckpt_plan *plan, ckpt_batcher *batcher, const ckpt_output *output,
                                    ckpt_error *err) {
  for (uint32_t f = 0; f < output->layout.n_files; f++) {
    const ckpt_layout_file *file = &output->layout.files[f];
    for (uint32_t s = 0; s < file->n_segments && ckpt_plan_writes(plan, file); s++) {
      ckpt_segment *segment = &file->segments[s];
      if (segment->kind != CKPT_SEGMENT_TENSOR || segment->n_raw == 0) continue;
      const ckpt_tensor *tensor = &output->described->tensors[segment->tensor];
      if (plan->rows[tensor->details->origin].sink == CKPT_NO_SINK) continue; /* a replay only digests it */
      ckpt_expr *expr = plan->rows[tensor->details->origin].expr;
      ckpt_status status = CKPT_OK;
      if (segment->box != NULL) status = slice_box(&expr, plan, expr, segment->box, err);
      if (segment->range.count != 0) status = slice_range(&expr, plan, expr, &segment->range, err);
      if (status == CKPT_OK) status = ckpt_lower(&expr, &plan->work, expr, err);
      batcher->segment = s;
      batcher->lane = file->has_encoder ? ckpt_lane_number(plan, output, f) : 0;
      ckpt_piece piece = {.row = tensor->details->origin, .next = UINT32_MAX, .segment = segment, .file = f};
      if (status == CKPT_OK) status = cut(batcher, &piece, expr, err);
      if (status != CKPT_OK) return ckpt_fail_at(status, err, NULL, tensor->name);
      plan->n_bytes_written += segment->n_raw;
    }
  }
  batcher->lane = 0;
  return CKPT_OK;
}

/* Room for what casts do to each row that has some: it is told after the run, when the work is gone. */
static ckpt_status make_stats(ckpt_plan *plan, ckpt_error *err) {
  for (uint32_t i = 0; i < plan->n_rows; i++) {
    ckpt_row *row = &plan->rows[i];
    if (row->stats != NULL || ckpt_expr_rounds_to(row->expr) == CKPT_DTYPE_NONE) continue;
    row->stats = ckpt_arena_alloc(&plan->arena, sizeof *row->stats);
    CKPT_TRY_ALLOC(row->stats, err);
  }
  return CKPT_OK;
}

ckpt_status ckpt_plan_prepare(ckpt_plan *plan, const ckpt_run_options *options, ckpt_error *err) {
  uint64_t memory = options != NULL && options->memory != 0 ? options->memory : DEFAULT_MEMORY;
  uint32_t n_threads =
      options != NULL && options->n_threads != 0 ? options->n_threads : (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
  const ckpt_group *group = options != NULL && options->group != NULL ? options->group : &ckpt_group_self;
  if (group->size == 0 || group->rank >= group->size)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "rank %u of %u rank%s", group->rank, group->size,
                     ckpt_plural(group->size));
  if (plan->is_checked && plan->memory == memory && plan->n_threads == n_threads && plan->rank == group->rank &&
      plan->n_ranks == group->size)
    return CKPT_OK;
  ckpt_plan_drop_work(plan);
  plan->n_bytes_read = plan->n_bytes_written = 0;
  plan->memory = memory;
  plan->n_threads = n_threads;
  plan->rank = group->rank;
  plan->n_ranks = group->size;
  for (uint32_t i = 0; i < plan->n_outputs; i++) {
    ckpt_status status = prepare_within(plan, &plan->outputs[i], err);
    if (status != CKPT_OK) return ckpt_fail_at(status, err, plan->outputs[i].path, NULL);
    plan->outputs[i].by_segment = plan->n_ranks > 1 || has_encoder(&plan->outputs[i]);
  }
  CKPT_TRY(make_stats(plan, err));
  CKPT_TRY(ckpt_plan_find_duplicates(plan, err));
  ckpt_batcher batcher;
  CKPT_TRY(ckpt_batcher_start(&batcher, plan, err));
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < plan->n_rows && status == CKPT_OK; i++) {
    status = prepare_row(plan, &batcher, i, err);
    if (status != CKPT_OK) ckpt_fail_at(status, err, NULL, plan->rows[i].name);
  }
  for (uint32_t i = 0; i < plan->n_outputs && status == CKPT_OK; i++)
    if (plan->outputs[i].by_segment) status = prepare_segments(plan, &batcher, &plan->outputs[i], err);
  if (status == CKPT_OK) status = ckpt_plan_tiles(plan, err);
  ckpt_batcher_end(&batcher);
  for (uint32_t i = 0; i < plan->n_outputs && status == CKPT_OK; i++) {
    const uint64_t n_bytes = ckpt_output_side_bytes(plan, &plan->outputs[i]);
    plan->n_bytes_read += n_bytes, plan->n_bytes_fetched += n_bytes;
  }
  plan->is_checked = status == CKPT_OK;
  return status;
}

ckpt_status ckpt_plan_check(ckpt_plan *plan, const ckpt_run_options *options, uint64_t *peak, size_t *n_rows,
                            ckpt_error *err) {
  ckpt_run_options known;
  CKPT_TRY(ckpt_options_take(&known, sizeof known, options, err));
  CKPT_TRY(ckpt_plan_prepare(plan, &known, err));
  if (peak != NULL) *peak = plan->peak;
  if (n_rows != NULL) *n_rows = plan->n_rows;
  return CKPT_OK;
}
