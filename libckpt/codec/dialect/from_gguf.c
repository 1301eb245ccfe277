/* from_gguf.c - a GGUF model of a known family in its Hugging Face dialect: see dialect.h.
 *
 * What the file holds becomes an index of its own, the stored form, from which outputs in GGUF are made; over it stand
 * the tensors under Hugging Face's names. A file that does not fit its family's row in everything keeps its names. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/codec/gguf/value.h"
#include "libckpt/plan/derive.h"
#include "libckpt/plan/plan.h"

/* ---- what the metadata says -------------------------------------------------------------------------------------- */

const ckpt_arch *ckpt_dialect_of_gguf(const ckpt_index *index) {
  const ckpt_meta *meta = ckpt_index_meta(index, CKPT_GGUF_ARCHITECTURE),
                  *type = ckpt_index_meta(index, "general.type");
  if (meta == NULL || meta->typed != NULL) return NULL;
  if (type != NULL && (type->typed != NULL || strcmp(type->value, "model") != 0)) return NULL; /* an adapter, ... */
  const ckpt_arch *found = NULL;
  for (const ckpt_arch *const *arch = ckpt_archs; *arch != NULL; arch++) {
    if ((*arch)->gguf == NULL || strcmp((*arch)->gguf->architecture, meta->value) != 0) continue;
    uint32_t n;
    if ((*arch)->gguf->having == NULL && found == NULL) found = *arch;
    if ((*arch)->gguf->having != NULL && ckpt_dialect_gguf_u32(index, *arch, (*arch)->gguf->having, &n) && n != 0)
      found = *arch;
  }
  return found;
}

bool ckpt_dialect_gguf_u32(const ckpt_index *index, const ckpt_arch *arch, const char *key, uint32_t *out) {
  char full[128];
  const size_t n = strlen(arch->gguf->architecture), n_key = strlen(key);
  if (n + 1 + n_key >= sizeof full) return false;
  memcpy(full, arch->gguf->architecture, n);
  full[n] = '.';
  memcpy(full + n + 1, key, n_key + 1);
  const ckpt_meta *meta = ckpt_index_meta(index, full);
  if (meta == NULL || meta->typed == NULL) return false;
  return ckpt_gguf_value_u32(meta->typed, out) || ckpt_gguf_array_u32(meta->typed, out);
}

enum { MAX_EXPERTS = 1 << 16 };

typedef struct namer {
  const ckpt_arch *arch;
  ckpt_dialect_sizes sizes;
} namer;

static bool read_number(uint64_t *out, const ckpt_index *index, const ckpt_arch *arch, const char *key) {
  uint32_t value;
  if (!ckpt_dialect_gguf_u32(index, arch, key, &value) || value == 0) return false;
  *out = value;
  return true;
}

static bool read_numbers(namer *n, const ckpt_index *index) {
  ckpt_dialect_sizes *sizes = &n->sizes;
  uint32_t n_kv_heads;
  *n = (namer){.arch = ckpt_dialect_of_gguf(index)};
  if (n->arch == NULL || !read_number(&sizes->n_layers, index, n->arch, "block_count") ||
      !read_number(&sizes->n_heads, index, n->arch, "attention.head_count"))
    return false;
  sizes->n_kv_heads = sizes->n_heads;
  if (ckpt_dialect_gguf_u32(index, n->arch, "attention.head_count_kv", &n_kv_heads)) sizes->n_kv_heads = n_kv_heads;
  if (n->arch->n_experts != NULL && !read_number(&sizes->n_experts, index, n->arch, "expert_count")) return false;
  return sizes->n_kv_heads != 0 && sizes->n_experts <= MAX_EXPERTS;
}

bool ckpt_dialect_gguf_sizes(const ckpt_arch **arch, ckpt_dialect_sizes *sizes, const ckpt_index *index) {
  namer n;
  const bool is_known = read_numbers(&n, index);
  *arch = n.arch;
  *sizes = n.sizes;
  return is_known;
}

/* ---- one tensor -------------------------------------------------------------------------------------------------- */

static bool is_made(const ckpt_arch *arch, const char *name) {
  for (const ckpt_arch_made *made = arch->gguf->made; made != NULL && made->gguf != NULL; made++)
    if (strcmp(made->gguf, name) == 0) return true;
  return false;
}

/* Whether the row's transforms can be undone on a tensor of this shape. */
static bool fits(const namer *n, const ckpt_arch_name *row, const ckpt_tensor *tensor, const uint64_t *numbers) {
  return (strchr(row->gguf, '#') == NULL || numbers[0] < n->sizes.n_layers) &&
         ckpt_dialect_fits(&n->sizes, row, tensor);
}

/* Why the file keeps its names; text in the index's arena, or NULL where it is full. */
static bool keep_names(ckpt_index *index, const char *tensor, const char *why) {
  index->misfit_tensor = tensor;
  index->misfit = why;
  return false;
}

/* Whether a row's tensor has to be there: it is a parameter of every model, and no copy of another. */
static bool is_needed(const ckpt_arch *arch, const ckpt_arch_name *row) {
  if (row->gguf == NULL || row->role != CKPT_ROLE_PARAMETER || (row->notes & CKPT_NAME_OPTIONAL) != 0) return false;
  for (const ckpt_arch_tie *tie = arch->ties; tie->kept != NULL; tie++)
    if (strcmp(tie->tied, row->hf) == 0) return false;
  return true;
}

static bool has_tensor(const ckpt_index *index, const char *name) {
  for (uint32_t i = 0; i < index->n_tensors; i++)
    if (strcmp(index->tensors[i].name, name) == 0) return true;
  for (uint32_t i = 0; i < index->n_unread; i++)
    if (strcmp(index->unread[i].name, name) == 0) return true;
  return false;
}

/* Whether every tensor of every layer is there. Names are unique, so that counting them is enough where they are. */
static bool none_is_missing(const namer *n, ckpt_index *index) {
  for (const ckpt_arch_name *row = n->arch->names; row->hf != NULL; row++) {
    uint64_t n_found = 0, numbers[2], wanted;
    if (!is_needed(n->arch, row)) continue;
    wanted = strchr(row->gguf, '#') == NULL ? 1 : n->sizes.n_layers;
    for (uint32_t i = 0; i < index->n_tensors; i++)
      n_found += ckpt_arch_match_gguf(n->arch, index->tensors[i].name, numbers) == row;
    for (uint64_t layer = 0; n_found < wanted && layer < wanted; layer++) {
      const char *name = ckpt_arch_fill(row->gguf, (uint64_t[2]){layer, 0}, &index->arena);
      if (name == NULL || !has_tensor(index, name))
        return keep_names(index, name,
                          ckpt_arena_printf(&index->arena, "is missing: a %s of %llu layers has it", n->arch->name,
                                            (unsigned long long)n->sizes.n_layers));
    }
  }
  return true;
}

static bool all_fit(const namer *n, ckpt_index *index) {
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    const ckpt_tensor *tensor = &index->tensors[i];
    uint64_t numbers[2] = {0};
    if (is_made(n->arch, tensor->name)) continue;
    const ckpt_arch_name *row = ckpt_arch_match_gguf(n->arch, tensor->name, numbers);
    if (row == NULL || (strchr(row->gguf, '#') != NULL && numbers[0] >= n->sizes.n_layers))
      return keep_names(index, tensor->name,
                        ckpt_arena_printf(&index->arena, "is none of a %s of %llu layers", n->arch->name,
                                          (unsigned long long)n->sizes.n_layers));
    if (!fits(n, row, tensor, numbers))
      return keep_names(index, tensor->name,
                        ckpt_arena_printf(&index->arena, "its shape is none for %llu heads, %llu of keys, %llu experts",
                                          (unsigned long long)n->sizes.n_heads, (unsigned long long)n->sizes.n_kv_heads,
                                          (unsigned long long)n->sizes.n_experts));
  }
  return index->n_tensors != 0 && none_is_missing(n, index);
}

/* How many axes Hugging Face's tensor of a row has; 0: the row does not say. */
static uint32_t axes_of(const namer *n, const ckpt_arch_name *row) {
  const ckpt_arch_shape *shape = ckpt_arch_shape_of(n->arch, NULL, row->hf);
  uint32_t n_axes = 0;
  while (shape != NULL && n_axes < 3 && shape->axes[n_axes] != NULL) n_axes++;
  return n_axes;
}

/* Whether GGUF leaves leading axes of length 1 out of a tensor. */
static bool lacks_axes(const namer *n, const ckpt_arch_name *row, const ckpt_expr *x) {
  return x->rank != 0 && x->rank < axes_of(n, row);
}

/* As ckpt_dialect_back, with these axes. */
static ckpt_status back(ckpt_expr **x, ckpt_arena *arena, const namer *n, const ckpt_arch_name *row, uint64_t expert,
                        ckpt_error *err) {
  const uint32_t n_axes = axes_of(n, row);
  uint64_t whole[CKPT_MAX_RANK] = {1, 1, 1};
  CKPT_TRY(ckpt_dialect_back(x, arena, &n->sizes, row, expert, err));
  if (!lacks_axes(n, row, *x)) return CKPT_OK;
  memcpy(whole + n_axes - (*x)->rank, (*x)->shape, (*x)->rank * sizeof *whole);
  return ckpt_expr_reshape_in(x, arena, *x, n_axes, whole, err);
}

/* A tensor under its other name, which lies where the stored one does; of a stack that of one expert. */
static ckpt_status add(ckpt_index *index, const namer *n, const ckpt_tensor *stored, const ckpt_arch_name *row,
                       const uint64_t numbers[2], ckpt_error *err) {
  uint32_t number;
  ckpt_expr *x;
  const char *name = ckpt_arch_fill(row->hf, numbers, &index->arena);
  CKPT_TRY_ALLOC(name, err);
  CKPT_TRY(ckpt_expr_read_in(&x, &index->arena, index->stored_form, stored, err));
  CKPT_TRY(back(&x, &index->arena, n, row, numbers[1], err));
  CKPT_TRY(ckpt_index_add(index, name, strlen(name), (ckpt_dtype)x->dtype, x->rank, x->shape, row->role, NULL, 0,
                          &number, err));
  ckpt_tensor *tensor = &index->tensors[number];
  tensor->extents = stored->extents;
  tensor->n_extents = stored->n_extents;
  tensor->details->extent_form = stored->details->extent_form;
  tensor->details->origin = stored->details->origin;
  tensor->details->part = (uint32_t)numbers[1];
  index->n_extents += stored->n_extents;
  return ckpt_derive(index, number, x, err);
}

static ckpt_status add_all_of(ckpt_index *index, const namer *n, const ckpt_tensor *stored, ckpt_error *err) {
  uint64_t numbers[2] = {0};
  const ckpt_arch_name *row = ckpt_arch_match_gguf(n->arch, stored->name, numbers);
  const uint64_t n_tensors = ckpt_dialect_is_stacked(row) ? n->sizes.n_experts : 1;
  for (numbers[1] = 0; numbers[1] < n_tensors; numbers[1]++) CKPT_TRY(add(index, n, stored, row, numbers, err));
  return CKPT_OK;
}

/* Without an output head of its own the embedding is one. */
static ckpt_status tie(ckpt_index *index, const ckpt_arch *arch, ckpt_error *err) {
  for (uint32_t t = 0; t < CKPT_MAX_TIES && arch->ties[t].kept != NULL; t++) {
    int64_t kept = -1;
    uint64_t numbers[2];
    bool has_tied = ckpt_arch_match(arch, arch->ties[t].tied, numbers) == NULL; /* a name of other releases */
    for (uint32_t i = 0; i < index->n_tensors; i++) {
      if (strcmp(index->tensors[i].name, arch->ties[t].kept) == 0) kept = i;
      has_tied = has_tied || strcmp(index->tensors[i].name, arch->ties[t].tied) == 0;
    }
    if (kept < 0 || has_tied) continue;
    index->ties |= UINT32_C(1) << t;
    index->ties_without[1] |= UINT32_C(1) << t;
    CKPT_TRY(ckpt_index_alias(index, (uint32_t)kept, arch->ties[t].tied, err));
  }
  return CKPT_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Moves what was read into an index of its own, which borrows source and metadata. */
static ckpt_status set_apart(ckpt_index *index, ckpt_error *err) {
  ckpt_index *stored;
  CKPT_TRY(ckpt_index_new(&stored, NULL, index->path, index->format, NULL, err));
  index->stored_form = stored;
  stored->source = index->source;
  stored->metadata = index->metadata;
  stored->n_metadata = index->n_metadata;
  stored->has_metadata = index->has_metadata;
  stored->version = index->version;
  stored->stated_architecture = index->stated_architecture;
  stored->is_stored = true;
  stored->tensors = index->tensors;
  stored->n_tensors = index->n_tensors;
  stored->capacity = index->capacity;
  stored->n_extents = index->n_extents;
  stored->defects = index->defects;
  stored->unread = index->unread;
  stored->n_unread = index->n_unread;
  stored->unread_capacity = index->unread_capacity;
  index->tensors = NULL;
  index->n_tensors = index->capacity = index->n_unread = index->unread_capacity = 0;
  index->n_extents = 0;
  index->unread = NULL;
  ckpt_status status = ckpt_index_finish(stored, err);
  index->defects = stored->defects;
  return status;
}

/* Keys that transforms and shapes go by: of one that is there and no number, no default takes the place. */
static bool has_numbers(ckpt_index *index, const ckpt_arch *arch) {
  static const char *const keys[] = {"block_count", "attention.head_count", "attention.head_count_kv",
                                     "feed_forward_length", "expert_count"};
  for (size_t i = 0; arch != NULL && i < sizeof keys / sizeof *keys; i++) {
    uint32_t value;
    const char *key = ckpt_arena_printf(&index->arena, "%s.%s", arch->gguf->architecture, keys[i]);
    const ckpt_meta *meta = key == NULL ? NULL : ckpt_index_meta(index, key);
    if (meta == NULL || ckpt_dialect_gguf_u32(index, arch, keys[i], &value)) continue;
    const bool is_list = meta->typed != NULL && meta->typed->type == CKPT_GGUF_ARRAY;
    return keep_names(index, NULL,
                      ckpt_arena_printf(&index->arena, "%s is %s, and a %s has one number", key,
                                        is_list ? "not the same for each layer" : "no whole number", arch->name));
  }
  return true;
}

static bool find_family(namer *n, ckpt_index *index) {
  index->misfit = index->misfit_tensor = NULL;
  const bool is_known = read_numbers(n, index);
  if (!has_numbers(index, n->arch)) return false;
  if (is_known) return all_fit(n, index);
  if (n->arch != NULL)
    (void)keep_names(index, NULL, "the numbers of layers, heads and experts in its metadata have to be above 0");
  return false;
}

void ckpt_dialect_find_misfit(ckpt_index *index) {
  namer n;
  (void)find_family(&n, index);
}

ckpt_status ckpt_dialect_from_gguf(ckpt_index *index, bool *is_known, ckpt_error *err) {
  namer n;
  *is_known = find_family(&n, index);
  if (!*is_known) return CKPT_OK;
  CKPT_TRY(set_apart(index, err));
  const ckpt_index *stored = index->stored_form;
  for (uint32_t i = 0; i < stored->n_unread; i++)
    CKPT_TRY(ckpt_index_add_unread(index, stored->unread[i].name, stored->unread[i].role, stored->unread[i].why, err));
  for (uint32_t i = 0; i < stored->n_tensors; i++)
    if (!is_made(n.arch, stored->tensors[i].name)) CKPT_TRY(add_all_of(index, &n, &stored->tensors[i], err));
  CKPT_TRY(tie(index, n.arch, err));
  index->architecture = n.arch->name;
  index->names = ckpt_arena_printf(&index->arena, "hf:%s/%u", n.arch->name, n.arch->revision);
  CKPT_TRY_ALLOC(index->names, err);
  return ckpt_index_finish(index, err);
}

/* ---- what a reader finds ----------------------------------------------------------------------------------------- */

/* The expression with another node where it reads a tensor. */
static ckpt_status replace(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, const ckpt_tensor *tensor, ckpt_expr *by,
                           ckpt_error *err) {
  *out = x;
  if (x->tensor == tensor) {
    *out = by;
    return CKPT_OK;
  }
  for (uint32_t i = 0; i < x->n_args; i++) {
    ckpt_expr *arg;
    CKPT_TRY(replace(&arg, arena, x->args[i], tensor, by, err));
    if (arg == x->args[i]) continue;
    if (*out == x) {
      ckpt_expr *copy = ckpt_arena_alloc(arena, sizeof *copy);
      CKPT_TRY_ALLOC(copy, err);
      *copy = *x;
      copy->args = ckpt_arena_array(arena, x->n_args, sizeof *copy->args);
      CKPT_TRY_ALLOC(copy->args, err);
      memcpy(copy->args, x->args, x->n_args * sizeof *copy->args);
      *out = copy;
    }
    (*out)->args[i] = arg;
  }
  return CKPT_OK;
}

/* The rows of a tensor in Hugging Face's order: of a dialect's those that it was made of, for then nothing has to be
 * put back; else the stored ones, put back. */
static ckpt_status rows_as_read(ckpt_expr **out, ckpt_plan *plan, const namer *n, const ckpt_arch_name *row,
                                const ckpt_index *from, const ckpt_tensor *tensor, ckpt_error *err) {
  const ckpt_derivation *derived = tensor->details->derived;
  if (derived == NULL || derived->n_operands != 1 ||
      derived->operands[0].tensor->n_elements != tensor->n_elements) { /* a share of one that joins several */
    CKPT_TRY(ckpt_expr_read(out, plan, from, tensor, err));
    return back(out, &plan->arena, n, row, 0, err);
  }
  const ckpt_operand *of = &derived->operands[0];
  CKPT_TRY(ckpt_expr_read(out, plan, of->index, of->tensor, err));
  return ckpt_expr_cast(out, plan, *out, (ckpt_dtype)tensor->dtype, err);
}

ckpt_status ckpt_dialect_as_read(ckpt_expr ***out, uint64_t *n_out, ckpt_plan *plan, const ckpt_index *described,
                                 const char *name, const ckpt_index *from, const ckpt_tensor *tensor, ckpt_expr *expr,
                                 ckpt_error *err) {
  uint64_t numbers[2] = {0};
  namer n;
  *n_out = 0;
  if (!read_numbers(&n, described)) return CKPT_OK;
  const ckpt_arch_name *row = ckpt_arch_match_gguf(n.arch, name, numbers);
  if (row == NULL || !(ckpt_dialect_changes(row) || lacks_axes(&n, row, expr))) return CKPT_OK;
  if (!fits(&n, row, tensor, numbers)) return CKPT_OK; /* no reader changes it */
  const uint64_t n_tensors = ckpt_dialect_is_stacked(row) ? n.sizes.n_experts : 1;
  *out = ckpt_arena_array(&plan->arena, n_tensors, sizeof **out);
  CKPT_TRY_ALLOC(*out, err);
  *n_out = n_tensors;
  const bool is_computed = ckpt_dtype_is_block((ckpt_dtype)expr->dtype) && expr->rank == 2;
  if (is_computed && (row->notes & CKPT_NAME_ROPE_PERMUTE) != 0) { /* blocks of rows move; quantizing twice is dear */
    const uint64_t n_heads = ckpt_dialect_heads(&n.sizes, row);
    return ckpt_expr_move_rows_in(*out, &plan->arena, expr, n_heads, tensor->shape[0] / n_heads / 2, 2, err);
  }
  if (ckpt_dialect_moves_rows(row)) {
    ckpt_expr *rows;
    CKPT_TRY(rows_as_read(&rows, plan, &n, row, from, tensor, err));
    CKPT_TRY(replace(*out, &plan->arena, expr, tensor, rows, err));
    /* what is written may be computed from what the tensor is before it is rounded */
    return **out == expr ? back(*out, &plan->arena, &n, row, 0, err) : CKPT_OK;
  }
  for (uint64_t i = 0; i < n_tensors; i++) {
    (*out)[i] = expr;
    CKPT_TRY(back(&(*out)[i], &plan->arena, &n, row, i, err));
  }
  return CKPT_OK;
}
