/* diff.c - see diff.h. */
#include "libckpt/recipe/compare/diff.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/index/arch.h"
#include "libckpt/recipe/quantize/imatrix.h"
#include "libckpt/recipe/quantize/quantize.h"
#include "libckpt/recipe/quantize/quantized.h"
#include "libckpt/recipe/select/select.h"

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

static ckpt_dtype dtype_of(const ckpt_diff *d, const ckpt_tensor *tensor) {
  ckpt_dtype dtype = (ckpt_dtype)tensor->dtype;
  return d->options.cast != CKPT_DTYPE_NONE && ckpt_dtype_holds_floats(dtype) ? d->options.cast : dtype;
}

/* Whether the shapes agree; of what quantize makes of a file, as presets count axes. */
static bool have_shapes(const ckpt_diff *d, const ckpt_tensor *a, const ckpt_tensor *b) {
  const uint32_t rank = ckpt_preset_rank(a);
  if (ckpt_tensor_same_shape(a, b)) return true;
  return d->is_requantized && rank == ckpt_preset_rank(b) &&
         memcmp(ckpt_preset_shape(a, rank), ckpt_preset_shape(b, rank), rank * sizeof *a->shape) == 0;
}

/* How the values of a and b are to be compared, if they are. */
static void describe(const ckpt_diff *d, ckpt_diff_pair *pair, const ckpt_tensor *a, const ckpt_tensor *b) {
  pair->dtype_a = dtype_of(d, a);
  pair->dtype_b = dtype_of(d, b);
  if (d->options.requantizes && pair->kept == NULL && ckpt_dtype_holds_floats(pair->dtype_a) &&
      ckpt_dtype_holds_floats(pair->dtype_b))
    pair->dtype_a = pair->dtype_b;
  bool is_complex = ckpt_dtype_get(pair->dtype_a)->kind == CKPT_KIND_COMPLEX &&
                    ckpt_dtype_get(pair->dtype_b)->kind == CKPT_KIND_COMPLEX;
  bool is_tolerant = is_complex || (ckpt_dtype_holds_floats(pair->dtype_a) && ckpt_dtype_holds_floats(pair->dtype_b));
  pair->has_shapes = have_shapes(d, a, b);
  pair->by_value = d->options.has_tolerance && is_tolerant;
  pair->is_compared = pair->has_shapes && (pair->dtype_a == pair->dtype_b || pair->by_value);
}

static void add_both(ckpt_diff *d, const ckpt_tensor *a, const ckpt_tensor *b, const char *name) {
  ckpt_diff_pair *pair = &d->pairs[d->n++];
  *pair = (ckpt_diff_pair){.name = name, .a = a, .b = b};
  describe(d, pair, a, b);
}

/* A tensor that only one side has is still no difference where it repeats what its own config ties it to. */
static void add_one(ckpt_diff *d, const ckpt_tensor *tensor, bool is_a) {
  const ckpt_index *own = is_a ? d->a : d->b, *other = is_a ? d->b : d->a;
  ckpt_diff_pair *pair = &d->pairs[d->n++];
  *pair = (ckpt_diff_pair){.name = tensor->name, .a = is_a ? tensor : NULL, .b = is_a ? NULL : tensor};
  const ckpt_tensor *kept = tied_to(own, tensor);
  if (kept == NULL || partner(other, kept) == NULL) return;
  pair->kept = kept;
  describe(d, pair, tensor, kept);
}

/* Tensors of b that no tensor of a has met by name: their partner, if any, has them as an alias, or they have it. */
static void add_rest(ckpt_diff *d) {
  bool known;
  for (uint32_t i = 0; i < d->b->n_tensors; i++) {
    const ckpt_tensor *b = &d->b->tensors[i];
    if (!ckpt_role_included(d->options.include, (ckpt_role)b->role, &known)) continue;
    const ckpt_tensor *a = partner(d->a, b);
    if (a == NULL)
      add_one(d, b, false);
    else if (partner(d->b, a) != b || !ckpt_role_included(d->options.include, (ckpt_role)a->role, &known))
      add_both(d, a, b, b->name);
  }
}

static int by_name(const void *x, const void *y) {
  return strcmp(((const ckpt_diff_pair *)x)->name, ((const ckpt_diff_pair *)y)->name);
}

static ckpt_status pair_all(ckpt_diff *d, ckpt_error *err) {
  bool known;
  ckpt_role_included(d->options.include, CKPT_ROLE_PARAMETER, &known);
  if (!known)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "include '%s' is none of model, optimizer, all", d->options.include);
  if (d->options.imatrix != NULL) {
    uint32_t n_entries;
    CKPT_TRY(ckpt_imatrix_check(d->options.imatrix, err));
    CKPT_TRY(ckpt_imatrix_fits(d->options.imatrix, d->a, &n_entries, err));
  }
  if (d->options.cast != CKPT_DTYPE_NONE || d->options.has_tolerance || d->options.requantizes) {
    CKPT_TRY(ckpt_index_is_quantized(d->a, &d->is_quantized_a, err));
    CKPT_TRY(ckpt_index_is_quantized(d->b, &d->is_quantized_b, err));
  }
  d->pairs = calloc((size_t)d->a->n_tensors + d->b->n_tensors + 1, sizeof *d->pairs);
  CKPT_TRY_ALLOC(d->pairs, err);
  for (uint32_t i = 0; i < d->a->n_tensors; i++) {
    const ckpt_tensor *a = &d->a->tensors[d->a->by_name[i]];
    if (!ckpt_role_included(d->options.include, (ckpt_role)a->role, &known)) continue;
    const ckpt_tensor *b = partner(d->b, a);
    if (b != NULL)
      add_both(d, a, b, a->name);
    else
      add_one(d, a, true);
  }
  size_t n = d->n; /* in order already */
  add_rest(d);
  if (d->n != n) qsort(d->pairs, d->n, sizeof *d->pairs, by_name);
  return CKPT_OK;
}

/* With requantizing: both sides under the names of files that presets make, a known family's A in that dialect. Where
 * there is none, or A has more than is read, the two are compared as they are. */
static ckpt_status speak_as_files(ckpt_diff *d, ckpt_error *err) {
  ckpt_error none = {0};
  if (!d->options.requantizes || !ckpt_caps_of(d->b).presets) return CKPT_OK;
  if (!ckpt_caps_of(d->a).presets) {
    const ckpt_dialect_options dialect = {0};
    if (d->a->n_unread != 0) return CKPT_OK;
    const ckpt_status status = ckpt_dialect_to_gguf(&d->own, d->a, &dialect, &none);
    if (status == CKPT_ENOMEM) return ckpt_fail(err, status, NULL, NULL, "out of memory");
    if (status != CKPT_OK) return CKPT_OK;
  }
  d->is_requantized = true;
  d->a = d->own != NULL ? d->own : ckpt_index_as_stored(d->a);
  d->b = ckpt_index_as_stored(d->b);
  return CKPT_OK;
}

/* Whether an index has parts of what another joins. */
static bool has_parts(const ckpt_index *index, const ckpt_index *joined, const ckpt_index *apart) {
  for (uint32_t i = 0; apart != NULL && i < apart->n_tensors; i++) {
    const char *name = apart->tensors[i].name;
    if (ckpt_index_find(joined, name) == NULL && ckpt_index_find(index, name) != NULL) return true;
  }
  return false;
}

/* A state dict that joins what the other side has apart is compared under the names of files. */
static ckpt_status speak_apart(ckpt_diff *d, ckpt_error *err) {
  const ckpt_index *a = d->a, *b = d->b;
  if (d->is_requantized) return CKPT_OK;
  CKPT_TRY(ckpt_dialect_apart(&d->apart[0], a, err));
  CKPT_TRY(ckpt_dialect_apart(&d->apart[1], b, err));
  if (has_parts(b, a, d->apart[0])) d->a = d->apart[0];
  if (has_parts(a, b, d->apart[1])) d->b = d->apart[1];
  return CKPT_OK;
}

ckpt_status ckpt_diff_new(ckpt_diff **out, const ckpt_index *a, const ckpt_index *b, const ckpt_diff_options *options,
                          ckpt_error *err) {
  ckpt_diff *diff = calloc(1, sizeof *diff);
  CKPT_TRY_ALLOC(diff, err);
  ckpt_arena_init(&diff->arena, UINT64_MAX);
  diff->options = *options;
  diff->a = a;
  diff->b = b;
  if (options->include == NULL) diff->options.include = "model";
  ckpt_status status = speak_as_files(diff, err);
  if (status == CKPT_OK) status = speak_apart(diff, err);
  if (status == CKPT_OK) status = pair_all(diff, err);
  if (status == CKPT_OK)
    *out = diff;
  else
    ckpt_diff_free(diff);
  return status;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

/* What quantize makes of the values of tensor, which *out is. */
static ckpt_status requantize(ckpt_expr **out, const ckpt_diff *d, ckpt_plan *plan, const ckpt_tensor *tensor,
                              ckpt_dtype dtype, ckpt_error *err) {
  ckpt_expr *importance = NULL;
  if (d->options.imatrix != NULL) CKPT_TRY(ckpt_imatrix_expr(&importance, plan, d->options.imatrix, tensor, err));
  if (!ckpt_backend_reference.can_quantize(dtype, importance != NULL))
    return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "%s in %s is of no use without importance",
                                 ckpt_dtype_name(dtype), d->b->path),
                       err, d->options.imatrix == NULL ? "%imatrix" : "%imatrix has none of this tensor");
  CKPT_TRY(ckpt_expr_cast(out, plan, *out, CKPT_F32, err));
  return ckpt_expr_quantize(out, plan, *out, dtype, importance, err);
}

/* The values of one side as dtype. `alone`: the other side has them in another one, so that what needs its scales to
 * mean anything must not be taken without them. */
static ckpt_status read_side(const ckpt_diff *d, ckpt_plan *plan, const ckpt_index *index, const ckpt_tensor *tensor,
                             ckpt_dtype dtype, bool alone, ckpt_expr **out, ckpt_error *err) {
  ckpt_status status = d->is_requantized ? ckpt_quantize_read(out, plan, index, tensor, err)
                                         : ckpt_expr_read(out, plan, index, tensor, err);
  if (status == CKPT_OK && (alone || dtype != (ckpt_dtype)tensor->dtype))
    status = ckpt_refuse_quantized(index, tensor, index == d->a ? d->is_quantized_a : d->is_quantized_b, err);
  if (status == CKPT_OK && ckpt_dtype_is_block(dtype) && dtype != (ckpt_dtype)tensor->dtype)
    status = requantize(out, d, plan, tensor, dtype, err);
  else if (status == CKPT_OK)
    status = ckpt_expr_cast(out, plan, *out, dtype, err);
  return ckpt_fail_at(status, err, index->path, tensor->name);
}

static ckpt_status compare(const ckpt_diff *d, ckpt_plan *plan, ckpt_diff_pair *pair, ckpt_error *err) {
  static const ckpt_tolerance exact = {0};
  const ckpt_tensor *a = pair->a != NULL ? pair->a : pair->b, *b = pair->kept != NULL ? pair->kept : pair->b;
  const ckpt_index *index_a = pair->a != NULL ? d->a : d->b, *index_b = pair->kept != NULL ? index_a : d->b;
  ckpt_expr *args[2], *reduction;
  const void *value;
  bool alone = pair->dtype_a != pair->dtype_b;
  CKPT_TRY(read_side(d, plan, index_a, a, pair->dtype_a, alone, &args[0], err));
  CKPT_TRY(read_side(d, plan, index_b, b, pair->dtype_b, alone, &args[1], err));
  CKPT_TRY(ckpt_expr_apply(&reduction, plan, &ckpt_op_compare, CKPT_F64, args, 2,
                           pair->by_value ? &d->options.tolerance : &exact, err));
  CKPT_TRY(ckpt_plan_reduce(plan, pair->name, reduction, &value, err));
  pair->difference = value;
  return CKPT_OK;
}

static ckpt_status add(void *arg, ckpt_plan *plan, size_t first, size_t end, ckpt_error *err) {
  ckpt_diff *d = arg;
  for (size_t i = first; i < end; i++)
    if (d->pairs[i].is_compared) CKPT_TRY(compare(d, plan, &d->pairs[i], err));
  return CKPT_OK;
}

/* Differences outlive the slice's plan. */
static ckpt_status take(void *arg, const ckpt_plan *plan, size_t first, size_t end, ckpt_error *err) {
  ckpt_diff *d = arg;
  (void)plan;
  for (size_t i = first; i < end; i++) {
    if (!d->pairs[i].is_compared) continue;
    ckpt_difference *copy = ckpt_arena_alloc(&d->arena, sizeof *copy);
    CKPT_TRY_ALLOC(copy, err);
    *copy = *d->pairs[i].difference;
    d->pairs[i].difference = copy;
  }
  return CKPT_OK;
}

ckpt_proof ckpt_diff_proof(ckpt_diff *diff) {
  ckpt_proof proof = {.n = diff->n, .arg = diff, .add = add, .take = take};
  for (size_t i = 0; i < diff->n; i++) {
    const ckpt_diff_pair *pair = &diff->pairs[i];
    const ckpt_tensor *a = pair->a != NULL ? pair->a : pair->b, *b = pair->kept != NULL ? pair->kept : pair->b;
    if (pair->is_compared) proof.n_bytes += a->n_bytes + b->n_bytes;
  }
  return proof;
}

void ckpt_diff_free(ckpt_diff *diff) {
  if (diff == NULL) return;
  ckpt_arena_free(&diff->arena);
  ckpt_index_free(diff->own);
  for (int side = 0; side < 2; side++) ckpt_index_free(diff->apart[side]);
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
