/* output.c - see output.h. */
#include "libckpt/run/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/group.h"
#include "libckpt/extents/place.h"
#include "libckpt/run/clone.h"
#include "libckpt/run/encode.h"
#include "libckpt/run/run.h"

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* What rank 0 tells the others about one output that it opened. */
typedef struct token {
  uint32_t output;
  char text[CKPT_TOKEN_BYTES];
} token;

typedef struct opening {
  ckpt_plan *plan;
  token *tokens; /* of every output */
  uint32_t n_given;
} opening;

static bool give_token(void *arg, void *item) {
  opening *o = arg;
  if (o->plan->rank != 0 || o->n_given == o->plan->n_outputs) return false;
  memcpy(item, &o->tokens[o->n_given++], sizeof(token));
  return true;
}

static ckpt_status take_token(void *arg, const void *item, ckpt_error *err) {
  opening *o = arg;
  token taken;
  memcpy(&taken, item, sizeof taken);
  if (taken.output >= o->plan->n_outputs) return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "ranks differ in outputs");
  o->tokens[taken.output] = taken;
  return CKPT_OK;
}

/* Opens or, with a token, joins. */
static ckpt_status open_output(ckpt_output *output, uint32_t n_threads, const char *joined, ckpt_error *err) {
  const ckpt_layout *layout = &output->layout;
  ckpt_sink_file *files = calloc(layout->n_files + 1, sizeof *files);
  CKPT_TRY_ALLOC(files, err);
  for (uint32_t f = 0; f < layout->n_files; f++)
    files[f] = (ckpt_sink_file){layout->files[f].name, layout->files[f].n_bytes};
  ckpt_sink_threads(output->sink, n_threads);
  ckpt_status status = joined == NULL ? ckpt_sink_open(output->sink, files, layout->n_files, err)
                                      : ckpt_sink_join(output->sink, files, layout->n_files, joined, err);
  free(files);
  return ckpt_fail_at(status, err, output->path, NULL);
}

/* Rank 0's part: every output is open before any gives its token (sink_parts.h). */
static ckpt_status open_all(ckpt_plan *plan, token *tokens, ckpt_error *err) {
  for (uint32_t i = 0; i < plan->n_outputs; i++) CKPT_TRY(open_output(&plan->outputs[i], plan->n_threads, NULL, err));
  for (uint32_t i = 0; i < plan->n_outputs && plan->n_ranks > 1; i++) {
    tokens[i].output = i;
    CKPT_TRY(
        ckpt_fail_at(ckpt_sink_share(plan->outputs[i].sink, tokens[i].text, err), err, plan->outputs[i].path, NULL));
  }
  return CKPT_OK;
}

ckpt_status ckpt_outputs_open(ckpt_plan *plan, const ckpt_group *group, ckpt_error *err) {
  opening o = {.plan = plan, .tokens = calloc((size_t)plan->n_outputs + 1, sizeof(token))};
  ckpt_status status = o.tokens == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : CKPT_OK;
  if (status == CKPT_OK && plan->rank == 0) status = open_all(plan, o.tokens, err);
  status = ckpt_group_agree(group, status, err);
  if (status == CKPT_OK) status = ckpt_group_exchange(group, sizeof(token), give_token, take_token, &o, err);
  for (uint32_t i = 0; i < plan->n_outputs && plan->rank != 0 && status == CKPT_OK; i++)
    status = open_output(&plan->outputs[i], plan->n_threads, o.tokens[i].text, err);
  free(o.tokens);
  return status;
}

/* ---- literals and footers ---------------------------------------------------------------------------------------- */

/* Bytes of a side file, hashed where that is wanted and, unless the file is a clone that has them, written. */
static ckpt_status put_side_bytes(const ckpt_output *output, uint32_t file, uint64_t offset, const void *bytes,
                                  size_t n, ckpt_hasher *hasher, ckpt_error *err) {
  if (hasher != NULL) CKPT_TRY(ckpt_hasher_add(hasher, bytes, n, err));
  return output->layout.files[file].is_cloned ? CKPT_OK : ckpt_sink_write(output->sink, file, offset, bytes, n, err);
}

ckpt_source *ckpt_output_side_source(const ckpt_output *output, const ckpt_side_file *side) {
  if (side->source != NULL) return side->source;
  return output->carried == NULL ? NULL : output->carried->source;
}

/* What it takes to copy side files. */
typedef struct side_copier {
  uint8_t *window;
  ckpt_hasher *hasher; /* NULL: their sums are not wanted */
  ckpt_side_progress *progress;
  void *arg;
} side_copier;

static ckpt_status copy_side_file(const side_copier *c, ckpt_output *output, uint32_t file, const ckpt_segment *segment,
                                  ckpt_error *err) {
  const ckpt_side_file *side = segment->side;
  if (c->hasher == NULL && output->layout.files[file].is_cloned) return c->progress(c->arg, side->n_bytes, err);
  if (c->hasher != NULL) CKPT_TRY(ckpt_hasher_begin(c->hasher, err));
  ckpt_source *source = ckpt_output_side_source(output, side);
  if (side->text == NULL && source == NULL)
    return ckpt_fail(err, CKPT_EINTERNAL, side->name, NULL, "a side file of no source");
  for (uint64_t at = 0; at < side->n_bytes;) {
    size_t n = side->n_bytes - at < CKPT_WINDOW_BYTES ? (size_t)(side->n_bytes - at) : CKPT_WINDOW_BYTES;
    if (side->text == NULL) CKPT_TRY(ckpt_source_read(source, side->file, at, c->window, n, err));
    const void *bytes = side->text != NULL ? (const void *)(side->text + at) : c->window;
    CKPT_TRY(put_side_bytes(output, file, segment->offset + at, bytes, n, c->hasher, err));
    if (side->text == NULL) CKPT_TRY(c->progress(c->arg, n, err));
    at += n;
  }
  return c->hasher == NULL ? CKPT_OK : ckpt_hasher_end(c->hasher, output->layout.files[file].sha256, err);
}

/* Prints a segment to its place, or only measures it where another rank writes the file. */
static ckpt_status print_segment(const ckpt_output *output, uint32_t file, ckpt_segment *segment, bool is_ours,
                                 uint8_t *window, ckpt_error *err) {
  ckpt_stream out;
  if (is_ours)
    ckpt_stream_sink(&out, output->sink, file, segment->offset, window, CKPT_WINDOW_BYTES, err);
  else
    ckpt_stream_count(&out, err);
  segment->print(&output->layout, segment->arg, &out);
  CKPT_TRY(ckpt_stream_end(&out));
  return ckpt_segment_printed(segment, &out, err);
}

/* Literals and side files of every file whose places are known; lanes print their own. */
static ckpt_status print_literals(const ckpt_plan *plan, ckpt_output *output, const side_copier *copier,
                                  ckpt_error *err) {
  for (uint32_t f = 0; f < output->layout.n_files; f++) {
    ckpt_layout_file *file = &output->layout.files[f];
    if (!ckpt_plan_writes(plan, file) || file->has_encoder) continue;
    if (file->is_cloned && ckpt_layout_carried(file) == NULL) continue;
    for (uint32_t s = 0; s < file->n_segments; s++) {
      ckpt_segment *segment = &file->segments[s];
      if (segment->kind == CKPT_SEGMENT_LITERAL && segment->offset != CKPT_SIZE_UNKNOWN)
        CKPT_TRY(print_segment(output, f, segment, true, copier->window, err));
      if (segment->kind == CKPT_SEGMENT_SIDE_FILE) CKPT_TRY(copy_side_file(copier, output, f, segment, err));
    }
  }
  return CKPT_OK;
}

ckpt_status ckpt_outputs_begin(ckpt_plan *plan, uint8_t *window, ckpt_side_progress *progress, void *arg,
                               ckpt_error *err) {
  side_copier copier = {.window = window, .progress = progress, .arg = arg};
  if (plan->wants_side_sums) CKPT_TRY(ckpt_hasher_new(&copier.hasher, err));
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < plan->n_outputs && status == CKPT_OK; i++) {
    status = ckpt_clone_files(plan, &plan->outputs[i], err);
    if (status == CKPT_OK) status = print_literals(plan, &plan->outputs[i], &copier, err);
    if (status != CKPT_OK) (void)ckpt_fail_at(status, err, plan->outputs[i].path, NULL);
  }
  ckpt_hasher_free(copier.hasher);
  return status;
}

/* Trailers; footers in order, and what is printed behind them: everything before has its size by now. */
static ckpt_status print_footers(const ckpt_plan *plan, ckpt_output *output, uint8_t *window, ckpt_error *err) {
  for (uint32_t f = 0; f < output->layout.n_files; f++) {
    ckpt_layout_file *file = &output->layout.files[f];
    bool is_late = false, is_ours = ckpt_plan_writes(plan, file);
    for (uint32_t s = 0; s < file->n_segments; s++) {
      ckpt_segment *segment = &file->segments[s];
      is_late = is_late || segment->kind == CKPT_SEGMENT_FOOTER;
      if (!is_late && segment->kind == CKPT_SEGMENT_TRAILER && is_ours && !file->has_encoder) /* else the lane has */
        CKPT_TRY(print_segment(output, f, segment, true, window, err));
      if (!is_late) continue;
      segment->offset = s == 0 ? 0 : file->segments[s - 1].offset + file->segments[s - 1].n_bytes;
      CKPT_TRY(print_segment(output, f, segment, is_ours, window, err));
    }
    if (file->n_segments != 0)
      file->n_bytes = file->segments[file->n_segments - 1].offset + file->segments[file->n_segments - 1].n_bytes;
  }
  return CKPT_OK;
}

ckpt_status ckpt_outputs_end(ckpt_plan *plan, uint8_t *window, ckpt_error *err) {
  for (uint32_t i = 0; i < plan->n_outputs; i++) {
    CKPT_TRY(print_footers(plan, &plan->outputs[i], window, err));
    if (plan->outputs[i].by_segment) ckpt_output_place(&plan->outputs[i]); /* now encoded ones can be read back */
  }
  return CKPT_OK;
}

/* ---- settling ---------------------------------------------------------------------------------------------------- */

/* What is known of a segment once it is written. */
typedef struct seal {
  uint32_t output, file, segment, crc32;
  uint64_t offset, n_bytes;
} seal;

/* What casts did to a row. */
typedef struct row_stats {
  uint64_t row;
  ckpt_cast_stats stats;
} row_stats;

typedef struct settling {
  ckpt_plan *plan;
  seal next; /* to be given */
  uint32_t row;
} settling;

/* The next segment of this rank's files; literals of encoded files have places to tell too. */
static bool give_seal(void *arg, void *item) {
  settling *s = arg;
  for (; s->next.output < s->plan->n_outputs; s->next.output++, s->next.file = 0) {
    const ckpt_layout *layout = &s->plan->outputs[s->next.output].layout;
    for (; s->next.file < layout->n_files; s->next.file++, s->next.segment = 0) {
      const ckpt_layout_file *file = &layout->files[s->next.file];
      bool is_told = ckpt_plan_writes(s->plan, file);
      for (; is_told && s->next.segment < file->n_segments; s->next.segment++) {
        const ckpt_segment *segment = &file->segments[s->next.segment];
        if (!file->has_encoder && segment->checksum == CKPT_CHECKSUM_NONE) continue;
        seal told = s->next;
        told.crc32 = segment->crc32, told.offset = segment->offset, told.n_bytes = segment->n_bytes;
        memcpy(item, &told, sizeof told);
        s->next.segment++;
        return true;
      }
    }
  }
  return false;
}

static ckpt_status take_seal(void *arg, const void *item, ckpt_error *err) {
  const settling *s = arg;
  seal told;
  memcpy(&told, item, sizeof told);
  const ckpt_layout *layout = told.output < s->plan->n_outputs ? &s->plan->outputs[told.output].layout : NULL;
  if (layout == NULL || told.file >= layout->n_files || told.segment >= layout->files[told.file].n_segments)
    return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "ranks differ in segments");
  ckpt_segment *segment = &layout->files[told.file].segments[told.segment];
  segment->crc32 = told.crc32, segment->offset = told.offset, segment->n_bytes = told.n_bytes;
  return CKPT_OK;
}

/* Nothing to tell. That something is not zero has to be told: another rank may hold the zeros. */
static bool is_clean(const ckpt_row *row) {
  const ckpt_cast_stats stats = ckpt_row_stats(row);
  return stats.n_overflow + stats.n_nan_lost + stats.n_underflow == 0 && !stats.has_nonzero;
}

/* This rank's counts leave the rows as they are told: taking them back with the others' adds them up. Every rank
 * computes all values, whose counts are alike. */
static bool give_stats(void *arg, void *item) {
  settling *s = arg;
  const ckpt_row *rows = s->plan->rows;
  while (s->row < s->plan->n_rows && (is_clean(&rows[s->row]) || rows[s->row].sink == CKPT_VALUE_SINK)) s->row++;
  if (s->row == s->plan->n_rows) return false;
  row_stats told = {s->row, *rows[s->row].stats};
  *rows[s->row].stats = (ckpt_cast_stats){0};
  memcpy(item, &told, sizeof told);
  s->row++;
  return true;
}

static ckpt_status take_stats(void *arg, const void *item, ckpt_error *err) {
  const settling *s = arg;
  row_stats told;
  memcpy(&told, item, sizeof told);
  if (told.row >= s->plan->n_rows || s->plan->rows[told.row].stats == NULL)
    return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "ranks differ in rows");
  ckpt_cast_stats_add(s->plan->rows[told.row].stats, &told.stats);
  return CKPT_OK;
}

/* Where what an expression reads first lies; "" for memory. */
static const char *path_of(const ckpt_expr *node) {
  if (node->index != NULL) return node->index->path;
  const char *path = "";
  for (uint32_t i = 0; i < node->n_args && path[0] == '\0'; i++) path = path_of(node->args[i]);
  return path;
}

/* The first row, in the plan's order, whose cast did what it must not do unasked. */
static ckpt_status check_damage(const ckpt_plan *plan, ckpt_error *err) {
  if (plan->allow_overflow) return CKPT_OK;
  uint64_t n_rows = 0;
  const ckpt_row *first = NULL;
  for (uint32_t i = 0; i < plan->n_rows; i++)
    if (plan->rows[i].stats != NULL && ckpt_cast_damages(plan->rows[i].stats) && n_rows++ == 0) first = &plan->rows[i];
  if (first == NULL) return CKPT_OK;
  const char *advice = "%allow_overflow goes on all the same";
  if (first->output < plan->n_outputs) {
    advice = plan->outputs[first->output].retyping;
    if (advice == NULL) advice = "a first %dtype=NAME=DTYPE gives it another, or %allow_overflow";
  }
  ckpt_status status = ckpt_advise(
      ckpt_cast_refuse(first->stats, ckpt_expr_rounds_to(first->expr), first->name, n_rows - 1, err), err, advice);
  return ckpt_fail_at(status, err, path_of(first->expr), NULL);
}

ckpt_status ckpt_outputs_settle(ckpt_plan *plan, const ckpt_group *group, ckpt_error *err) {
  settling s = {.plan = plan};
  CKPT_TRY(ckpt_group_exchange(group, sizeof(seal), give_seal, take_seal, &s, err));
  CKPT_TRY(ckpt_group_exchange(group, sizeof(row_stats), give_stats, take_stats, &s, err));
  return check_damage(plan, err);
}

/* ---- digests and commit ------------------------------------------------------------------------------------------ */

typedef struct row_digest {
  uint32_t row;
  ckpt_digest digest;
} row_digest;

static bool give_digest(void *arg, void *item) {
  settling *s = arg;
  while (s->row < s->plan->n_rows && !ckpt_plan_digests(s->plan, s->row)) s->row++;
  if (s->row == s->plan->n_rows) return false;
  row_digest told = {s->row, s->plan->rows[s->row].digest};
  memcpy(item, &told, sizeof told);
  s->row++;
  return true;
}

static ckpt_status take_digest(void *arg, const void *item, ckpt_error *err) {
  const settling *s = arg;
  row_digest told;
  memcpy(&told, item, sizeof told);
  if (told.row >= s->plan->n_rows) return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "ranks differ in rows");
  s->plan->rows[told.row].digest = told.digest;
  return CKPT_OK;
}

static ckpt_status digest_output(const ckpt_plan *plan, ckpt_output *output, ckpt_error *err) {
  const ckpt_index *index = output->described;
  const ckpt_digest **digests = calloc((size_t)index->n_tensors + 1, sizeof *digests);
  CKPT_TRY_ALLOC(digests, err);
  for (uint32_t i = 0; i < index->n_tensors; i++)
    digests[i] = &plan->rows[index->tensors[index->by_name[i]].details->origin].digest;
  ckpt_status status = ckpt_digest_index(index, digests, &output->digest, err);
  free(digests);
  return status;
}

ckpt_status ckpt_outputs_digest(ckpt_plan *plan, const ckpt_group *group, ckpt_error *err) {
  settling s = {.plan = plan};
  if (!plan->wants_digests) return CKPT_OK;
  CKPT_TRY(ckpt_group_exchange(group, sizeof(row_digest), give_digest, take_digest, &s, err));
  for (uint32_t i = 0; i < plan->n_rows; i++)
    if (plan->rows[i].same_as != CKPT_NO_ROW) plan->rows[i].digest = plan->rows[plan->rows[i].same_as].digest;
  for (uint32_t i = 0; i < plan->n_outputs; i++) CKPT_TRY(digest_output(plan, &plan->outputs[i], err));
  return CKPT_OK;
}

ckpt_status ckpt_outputs_commit(ckpt_plan *plan, bool keeps_staged, ckpt_error *err) {
  ckpt_sink **sinks = calloc((size_t)plan->n_outputs + 1, sizeof *sinks);
  CKPT_TRY_ALLOC(sinks, err);
  for (uint32_t i = 0; i < plan->n_outputs; i++) sinks[i] = plan->outputs[i].sink;
  ckpt_status status = CKPT_OK;
  if (keeps_staged)
    for (uint32_t i = 0; i < plan->n_outputs && status == CKPT_OK; i++) status = ckpt_sink_seal(sinks[i], err);
  else
    status = ckpt_sink_commit(sinks, plan->n_outputs, err);
  free(sinks);
  return status;
}
