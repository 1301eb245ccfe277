/* verify_gguf.c - what only `verify` looks at in GGUF files: the padding behind each tensor, which has to be zero (ggml
 * writes it so and skips whatever is there when it reads), and the scales that stand beside NVFP4 weights. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/error.h"
#include "libckpt/format.h"
#include "libckpt/recipe/verify.h"
#include "libckpt/text.h"

typedef unsigned long long ull;

/* A tensor's bytes. */
typedef struct range {
  uint32_t file;
  uint64_t begin, end;
  const char *tensor;
} range;

static int by_place(const void *a, const void *b) {
  const range *x = a, *y = b;
  if (x->file != y->file) return x->file < y->file ? -1 : 1;
  return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* The bytes of a file from behind a tensor up to `end`. */
static ckpt_status check_padding(ckpt_findings *findings, const ckpt_index *index, const range *behind, uint64_t end,
                                 const ckpt_run_options *run, ckpt_error *err) {
  uint8_t window[4096];
  uint64_t n_other = 0, first = 0;
  for (uint64_t at = behind->end; at < end;) {
    const size_t n = end - at < sizeof window ? (size_t)(end - at) : sizeof window;
    if (run->cancel != NULL && *run->cancel != 0) return ckpt_fail(err, CKPT_ECANCELED, NULL, NULL, "cancelled");
    CKPT_TRY(ckpt_source_read(index->source, behind->file, at, window, n, err));
    for (size_t i = 0; i < n; i++)
      if (window[i] != 0 && n_other++ == 0) first = at + i;
    at += n;
  }
  if (n_other == 0) return CKPT_OK;
  return ckpt_findings_add(findings, err, CKPT_PROBLEM, ckpt_source_path(index->source, behind->file), behind->tensor,
                           "the padding behind it is not zero: %llu byte%s, the first at byte %llu of the file (no "
                           "reader looks there)",
                           (ull)n_other, n_other == 1 ? "" : "s", (ull)first);
}

static ckpt_status check_paddings(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                                  ckpt_error *err) {
  range *ranges = reallocarray(NULL, (size_t)index->n_tensors + 1, sizeof *ranges);
  CKPT_TRY_ALLOC(ranges, err);
  uint32_t n = 0;
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    const ckpt_extent *extent = index->tensors[i].extents;
    if (index->tensors[i].n_extents == 1 && extent->n_stored != 0)
      ranges[n++] = (range){extent->file, extent->offset, extent->offset + extent->n_stored, index->tensors[i].name};
  }
  qsort(ranges, n, sizeof *ranges, by_place);
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < n && status == CKPT_OK; i++) {
    const bool is_last = i + 1 == n || ranges[i + 1].file != ranges[i].file;
    const uint64_t end = is_last ? ckpt_source_size(index->source, ranges[i].file) : ranges[i + 1].begin;
    status = check_padding(findings, index, &ranges[i], end, run, err);
  }
  free(ranges);
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

ckpt_status ckpt_verify_gguf(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                             ckpt_error *err) {
  if (!ckpt_caps_of(index).typed_metadata) return CKPT_OK;
  for (uint32_t i = 0; i < index->n_tensors; i++) CKPT_TRY(check_scale(findings, index, &index->tensors[i], err));
  return check_paddings(findings, index, run, err);
}
