/* copies.c - what a checkpoint holds more than once is the same each time: the format says what that is
 * (`show_copies`), and it is compared here, bit by bit, in one read of both. */
#include "libckpt/base/error.h"
#include "libckpt/format/format.h"
#include "libckpt/recipe/compare/diff.h"
#include "libckpt/recipe/verify/verify.h"

typedef unsigned long long ull;

typedef struct comparison {
  ckpt_findings *findings;
  const ckpt_run_options *run;
  uint64_t n_equal;  /* tensors of the set, so far */
  size_t n_problems; /* before it */
} comparison;

/* Tensors whose bytes are broken are told of elsewhere. */
static ckpt_status pass(void *arg, size_t item, ckpt_status status, const ckpt_error *defect, ckpt_error *err) {
  (void)arg, (void)item, (void)status, (void)defect, (void)err;
  return CKPT_OK;
}

static ckpt_status add_difference(ckpt_findings *findings, const ckpt_copy *copy, const ckpt_diff_pair *pair,
                                  uint64_t n, uint64_t at, ckpt_error *err) {
  const ckpt_tensor *tensor = pair->a;
  const char *path = tensor->n_extents == 0 || tensor->extents[0].file == CKPT_FILE_LITERAL
                         ? NULL
                         : ckpt_source_path(copy->other->source, tensor->extents[0].file);
  return ckpt_findings_add(findings, err, CKPT_PROBLEM, path, pair->name,
                           "%s has other values of it than %s (%llu of %llu, the first at element %llu): they are to "
                           "be the same, and %s are read",
                           copy->name, copy->first, (ull)n, (ull)tensor->n_elements, (ull)at, copy->kept);
}

static ckpt_status compare(comparison *c, const ckpt_copy *copy, ckpt_error *err) {
  const ckpt_diff_options options = {.include = "all"};
  ckpt_diff *diff;
  CKPT_TRY(ckpt_diff_new(&diff, copy->other, copy->read, &options, err));
  ckpt_proof proof = ckpt_diff_proof(diff);
  proof.pass = pass;
  ckpt_status status = ckpt_prove(&proof, c->run, NULL, NULL, err);
  for (size_t i = 0; i < diff->n && status == CKPT_OK; i++) {
    const ckpt_diff_pair *pair = &diff->pairs[i];
    uint64_t at = 0, n = pair->difference == NULL ? 0 : ckpt_diff_count(pair, &at);
    c->n_equal += pair->difference != NULL && n == 0;
    if (n != 0) status = add_difference(c->findings, copy, pair, n, at, err);
  }
  ckpt_diff_free(diff);
  return status;
}

static ckpt_status take_copy(void *arg, const ckpt_copy *copy, ckpt_error *err) {
  comparison *c = arg;
  CKPT_TRY(compare(c, copy, err));
  if (!copy->is_last) return CKPT_OK;
  const bool is_proven = c->findings->n_of[CKPT_PROBLEM] == c->n_problems;
  const uint64_t n_equal = c->n_equal;
  c->n_problems = c->findings->n_of[CKPT_PROBLEM];
  c->n_equal = 0;
  if (!is_proven) return CKPT_OK;
  return ckpt_findings_add(c->findings, err, CKPT_PROVEN, NULL, NULL, "copies: %s is the same on them (%llu tensor%s)",
                           copy->set, (ull)n_equal, ckpt_plural(n_equal));
}

ckpt_status ckpt_verify_format(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                               ckpt_error *err) {
  const ckpt_format *format = ckpt_format_find(index->format);
  if (format != NULL && format->verify != NULL) CKPT_TRY(format->verify(findings, index, run, err));
  if (format == NULL || format->show_copies == NULL) return CKPT_OK;
  comparison c = {.findings = findings, .run = run, .n_problems = findings->n_of[CKPT_PROBLEM]};
  return format->show_copies(index, take_copy, &c, err);
}
