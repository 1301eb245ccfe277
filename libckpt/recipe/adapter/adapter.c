/* adapter.c - see adapter.h. */
#include "libckpt/recipe/adapter/adapter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/index/arch.h"
#include "libckpt/plan/derive.h"
#include "libckpt/plan/ops/lora.h"
#include "libckpt/recipe/adapter/names.h"
#include "libckpt/recipe/adapter/peft.h"

/* What one adapter does to one tensor of the base. */
typedef struct change {
  uint32_t adapter;
  const ckpt_tensor *base;
  const ckpt_tensor *input, *output, *magnitude; /* of a low-rank update */
  const ckpt_tensor *whole;                      /* takes the base's place */
  const ckpt_tensor *bias;                       /* is added */
  bool is_embedding, is_transposed;
  double scale;
} change;

typedef struct adapter {
  ckpt_index *index;
  ckpt_peft peft;
  ckpt_digest digest;
  double scale;
} adapter;

struct ckpt_adapters {
  const ckpt_index *base;
  adapter *list; /* in the byte order of their digests */
  uint32_t n;
  change *changes; /* by tensor of the base, then by adapter */
  size_t n_changes, capacity;
};

/* ---- what is merged where ---------------------------------------------------------------------------------------- */

static ckpt_status find_change(change **out, ckpt_adapters *all, uint32_t number, const ckpt_tensor *base,
                               ckpt_error *err) {
  for (size_t i = all->n_changes; i-- > 0 && all->changes[i].adapter == number;) {
    *out = &all->changes[i];
    if ((*out)->base == base) return CKPT_OK;
  }
  if (all->n_changes == all->capacity) {
    const size_t capacity = all->capacity == 0 ? 64 : 2 * all->capacity;
    change *grown = reallocarray(all->changes, capacity, sizeof *grown);
    CKPT_TRY_ALLOC(grown, err);
    all->changes = grown;
    all->capacity = capacity;
  }
  *out = &all->changes[all->n_changes++];
  **out = (change){.adapter = number, .base = base};
  return CKPT_OK;
}

static ckpt_status check_dtype(const ckpt_tensor *tensor, const char *what, ckpt_error *err) {
  const ckpt_dtype dtype = (ckpt_dtype)tensor->dtype;
  if (dtype == CKPT_F32 || dtype == CKPT_F16 || dtype == CKPT_BF16 || dtype == CKPT_F64) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "the %s is %s: only f16, bf16 and f32 are merged", what,
                   ckpt_dtype_name(dtype));
}

static ckpt_status take_tensor(ckpt_adapters *all, uint32_t number, const ckpt_tensor *tensor, ckpt_error *err) {
  ckpt_adapter_name name;
  change *to = NULL;
  CKPT_TRY(ckpt_adapter_name_parse(&name, tensor->name, err));
  if (name.is_ignored) return CKPT_OK;
  const ckpt_tensor *base = ckpt_adapter_find_base(all->base, name.wanted);
  if (base == NULL)
    return ckpt_fail(err, CKPT_ENOTFOUND, NULL, NULL, "%s has no '%s', which it is for", all->base->path, name.wanted);
  CKPT_TRY(check_dtype(tensor, "adapter's tensor", err));
  CKPT_TRY(check_dtype(base, "base's tensor", err));
  if (base->aliases != NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "'%s' is tied to '%s', which a merge would change too",
                     base->name, base->aliases[0]);
  CKPT_TRY(find_change(&to, all, number, base, err));
  const ckpt_tensor **places[] = {&to->input, &to->output, &to->magnitude, &to->bias, &to->whole};
  const ckpt_tensor **place = places[name.part];
  if (*place != NULL)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "'%s' says the same of '%s'", (*place)->name, base->name);
  *place = tensor;
  to->is_embedding = to->is_embedding || name.is_embedding;
  double scale;
  uint64_t rank = 0;
  if (name.part == CKPT_ADAPTER_OUTPUT && tensor->rank == 2)
    rank = tensor->shape[1];
  else if (name.part != CKPT_ADAPTER_BIAS)
    return CKPT_OK;
  CKPT_TRY(ckpt_peft_scale(&all->list[number].peft, name.module, rank, &scale, err));
  to->scale = scale * all->list[number].scale;
  return CKPT_OK;
}

/* Whether B x A has the base's shape as it is or transposed. */
static bool fits(const change *c, bool is_transposed) {
  const uint64_t *shape = c->base->shape;
  return c->output->shape[0] == shape[is_transposed] && c->input->shape[1] == shape[!is_transposed];
}

/* GPT-2's Conv1D stores (in, out): the family knows, else the shapes decide, else what the config says. */
static ckpt_status orient(const ckpt_adapters *all, change *c, ckpt_error *err) {
  uint64_t numbers[2];
  const ckpt_arch *arch = all->base->architecture != NULL ? ckpt_arch_find(all->base->architecture) : NULL;
  const ckpt_arch_name *row = arch != NULL ? ckpt_arch_match(arch, c->base->name, numbers) : NULL;
  if (c->base->rank != 2 || c->output->rank != 2 || c->input->rank != 2)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "only updates of matrices are merged ('%s' has %u axes)",
                     c->base->name, c->base->rank);
  c->is_transposed = c->is_embedding || all->list[c->adapter].peft.is_transposed;
  if (row != NULL && !c->is_embedding) c->is_transposed = (row->notes & CKPT_NAME_TRANSPOSE) != 0;
  if (row == NULL && !c->is_embedding && fits(c, true) != fits(c, false)) c->is_transposed = fits(c, true);
  if (c->output->shape[1] != c->input->shape[0] || c->input->shape[0] == 0)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "its rank is %llu, that of '%s' %llu",
                     (unsigned long long)c->output->shape[1], c->input->name, (unsigned long long)c->input->shape[0]);
  if (fits(c, c->is_transposed)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "its update is %llu x %llu%s, '%s' is %llu x %llu",
                   (unsigned long long)c->output->shape[0], (unsigned long long)c->input->shape[1],
                   c->is_transposed ? " transposed" : "", c->base->name, (unsigned long long)c->base->shape[0],
                   (unsigned long long)c->base->shape[1]);
}

static ckpt_status check_magnitude(const ckpt_adapters *all, const change *c, ckpt_error *err) {
  const bool is_dora = all->list[c->adapter].peft.is_dora;
  if (is_dora != (c->magnitude != NULL))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "the config %s use_dora, and its magnitude vector is %s",
                     is_dora ? "sets" : "does not set", c->magnitude != NULL ? "there" : "missing");
  if (c->magnitude == NULL) return CKPT_OK;
  if (c->is_transposed)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "DoRA of embeddings and of transposed layers is not merged");
  if (c->magnitude->n_elements == c->base->shape[0]) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%llu magnitudes for %llu rows of '%s'",
                   (unsigned long long)c->magnitude->n_elements, (unsigned long long)c->base->shape[0], c->base->name);
}

static ckpt_status check_change(const ckpt_adapters *all, change *c, ckpt_error *err) {
  const ckpt_tensor *whole = c->whole != NULL ? c->whole : c->bias;
  if ((c->input == NULL) != (c->output == NULL) || (c->magnitude != NULL && c->input == NULL))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "the %s of this module is missing",
                     c->input == NULL ? "lora_A" : "lora_B");
  if (whole != NULL && !ckpt_tensor_same_shape(whole, c->base))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "its shape is not that of '%s' (%llu and %llu elements)",
                     c->base->name, (unsigned long long)whole->n_elements, (unsigned long long)c->base->n_elements);
  if (c->input == NULL) return CKPT_OK;
  CKPT_TRY(orient(all, c, err));
  return check_magnitude(all, c, err);
}

static const char *name_in(const change *c) {
  const ckpt_tensor *any = c->output != NULL ? c->output : c->input != NULL ? c->input : c->whole;
  return (any != NULL ? any : c->bias != NULL ? c->bias : c->magnitude)->name;
}

/* Two adapters may add to one tensor, and one may add to what it replaces itself; everything else depends on order. */
static ckpt_status check_pair(const ckpt_adapters *all, const change *a, const change *b, ckpt_error *err) {
  if (a->base != b->base || (a->whole == NULL && b->whole == NULL && a->magnitude == NULL && b->magnitude == NULL))
    return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, all->list[b->adapter].index->path, name_in(b),
                   "changes '%s', as '%s' of %s does: the result would depend on their order", b->base->name,
                   name_in(a), all->list[a->adapter].index->path);
}

static int by_base(const void *x, const void *y) {
  const change *a = x, *b = y;
  if (a->base != b->base) return a->base < b->base ? -1 : 1;
  return a->adapter < b->adapter ? -1 : a->adapter > b->adapter;
}

static ckpt_status take_all(ckpt_adapters *all, ckpt_error *err) {
  for (uint32_t i = 0; i < all->n; i++) {
    const ckpt_index *index = all->list[i].index;
    for (size_t k = 0; k < ckpt_index_count(index); k++) {
      const ckpt_tensor *tensor = ckpt_index_at(index, k);
      CKPT_TRY(ckpt_fail_at(take_tensor(all, i, tensor, err), err, index->path, tensor->name));
    }
  }
  for (size_t i = 0; i < all->n_changes; i++) {
    change *c = &all->changes[i];
    CKPT_TRY(ckpt_fail_at(check_change(all, c, err), err, all->list[c->adapter].index->path, name_in(c)));
  }
  if (all->n_changes == 0) return CKPT_OK;
  qsort(all->changes, all->n_changes, sizeof *all->changes, by_base);
  for (size_t i = 1; i < all->n_changes; i++) CKPT_TRY(check_pair(all, &all->changes[i - 1], &all->changes[i], err));
  return CKPT_OK;
}

/* ---- opening ------------------------------------------------------------------------------------------------------
 */

static int by_digest(const void *x, const void *y) {
  return memcmp(&((const adapter *)x)->digest, &((const adapter *)y)->digest, sizeof(ckpt_digest));
}

static ckpt_status open_one(adapter *out, const ckpt_adapter_request *request, ckpt_error *err) {
  const ckpt_open_options options = {.struct_size = sizeof options, .stored_names = true};
  const ckpt_hash_options hash = {.struct_size = sizeof hash, .include = "all"};
  out->scale = request->scale;
  if (!isfinite(request->scale))
    return ckpt_fail(err, CKPT_EINVAL, request->path, NULL, "a scale of %g", request->scale);
  CKPT_TRY(ckpt_open(&out->index, request->path, &options, err));
  CKPT_TRY(ckpt_peft_read(&out->peft, out->index, err));
  if (out->index->n_unread != 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, out->index->path, out->index->unread[0].name, "is there and not read: %s",
                     out->index->unread[0].why);
  if (ckpt_index_count(out->index) == 0) return ckpt_fail(err, CKPT_EFORMAT, out->index->path, NULL, "no tensors");
  return ckpt_hash(out->index, &hash, &out->digest, err);
}

ckpt_status ckpt_adapters_open(ckpt_adapters **out, const ckpt_index *base, const ckpt_adapter_request *requests,
                               uint32_t n, ckpt_error *err) {
  ckpt_status status = CKPT_OK;
  ckpt_adapters *all = calloc(1, sizeof *all);
  CKPT_TRY_ALLOC(all, err);
  all->base = base;
  all->list = calloc(n == 0 ? 1 : n, sizeof *all->list);
  if (all->list == NULL) {
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    goto done;
  }
  for (; all->n < n; all->n++) {
    status = open_one(&all->list[all->n], &requests[all->n], err);
    if (status != CKPT_OK) {
      all->n++; /* what it has opened is released, too */
      goto done;
    }
  }
  qsort(all->list, n, sizeof *all->list, by_digest);
  status = take_all(all, err);
done:
  if (status == CKPT_OK)
    *out = all;
  else
    ckpt_adapters_free(all);
  return status;
}

void ckpt_adapters_free(ckpt_adapters *adapters) {
  if (adapters == NULL) return;
  for (uint32_t i = 0; i < adapters->n; i++) {
    ckpt_peft_free(&adapters->list[i].peft);
    ckpt_index_free(adapters->list[i].index);
  }
  free(adapters->list);
  free(adapters->changes);
  free(adapters);
}

/* ---- as expressions ---------------------------------------------------------------------------------------------- */

/* The first change of a tensor; *n: how many there are. */
static const change *changes_of(const ckpt_adapters *adapters, const ckpt_tensor *tensor, uint32_t *n) {
  size_t low = 0, high = adapters->n_changes;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (adapters->changes[middle].base < tensor)
      low = middle + 1;
    else
      high = middle;
  }
  *n = 0;
  while (low + *n < adapters->n_changes && adapters->changes[low + *n].base == tensor) ++*n;
  return &adapters->changes[low];
}

bool ckpt_adapters_change(const ckpt_adapters *adapters, const ckpt_tensor *tensor) {
  uint32_t n;
  changes_of(adapters, tensor, &n);
  return n != 0;
}

size_t ckpt_adapters_count(const ckpt_adapters *adapters) {
  size_t n = 0;
  for (size_t i = 0; i < adapters->n_changes; i++)
    n += i == 0 || adapters->changes[i].base != adapters->changes[i - 1].base;
  return n;
}

/* A tensor of an adapter, its values checked. */
static ckpt_status read_part(ckpt_expr **out, const ckpt_adapters *all, const change *c, ckpt_arena *arena,
                             const ckpt_tensor *tensor, ckpt_error *err) {
  CKPT_TRY(ckpt_expr_read_in(out, arena, all->list[c->adapter].index, tensor, err));
  return ckpt_expr_finite_in(out, arena, *out, err);
}

static ckpt_status make_term(ckpt_lora_term *out, const ckpt_adapters *all, const change *c, ckpt_arena *arena,
                             ckpt_error *err) {
  const uint32_t swapped[2] = {1, 0};
  ckpt_expr *input, *output;
  CKPT_TRY(read_part(&input, all, c, arena, c->input, err));
  CKPT_TRY(read_part(&output, all, c, arena, c->output, err));
  *out = (ckpt_lora_term){.output = output, .input = input, .scale = (float)c->scale};
  if (!c->is_transposed) return CKPT_OK;
  CKPT_TRY(ckpt_expr_permute_in(&out->output, arena, input, swapped, err));
  return ckpt_expr_permute_in(&out->input, arena, output, swapped, err);
}

/* A bias of the module's own: base + scale * bias, as a column with one term of rank 1. */
static ckpt_status add_biases(ckpt_expr **value, const ckpt_adapters *all, const change *changes, uint32_t n,
                              ckpt_arena *arena, ckpt_error *err) {
  static const float one = 1;
  const uint64_t shape[2] = {(*value)->n_elements, 1}, single[2] = {1, 1};
  ckpt_lora_term terms[CKPT_LORA_TERMS];
  uint32_t n_terms = 0;
  for (uint32_t i = 0; i < n && n_terms < CKPT_LORA_TERMS; i++) {
    ckpt_expr *bias;
    if (changes[i].bias == NULL) continue;
    CKPT_TRY(read_part(&bias, all, &changes[i], arena, changes[i].bias, err));
    CKPT_TRY(ckpt_expr_reshape_in(&terms[n_terms].output, arena, bias, 2, shape, err));
    CKPT_TRY(ckpt_expr_memory_in(&terms[n_terms].input, arena, CKPT_F32, 2, single, &one, err));
    terms[n_terms++].scale = (float)changes[i].scale;
  }
  if (n_terms == 0) return CKPT_OK;
  CKPT_TRY(ckpt_expr_reshape_in(value, arena, *value, 2, shape, err));
  CKPT_TRY(ckpt_expr_lora_in(value, arena, *value, terms, n_terms, NULL, err));
  return ckpt_expr_reshape_in(value, arena, *value, 1, shape, err);
}

static ckpt_status merge(ckpt_expr **out, const ckpt_adapters *all, const change *changes, uint32_t n,
                         ckpt_arena *arena, ckpt_error *err) {
  ckpt_lora_term terms[CKPT_LORA_TERMS];
  ckpt_expr *magnitudes = NULL, *value;
  uint32_t n_terms = 0;
  if (n > CKPT_LORA_TERMS)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "%u adapters change it (at most %d)", n, CKPT_LORA_TERMS);
  if (changes[0].whole != NULL)
    CKPT_TRY(read_part(&value, all, &changes[0], arena, changes[0].whole, err));
  else
    CKPT_TRY(ckpt_expr_read_in(&value, arena, all->base, changes[0].base, err));
  for (uint32_t i = 0; i < n; i++) {
    if (changes[i].input != NULL) CKPT_TRY(make_term(&terms[n_terms++], all, &changes[i], arena, err));
    if (changes[i].magnitude != NULL)
      CKPT_TRY(read_part(&magnitudes, all, &changes[i], arena, changes[i].magnitude, err));
  }
  if (n_terms != 0) CKPT_TRY(ckpt_expr_lora_in(&value, arena, value, terms, n_terms, magnitudes, err));
  CKPT_TRY(add_biases(&value, all, changes, n, arena, err));
  return ckpt_expr_cast_in(out, arena, value, (ckpt_dtype)changes[0].base->dtype, err);
}

/* ---- the merged model -------------------------------------------------------------------------------------------- */

static ckpt_status add_tensor(ckpt_index *into, const ckpt_adapters *all, const ckpt_tensor *tensor, ckpt_error *err) {
  uint32_t n, number;
  const change *changes = changes_of(all, tensor, &n);
  ckpt_expr *expr;
  if (n == 0)
    CKPT_TRY(ckpt_expr_read_in(&expr, &into->arena, all->base, tensor, err));
  else
    CKPT_TRY(merge(&expr, all, changes, n, &into->arena, err));
  CKPT_TRY(ckpt_index_add(into, tensor->name, strlen(tensor->name), (ckpt_dtype)tensor->dtype, tensor->rank,
                          tensor->shape, (ckpt_role)tensor->role, NULL, 0, &number, err));
  for (const char *const *alias = tensor->aliases; alias != NULL && *alias != NULL; alias++)
    CKPT_TRY(ckpt_index_alias(into, number, *alias, err));
  return ckpt_derive(into, number, expr, err);
}

/* Side files are the base's, and lie in its source. */
static ckpt_status carry(ckpt_index *into, const ckpt_index *base, ckpt_error *err) {
  CKPT_TRY(ckpt_index_carry(into, base, err));
  for (uint32_t i = 0; i < into->n_side_files; i++)
    if (into->side_files[i].source == NULL) into->side_files[i].source = base->source;
  into->objects = NULL; /* a run cannot go on from another model's state */
  into->top = NULL;
  into->graph = NULL;
  return CKPT_OK;
}

ckpt_status ckpt_adapters_merge(ckpt_index **out, const ckpt_adapters *adapters, ckpt_error *err) {
  const ckpt_index *base = adapters->base;
  ckpt_index *merged;
  ckpt_status status;
  CKPT_TRY(ckpt_index_new(&merged, NULL, base->path, base->format, NULL, err));
  CKPT_TRY_GOTO(carry(merged, base, err));
  for (uint32_t i = 0; i < base->n_tensors; i++) {
    const ckpt_tensor *tensor = &base->tensors[i];
    if (!ckpt_role_is_model((ckpt_role)tensor->role)) continue;
    CKPT_TRY_GOTO(ckpt_fail_at(add_tensor(merged, adapters, tensor, err), err, base->path, tensor->name));
  }
  status = ckpt_index_finish(merged, err);
done:
  if (status == CKPT_OK)
    *out = merged;
  else
    ckpt_index_free(merged);
  return status;
}
