/* verify.c - what only `verify` looks at in GGUF files: the padding behind each tensor, which has to be zero (ggml
 * writes it so and skips whatever is there when it reads), the scales that stand beside NVFP4 weights, and exponents of
 * MXFP4 blocks; model.c has the metadata. */
#include <stdlib.h>
#include <string.h>

#include "formats/gguf/gguf.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/run/run.h"

typedef unsigned long long ull;

enum { WINDOW_BYTES = 1 << 20 };

/* A tensor's bytes, and where the padding behind them ends. */
typedef struct range {
  uint32_t file;
  uint64_t begin, end, padded;
  const char *tensor;
} range;

typedef struct checking {
  ckpt_findings *findings;
  const ckpt_index *index;
  const ckpt_run_options *run;
  range *ranges; /* sorted by place */
  uint32_t n;
  uint8_t *window;
  uint64_t n_read, n_total;
} checking;

static int by_place(const void *a, const void *b) {
  const range *x = a, *y = b;
  if (x->file != y->file) return x->file < y->file ? -1 : 1;
  return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static ckpt_status advance(checking *c, uint64_t n, ckpt_error *err) {
  c->n_read += n;
  return ckpt_tell_progress(c->run, c->n_read, c->n_total, err);
}

static bool is_zero(const uint8_t *bytes, size_t n) { return bytes[0] == 0 && memcmp(bytes, bytes + 1, n - 1) == 0; }

static ckpt_status check_padding(checking *c, const range *behind, ckpt_error *err) {
  ckpt_source *source = c->index->source;
  uint64_t n_other = 0, first = 0;
  for (uint64_t at = behind->end; at < behind->padded;) {
    const uint64_t n_left = behind->padded - at;
    const size_t n = n_left < WINDOW_BYTES ? (size_t)n_left : WINDOW_BYTES;
    CKPT_TRY(ckpt_source_read(source, behind->file, at, c->window, n, err));
    const size_t n_looked_at = is_zero(c->window, n) ? 0 : n;
    for (size_t i = 0; i < n_looked_at; i++)
      if (c->window[i] != 0 && n_other++ == 0) first = at + i;
    CKPT_TRY(advance(c, n, err));
    at += n;
  }
  if (n_other == 0) return CKPT_OK;
  return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, ckpt_source_path(source, behind->file), behind->tensor,
                           "the padding behind it is not zero: %llu byte%s, the first at byte %llu of the file (no "
                           "reader looks there)",
                           (ull)n_other, ckpt_plural(n_other), (ull)first);
}

/* Of a file that holds broken tensors too, where is not known, no more than the padding itself is looked at. */
static void find_paddings(checking *c) {
  const uint32_t stated = ckpt_gguf_stated_alignment(c->index);
  const uint32_t alignment = stated == 0 ? CKPT_GGUF_DEFAULT_ALIGNMENT : stated;
  for (uint32_t i = 0; i < c->index->n_tensors; i++) {
    const ckpt_tensor *tensor = &c->index->tensors[i];
    const ckpt_extent *extent = tensor->extents;
    if (tensor->n_extents != 1 || extent->n_stored == 0) continue;
    const uint64_t end = extent->offset + extent->n_stored;
    c->ranges[c->n++] = (range){extent->file, extent->offset, end, end, tensor->name};
  }
  qsort(c->ranges, c->n, sizeof *c->ranges, by_place);
  for (uint32_t i = 0; i < c->n; i++) {
    range *r = &c->ranges[i];
    const bool is_last = i + 1 == c->n || r[1].file != r->file;
    const uint64_t next = is_last ? ckpt_source_size(c->index->source, r->file) : r[1].begin;
    if (next > r->end) r->padded = next;
    const uint64_t most = r->end + ckpt_gguf_padding(r->end, alignment);
    if (c->index->defects.n != 0 && r->padded > most) r->padded = most;
    c->n_total += r->padded - r->end;
  }
}

static ckpt_status check_paddings(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                                  ckpt_error *err) {
  checking c = {.findings = findings, .index = index, .run = run};
  ckpt_status status = CKPT_OK;
  c.ranges = reallocarray(NULL, (size_t)index->n_tensors + 1, sizeof *c.ranges);
  c.window = malloc(WINDOW_BYTES);
  if (c.ranges == NULL || c.window == NULL)
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  else
    find_paddings(&c);
  for (uint32_t i = 0; i < c.n && status == CKPT_OK; i++) status = check_padding(&c, &c.ranges[i], err);
  free(c.ranges);
  free(c.window);
  return status;
}

/* X.scale and X.input_scale beside a weight X.weight in NVFP4: one number for each of its matrices. */
static ckpt_status check_scale(ckpt_findings *findings, const ckpt_index *index, const ckpt_tensor *scale,
                               ckpt_error *err) {
  static const char *const endings[] = {".input_scale", ".scale"};
  char name[4200];
  const ckpt_tensor *weight = NULL;
  for (size_t i = 0; i < sizeof endings / sizeof *endings && weight == NULL; i++) {
    const size_t n = strlen(scale->name), n_ending = strlen(endings[i]);
    if (!ckpt_text_ends(scale->name, endings[i]) || n - n_ending + sizeof ".weight" > sizeof name) continue;
    memcpy(name, scale->name, n - n_ending);
    memcpy(name + n - n_ending, ".weight", sizeof ".weight");
    weight = ckpt_index_find(index, name);
  }
  if (weight == NULL || weight->dtype != CKPT_NVFP4) return CKPT_OK;
  const uint64_t n_matrices = weight->rank >= 3 ? weight->shape[weight->rank - 3] : 1;
  if (scale->dtype == CKPT_F32 && scale->n_elements == n_matrices) return CKPT_OK;
  return ckpt_findings_add(findings, err, CKPT_PROBLEM, ckpt_source_path(index->source, scale->extents[0].file),
                           scale->name, "%llu of %s, and %s has %llu matri%s: llama.cpp refuses the model",
                           (ull)scale->n_elements, ckpt_dtype_name((ckpt_dtype)scale->dtype), weight->name,
                           (ull)n_matrices, n_matrices == 1 ? "x, which takes one f32" : "ces, which take an f32 each");
}

/* Blocks whose exponent is 255, which is NaN in e8m0; ggml takes it for one more. */
static ckpt_status check_exponents(checking *c, const ckpt_tensor *tensor, ckpt_error *err) {
  const ckpt_extent *extent = tensor->extents;
  const uint32_t unit = ckpt_dtype_get(CKPT_MXFP4)->block_bytes;
  const size_t n_window = WINDOW_BYTES / unit * unit;
  uint64_t n_nan = 0, first = 0;
  for (uint64_t at = 0; at < extent->n_stored;) {
    const uint64_t n_left = extent->n_stored - at;
    const size_t n = n_left < n_window ? (size_t)n_left : n_window;
    CKPT_TRY(ckpt_source_read(c->index->source, extent->file, extent->offset + at, c->window, n, err));
    for (size_t i = 0; i < n; i += unit)
      if (c->window[i] == UINT8_MAX && n_nan++ == 0) first = (at + i) / unit;
    CKPT_TRY(advance(c, n, err));
    at += n;
  }
  if (n_nan == 0) return CKPT_OK;
  return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, ckpt_source_path(c->index->source, extent->file),
                           tensor->name,
                           "%llu of its blocks %s the exponent 255, which is NaN (the first is block %llu; ggml reads "
                           "numbers of 2^127 there)",
                           (ull)n_nan, n_nan == 1 ? "has" : "have", (ull)first);
}

static bool has_exponents(const ckpt_tensor *tensor) { return tensor->dtype == CKPT_MXFP4 && tensor->n_extents == 1; }

static ckpt_status check_blocks(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                                ckpt_error *err) {
  checking c = {.findings = findings, .index = index, .run = run};
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < index->n_tensors; i++)
    if (has_exponents(&index->tensors[i])) c.n_total += index->tensors[i].n_bytes;
  if (c.n_total == 0) return CKPT_OK;
  c.window = malloc(WINDOW_BYTES);
  CKPT_TRY_ALLOC(c.window, err);
  for (uint32_t i = 0; i < index->n_tensors && status == CKPT_OK; i++)
    if (has_exponents(&index->tensors[i])) status = check_exponents(&c, &index->tensors[i], err);
  free(c.window);
  return status;
}

enum { LENGTH_BYTES = 8, TEXT_WINDOW = 1 << 16 };

/* Whether a text is UTF-8. A character may go on past the window's end: the next window begins with it. */
static ckpt_status is_utf8(bool *out, const ckpt_typed_value *text, char *window, ckpt_error *err) {
  *out = true;
  for (uint64_t at = LENGTH_BYTES; *out && at < text->n_bytes;) {
    const uint64_t n_left = text->n_bytes - at;
    const size_t n = n_left < TEXT_WINDOW ? (size_t)n_left : TEXT_WINDOW;
    CKPT_TRY(ckpt_gguf_value_read(text, at, window, n, err));
    const size_t n_whole = ckpt_utf8_length(window, n);
    *out = n_whole == n || (n < n_left && n - n_whole < 4);
    at += n_whole;
  }
  return CKPT_OK;
}

/* Finds texts that are not UTF-8. Opening keeps their bytes, and so do outputs. */
static ckpt_status check_texts(ckpt_findings *findings, const ckpt_index *index, ckpt_error *err) {
  char *window = malloc(TEXT_WINDOW);
  ckpt_status status = CKPT_OK;
  CKPT_TRY_ALLOC(window, err);
  for (uint32_t i = 0; i < index->n_metadata && status == CKPT_OK; i++) {
    const ckpt_typed_value *value = index->metadata[i].typed;
    bool is_text = true;
    if (value == NULL || value->type != CKPT_GGUF_STRING) continue;
    status = is_utf8(&is_text, value, window, err);
    if (status == CKPT_OK && !is_text)
      status =
          ckpt_findings_add(findings, err, CKPT_PROBLEM, ckpt_source_path(index->source, 0), NULL,
                            "%s is no UTF-8, as texts of GGUF are: gguf-py cannot read it", index->metadata[i].key);
  }
  free(window);
  return status;
}

/* What stands in the place of "proven: config": the metadata is the config. */
static ckpt_status check_metadata(ckpt_findings *findings, const ckpt_index *index, ckpt_error *err) {
  const size_t n_problems = findings->n_of[CKPT_PROBLEM], n_unproven = findings->n_of[CKPT_UNPROVEN];
  const char *type = ckpt_index_metadata(index, "general.type"), *why = NULL;
  const ckpt_arch *arch = ckpt_dialect_of_gguf(index);
  CKPT_TRY(ckpt_gguf_check_model(findings, index, ckpt_source_path(index->source, 0), err));
  if (findings->n_of[CKPT_PROBLEM] != n_problems || index->stated_architecture == NULL) return CKPT_OK;
  if (index->defects.n != 0)
    why = "not compared, since parts of it are broken";
  else if (type != NULL && strcmp(type, "model") != 0)
    why = "nobody knows what a part of a model has to have";
  else if (arch == NULL)
    why = "names and shapes of its family are not known";
  if (why != NULL)
    return ckpt_findings_add(findings, err, CKPT_UNPROVEN, NULL, NULL, "metadata against tensors: %s (%s is %s)", why,
                             CKPT_GGUF_ARCHITECTURE, index->stated_architecture);
  if (findings->n_of[CKPT_UNPROVEN] != n_unproven) return CKPT_OK;
  return ckpt_findings_add(findings, err, CKPT_PROVEN, NULL, NULL, "metadata: names and shapes are those of %s",
                           arch->name);
}

ckpt_status ckpt_gguf_verify(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                             ckpt_error *err) {
  index = ckpt_index_as_stored(index); /* padding lies between what the file holds */
  for (uint32_t i = 0; i < index->n_tensors; i++) CKPT_TRY(check_scale(findings, index, &index->tensors[i], err));
  CKPT_TRY(check_texts(findings, index, err));
  CKPT_TRY(check_metadata(findings, index, err));
  CKPT_TRY(check_blocks(findings, index, run, err));
  return check_paddings(findings, index, run, err);
}
