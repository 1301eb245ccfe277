/* model_slices.c - tensors that model files store, of which each tensor-parallel rank's file has a slice: module, or a
 * layer of a pipeline.
 *
 * Slices of parameters are put together as their masters are, others (frozen ones, and without ZeRO all) by the same
 * rules. Buffers are the same on all ranks. */
#include <stdlib.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"

typedef unsigned long long ull;

/* What the file of one rank has, in the order of names. */
typedef struct rank_slices {
  const ckpt_zero_file *file;
  ckpt_object *const **items; /* each a key, and behind it the value */
  uint64_t n;
} rank_slices;

struct ckpt_zero_slices {
  ckpt_zero *zero;
  rank_slices *of; /* of each rank; the first one's tensors are those that are asked for */
  uint32_t n;
};

ckpt_status ckpt_zero_slices_new(ckpt_zero_slices **out, ckpt_zero *zero, ckpt_error *err) {
  ckpt_zero_slices *s = *out = calloc(1, sizeof *s);
  CKPT_TRY_ALLOC(s, err);
  s->zero = zero;
  CKPT_TRY_ALLOC(s->of = calloc(zero->n_tensor, sizeof *s->of), err);
  s->n = zero->n_tensor;
  return CKPT_OK;
}

void ckpt_zero_slices_free(ckpt_zero_slices *s) {
  for (uint32_t t = 0; s != NULL && t < s->n; t++) free(s->of[t].items);
  if (s != NULL) free(s->of);
  free(s);
}

static int compare_entries(const void *x, const void *y) {
  return strcmp((**(ckpt_object *const *const *)x)->text, (**(ckpt_object *const *const *)y)->text);
}

ckpt_status ckpt_zero_slices_set(ckpt_zero_slices *s, uint32_t t, const ckpt_zero_file *file, const ckpt_object *table,
                                 ckpt_error *err) {
  rank_slices *of = &s->of[t];
  of->file = file;
  if (table == NULL || table->kind != CKPT_OBJECT_DICT) return CKPT_OK;
  of->items = reallocarray(NULL, (size_t)table->n + 1, sizeof *of->items);
  CKPT_TRY_ALLOC(of->items, err);
  for (uint64_t i = 0; i < table->n; i++)
    if (ckpt_zero_is_name(table->items[2 * i])) of->items[of->n++] = &table->items[2 * i];
  if (of->n > 1) qsort(of->items, of->n, sizeof *of->items, compare_entries);
  if (of->n <= s->of[0].n) return CKPT_OK; /* each of the first one's is looked up */
  return ckpt_fail(err, CKPT_EFORMAT, file->path, NULL,
                   "%llu names in it, and %llu on tensor parallel rank 0: what only it has would be lost", (ull)of->n,
                   (ull)s->of[0].n);
}

/* What a rank's file has under a name. */
static ckpt_status find_slice(const rank_slices *of, const ckpt_tensor **out, const char *name,
                              const ckpt_tensor *first, ckpt_error *err) {
  const ckpt_tensor *tensor = NULL;
  for (uint64_t low = 0, high = of->n; low < high && tensor == NULL;) {
    const uint64_t middle = low + (high - low) / 2;
    const int order = strcmp(name, of->items[middle][0]->text);
    if (order == 0) tensor = ckpt_zero_tensor(of->file, of->items[middle][1]);
    if (order == 0 && tensor == NULL) break;
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  if (tensor == NULL)
    return ckpt_fail(err, CKPT_EFORMAT, of->file->path, name, "not in it, as it is on tensor parallel rank 0");
  if (tensor->dtype != first->dtype || tensor->rank != first->rank)
    return ckpt_fail(err, CKPT_EFORMAT, of->file->path, name,
                     "%s of %u ax%s, and on tensor parallel rank 0 %s of %u: no slices of one tensor",
                     ckpt_dtype_name((ckpt_dtype)tensor->dtype), tensor->rank, tensor->rank == 1 ? "is" : "es",
                     ckpt_dtype_name((ckpt_dtype)first->dtype), first->rank);
  *out = tensor;
  return CKPT_OK;
}

/* How the slices of a tensor that is no trained parameter make it; NULL: it is a buffer. */
static ckpt_status cut_leaf(const ckpt_zero_slices *s, const ckpt_zero_cut **out, const char *name, ckpt_role role,
                            const ckpt_tensor *const *slices, ckpt_error *err) {
  ckpt_zero *zero = s->zero;
  const uint32_t rank = slices[0]->rank;
  const bool is_buffer = role == CKPT_ROLE_BUFFER;
  uint64_t *shapes = ckpt_arena_array(&zero->index->arena, (size_t)s->n * rank + 1, sizeof *shapes);
  CKPT_TRY_ALLOC(shapes, err);
  for (uint32_t t = 0; t < s->n; t++) {
    if (rank != 0) memcpy(shapes + (size_t)t * rank, slices[t]->shape, rank * sizeof *shapes);
    if (is_buffer && !ckpt_tensor_same_shape(slices[0], slices[t]))
      return ckpt_fail(
          err, CKPT_EUNSUPPORTED, s->of[t].file->path, name,
          "a buffer of another shape than on tensor parallel rank 0: nothing says how they are put together");
  }
  ckpt_zero_cut *cut = NULL;
  if (!is_buffer)
    CKPT_TRY(
        ckpt_zero_cut_of(&cut, zero->rules, s->of[0].file->path, name, rank, shapes, s->n, &zero->index->arena, err));
  *out = cut;
  return CKPT_OK;
}

/* Puts slices together that lie in the ranks' files; of what all have all of, that of the rank that is read. */
static ckpt_status join_leaves(const ckpt_zero_slices *s, const char *name, ckpt_role role, const ckpt_zero_cut *cut,
                               const ckpt_tensor *const *slices, uint32_t *number, ckpt_error *err) {
  bool has_views = false;
  ckpt_zero_join join;
  for (uint32_t t = 0; t < cut->n_slices; t++) {
    has_views = has_views || slices[t]->details->extent_form == CKPT_EXTENT_STRIDED;
    if (memcmp(slices[t]->shape, cut->slices + (size_t)t * cut->rank, cut->rank * sizeof *cut->slices) != 0)
      return ckpt_fail(err, CKPT_EFORMAT, s->of[t].file->path, name, "has another shape than in param_shapes");
  }
  CKPT_TRY(ckpt_zero_join_begin(&join, s->zero, cut, (ckpt_dtype)slices[0]->dtype, has_views, err));
  for (uint32_t t = 0; t < (cut->is_replicated ? 1 : cut->n_slices); t++) {
    const ckpt_tensor *slice = slices[cut->is_replicated ? s->zero->copy : t];
    const bool is_view = slice->details->extent_form == CKPT_EXTENT_STRIDED;
    const ckpt_zero_held all = {.extent = slice->extents,
                                .count = slice->n_extents == 0 ? 0 : slice->n_elements,
                                .strides = is_view ? slice->extents->box + 2 * (size_t)cut->rank : NULL};
    CKPT_TRY(ckpt_zero_join_add(&join, t, &all, err));
  }
  return ckpt_zero_join_end(&join, name, role, cut->rank, cut->shape, number, err);
}

ckpt_status ckpt_zero_join_slices(const ckpt_zero_slices *s, const ckpt_tensor *first, const char *stored,
                                  const char *name, ckpt_role role, const ckpt_zero_param *param, uint32_t *number,
                                  ckpt_error *err) {
  const uint32_t copy = s->zero->copy;
  const ckpt_tensor **slices = reallocarray(NULL, s->n, sizeof *slices);
  const ckpt_zero_cut *cut = param == NULL ? NULL : param->cut;
  ckpt_status status = CKPT_OK;
  CKPT_TRY_ALLOC(slices, err);
  slices[0] = first;
  for (uint32_t t = 1; t < s->n && status == CKPT_OK; t++)
    status = find_slice(&s->of[t], &slices[t], stored, first, err);
  if (status == CKPT_OK && cut == NULL) status = cut_leaf(s, &cut, name, role, slices, err);
  const ckpt_zero_file *of = s->of[copy].file; /* all of them have it */
  const bool is_all =
      cut == NULL || (cut->is_replicated && memcmp(cut->shape, first->shape, cut->rank * sizeof *cut->shape) == 0);
  if (status == CKPT_OK && is_all)
    status = ckpt_zero_copy(s->zero, of, (uint32_t)(slices[copy] - of->held->tensors), name, role, number, err);
  else if (status == CKPT_OK && cut->is_averaged && copy == 0 && param != NULL && param->group != UINT32_MAX)
    status = ckpt_zero_add_param(s->zero, param, 0, (ckpt_dtype)first->dtype, name, role, number,
                                 err); /* what a run makes of the mean of masters */
  else if (status == CKPT_OK && (cut->is_replicated || copy == 0))
    status = join_leaves(s, name, role, cut, slices, number, err);
  free(slices);
  return status;
}
