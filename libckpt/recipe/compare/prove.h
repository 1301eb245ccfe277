/* prove.h - runs rows that are read but not written (digests, statistics, comparisons), a slice at a time.
 *
 * Such rows do not depend on each other, so no plan needs all of them. A proof over a million tensors takes the memory
 * of a plan of CKPT_PROOF_SLICE tensors, plus its results. */
#ifndef CKPT_RECIPE_COMPARE_PROVE_H
#define CKPT_RECIPE_COMPARE_PROVE_H

#include "libckpt/plan/plan.h"

#define CKPT_PROOF_SLICE 8192 /* items per plan: some 10 MiB where an item has two rows */

/* What is to be proven of `n` items: tensors, or pairs of them. */
typedef struct ckpt_proof {
  size_t n;
  uint64_t n_bytes; /* about how much all of it reads, for progress */
  bool allow_overflow;
  void *arg; /* given to add and take */
  /* Adds the rows of items [first, end) to an empty plan. */
  ckpt_status (*add)(void *arg, ckpt_plan *plan, size_t first, size_t end, ckpt_error *err);
  /* Takes their results out of the plan, which has run and is about to go. */
  ckpt_status (*take)(void *arg, const ckpt_plan *plan, size_t first, size_t end, ckpt_error *err);
  /* Receives each item whose stored bytes are broken, and which has no result; the proof continues. NULL: it fails at
   * the first. */
  ckpt_status (*pass)(void *arg, size_t item, ckpt_status status, const ckpt_error *defect, ckpt_error *err);
} ckpt_proof;

/* Shows a plan that has been prepared. */
typedef ckpt_status ckpt_proof_show(void *arg, const ckpt_plan *plan, ckpt_error *err);

/* Makes and runs the plans, one after the other; with show they are shown instead. A trace is one file of one run: with
 * one there is a single plan. Fails as add, take and ckpt_plan_run do. */
ckpt_status ckpt_prove(const ckpt_proof *proof, const ckpt_run_options *run, ckpt_proof_show *show, void *show_arg,
                       ckpt_error *err);

#endif
