/* verify.c - what only `verify` looks at in ZeRO checkpoints: ranks that are one (same_ranks.c), and copies.
 * Of what tensor-parallel ranks all have (norms, buffers, their masters and states) the first rank's is read; that the
 * others have the same bits is proven here, by reading the checkpoint once more for each of them. */
#include <stdlib.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/error.h"
#include "libckpt/index/masters.h"
#include "libckpt/recipe/compare/diff.h"
#include "libckpt/recipe/verify/verify.h"

typedef unsigned long long ull;

/* The folder of an index read again. */
static ckpt_status read_again(ckpt_index **out, const ckpt_index *index, ckpt_zero_reading reading,
                              ckpt_zero_copies *n_copies, ckpt_error *err) {
  const ckpt_open_options options = {
      .struct_size = sizeof options, .stored_names = true, .weights = CKPT_WEIGHTS_STORED};
  ckpt_entry *entries = NULL;
  size_t n = 0;
  ckpt_source *source;
  CKPT_TRY(ckpt_list(&entries, &n, ckpt_source_root(index->source), "", err));
  reading.latest = ckpt_zero_has_states(entries, n) ? NULL : CKPT_ZERO_LATEST;
  ckpt_list_free(entries, n);
  CKPT_TRY(ckpt_source_open(&source, ckpt_source_root(index->source), err));
  CKPT_TRY(ckpt_index_new(out, source, index->path, index->format, &options, err));
  ckpt_status status = ckpt_zero_read(*out, &reading, &options, n_copies, err);
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

static ckpt_status say_difference(ckpt_findings *findings, const ckpt_index *copies, const ckpt_zero_reading *reading,
                                  const ckpt_diff_pair *pair, uint64_t n, uint64_t at, ckpt_error *err) {
  const ull n_all = pair->a->n_elements;
  const char *path = pair->a->n_extents == 0 || pair->a->extents[0].file == CKPT_FILE_LITERAL
                         ? NULL
                         : ckpt_source_path(copies->source, pair->a->extents[0].file);
  if (reading->twin != 0)
    return ckpt_findings_add(findings, err, CKPT_PROBLEM, path, pair->name,
                             "copy %u of this tied module has other values of it than the first (%llu of %llu, the "
                             "first at element %llu): they are to be the same, and the first stage's are read",
                             reading->twin, (ull)n, n_all, (ull)at);
  return ckpt_findings_add(findings, err, CKPT_PROBLEM, path, pair->name,
                           "tensor parallel rank %u has other values of it than rank 0 (%llu of %llu, the first at "
                           "element %llu): they are to be the same, and rank 0's are read",
                           reading->copy, (ull)n, n_all, (ull)at);
}

static ckpt_status compare(ckpt_findings *findings, const ckpt_index *first, const ckpt_index *copies,
                           const ckpt_zero_reading *reading, const ckpt_run_options *run, uint64_t *n_equal,
                           ckpt_error *err) {
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
    if (n != 0) status = say_difference(findings, copies, reading, pair, n, at, err);
  }
  ckpt_diff_free(diff);
  return status;
}

/* Compares the first with copies number 1 to n, of one kind. */
static ckpt_status compare_all(ckpt_findings *findings, const ckpt_index *index, const ckpt_index *first, uint32_t n,
                               bool is_of_twins, const ckpt_run_options *run, ckpt_error *err) {
  uint64_t n_equal = 0;
  const size_t n_before = findings->n_of[CKPT_PROBLEM];
  for (uint32_t i = 1; i <= n; i++) {
    const ckpt_zero_reading reading = {.copy = is_of_twins ? 0 : i, .twin = is_of_twins ? i : 0};
    ckpt_index *copies;
    CKPT_TRY(read_again(&copies, index, reading, NULL, err));
    ckpt_status status = compare(findings, first, copies, &reading, run, &n_equal, err);
    ckpt_index_free(copies);
    CKPT_TRY(status);
  }
  if (n == 0 || findings->n_of[CKPT_PROBLEM] != n_before) return CKPT_OK;
  if (is_of_twins)
    return ckpt_findings_add(findings, err, CKPT_PROVEN, NULL, NULL,
                             "copies: what stages of the pipeline have of tied modules is the same on them (%llu "
                             "tensor%s)",
                             (ull)n_equal, ckpt_plural(n_equal));
  return ckpt_findings_add(findings, err, CKPT_PROVEN, NULL, NULL,
                           "copies: what %u tensor parallel ranks all have is the same on them (%llu tensor%s)", n + 1,
                           (ull)n_equal, ckpt_plural(n_equal));
}

/* Whether there are files of a second model-parallel rank, or of layers: else reading it again would find nothing. */
static bool has_shards(const ckpt_source *source) {
  for (uint32_t i = 0; i < ckpt_source_count(source); i++)
    if (strstr(ckpt_source_name(source, i), "mp_rank_01_") != NULL ||
        strstr(ckpt_source_name(source, i), "layer_") != NULL)
      return true;
  return false;
}

ckpt_status ckpt_zero_verify(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                             ckpt_error *err) {
  ckpt_index *first;
  ckpt_zero_copies n = {0};
  CKPT_TRY(ckpt_zero_verify_ranks(findings, index, err));
  if (!has_shards(index->source)) return CKPT_OK;
  CKPT_TRY(read_again(&first, index, (ckpt_zero_reading){0}, &n, err));
  ckpt_status status = n.n_tensor < 2 ? CKPT_OK : compare_all(findings, index, first, n.n_tensor - 1, false, run, err);
  if (status == CKPT_OK) status = compare_all(findings, index, first, n.n_twins, true, run, err);
  ckpt_index_free(first);
  return status;
}
