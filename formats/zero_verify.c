/* zero_verify.c - what only `verify` looks at in ZeRO checkpoints: copies. Of what tensor-parallel ranks all have
 * (norms, buffers, their masters and states) the first rank's is read; that the others have the same bits is proven
 * here, by reading the checkpoint once more for each of them. */
#include <stdlib.h>
#include <string.h>

#include "formats/zero.h"
#include "libckpt/error.h"
#include "libckpt/recipe/diff.h"
#include "libckpt/recipe/verify.h"
#include "libckpt/weights.h"

typedef unsigned long long ull;

/* The folder of an index read again; copy as ckpt_zero has it. */
static ckpt_status read_again(ckpt_index **out, const ckpt_index *index, uint32_t copy, uint32_t *n_tensor,
                              ckpt_error *err) {
  const ckpt_open_options options = {.struct_size = sizeof options, .stored_names = true, .weights = "model"};
  ckpt_entry *entries = NULL;
  size_t n = 0;
  ckpt_source *source;
  CKPT_TRY(ckpt_list(&entries, &n, ckpt_source_root(index->source), "", err));
  const ckpt_zero_reading reading = {.latest = ckpt_zero_has_states(entries, n) ? NULL : CKPT_ZERO_LATEST,
                                     .copy = copy};
  ckpt_list_free(entries, n);
  CKPT_TRY(ckpt_source_open(&source, ckpt_source_root(index->source), err));
  CKPT_TRY(ckpt_index_new(out, source, index->path, index->format, &options, err));
  ckpt_status status = ckpt_zero_read(*out, &reading, &options, n_tensor, err);
  if (status == CKPT_OK) status = ckpt_index_choose_weights(*out, options.weights, err);
  if (status == CKPT_OK) return CKPT_OK;
  ckpt_index_free(*out);
  *out = NULL;
  return status;
}

/* Tensors whose bytes are broken are told of elsewhere. */
static ckpt_status pass(void *arg, size_t item, ckpt_status status, const ckpt_error *defect, ckpt_error *err) {
  (void)arg, (void)item, (void)status, (void)defect, (void)err;
  return CKPT_OK;
}

static ckpt_status compare(ckpt_findings *findings, const ckpt_index *first, const ckpt_index *copies, uint32_t rank,
                           const ckpt_run_options *run, uint64_t *n_equal, ckpt_error *err) {
  const ckpt_diff_options options = {.include = "all"};
  ckpt_diff *diff;
  CKPT_TRY(ckpt_diff_new(&diff, copies, first, &options, err));
  ckpt_proof proof = ckpt_diff_proof(diff);
  proof.pass = pass;
  ckpt_status status = ckpt_prove(&proof, run, NULL, NULL, err);
  for (size_t i = 0; i < diff->n && status == CKPT_OK; i++) {
    const ckpt_diff_pair *pair = &diff->pairs[i];
    uint64_t at = 0, n = pair->difference == NULL ? 0 : ckpt_diff_count(pair, &at);
    *n_equal += pair->difference != NULL && n == 0;
    if (n == 0) continue;
    const char *path = pair->a->n_extents == 0 || pair->a->extents[0].file == CKPT_FILE_LITERAL
                           ? NULL
                           : ckpt_source_path(copies->source, pair->a->extents[0].file);
    status = ckpt_findings_add(findings, err, CKPT_PROBLEM, path, pair->name,
                               "tensor parallel rank %u has other values of it than rank 0 (%llu of %llu, the first at "
                               "element %llu): they are to be the same, and rank 0's are read",
                               rank, (ull)n, (ull)pair->a->n_elements, (ull)at);
  }
  ckpt_diff_free(diff);
  return status;
}

static ckpt_status compare_all(ckpt_findings *findings, const ckpt_index *index, const ckpt_index *first,
                               uint32_t n_tensor, const ckpt_run_options *run, ckpt_error *err) {
  uint64_t n_equal = 0;
  const size_t n_before = findings->n_of[CKPT_PROBLEM];
  for (uint32_t rank = 1; rank < n_tensor; rank++) {
    ckpt_index *copies;
    CKPT_TRY(read_again(&copies, index, rank, NULL, err));
    ckpt_status status = compare(findings, first, copies, rank, run, &n_equal, err);
    ckpt_index_free(copies);
    CKPT_TRY(status);
  }
  if (findings->n_of[CKPT_PROBLEM] != n_before) return CKPT_OK;
  return ckpt_findings_add(findings, err, CKPT_PROVEN, NULL, NULL,
                           "copies: what %u tensor parallel ranks all have is the same on them (%llu tensor%s)",
                           n_tensor, (ull)n_equal, ckpt_plural(n_equal));
}

/* Whether there are files of a second model-parallel rank: else reading it again would find nothing. */
static bool has_shards(const ckpt_source *source) {
  for (uint32_t i = 0; i < ckpt_source_count(source); i++)
    if (strstr(ckpt_source_name(source, i), "mp_rank_01_") != NULL) return true;
  return false;
}

ckpt_status ckpt_zero_verify(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                             ckpt_error *err) {
  ckpt_index *first;
  uint32_t n_tensor = 0;
  if (!has_shards(index->source)) return CKPT_OK;
  CKPT_TRY(read_again(&first, index, 0, &n_tensor, err));
  ckpt_status status = n_tensor < 2 ? CKPT_OK : compare_all(findings, index, first, n_tensor, run, err);
  ckpt_index_free(first);
  return status;
}
