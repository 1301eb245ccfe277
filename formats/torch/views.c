/* views.c - tensors that were read from one storage, and are written into one again.
 *
 * Of those that are written as they were read (plan.c keeps their extents), the longest row-major one of a storage is
 * the cover: what lies within it is a view of it and has no bytes of its own. Everything else is written apart, which
 * is said. */
#include "formats/torch/torch.h"

#include <stdlib.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"

/* Where a tensor's first byte was read: within one storage these differ as its views do. */
static uint64_t first_byte(const ckpt_tensor *tensor) { return tensor->extents[0].offset + tensor->extents[0].skip; }

static bool has_storage(const ckpt_tensor *tensor) {
  return tensor->storage != 0 && tensor->n_extents == 1 && tensor->extents[0].file != CKPT_FILE_LITERAL &&
         tensor->extents[0].signs == 0 && tensor->n_elements != 0 && ckpt_dtype_get(tensor->dtype)->block_elements == 1;
}

/* Units from the first to behind the last that a tensor touches; they lie in a file, and do not overflow. */
static uint64_t reach(const ckpt_tensor *tensor) {
  uint64_t units[CKPT_MAX_RANK], n = 1;
  const uint32_t rank = ckpt_tensor_units(tensor, units);
  if (tensor->details->extent_form != CKPT_EXTENT_STRIDED) return tensor->n_elements;
  for (uint32_t i = 0; i < rank; i++) n += (units[i] - 1) * tensor->extents[0].box[2 * rank + i];
  return n;
}

static bool is_within(const ckpt_tensor *tensor, const ckpt_tensor *cover) {
  const uint64_t unit = ckpt_dtype_get(tensor->dtype)->block_bytes, from = first_byte(tensor), low = first_byte(cover);
  return tensor->dtype == cover->dtype && from >= low && (from - low) % unit == 0 &&
         from - low + reach(tensor) * unit <= cover->n_bytes;
}

/* By storage, the row-major ones first, the longest of them first. */
static int compare(const void *x, const void *y, void *tensors) {
  const uint32_t i = *(const uint32_t *)x, k = *(const uint32_t *)y;
  const ckpt_tensor *a = (const ckpt_tensor *)tensors + i, *b = (const ckpt_tensor *)tensors + k;
  const bool a_is_flat = a->details->extent_form == CKPT_EXTENT_FLAT,
             b_is_flat = b->details->extent_form == CKPT_EXTENT_FLAT;
  if (a->storage != b->storage) return a->storage < b->storage ? -1 : 1;
  if (a_is_flat != b_is_flat) return a_is_flat ? -1 : 1;
  if (a->n_bytes != b->n_bytes) return a->n_bytes > b->n_bytes ? -1 : 1;
  return (i > k) - (i < k);
}

/* Numbers of the tensors of storages, sorted; free(*out). */
static ckpt_status list_members(uint32_t **out, uint32_t *n, const ckpt_index *described, ckpt_error *err) {
  *n = 0;
  *out = reallocarray(NULL, (size_t)described->n_tensors + 1, sizeof **out);
  CKPT_TRY_ALLOC(*out, err);
  for (uint32_t i = 0; i < described->n_tensors; i++)
    if (has_storage(&described->tensors[i])) (*out)[(*n)++] = i;
  if (*n > 1) qsort_r(*out, *n, sizeof **out, compare, described->tensors);
  return CKPT_OK;
}

ckpt_status ckpt_torch_covers(const uint32_t **covers, const ckpt_index *described, ckpt_arena *arena,
                              ckpt_error *err) {
  uint32_t *members, n, *found;
  *covers = NULL;
  CKPT_TRY(list_members(&members, &n, described, err));
  if (n == 0 || (found = ckpt_arena_array(arena, described->n_tensors, sizeof *found)) == NULL) {
    free(members);
    return n == 0 ? CKPT_OK : ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  for (uint32_t i = 0; i < described->n_tensors; i++) found[i] = i;
  for (uint32_t i = 0, first = 0; i < n; i++) {
    const ckpt_tensor *tensor = &described->tensors[members[i]], *cover = &described->tensors[members[first]];
    if (tensor->storage != cover->storage) first = i, cover = tensor;
    if (cover->details->extent_form == CKPT_EXTENT_FLAT && is_within(tensor, cover)) found[members[i]] = members[first];
  }
  free(members);
  *covers = found;
  return CKPT_OK;
}

void ckpt_torch_view_of(ckpt_torch_view *out, const ckpt_tensor *tensor, const ckpt_tensor *cover) {
  *out = (ckpt_torch_view){.n_elements = cover->n_elements};
  out->offset = (first_byte(tensor) - first_byte(cover)) / ckpt_dtype_get(tensor->dtype)->block_bytes;
  ckpt_row_major(tensor->rank, tensor->shape, out->strides);
  if (tensor->details->extent_form != CKPT_EXTENT_STRIDED) return;
  for (uint32_t i = 0; i < tensor->rank; i++) out->strides[i] = tensor->extents[0].box[2 * tensor->rank + i];
}

ckpt_status ckpt_torch_say_apart(const ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  const uint32_t *covers;
  uint32_t *n_members = NULL;
  ckpt_name_list apart = {.n = 0}, strided = {.n = 0}, turned = {.n = 0};
  CKPT_TRY(ckpt_torch_covers(&covers, described, losses->arena, err));
  uint32_t n_storages = 0;
  for (uint32_t i = 0; i < described->n_tensors; i++)
    if (described->tensors[i].storage > n_storages) n_storages = described->tensors[i].storage;
  n_members = calloc((size_t)n_storages + 1, sizeof *n_members); /* tensors that have bytes of their own */
  CKPT_TRY_ALLOC(n_members, err);
  for (uint32_t i = 0; i < described->n_tensors; i++)
    n_members[described->tensors[i].storage] += covers == NULL || covers[i] == i;
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    const ckpt_tensor *tensor = &described->tensors[i];
    if (covers != NULL && covers[i] != i) continue;
    if (tensor->storage != 0 && n_members[tensor->storage] > 1) ckpt_name_list_add(&apart, tensor->name);
    if (tensor->n_extents == 1 && tensor->details->extent_form == CKPT_EXTENT_STRIDED)
      ckpt_name_list_add(&strided, tensor->name);
    if (tensor->n_extents == 1 && tensor->extents[0].signs != 0) ckpt_name_list_add(&turned, tensor->name);
  }
  free(n_members);
  if (apart.n != 0)
    CKPT_TRY(ckpt_losses_add(losses, err, "memory that tensors share: each of %zu is written for itself (%s)", apart.n,
                             apart.text));
  if (turned.n != 0)
    CKPT_TRY(ckpt_losses_add(losses, err,
                             "the conjugate or negative bit of %zu tensor%s, whose values are written (%s)", turned.n,
                             ckpt_plural(turned.n), turned.text));
  if (strided.n == 0) return CKPT_OK;
  return ckpt_losses_add(losses, err, "strides of %zu tensor%s, written row-major (%s)", strided.n,
                         ckpt_plural(strided.n), strided.text);
}
