/* hash.c - see hash.h. */
#include "libckpt/recipe/compare/hash.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/group.h"
#include "libckpt/base/options.h"
#include "libckpt/recipe/quantize/quantized.h"
#include "libckpt/recipe/select/select.h"
#include "libckpt/run/run.h"

ckpt_status ckpt_hashing_start(ckpt_hashing *hashing, const ckpt_index *from, const ckpt_hash_options *options,
                               ckpt_error *err) {
  bool known;
  *hashing = (ckpt_hashing){.from = from, .include = "model"};
  if (options != NULL) hashing->cast = options->cast;
  if (options != NULL && options->include != NULL) hashing->include = options->include;
  ckpt_role_included(hashing->include, CKPT_ROLE_PARAMETER, &known);
  if (!known)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "include '%s' is none of model, optimizer, all", hashing->include);
  if (hashing->cast != CKPT_DTYPE_NONE) CKPT_TRY(ckpt_index_is_quantized(from, &hashing->is_quantized, err));
  hashing->digests = calloc((size_t)from->n_tensors + 1, sizeof *hashing->digests);
  CKPT_TRY_ALLOC(hashing->digests, err);
  return CKPT_OK;
}

/* Marks what is left out. */
static ckpt_status choose_tensors(ckpt_hashing *hashing, ckpt_selection *selection, ckpt_arena *arena,
                                  ckpt_error *err) {
  const ckpt_index *from = hashing->from;
  for (size_t i = 0; i < from->n_tensors; i++) {
    const ckpt_tensor *tensor = &from->tensors[from->by_name[i]];
    ckpt_selected selected;
    CKPT_TRY(ckpt_selection_take(selection, tensor, arena, &selected, err));
    hashing->is_left_out[i] = selected.name == NULL;
    if (selected.name != NULL && selected.name != tensor->name)
      return ckpt_fail_option(err, CKPT_EINVAL, from->path, "exclude",
                              "leaves out %s, which is also called %s (leave out both, or neither)", tensor->name,
                              selected.name);
  }
  return CKPT_OK;
}

ckpt_status ckpt_hashing_choose(ckpt_hashing *hashing, const char *const *exclude, bool is_strict, ckpt_error *err) {
  const ckpt_convert_options options = {.struct_size = sizeof options, .exclude = exclude};
  ckpt_selection *selection;
  ckpt_arena arena;
  CKPT_TRY(ckpt_selection_new(&selection, &options, hashing->include, NULL, err));
  ckpt_arena_init(&arena, UINT64_MAX);
  hashing->exclude = exclude;
  ckpt_status status =
      is_strict ? ckpt_selection_refuse_unread(selection, hashing->from, false, hashing->sums_files, err) : CKPT_OK;
  if (status == CKPT_OK && exclude != NULL) {
    hashing->is_left_out = calloc((size_t)hashing->from->n_tensors + 1, sizeof *hashing->is_left_out);
    status = hashing->is_left_out == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory")
                                          : choose_tensors(hashing, selection, &arena, err);
    if (status == CKPT_OK && is_strict) status = ckpt_selection_finish(selection, err);
  }
  ckpt_arena_free(&arena);
  ckpt_selection_free(selection);
  return status;
}

void ckpt_hashing_end(ckpt_hashing *hashing) {
  free(hashing->digests);
  free(hashing->is_left_out);
  *hashing = (ckpt_hashing){0};
}

const ckpt_tensor *ckpt_hashing_at(const ckpt_hashing *hashing, size_t place) {
  const ckpt_tensor *tensor = &hashing->from->tensors[hashing->from->by_name[place]];
  if (hashing->is_left_out != NULL && hashing->is_left_out[place]) return NULL;
  return ckpt_role_included(hashing->include, (ckpt_role)tensor->role, NULL) ? tensor : NULL;
}

bool ckpt_digest_is_taken(const ckpt_digest *digest) {
  static const ckpt_digest none;
  return memcmp(digest, &none, sizeof none) != 0;
}

ckpt_status ckpt_hashing_add(const ckpt_hashing *hashing, ckpt_plan *plan, size_t first, size_t end, ckpt_error *err) {
  const ckpt_index *from = hashing->from;
  for (size_t i = first; i < end; i++) {
    const ckpt_tensor *tensor = ckpt_hashing_at(hashing, i);
    ckpt_expr *expr;
    if (tensor == NULL) continue;
    CKPT_TRY(ckpt_expr_read(&expr, plan, from, tensor, err));
    if (hashing->cast != CKPT_DTYPE_NONE && hashing->cast != (ckpt_dtype)tensor->dtype &&
        ckpt_dtype_holds_floats((ckpt_dtype)tensor->dtype)) {
      ckpt_status status = ckpt_refuse_quantized(from, tensor, hashing->is_quantized, err);
      if (status == CKPT_OK) status = ckpt_expr_cast(&expr, plan, expr, hashing->cast, err);
      if (status != CKPT_OK) return ckpt_fail_at(status, err, from->path, tensor->name);
    }
    CKPT_TRY(ckpt_plan_add_like(plan, CKPT_NO_SINK, tensor->name, expr, tensor, NULL, err));
  }
  return CKPT_OK;
}

void ckpt_hashing_take(ckpt_hashing *hashing, const ckpt_plan *plan) {
  for (uint32_t i = 0; i < plan->n_rows; i++) {
    const ckpt_row *row = &plan->rows[i];
    int64_t place = row->sink == CKPT_NO_SINK ? ckpt_index_place(hashing->from, row->name) : -1;
    if (place >= 0) hashing->digests[place] = row->digest;
  }
}

static ckpt_status add(void *arg, ckpt_plan *plan, size_t first, size_t end, ckpt_error *err) {
  return ckpt_hashing_add(arg, plan, first, end, err);
}

static ckpt_status take(void *arg, const ckpt_plan *plan, size_t first, size_t end, ckpt_error *err) {
  (void)first, (void)end, (void)err;
  ckpt_hashing_take(arg, plan);
  return CKPT_OK;
}

ckpt_proof ckpt_hashing_proof(ckpt_hashing *hashing) {
  ckpt_proof proof = {.n = hashing->from->n_tensors, .arg = hashing, .add = add, .take = take};
  for (size_t i = 0; i < proof.n; i++) {
    const ckpt_tensor *tensor = ckpt_hashing_at(hashing, i);
    proof.n_bytes += tensor == NULL ? 0 : tensor->n_bytes;
  }
  return proof;
}

ckpt_status ckpt_hashing_result(const ckpt_hashing *hashing, ckpt_digest *out, ckpt_error *err) {
  const ckpt_digest **digests = calloc((size_t)hashing->from->n_tensors + 1, sizeof *digests);
  CKPT_TRY_ALLOC(digests, err);
  for (size_t i = 0; i < hashing->from->n_tensors; i++)
    if (ckpt_hashing_at(hashing, i) != NULL && ckpt_digest_is_taken(&hashing->digests[i]))
      digests[i] = &hashing->digests[i];
  ckpt_status status = ckpt_digest_index(hashing->from, digests, out, err);
  free(digests);
  return ckpt_fail_at(status, err, hashing->from->path, NULL);
}

ckpt_status ckpt_hash(const ckpt_index *index, const ckpt_hash_options *options, ckpt_digest *out, ckpt_error *err) {
  ckpt_hash_options known;
  ckpt_run_options run;
  ckpt_error own = {0};
  if (err == NULL) err = &own; /* other ranks want to know */
  CKPT_TRY(ckpt_options_take(&known, sizeof known, options, err));
  CKPT_TRY(ckpt_options_take(&run, sizeof run, known.run, err));
  const ckpt_group *group = ckpt_group_of(&run);
  ckpt_hashing hashing = {0};
  ckpt_status status = ckpt_hashing_start(&hashing, index, &known, err);
  if (status == CKPT_OK) status = ckpt_hashing_choose(&hashing, known.exclude, true, err);
  status = ckpt_group_agree(group, status, err);
  if (status == CKPT_OK) {
    const ckpt_proof proof = ckpt_hashing_proof(&hashing);
    status = ckpt_prove(&proof, &run, NULL, NULL, err);
  }
  if (status == CKPT_OK) status = ckpt_group_agree(group, ckpt_hashing_result(&hashing, out, err), err);
  ckpt_hashing_end(&hashing);
  return ckpt_fail_at(status, err, index->path, NULL);
}

static bool is_of_none(const char *names) { return strcmp(names, "stored") == 0 || strncmp(names, "hf:any/", 7) == 0; }

bool ckpt_names_agree(const char *a, const char *b) { return strcmp(a, b) == 0 || (is_of_none(a) && is_of_none(b)); }
