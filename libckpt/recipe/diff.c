/* diff.c - see diff.h. */
#include "libckpt/recipe/diff.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/arch.h"
#include "libckpt/dtype.h"
#include "libckpt/error.h"
#include "libckpt/recipe/quantized.h"
#include "libckpt/recipe/select.h"

typedef struct differ {
  ckpt_plan *plan;
  const ckpt_diff_options *options;
  const ckpt_index *a, *b;
  const ckpt_tolerance *tolerance; /* of floating pairs; in the plan's arena */
  const char *include;
  bool is_quantized_a, is_quantized_b;
  ckpt_diff *diff;
} differ;

/* The tensor of an index that has one of another's names. */
static const ckpt_tensor *partner(const ckpt_index *index, const ckpt_tensor *tensor) {
  const ckpt_tensor *found = ckpt_index_find(index, tensor->name);
  for (const char *const *alias = tensor->aliases; found == NULL && alias != NULL && *alias != NULL; alias++)
    found = ckpt_index_find(index, *alias);
  return found;
}

/* What the config ties a tensor to, where both are stored. */
static const ckpt_tensor *tied_to(const ckpt_index *index, const ckpt_tensor *tensor) {
  const ckpt_tensor *kept, *tied;
  for (size_t i = 0; ckpt_arch_tied_pair(index, i, &kept, &tied); i++)
    if (tied == tensor) return kept;
  return NULL;
}

static bool same_shape(const ckpt_tensor *a, const ckpt_tensor *b) {
  if (a->rank != b->rank) return false;
  for (uint32_t axis = 0; axis < a->rank; axis++)
    if (a->shape[axis] != b->shape[axis]) return false;
  return true;
}

/* The values of one side as dtype. `alone`: the other side has them in another one, so that what needs its scales to
 * mean anything must not be taken without them. */
static ckpt_status read_side(const differ *d, const ckpt_index *index, const ckpt_tensor *tensor, ckpt_dtype dtype,
                             bool alone, ckpt_expr **out, ckpt_error *err) {
  ckpt_status status = ckpt_expr_read(out, d->plan, index, tensor, err);
  if (status == CKPT_OK && (alone || dtype != (ckpt_dtype)tensor->dtype))
    status = ckpt_refuse_quantized(index, tensor, index == d->a ? d->is_quantized_a : d->is_quantized_b, err);
  if (status == CKPT_OK) status = ckpt_expr_cast(out, d->plan, *out, dtype, err);
  return ckpt_fail_at(status, err, index->path, tensor->name);
}

static ckpt_dtype dtype_of(const differ *d, const ckpt_tensor *tensor) {
  ckpt_dtype dtype = (ckpt_dtype)tensor->dtype;
  return d->options->cast != CKPT_DTYPE_NONE && ckpt_dtype_is_float(dtype) ? d->options->cast : dtype;
}

static ckpt_status compare(const differ *d, ckpt_diff_pair *pair, const ckpt_index *index_a, const ckpt_tensor *a,
                           const ckpt_index *index_b, const ckpt_tensor *b, ckpt_error *err) {
  ckpt_dtype_kind kind_a = ckpt_dtype_get(pair->dtype_a)->kind, kind_b = ckpt_dtype_get(pair->dtype_b)->kind;
  bool is_tolerant = kind_a == kind_b && (kind_a == CKPT_KIND_FLOAT || kind_a == CKPT_KIND_COMPLEX);
  pair->has_shapes = same_shape(a, b);
  pair->by_value = d->options->has_tolerance && is_tolerant;
  if (!pair->has_shapes || (pair->dtype_a != pair->dtype_b && !pair->by_value)) return CKPT_OK;
  static const ckpt_tolerance exact = {0};
  ckpt_expr *args[2], *reduction;
  const void *value;
  bool alone = pair->dtype_a != pair->dtype_b;
  CKPT_TRY(read_side(d, index_a, a, pair->dtype_a, alone, &args[0], err));
  CKPT_TRY(read_side(d, index_b, b, pair->dtype_b, alone, &args[1], err));
  CKPT_TRY(ckpt_expr_apply(&reduction, d->plan, &ckpt_op_compare, CKPT_F64, args, 2,
                           pair->by_value ? d->tolerance : &exact, err));
  CKPT_TRY(ckpt_plan_reduce(d->plan, pair->name, reduction, &value, err));
  pair->difference = value;
  return CKPT_OK;
}

static ckpt_status add_both(differ *d, const ckpt_tensor *a, const ckpt_tensor *b, const char *name, ckpt_error *err) {
  ckpt_diff_pair *pair = &d->diff->pairs[d->diff->n++];
  *pair = (ckpt_diff_pair){.name = name, .a = a, .b = b, .dtype_a = dtype_of(d, a), .dtype_b = dtype_of(d, b)};
  return compare(d, pair, d->a, a, d->b, b, err);
}

/* A tensor that only one side has is still no difference where it repeats what its own config ties it to. */
static ckpt_status add_one(differ *d, const ckpt_tensor *tensor, bool is_a, ckpt_error *err) {
  const ckpt_index *own = is_a ? d->a : d->b, *other = is_a ? d->b : d->a;
  ckpt_diff_pair *pair = &d->diff->pairs[d->diff->n++];
  *pair = (ckpt_diff_pair){.name = tensor->name, .a = is_a ? tensor : NULL, .b = is_a ? NULL : tensor};
  const ckpt_tensor *kept = tied_to(own, tensor);
  if (kept == NULL || partner(other, kept) == NULL) return CKPT_OK;
  pair->kept = kept;
  pair->dtype_a = dtype_of(d, tensor);
  pair->dtype_b = dtype_of(d, kept);
  return compare(d, pair, own, tensor, own, kept, err);
}

/* Tensors of b that no tensor of a has met by name: their partner, if any, has them as an alias, or they have it. */
static ckpt_status add_rest(differ *d, ckpt_error *err) {
  bool known;
  for (uint32_t i = 0; i < d->b->n_tensors; i++) {
    const ckpt_tensor *b = &d->b->tensors[i];
    if (!ckpt_role_included(d->include, (ckpt_role)b->role, &known)) continue;
    const ckpt_tensor *a = partner(d->a, b);
    if (a == NULL)
      CKPT_TRY(add_one(d, b, false, err));
    else if (partner(d->b, a) != b || !ckpt_role_included(d->include, (ckpt_role)a->role, &known))
      CKPT_TRY(add_both(d, a, b, b->name, err));
  }
  return CKPT_OK;
}

static int by_name(const void *x, const void *y) {
  return strcmp(((const ckpt_diff_pair *)x)->name, ((const ckpt_diff_pair *)y)->name);
}

static ckpt_status add_all(differ *d, ckpt_error *err) {
  bool known;
  ckpt_role_included(d->include, CKPT_ROLE_PARAMETER, &known);
  if (!known)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "include '%s' is none of model, optimizer, all", d->include);
  if (d->options->cast != CKPT_DTYPE_NONE || d->options->has_tolerance) {
    CKPT_TRY(ckpt_index_is_quantized(d->a, &d->is_quantized_a, err));
    CKPT_TRY(ckpt_index_is_quantized(d->b, &d->is_quantized_b, err));
  }
  for (uint32_t i = 0; i < d->a->n_tensors; i++) {
    const ckpt_tensor *a = &d->a->tensors[i];
    if (!ckpt_role_included(d->include, (ckpt_role)a->role, &known)) continue;
    const ckpt_tensor *b = partner(d->b, a);
    CKPT_TRY(b != NULL ? add_both(d, a, b, a->name, err) : add_one(d, a, true, err));
  }
  CKPT_TRY(add_rest(d, err));
  if (d->diff->n != 0) qsort(d->diff->pairs, d->diff->n, sizeof *d->diff->pairs, by_name);
  return CKPT_OK;
}

ckpt_status ckpt_diff_plan(ckpt_diff **out, ckpt_plan *plan, const ckpt_index *a, const ckpt_index *b,
                           const ckpt_diff_options *options, ckpt_error *err) {
  ckpt_tolerance *tolerance = ckpt_arena_alloc(&plan->arena, sizeof *tolerance);
  ckpt_diff *diff = calloc(1, sizeof *diff);
  if (diff != NULL) diff->pairs = calloc((size_t)a->n_tensors + b->n_tensors + 1, sizeof *diff->pairs);
  if (tolerance == NULL || diff == NULL || diff->pairs == NULL) {
    ckpt_diff_free(diff);
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  if (options->has_tolerance) *tolerance = options->tolerance;
  differ d = {.plan = plan, .options = options, .a = a, .b = b, .tolerance = tolerance, .diff = diff};
  d.include = options->include != NULL ? options->include : "model";
  ckpt_status status = add_all(&d, err);
  if (status == CKPT_OK)
    *out = diff;
  else
    ckpt_diff_free(diff);
  return status;
}

void ckpt_diff_free(ckpt_diff *diff) {
  if (diff == NULL) return;
  free(diff->pairs);
  free(diff);
}

uint64_t ckpt_diff_count(const ckpt_diff_pair *pair, uint64_t *first) {
  const ckpt_difference *d = pair->difference;
  if (first != NULL) *first = d == NULL || d->n == 0 ? UINT64_MAX : pair->by_value ? d->first : d->first_bits;
  return d == NULL ? 0 : pair->by_value ? d->n_different : d->n_bits;
}

ckpt_diff_kind ckpt_diff_judge(const ckpt_diff_pair *pair) {
  bool is_equal = pair->difference != NULL && ckpt_diff_count(pair, NULL) == 0;
  if (pair->kept != NULL && is_equal) return CKPT_DIFF_TIED;
  if (pair->b == NULL) return CKPT_DIFF_ONLY_A;
  if (pair->a == NULL) return CKPT_DIFF_ONLY_B;
  if (!pair->has_shapes) return CKPT_DIFF_SHAPE;
  if (pair->dtype_a != pair->dtype_b && !is_equal) return CKPT_DIFF_DTYPE;
  if (pair->dtype_a != pair->dtype_b) return CKPT_DIFF_DTYPE_ONLY;
  return is_equal ? CKPT_DIFF_EQUAL : CKPT_DIFF_VALUE;
}

bool ckpt_diff_counts(ckpt_diff_kind kind) {
  return kind != CKPT_DIFF_EQUAL && kind != CKPT_DIFF_TIED && kind != CKPT_DIFF_DTYPE_ONLY;
}
