/* ls_stats.c - see ls_stats.h. min, max, mean and std are over the finite values, and absent where there is none; std
 * is the population's. */
#include "tools/report/ls_stats.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "libckpt/base/error.h"
#include "libckpt/recipe/compare/stats.h"
#include "tools/report/proving.h"

static ckpt_status add(void *arg, ckpt_plan *plan, size_t first, size_t end, ckpt_error *err) {
  ckpt_ls_stats *s = arg;
  for (size_t i = first; i < end; i++)
    CKPT_TRY(ckpt_stats_add(plan, s->index, s->tensors[i], &s->running[i - first], err));
  return CKPT_OK;
}

static ckpt_status take(void *arg, const ckpt_plan *plan, size_t first, size_t end, ckpt_error *err) {
  ckpt_ls_stats *s = arg;
  (void)plan, (void)err;
  for (size_t i = first; i < end; i++) s->stats[i] = *s->running[i - first];
  return CKPT_OK;
}

ckpt_status ckpt_ls_stats_read(ckpt_ls_stats *out, const ckpt_args *args, const ckpt_index *index,
                               const ckpt_tensor *const *tensors, size_t n, ckpt_error *err) {
  if (!ckpt_args_has(args, "stats")) return CKPT_OK;
  out->index = index;
  out->tensors = tensors;
  out->stats = calloc(n + 1, sizeof *out->stats);
  out->running = calloc(n + 1, sizeof *out->running);
  CKPT_TRY_ALLOC(out->stats, err);
  CKPT_TRY_ALLOC(out->running, err);
  ckpt_proof proof = {.n = n, .arg = out, .add = add, .take = take};
  for (size_t i = 0; i < n; i++) proof.n_bytes += tensors[i]->n_bytes;
  return ckpt_proving_run(args, &proof, &out->is_printed, err);
}

void ckpt_ls_stats_free(ckpt_ls_stats *stats) {
  free(stats->stats);
  free(stats->running);
}

/* A column; "-" where there is no such number. */
static void print_number(const char *name, double value) {
  if (isnan(value))
    printf("  %s %-12s", name, "-");
  else
    printf("  %s %-12.6g", name, value);
}

void ckpt_ls_stats_print(const ckpt_ls_stats *stats, size_t i) {
  if (stats->stats == NULL) return;
  const ckpt_stats *s = &stats->stats[i];
  print_number("min", s->n_finite == 0 ? NAN : s->min);
  print_number("max", s->n_finite == 0 ? NAN : s->max);
  print_number("mean", ckpt_stats_mean(s));
  print_number("std", ckpt_stats_std(s));
  printf("  nan %" PRIu64 "  inf %" PRIu64 "  zeros %" PRIu64, s->n_nan, s->n_inf, s->n_zero);
}

void ckpt_ls_stats_emit(const ckpt_ls_stats *stats, size_t i, ckpt_emitter *json) {
  if (stats->stats == NULL) return;
  const ckpt_stats *s = &stats->stats[i];
  bool has_any = s->n_finite != 0;
  ckpt_emit_number(json, "min", has_any ? s->min : NAN);
  ckpt_emit_number(json, "max", has_any ? s->max : NAN);
  ckpt_emit_number(json, "mean", ckpt_stats_mean(s));
  ckpt_emit_number(json, "std", ckpt_stats_std(s));
  ckpt_emit_u64(json, "nan", s->n_nan);
  ckpt_emit_u64(json, "inf", s->n_inf);
  ckpt_emit_u64(json, "zeros", s->n_zero);
}
