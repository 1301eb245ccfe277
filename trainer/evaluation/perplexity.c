/* perplexity.c - see perplexity.h. */
#include "trainer/evaluation/perplexity.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "libckpt/base/error.h"
#include "trainer/model/device.h"

#define CKPT_REAL_BITS 64
#include "kernels/ref/tape/formulas.h"

/* What is known of one scored token. */
typedef struct score {
  double nll, ref_nll, kl;
  bool is_same_top;
} score;

/* A window of the text: tokens [begin, begin + n), of which those from `first` on are predicted and scored. */
typedef struct window {
  size_t begin;
  uint32_t n, first;
} window;

typedef struct run {
  const ckpt_perplexity_options *options;
  ckpt_executor *candidate, *reference;
  uint64_t vocabulary;
  const int32_t *ids;
  size_t n;
  uint32_t n_windows;
  int32_t *inputs, *targets;
  float *log_p, *ref_log_p;
  score *scores;
  size_t n_scores;
} run;

/* ---- windows ----------------------------------------------------------------------------------------------------- */

static uint32_t stride_of(const ckpt_perplexity_options *options) {
  return options->stride != 0 && options->scoring == CKPT_SCORING_HF ? options->stride : options->ctx;
}

/* Windows that score something: where they do not overlap, a last one of one token scores nothing. */
static uint64_t count_windows(size_t n, const ckpt_perplexity_options *options) {
  const uint64_t ctx = options->ctx, stride = stride_of(options);
  if (options->scoring == CKPT_SCORING_LLAMA) return n / ctx;
  if (n <= ctx) return 1;
  const uint64_t n_more = n - ctx, n_last = n_more % stride;
  return 1 + n_more / stride + (n_last > (stride == ctx ? 1 : 0) ? 1 : 0);
}

static window window_at(const run *r, uint32_t number) {
  const uint32_t ctx = r->options->ctx, stride = stride_of(r->options);
  window w = {.begin = (size_t)number * stride, .n = ctx, .first = ctx / 2 + 1};
  if (r->options->scoring == CKPT_SCORING_LLAMA) return w;
  if (r->n - w.begin < ctx) w.n = (uint32_t)(r->n - w.begin);
  w.first = number == 0 ? 1 : ctx - stride; /* what the window before has ended with */
  if (w.first == 0) w.first = 1;            /* of windows that do not overlap the first token follows nothing */
  return w;
}

static uint32_t n_scored(const window *w) { return w->n > w->first ? w->n - w->first : 0; }

/* ---- one token --------------------------------------------------------------------------------------------------- */

static uint64_t largest_of(const float *x, uint64_t n) {
  uint64_t at = 0;
  for (uint64_t i = 1; i < n; i++)
    if (x[i] > x[at]) at = i;
  return at;
}

/* log of the sum of e^x, in double. */
static double log_sum(const float *x, uint64_t n, float largest) {
  double sum = 0;
  for (uint64_t i = 0; i < n; i++) sum += real_exp((double)x[i] - (double)largest);
  return (double)largest + real_log(sum);
}

/* KL(p || q) of two rows of logits. */
static void compare_rows(score *out, const float *q, const float *p, uint64_t n) {
  const uint64_t top_p = largest_of(p, n), top_q = largest_of(q, n);
  const double log_p = log_sum(p, n, p[top_p]), log_q = log_sum(q, n, q[top_q]);
  double kl = 0;
  for (uint64_t i = 0; i < n; i++) {
    const double of_p = (double)p[i] - log_p;
    kl += real_exp(of_p) * (of_p - ((double)q[i] - log_q));
  }
  out->kl = kl < 0 ? 0 : kl; /* rounding */
  out->is_same_top = top_p == top_q;
}

/* Logits of both models for tokens [first, first + n) of a window, of which some are scored. */
typedef struct comparison {
  const run *r;
  const window *w;
  const float *logits, *ref_logits;
  uint32_t first;
} comparison;

static void compare_part(const void *arg, size_t begin, size_t end) {
  const comparison *c = arg;
  for (size_t i = begin; i < end; i++) {
    const size_t token = c->first + i, at = i * c->r->vocabulary;
    if (token + 1 < c->w->first || token + 1 >= c->w->n) continue;
    compare_rows(&c->r->scores[c->r->n_scores + token + 1 - c->w->first], c->logits + at, c->ref_logits + at,
                 c->r->vocabulary);
  }
}

/* Both heads, a chunk of tokens at a time: the chunks are those that a forward pass of one model makes. */
static ckpt_status compare_window(run *r, const window *w, const ckpt_token_batch *batch,
                                  const ckpt_token_batch *ref_batch, ckpt_error *err) {
  ckpt_device *device = ckpt_executor_device(r->candidate);
  const uint32_t chunk = ckpt_executor_chunk(r->candidate);
  comparison c = {.r = r, .w = w};
  CKPT_TRY(ckpt_executor_body(r->candidate, batch, err));
  CKPT_TRY(ckpt_executor_body(r->reference, ref_batch, err));
  for (c.first = (w->first - 1) / chunk * chunk; c.first < w->n; c.first += chunk) {
    const uint32_t n = w->n - c.first < chunk ? w->n - c.first : chunk;
    CKPT_TRY(ckpt_executor_head(r->candidate, batch, c.first, n, &c.logits, err));
    CKPT_TRY(ckpt_executor_head(r->reference, ref_batch, c.first, n, &c.ref_logits, err));
    device->table->run_host(device, compare_part, &c, n, 1);
  }
  return CKPT_OK;
}

/* ---- one window -------------------------------------------------------------------------------------------------- */

static ckpt_status run_window(run *r, const window *w, ckpt_error *err) {
  ckpt_forward_result result;
  for (uint32_t i = 0; i < w->n; i++) {
    r->inputs[i] = i == 0 && r->options->bos >= 0 ? r->options->bos : r->ids[w->begin + i];
    r->targets[i] = i + 1 >= w->first && i + 1 < w->n ? r->ids[w->begin + i + 1] : -100;
  }
  const ckpt_token_batch batch = {
      .n_rows = 1, .length = w->n, .ids = r->inputs, .targets = r->targets, .log_probabilities = r->log_p};
  ckpt_token_batch ref_batch = batch;
  ref_batch.log_probabilities = r->ref_log_p;
  if (r->reference == NULL)
    CKPT_TRY(ckpt_executor_forward(r->candidate, &batch, &result, err));
  else
    CKPT_TRY(compare_window(r, w, &batch, &ref_batch, err));
  for (uint32_t i = 0; i < n_scored(w); i++) {
    score *s = &r->scores[r->n_scores + i];
    s->nll = -(double)r->log_p[w->first - 1 + i];
    if (r->reference != NULL) s->ref_nll = -(double)r->ref_log_p[w->first - 1 + i];
  }
  r->n_scores += n_scored(w);
  return CKPT_OK;
}

static ckpt_status run_windows(run *r, ckpt_error *err) {
  double sum = 0;
  size_t n = 0;
  for (uint32_t i = 0; i < r->n_windows; i++) {
    const window w = window_at(r, i);
    CKPT_TRY(run_window(r, &w, err));
    for (; n < r->n_scores; n++) sum += r->scores[n].nll;
    if (r->options->progress != NULL &&
        !r->options->progress(r->options->progress_arg, i + 1, r->n_windows, n == 0 ? 0 : sum / (double)n))
      return ckpt_fail(err, CKPT_ECANCELED, NULL, NULL, "stopped after %" PRIu32 " of %" PRIu32 " windows", i + 1,
                       r->n_windows);
  }
  return CKPT_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

typedef struct moments {
  double mean, stderr_mean;
} moments;

typedef double score_value(const score *s);

static double value_nll(const score *s) { return s->nll; }
static double value_ref_nll(const score *s) { return s->ref_nll; }
static double value_gap(const score *s) { return s->nll - s->ref_nll; }
static double value_kl(const score *s) { return s->kl; }
static double value_top(const score *s) { return s->is_same_top ? 1 : 0; }

static moments moments_of(const run *r, score_value *value) {
  double sum = 0, squares = 0;
  const double n = (double)r->n_scores;
  for (size_t i = 0; i < r->n_scores; i++) sum += value(&r->scores[i]);
  const double mean = sum / n;
  for (size_t i = 0; i < r->n_scores; i++) {
    const double gap = value(&r->scores[i]) - mean;
    squares += gap * gap;
  }
  return (moments){mean, r->n_scores < 2 ? 0 : sqrt(squares / n / (n - 1))};
}

static int by_kl(const void *x, const void *y) {
  const double a = ((const score *)x)->kl, b = ((const score *)y)->kl;
  return a < b ? -1 : a > b;
}

/* The value below which a share of the sorted ones lies, between neighbours as numpy has it. */
static double quantile(const run *r, double share) {
  const double at = share * (double)(r->n_scores - 1);
  const size_t low = (size_t)at, high = low + 1 < r->n_scores ? low + 1 : low;
  return r->scores[low].kl + (at - (double)low) * (r->scores[high].kl - r->scores[low].kl);
}

static void sum_up(ckpt_perplexity *out, run *r) {
  *out = (ckpt_perplexity){.n_tokens = r->n_scores, .n_windows = r->n_windows, .is_finite = true};
  for (uint32_t i = 0; i < r->n_windows; i++) out->n_run += window_at(r, i).n;
  for (size_t i = 0; i < r->n_scores; i++)
    if (!isfinite(r->scores[i].nll) || !isfinite(r->scores[i].ref_nll) || !isfinite(r->scores[i].kl))
      out->is_finite = false;
  const moments nll = moments_of(r, value_nll);
  out->nll = nll.mean;
  out->ppl = real_exp(nll.mean);
  out->ppl_stderr = out->ppl * nll.stderr_mean;
  if (r->reference == NULL) return;
  const moments gap = moments_of(r, value_gap), kl = moments_of(r, value_kl), top = moments_of(r, value_top);
  out->ref_ppl = real_exp(moments_of(r, value_ref_nll).mean);
  out->ppl_ratio = real_exp(gap.mean);
  out->ppl_ratio_stderr = out->ppl_ratio * gap.stderr_mean;
  out->kl_mean = kl.mean, out->kl_stderr = kl.stderr_mean;
  out->top1 = top.mean, out->top1_stderr = top.stderr_mean;
  if (!out->is_finite) { /* NaN has no order, and is no first choice */
    out->kl_median = out->kl_p99 = out->kl_max = out->top1 = out->top1_stderr = NAN;
    return;
  }
  qsort(r->scores, r->n_scores, sizeof *r->scores, by_kl);
  out->kl_median = quantile(r, 0.5);
  out->kl_p99 = quantile(r, 0.99);
  out->kl_max = r->scores[r->n_scores - 1].kl;
}

ckpt_status ckpt_perplexity_plan(uint32_t *n_windows, size_t n, const ckpt_perplexity_options *options,
                                 ckpt_error *err) {
  const uint32_t least = options->scoring == CKPT_SCORING_LLAMA ? 3 : 2;
  if (options->ctx < least)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "windows of %" PRIu32 " token%s score nothing (at least %u)",
                     options->ctx, options->ctx == 1 ? "" : "s", least);
  if (stride_of(options) > options->ctx)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "a stride of %" PRIu32 " leaves tokens out of windows of %" PRIu32,
                     options->stride, options->ctx);
  if (options->scoring == CKPT_SCORING_LLAMA && n < 2 * (size_t)options->ctx)
    return ckpt_fail(err, CKPT_ENOTFOUND, NULL, NULL,
                     "the text has %zu token%s, two windows of %" PRIu32 " need %" PRIu64, n, n == 1 ? "" : "s",
                     options->ctx, 2 * (uint64_t)options->ctx);
  if (n < 2)
    return ckpt_fail(err, CKPT_ENOTFOUND, NULL, NULL, "the text has %zu token%s, at least 2 are needed", n,
                     n == 1 ? "" : "s");
  const uint64_t n_all = count_windows(n, options);
  if (n_all > UINT32_MAX)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "%" PRIu64 " windows (at most %u)", n_all, UINT32_MAX);
  *n_windows = options->n_chunks != 0 && options->n_chunks < n_all ? options->n_chunks : (uint32_t)n_all;
  return CKPT_OK;
}

static bool allocate(run *r) {
  const size_t ctx = r->options->ctx;
  size_t n = 0;
  for (uint32_t i = 0; i < r->n_windows; i++) {
    const window w = window_at(r, i);
    n += n_scored(&w);
  }
  r->inputs = calloc(ctx, sizeof *r->inputs);
  r->targets = calloc(ctx, sizeof *r->targets);
  r->log_p = calloc(ctx, sizeof *r->log_p);
  r->ref_log_p = calloc(ctx, sizeof *r->ref_log_p);
  r->scores = calloc(n + 1, sizeof *r->scores);
  return r->inputs != NULL && r->targets != NULL && r->log_p != NULL && r->ref_log_p != NULL && r->scores != NULL;
}

static void release(run *r) {
  free(r->inputs);
  free(r->targets);
  free(r->log_p);
  free(r->ref_log_p);
  free(r->scores);
}

ckpt_status ckpt_perplexity_run(ckpt_perplexity *out, ckpt_executor *candidate, ckpt_executor *reference,
                                uint64_t vocabulary, const int32_t *ids, size_t n,
                                const ckpt_perplexity_options *options, ckpt_error *err) {
  run r = {
      .options = options, .candidate = candidate, .reference = reference, .vocabulary = vocabulary, .ids = ids, .n = n};
  CKPT_TRY(ckpt_perplexity_plan(&r.n_windows, n, options, err));
  ckpt_status status = allocate(&r) ? run_windows(&r, err) : ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  if (status == CKPT_OK) sum_up(out, &r);
  release(&r);
  return status;
}
