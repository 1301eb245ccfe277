/* describe.c - see describe.h. */
#include "tools/report/describe.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/pattern.h"
#include "libckpt/codec/gguf/value.h"
#include "libckpt/codec/side_files/side_files.h"
#include "libckpt/index/arch.h"
#include "libckpt/index/masters.h"
#include "libckpt/recipe/quantize/quantized.h"
#include "libckpt/recipe/verify/verify.h"
#include "tools/cli/text.h"

static bool holds_config(const ckpt_output *output) {
  return ckpt_index_side_file(output->described, "config.json") != NULL ||
         ckpt_index_side_file(output->described, "adapter_config.json") != NULL;
}

enum { MAX_NOTES = 14 /* of ours */, MAX_UNDERFLOWED = 100 };

static const ckpt_row *row_of(const ckpt_described *d, const ckpt_output *output, uint32_t tensor) {
  return &d->plan->rows[output->described->tensors[tensor].details->origin];
}

/* What casts made zero, and a line about it in *note; NULL where nothing was lost. */
static ckpt_status describe_underflow(const ckpt_described *d, const ckpt_output *output, ckpt_written *written,
                                      const char **note, ckpt_error *err) {
  ckpt_underflowed *list = ckpt_arena_array(d->arena, MAX_UNDERFLOWED, sizeof *list);
  CKPT_TRY_ALLOC(list, err);
  uint64_t n_tensors = 0, n_zero = 0;
  const ckpt_row *worst = NULL;
  *note = NULL;
  written->underflowed = list;
  for (uint32_t i = 0; i < output->described->n_tensors; i++) {
    const ckpt_row *row = row_of(d, output, i);
    const ckpt_cast_stats stats = ckpt_row_stats(row);
    if (stats.n_underflow == 0) continue;
    if (n_tensors++ < MAX_UNDERFLOWED)
      list[written->n_underflowed++] = (ckpt_underflowed){row->tensor->name, stats.n_underflow};
    if (worst == NULL || stats.n_underflow > worst->stats->n_underflow) worst = row;
    written->n_underflow += stats.n_underflow;
    n_zero += !stats.has_nonzero;
  }
  if (worst == NULL) return CKPT_OK;
  char tensors[32], values[32], most[32], of[32], zero[64] = "";
  if (n_zero != 0) snprintf(zero, sizeof zero, ", in %s of them all", ckpt_text_count(n_zero, most));
  *note = ckpt_arena_printf(d->arena, "underflow: %s tensor%s lost %s nonzero value%s to zero%s (most: %s, %s of %s)",
                            ckpt_text_count(n_tensors, tensors), ckpt_plural(n_tensors),
                            ckpt_text_count(written->n_underflow, values), ckpt_plural(written->n_underflow), zero,
                            worst->tensor->name, ckpt_text_count(worst->stats->n_underflow, most),
                            ckpt_text_count(worst->tensor->n_elements, of));
  CKPT_TRY_ALLOC(*note, err);
  return CKPT_OK;
}

/* What merged adapters did: how large their updates are, and how much of them rounding took. NULL: none were merged. */
static ckpt_status describe_updates(const ckpt_described *d, const ckpt_output *output, ckpt_written *written,
                                    const char **note, ckpt_error *err) {
  ckpt_update_figures all = {0};
  char count[32], unchanged[64] = "";
  *note = NULL;
  if (d->input->adapters == NULL) return CKPT_OK;
  ckpt_updated *list = ckpt_arena_array(d->arena, (size_t)output->described->n_tensors + 1, sizeof *list);
  CKPT_TRY_ALLOC(list, err);
  written->updated = list;
  for (uint32_t i = 0; i < output->described->n_tensors; i++) {
    ckpt_updated updated = {.name = output->described->tensors[i].name};
    if (!ckpt_updates_of(row_of(d, output, i), &updated.figures) || updated.figures.n == 0) continue;
    ckpt_updates_add(&all, &updated.figures);
    list[written->n_updated++] = updated;
  }
  if (written->n_updated == 0) return CKPT_OK;
  if (all.n_rounded != 0)
    snprintf(unchanged, sizeof unchanged, "; rounding left %.3g %% of their elements unchanged",
             100 * (double)all.n_unchanged / (double)all.n_rounded);
  *note = ckpt_arena_printf(d->arena, "updates of %s tensor%s, with a norm of %.3g %% of theirs%s",
                            ckpt_text_count(written->n_updated, count), ckpt_plural(written->n_updated),
                            100 * ckpt_update_relative(&all), unchanged);
  CKPT_TRY_ALLOC(*note, err);
  return CKPT_OK;
}

/* What --allow-overflow let pass: never in silence. NULL where nothing did. */
static ckpt_status describe_overflow(const ckpt_described *d, const ckpt_output *output, const char **note,
                                     ckpt_error *err) {
  uint64_t n_tensors = 0, n_values = 0, n_nan = 0;
  const ckpt_row *worst = NULL;
  *note = NULL;
  for (uint32_t i = 0; i < output->described->n_tensors; i++) {
    const ckpt_row *row = row_of(d, output, i);
    const ckpt_cast_stats stats = ckpt_row_stats(row);
    if (stats.n_overflow + stats.n_nan_lost == 0) continue;
    n_tensors++;
    n_values += stats.n_overflow;
    n_nan += stats.n_nan_lost;
    if (worst == NULL || stats.largest > worst->stats->largest) worst = row;
  }
  if (worst == NULL) return CKPT_OK;
  char values[32], nans[32], tensors[32];
  *note = ckpt_arena_printf(
      d->arena,
      "overflow allowed: %s value%s became infinite or NaN or %s clamped, %s NaN became %s, in %s "
      "tensor%s; the largest is %g in %s",
      ckpt_text_count(n_values, values), ckpt_plural(n_values), n_values == 1 ? "was" : "were",
      ckpt_text_count(n_nan, nans), n_nan == 1 ? "a number" : "numbers", ckpt_text_count(n_tensors, tensors),
      ckpt_plural(n_tensors), worst->stats->largest, worst->name);
  CKPT_TRY_ALLOC(*note, err);
  return CKPT_OK;
}

/* A config.json that is carried along and promises scales that the tensors written have not; else NULL. */
static ckpt_status describe_stale(const ckpt_described *d, const ckpt_output *output, const char **note,
                                  ckpt_error *err) {
  ckpt_quantization quantization = {0};
  *note = NULL;
  if (output->format->caps.side_files) CKPT_TRY(ckpt_index_quantization(output->described, &quantization, err));
  if (!quantization.is_stated || quantization.is_present) return CKPT_OK;
  *note = ckpt_arena_printf(d->arena,
                            "config.json says %s (%s), but no tensor is quantized: whoever loads it will miss the "
                            "scales (remove it from config.json)",
                            quantization.key, quantization.method);
  CKPT_TRY_ALLOC(*note, err);
  return CKPT_OK;
}

/* What in the files that come from --like contradicts its tensors, whose shapes are those of the input: whoever loads
 * the output finds the same. NULL: nothing. */
static ckpt_status describe_like(const ckpt_described *d, const ckpt_output *output, const char **note,
                                 ckpt_error *err) {
  ckpt_findings findings = {0};
  *note = NULL;
  if (d->input->like == NULL || !output->format->caps.side_files) return CKPT_OK;
  ckpt_status status = ckpt_verify_config(&findings, d->input->like, NULL, err);
  for (size_t i = 0; i < findings.n && *note == NULL && status == CKPT_OK; i++) {
    const ckpt_finding *found = &findings.items[i];
    if (found->kind != CKPT_PROBLEM) continue;
    *note = ckpt_arena_printf(d->arena, "what is carried from %s contradicts the weights: %s%s%s", d->input->like->path,
                              found->tensor == NULL ? "" : found->tensor, found->tensor == NULL ? "" : ": ",
                              found->message);
    if (*note == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  ckpt_findings_free(&findings);
  return status;
}

/* A line about an output, which it names where there are several. */
static ckpt_status add_said(const ckpt_described *d, const ckpt_output *output, ckpt_said **next, bool is_warning,
                            const char *text, ckpt_error *err) {
  if (text != NULL && d->plan->n_outputs > 1) {
    text = ckpt_arena_printf(d->arena, "%s: %s", output->path, text);
    CKPT_TRY_ALLOC(text, err);
  }
  if (text != NULL) *(*next)++ = (ckpt_said){text, is_warning};
  return CKPT_OK;
}

/* Types that are not the preset's, and weights without importance. */
static ckpt_status describe_quantized(const ckpt_described *d, const ckpt_output *output, ckpt_said **next,
                                      ckpt_error *err) {
  const ckpt_quantize_decisions *q = output->quantized;
  char names[200];
  if (q == NULL) return CKPT_OK;
  if (q->n_fallbacks != 0) {
    const ckpt_quantize_fallback *first = &q->fallbacks[0];
    const char *note =
        ckpt_arena_printf(d->arena, "%u tensor%s fell back to another type (%s: %s -> %s, %s)", q->n_fallbacks,
                          ckpt_plural(q->n_fallbacks), first->name, ckpt_dtype_name(first->wanted),
                          ckpt_dtype_name(first->dtype), "its rows are no whole blocks");
    CKPT_TRY_ALLOC(note, err);
    CKPT_TRY(add_said(d, output, next, true, note, err));
  }
  if (q->n_unweighted == 0) return CKPT_OK;
  size_t at = 0;
  for (uint32_t i = 0; i < q->n_unweighted && i < 3 && at < sizeof names; i++)
    at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i == 0 ? "" : ", ", q->unweighted[i]);
  const char *note = ckpt_arena_printf(d->arena, "%u tensor%s quantized without importance: the matrix has none (%s%s)",
                                       q->n_unweighted, q->n_unweighted == 1 ? " is" : "s are", names,
                                       q->n_unweighted > 3 ? ", ..." : "");
  CKPT_TRY_ALLOC(note, err);
  return add_said(d, output, next, true, note, err);
}

/* Whether a cast rule matches tensors of the input, and none of them holds floats: it casts nothing. */
static ckpt_status is_idle(const ckpt_described *d, const char *text, bool *out, ckpt_error *err) {
  const ckpt_index *index = d->input->index;
  ckpt_pattern *pattern = NULL;
  bool has_floats = false;
  ckpt_status status = ckpt_pattern_new(&pattern, text, NULL, err);
  for (uint32_t i = 0; status == CKPT_OK && i < index->n_tensors; i++) {
    bool matched;
    status = ckpt_pattern_match(pattern, index->tensors[i].name, &matched, err);
    has_floats = has_floats || (matched && ckpt_dtype_holds_floats((ckpt_dtype)index->tensors[i].dtype));
  }
  *out = status == CKPT_OK && !has_floats && ckpt_pattern_n_matched(pattern) != 0;
  ckpt_pattern_free(pattern);
  return status;
}

/* Cast rules that match integers alone, which hardly anybody means; NULL: there is none. */
static ckpt_status describe_idle(const ckpt_described *d, const char **note, ckpt_error *err) {
  *note = NULL;
  for (size_t i = 0; i < d->options->n_casts && *note == NULL; i++) {
    bool idle = false;
    const char *pattern = d->options->casts[i].pattern;
    if (pattern != NULL) CKPT_TRY(is_idle(d, pattern, &idle, err));
    if (!idle) continue;
    *note = ckpt_arena_printf(d->arena, "--dtype '%s=%s' casts nothing: what it matches holds no floats", pattern,
                              ckpt_dtype_name(d->options->casts[i].dtype));
    CKPT_TRY_ALLOC(*note, err);
  }
  return CKPT_OK;
}

/* Renamed tensors whose names a reader takes for wrapped ones, and shows without. */
static ckpt_status describe_renamed(const ckpt_described *d, const ckpt_output *output, const char **note,
                                    ckpt_error *err) {
  uint64_t n = 0;
  const char *first = NULL, *shown = NULL;
  *note = NULL;
  if (d->options->rename == NULL || *d->options->rename == NULL) return CKPT_OK;
  for (uint32_t i = 0; i < output->described->n_tensors; i++) {
    const char *name = output->described->tensors[i].name, *as_read = ckpt_name_unwrapped(name, d->arena);
    CKPT_TRY_ALLOC(as_read, err);
    if (as_read == name || n++ != 0) continue;
    first = name;
    shown = as_read;
  }
  if (n == 0) return CKPT_OK;
  char count[32];
  *note = ckpt_arena_printf(d->arena, "renamed to what readers unwrap: %s is shown as %s (%s tensor%s; --names stored)",
                            first, shown, ckpt_text_count(n, count), ckpt_plural(n));
  CKPT_TRY_ALLOC(*note, err);
  return CKPT_OK;
}

/* Lines about an output; what holds for all of them is said with the first. */
static ckpt_status describe_notes(const ckpt_described *d, const ckpt_output *output, ckpt_written *written,
                                  ckpt_error *err) {
  const uint32_t n_notes = output->described->n_notes;
  ckpt_said *next = ckpt_arena_array(d->arena, (size_t)n_notes + MAX_NOTES + 1, sizeof *next);
  const char *note;
  CKPT_TRY_ALLOC(next, err);
  written->said = next;
  char text[1536];
  if (output == d->plan->outputs && d->input->index->weights_note != 0) {
    CKPT_TRY_ALLOC(note = ckpt_arena_copy(d->arena, ckpt_report_weights(d->input->index, text, sizeof text)), err);
    *next++ = (ckpt_said){note, false};
  }
  if (output == d->plan->outputs) {
    CKPT_TRY(describe_idle(d, &note, err));
    if (note != NULL) *next++ = (ckpt_said){note, true};
  }
  if (strcmp(output->format->name, "hf") == 0 && !holds_config(output))
    CKPT_TRY(
        add_said(d, output, &next, true, "no config.json, transformers cannot load this folder (--like MODEL)", err));
  if (output->format->caps.typed_metadata && ckpt_index_metadata(output->described, CKPT_GGUF_ARCHITECTURE) == NULL)
    CKPT_TRY(add_said(d, output, &next, true, "no " CKPT_GGUF_ARCHITECTURE ", llama.cpp cannot load this file", err));
  if (output->is_of_none)
    CKPT_TRY(add_said(d, output, &next, false,
                      "no digest, for none of its tensors is the model's (ckpt hash --include all)", err));
  for (uint32_t i = 0; i < n_notes; i++) {
    const ckpt_note *from = &output->described->notes[i];
    CKPT_TRY_ALLOC(note = ckpt_arena_copy(d->arena, ckpt_report_note_text(from, from->text, text, sizeof text)), err);
    CKPT_TRY(add_said(d, output, &next, ckpt_note_is_warning(from), note, err));
  }
  CKPT_TRY(add_said(d, output, &next, false, output->layout.note, err));
  const char *architecture = holds_config(output) ? output->described->architecture : "";
  CKPT_TRY(ckpt_arch_unstated_tie(output->described, architecture, d->arena, &note, err));
  if (note != NULL) CKPT_TRY_ALLOC(note = ckpt_arena_printf(d->arena, "%s (--like MODEL)", note), err);
  CKPT_TRY(add_said(d, output, &next, false, note, err));
  CKPT_TRY(describe_renamed(d, output, &note, err));
  CKPT_TRY(add_said(d, output, &next, false, note, err));
  CKPT_TRY(describe_stale(d, output, &note, err));
  CKPT_TRY(add_said(d, output, &next, true, note, err));
  CKPT_TRY(describe_like(d, output, &note, err));
  CKPT_TRY(add_said(d, output, &next, true, note, err));
  CKPT_TRY(describe_updates(d, output, written, &note, err));
  CKPT_TRY(add_said(d, output, &next, false, note, err));
  CKPT_TRY(describe_underflow(d, output, written, &note, err));
  CKPT_TRY(add_said(d, output, &next, true, note, err));
  CKPT_TRY(describe_overflow(d, output, &note, err));
  CKPT_TRY(add_said(d, output, &next, true, note, err));
  return describe_quantized(d, output, &next, err);
}

/* What of the input no copy has. */
static ckpt_status describe_left(const ckpt_described *d, ckpt_written *written, ckpt_error *err) {
  const ckpt_index *index = d->input->index;
  const char **left = ckpt_arena_array(d->arena, (size_t)index->n_notes + 1, sizeof *left);
  CKPT_TRY_ALLOC(left, err);
  written->left = left;
  for (uint32_t i = 0; i < index->n_notes; i++)
    if (index->notes[i].left != NULL) *left++ = index->notes[i].left;
  return CKPT_OK;
}

static ckpt_status describe(const ckpt_described *d, const ckpt_output *output, ckpt_written *written,
                            ckpt_error *err) {
  const ckpt_losses *losses = &output->losses;
  const char **lists[3], **next[3];
  for (size_t kind = 0; kind < 3; kind++)
    CKPT_TRY_ALLOC(lists[kind] = next[kind] = ckpt_arena_array(d->arena, (size_t)losses->n + 1, sizeof **lists), err);
  for (uint32_t i = 0; i < losses->n; i++) *next[losses->kinds[i]]++ = losses->texts[i];
  *written = (ckpt_written){.path = output->path,
                            .format = output->format->name,
                            .n_tensors = output->described->n_tensors,
                            .n_bytes = ckpt_output_bytes(output),
                            .weights = d->input->index->weights,
                            .quantized = !d->writing->quantizes ? NULL : output->quantized,
                            .alone = lists[CKPT_LOSS_ALONE],
                            .dropped = lists[CKPT_LOSS_ANY],
                            .remedied = lists[CKPT_LOSS_BY_INCLUDE],
                            .remedy = d->writing->drops_nothing || !d->takes_include ? NULL : "--include all",
                            .digest = output->digest,
                            .is_of_none = output->is_of_none};
  CKPT_TRY(describe_left(d, written, err));
  CKPT_TRY(describe_notes(d, output, written, err));
  int dtype = CKPT_DTYPE_NONE;
  bool is_mixed = false;
  for (uint32_t i = 0; i < output->described->n_tensors; i++) {
    const ckpt_tensor *tensor = &output->described->tensors[i];
    if (tensor->role != CKPT_ROLE_PARAMETER) continue;
    written->n_params += tensor->n_elements;
    is_mixed = is_mixed || (dtype != CKPT_DTYPE_NONE && dtype != tensor->dtype);
    dtype = tensor->dtype;
  }
  written->dtype = is_mixed ? "mixed" : dtype == CKPT_DTYPE_NONE ? NULL : ckpt_dtype_name((ckpt_dtype)dtype);
  return CKPT_OK;
}

ckpt_status ckpt_describe_outputs(const ckpt_described *d, ckpt_written **out, ckpt_error *err) {
  *out = ckpt_arena_array(d->arena, d->plan->n_outputs, sizeof **out);
  CKPT_TRY_ALLOC(*out, err);
  for (uint32_t i = 0; i < d->plan->n_outputs; i++) CKPT_TRY(describe(d, &d->plan->outputs[i], &(*out)[i], err));
  return CKPT_OK;
}
