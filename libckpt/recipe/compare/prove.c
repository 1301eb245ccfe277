/* prove.c - see prove.h. */
#include "libckpt/recipe/compare/prove.h"

#include "libckpt/base/error.h"
#include "libckpt/base/group.h"
#include "libckpt/base/options.h"
#include "libckpt/extents/record_checks.h"

/* Progress of one slice told as that of the whole. */
typedef struct share {
  const ckpt_run_options *run; /* the caller's */
  uint64_t n_before, n_now, n_total;
} share;

static void advance(void *arg, uint64_t n_done, uint64_t n_slice) {
  share *s = arg;
  uint64_t n_least = s->n_before + n_slice;
  s->n_now = n_done;
  s->run->progress(s->run->progress_arg, s->n_before + n_done, s->n_total > n_least ? s->n_total : n_least);
}

static ckpt_status prove_slice(const ckpt_proof *proof, size_t first, size_t end, const ckpt_run_options *run,
                               ckpt_record_parts *parts, ckpt_proof_show *show, void *show_arg, ckpt_error *err) {
  const ckpt_group *group = ckpt_group_of(run);
  ckpt_plan *plan = NULL;
  ckpt_status status = ckpt_plan_new(&plan, err);
  if (status == CKPT_OK) {
    plan->allow_overflow = proof->allow_overflow;
    plan->parts = parts;
    status = proof->add(proof->arg, plan, first, end, err);
  }
  status = ckpt_group_agree(group, status, err);
  if (status == CKPT_OK && show != NULL) {
    status = ckpt_plan_prepare(plan, run, err);
    if (status == CKPT_OK) status = show(show_arg, plan, err);
  } else if (status == CKPT_OK) {
    status = ckpt_plan_run(plan, run, err);
    if (status == CKPT_OK) status = ckpt_group_agree(group, proof->take(proof->arg, plan, first, end, err), err);
  }
  ckpt_plan_free(plan);
  return status;
}

/* The same, which finds the items that are broken by halving what holds one. */
static ckpt_status prove_range(const ckpt_proof *proof, size_t first, size_t end, const ckpt_run_options *run,
                               ckpt_record_parts *parts, ckpt_proof_show *show, void *show_arg, ckpt_error *err) {
  ckpt_error defect = {0};
  ckpt_status status = prove_slice(proof, first, end, run, parts, show, show_arg, &defect);
  if (status == CKPT_OK) return CKPT_OK;
  bool is_passed =
      proof->pass != NULL && show == NULL && end != first && (status == CKPT_EFORMAT || status == CKPT_EUNSUPPORTED);
  if (is_passed && end - first == 1) return proof->pass(proof->arg, first, status, &defect, err);
  if (!is_passed) return ckpt_fail_as(err, status, defect.file, defect.tensor, &defect);
  size_t middle = first + (end - first) / 2;
  CKPT_TRY(prove_range(proof, first, middle, run, parts, show, show_arg, err));
  return prove_range(proof, middle, end, run, parts, show, show_arg, err);
}

ckpt_status ckpt_prove(const ckpt_proof *proof, const ckpt_run_options *run, ckpt_proof_show *show, void *show_arg,
                       ckpt_error *err) {
  ckpt_run_options known;
  CKPT_TRY(ckpt_options_take(&known, sizeof known, run, err));
  const ckpt_run_options whole = known;
  share progress = {.run = &whole, .n_total = proof->n_bytes};
  if (known.progress != NULL) {
    known.progress = advance;
    known.progress_arg = &progress;
  }
  size_t first = 0, n_slice = known.trace != NULL ? proof->n : CKPT_PROOF_SLICE;
  ckpt_record_parts parts = {.n = 0}; /* whose tensors are those of several slices, or of halves of one */
  ckpt_status status;
  do { /* once where there is no item: the digest of nothing is one too, and so is its trace */
    size_t end = proof->n - first < n_slice ? proof->n : first + n_slice;
    status = prove_range(proof, first, end, &known, &parts, show, show_arg, err);
    progress.n_before += progress.n_now;
    progress.n_now = 0;
    first = end;
  } while (status == CKPT_OK && first < proof->n);
  if (status == CKPT_OK) status = ckpt_group_agree(ckpt_group_of(&known), ckpt_record_parts_end(&parts, err), err);
  ckpt_record_parts_free(&parts);
  return status;
}
