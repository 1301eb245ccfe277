/* perplexity.h - how well a model predicts a text, and how far its predictions are from a reference's.
 *
 * The text's tokens are cut into windows. `llama` scores the second half of each whole window, as llama.cpp's tool
 * does; `hf` scores every token once, as transformers' documentation does, windows overlapping where stride is less
 * than ctx. A reference runs beside the candidate, window by window, so no logits are stored. Sums are made in the
 * order of the tokens: results have the same bits for any number of threads.
 * Sources: llama.cpp tools/perplexity; transformers docs, perplexity.md (each token weighs the same here). */
#ifndef CKPT_TRAINER_EVALUATION_PERPLEXITY_H
#define CKPT_TRAINER_EVALUATION_PERPLEXITY_H

#include "trainer/model/executor.h"

typedef enum ckpt_scoring { CKPT_SCORING_LLAMA, CKPT_SCORING_HF } ckpt_scoring;

typedef struct ckpt_perplexity_options {
  ckpt_scoring scoring;
  uint32_t ctx;      /* tokens of a window; at most what both executors are planned for */
  uint32_t stride;   /* HF: from one window to the next; 0: ctx */
  uint32_t n_chunks; /* at most so many windows; 0: all */
  int32_t bos;       /* LLAMA: takes the place of each window's first token; negative: none does */
  /* Called after each window; false stops with ECANCELED. n_done of n_windows; the mean of -log p so far. May be NULL.
   */
  bool (*progress)(void *arg, uint32_t n_done, uint32_t n_windows, double nll);
  void *progress_arg;
} ckpt_perplexity_options;

typedef struct ckpt_perplexity {
  uint64_t n_tokens, n_run; /* scored; run */
  uint32_t n_windows;       /* each scores at least one */
  bool is_finite; /* every probability was a number above 0, of the reference too; else nothing below counts */
  double nll;     /* mean of -log p */
  double ppl, ppl_stderr;
  /* With a reference. */
  double ref_ppl, ppl_ratio, ppl_ratio_stderr;
  double kl_mean, kl_stderr, kl_median, kl_p99, kl_max; /* of KL(reference || candidate) per token, in nats */
  double top1, top1_stderr;                             /* share of tokens whose most probable one is the same */
} ckpt_perplexity;

/* How many windows n tokens are cut into. EINVAL: ctx below 2 (llama: 3), a stride past ctx; ENOTFOUND: fewer tokens
 * than two windows (hf: than 2), with both numbers; ELIMIT. */
ckpt_status ckpt_perplexity_plan(uint32_t *n_windows, size_t n, const ckpt_perplexity_options *options,
                                 ckpt_error *err);

/* Runs ids[0, n) through the candidate, and through the reference where there is one (NULL: none), whose vocabulary is
 * as large. ENOMEM, ECANCELED; and as ckpt_perplexity_plan and ckpt_executor_forward. */
ckpt_status ckpt_perplexity_run(ckpt_perplexity *out, ckpt_executor *candidate, ckpt_executor *reference,
                                uint64_t vocabulary, const int32_t *ids, size_t n,
                                const ckpt_perplexity_options *options, ckpt_error *err);

#endif
