/* records.c - see records.h. */
#include "libckpt/plan/records.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"

/* Where a read's bytes are; NULL: in memory. */
static ckpt_source *source_of(const ckpt_batch_read *read) {
  return read->expr->tensor == NULL || read->expr->index == NULL ? NULL : read->expr->index->source;
}

/* Extents that lie in records, each as often as it is read. */
static uint32_t count_extents(const ckpt_plan *plan) {
  uint64_t n = 0;
  for (uint32_t b = 0; b < plan->n_batches; b++)
    for (uint32_t l = 0; l < plan->batches[b].n_reads; l++) {
      const ckpt_batch_read *read = &plan->batches[b].reads[l];
      ckpt_source *source = source_of(read);
      for (uint32_t i = 0; source != NULL && i < read->expr->tensor->n_extents; i++)
        n += ckpt_extent_has_record(source, &read->expr->tensor->extents[i]);
    }
  return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

uint64_t ckpt_plan_record_bytes(const ckpt_plan *plan) {
  const uint64_t n = count_extents(plan);
  return n == 0 ? 0 : CKPT_RECORD_CHECKS_BYTES + n * CKPT_RECORD_CHECK_BYTES;
}

ckpt_status ckpt_plan_record_checks(ckpt_record_checks **out, const ckpt_plan *plan, ckpt_error *err) {
  const uint32_t n = count_extents(plan);
  *out = NULL;
  if (n == 0) return CKPT_OK;
  CKPT_TRY(ckpt_record_checks_new(out, n, err));
  for (uint32_t b = 0; b < plan->n_batches; b++)
    for (uint32_t l = 0; l < plan->batches[b].n_reads; l++) {
      const ckpt_batch_read *read = &plan->batches[b].reads[l];
      if (source_of(read) != NULL) ckpt_record_checks_want(*out, source_of(read), read->expr->tensor, read->n_bytes);
    }
  ckpt_record_checks_begin(*out);
  return CKPT_OK;
}

static int compare_reads(const void *a, const void *b) {
  const ckpt_expr *x = (*(const ckpt_batch_read *const *)a)->expr, *y = (*(const ckpt_batch_read *const *)b)->expr;
  const int order = strcmp(x->tensor->name, y->tensor->name);
  return order != 0 ? order : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

ckpt_status ckpt_plan_tell_damage(const ckpt_plan *plan, ckpt_record_checks *checks, ckpt_error *err) {
  size_t n = 0;
  if (checks == NULL || !ckpt_record_checks_has_damage(checks)) return CKPT_OK;
  for (uint32_t b = 0; b < plan->n_batches; b++) n += plan->batches[b].n_reads;
  const ckpt_batch_read **reads = calloc(n + 1, sizeof *reads);
  CKPT_TRY_ALLOC(reads, err);
  n = 0;
  for (uint32_t b = 0; b < plan->n_batches; b++)
    for (uint32_t l = 0; l < plan->batches[b].n_reads; l++)
      if (source_of(&plan->batches[b].reads[l]) != NULL) reads[n++] = &plan->batches[b].reads[l];
  qsort(reads, n, sizeof *reads, compare_reads);
  for (size_t i = 0; i < n; i++)
    if (i == 0 || reads[i - 1]->expr->tensor != reads[i]->expr->tensor)
      ckpt_record_checks_tell(checks, source_of(reads[i]), reads[i]->expr->tensor);
  free(reads);
  return CKPT_OK;
}
