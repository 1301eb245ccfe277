/* hash.c - the content digest of an index: a plan whose rows go nowhere but into their digests. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/dtype.h"
#include "libckpt/error.h"
#include "libckpt/options.h"
#include "libckpt/recipe/convert.h"
#include "libckpt/recipe/quantized.h"
#include "libckpt/run.h"

ckpt_status ckpt_hash_plan(ckpt_plan *plan, const ckpt_index *from, const ckpt_hash_options *options, ckpt_error *err) {
  const char *include = options != NULL && options->include != NULL ? options->include : "model";
  ckpt_dtype cast = options != NULL ? options->cast : CKPT_DTYPE_NONE;
  bool is_quantized = false, known;
  ckpt_role_included(include, CKPT_ROLE_PARAMETER, &known);
  if (!known) return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "include '%s' is none of model, optimizer, all", include);
  if (cast != CKPT_DTYPE_NONE) CKPT_TRY(ckpt_index_is_quantized(from, &is_quantized, err));
  for (uint32_t i = 0; i < from->n_tensors; i++) {
    const ckpt_tensor *tensor = &from->tensors[i];
    if (!ckpt_role_included(include, (ckpt_role)tensor->role, &known)) continue;
    ckpt_expr *expr;
    CKPT_TRY(ckpt_expr_read(&expr, plan, from, tensor, err));
    if (cast != CKPT_DTYPE_NONE && cast != (ckpt_dtype)tensor->dtype &&
        ckpt_dtype_is_float((ckpt_dtype)tensor->dtype)) {
      ckpt_status status = ckpt_refuse_quantized(from, tensor, is_quantized, err);
      if (status == CKPT_OK) status = ckpt_expr_cast(&expr, plan, expr, cast, err);
      if (status != CKPT_OK) return ckpt_fail_at(status, err, from->path, tensor->name);
    }
    CKPT_TRY(ckpt_plan_add_like(plan, CKPT_NO_SINK, tensor->name, expr, tensor, NULL, err));
  }
  return CKPT_OK;
}

ckpt_status ckpt_hash_result(const ckpt_plan *plan, const ckpt_index *from, ckpt_digest *out,
                             ckpt_digest_entry *entries, ckpt_error *err) {
  const ckpt_row **rows = calloc((size_t)from->n_tensors + 1, sizeof *rows);
  const ckpt_digest **digests = calloc((size_t)from->n_tensors + 1, sizeof *digests);
  ckpt_status status = CKPT_OK;
  size_t n = 0;
  if (rows == NULL || digests == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint32_t i = 0; i < plan->n_rows && status == CKPT_OK; i++) {
    int64_t place = plan->rows[i].sink == CKPT_NO_SINK ? ckpt_index_place(from, plan->rows[i].name) : -1;
    if (place >= 0) rows[place] = &plan->rows[i];
  }
  for (uint32_t i = 0; i < from->n_tensors && status == CKPT_OK; i++) {
    if (rows[i] == NULL) continue;
    digests[i] = &rows[i]->digest;
    if (entries != NULL) entries[n++] = (ckpt_digest_entry){rows[i]->name, rows[i]->digest};
  }
  if (status == CKPT_OK) status = ckpt_digest_index(from, digests, out, err);
  free(rows);
  free(digests);
  return status;
}

ckpt_status ckpt_hash(const ckpt_index *index, const ckpt_hash_options *options, ckpt_digest *out, ckpt_error *err) {
  ckpt_hash_options known;
  CKPT_TRY(ckpt_options_take(&known, sizeof known, options, err));
  ckpt_plan *plan;
  CKPT_TRY(ckpt_plan_new(&plan, err));
  ckpt_status status = ckpt_hash_plan(plan, index, &known, err);
  if (status == CKPT_OK) status = ckpt_plan_run(plan, known.run, err);
  if (status == CKPT_OK) status = ckpt_hash_result(plan, index, out, NULL, err);
  ckpt_plan_free(plan);
  return ckpt_fail_at(status, err, index->path, NULL);
}
