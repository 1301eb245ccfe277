/* expected_names.c - see expected_names.h. */
#include "libckpt/codec/expected_names.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/text.h"
#include "libckpt/index/arch.h"

ckpt_status ckpt_expected_names_add(ckpt_expected_names *read, uint32_t tensor, const char *name, ckpt_role role,
                                    ckpt_error *err) {
  if (read->n == 0) ckpt_arena_init(&read->arena, UINT64_MAX);
  CKPT_TRY(ckpt_grow(&read->names, read->n, &read->capacity, sizeof *read->names, err));
  ckpt_expected_name *added = &read->names[read->n];
  *added = (ckpt_expected_name){ckpt_arena_copy(&read->arena, name), tensor, read->n, role};
  CKPT_TRY_ALLOC(added->text, err);
  read->n++;
  return CKPT_OK;
}

void ckpt_expected_names_free(ckpt_expected_names *read) {
  free(read->names);
  ckpt_arena_free(&read->arena);
  *read = (ckpt_expected_names){0};
}

static int compare_tensors(const void *x, const void *y) {
  const ckpt_expected_name *a = x, *b = y;
  if (a->tensor != b->tensor) return a->tensor < b->tensor ? -1 : 1;
  return (a->order > b->order) - (a->order < b->order);
}

static int compare_names(const void *x, const void *y) {
  const ckpt_expected_name *a = x, *b = y;
  if (a->tensor != b->tensor) return a->tensor < b->tensor ? -1 : 1;
  return strcmp(a->text, b->text);
}

static ckpt_status fill(ckpt_index *index, const ckpt_expected_names *read, const ckpt_index *described,
                        ckpt_error *err) {
  for (uint32_t i = 0; i < read->n; i++) {
    const ckpt_expected_name *name = &read->names[i];
    const ckpt_tensor *like = &described->tensors[name->tensor];
    if (i != 0 && read->names[i - 1].tensor == name->tensor) {
      CKPT_TRY(ckpt_index_alias_as(index, name->tensor, name->text, name->role, err));
      continue;
    }
    CKPT_TRY(ckpt_index_add(index, name->text, strlen(name->text), (ckpt_dtype)like->dtype, like->rank, like->shape,
                            name->role, NULL, 0, NULL, err));
    index->tensors[name->tensor].details->origin = like->details->origin;
  }
  return CKPT_OK;
}

/* The index that a reader makes of these names: tensor i is the description's. *out is NULL where a tensor has no name,
 * or two have one. */
static ckpt_status make_index(ckpt_index **out, ckpt_expected_names *read, const ckpt_index *described,
                              const ckpt_index *config_of, bool stored_names, ckpt_error *err) {
  ckpt_error why = {.status = CKPT_OK};
  ckpt_index *index = NULL;
  uint32_t n = 0;
  *out = NULL;
  if (read->n != 0) qsort(read->names, read->n, sizeof *read->names, compare_tensors);
  for (uint32_t i = 0; i < read->n; i++) {
    if (read->names[i].tensor > n) return CKPT_OK; /* the one before has no name */
    n += read->names[i].tensor == n;
  }
  if (n != described->n_tensors) return CKPT_OK;
  CKPT_TRY(ckpt_index_new(&index, NULL, "", "", NULL, err));
  ckpt_status status;
  CKPT_TRY_GOTO(fill(index, read, described, &why));
  CKPT_TRY_GOTO(ckpt_index_canonical_names(index, stored_names, config_of, &why));
  *out = index;
  return CKPT_OK;
done:
  ckpt_index_free(index);
  if (status != CKPT_ENOMEM) return CKPT_OK; /* no reader would take them */
  return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static bool has_same_role(const ckpt_tensor *a, const ckpt_tensor *b) {
  return a->role == b->role || (ckpt_role_is_model((ckpt_role)a->role) && ckpt_role_is_model((ckpt_role)b->role));
}

/* All names, by tensor and in byte order. */
static ckpt_status list_names(ckpt_expected_names *out, const ckpt_index *index, ckpt_error *err) {
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    const char *name = index->tensors[i].name;
    for (const char *const *alias = index->tensors[i].aliases; name != NULL;) {
      CKPT_TRY(ckpt_grow(&out->names, out->n, &out->capacity, sizeof *out->names, err));
      out->names[out->n++] = (ckpt_expected_name){.text = name, .tensor = i};
      name = alias == NULL ? NULL : *alias++;
    }
  }
  if (out->n != 0) qsort(out->names, out->n, sizeof *out->names, compare_names);
  return CKPT_OK;
}

/* Whether all tensors have their names in such an index; `roles`: and parts of the model stay that, others what they
 * are. */
static ckpt_status compare(bool *same, const ckpt_index *read, const ckpt_index *described, bool roles,
                           ckpt_error *err) {
  ckpt_expected_names a = {0}, b = {0};
  ckpt_status status;
  *same = false;
  CKPT_TRY_GOTO(list_names(&a, read, err));
  CKPT_TRY_GOTO(list_names(&b, described, err));
  *same = a.n == b.n;
  for (uint32_t i = 0; i < a.n && *same; i++) *same = compare_names(&a.names[i], &b.names[i]) == 0;
  for (uint32_t i = 0; i < described->n_tensors && *same && roles; i++)
    *same = has_same_role(&read->tensors[i], &described->tensors[i]);
done:
  ckpt_expected_names_free(&a);
  ckpt_expected_names_free(&b);
  return status;
}

/* Makes the description say how it is read; the index is its own from now on. Lists the tensors whose roles are others.
 */
static void keep(ckpt_name_list *others, ckpt_index *described, ckpt_index *read) {
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    if (has_same_role(&read->tensors[i], &described->tensors[i])) continue;
    described->tensors[i].role = read->tensors[i].role;
    ckpt_name_list_add(others, described->tensors[i].name);
  }
  ckpt_index_free(described->as_read);
  described->as_read = read;
}

ckpt_status ckpt_expected_names_take(bool *is_taken, ckpt_expected_names_want want, ckpt_expected_names *read,
                                     ckpt_expected_names *stored, ckpt_index *described, const ckpt_index *config_of,
                                     ckpt_losses *losses, ckpt_error *err) {
  ckpt_index *named = NULL, *as_stored = NULL;
  ckpt_name_list others = {.n = 0};
  bool same = false;
  ckpt_status status;
  CKPT_TRY_GOTO(make_index(&named, read, described, config_of, false, err));
  if (described->is_stored) {
    CKPT_TRY_GOTO(make_index(&as_stored, stored, described, config_of, true, err));
    if (as_stored != NULL) CKPT_TRY_GOTO(compare(&same, as_stored, described, false, err));
  } else if (named != NULL) {
    CKPT_TRY_GOTO(compare(&same, named, described, want == CKPT_EXPECTED_ROLES, err));
  }
  *is_taken = named != NULL && (same || want == CKPT_EXPECTED_NOTHING);
  if (!*is_taken) goto done;
  keep(&others, described, named);
  named = NULL;
  if (others.n != 0 && !described->is_stored)
    status = ckpt_losses_add(losses, err, "what %zu tensor%s for (read as %s: %s)", others.n,
                             others.n == 1 ? " is" : "s are", others.n == 1 ? "another" : "others", others.text);
done:
  ckpt_index_free(named);
  ckpt_index_free(as_stored);
  return status;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* Whether a tensor has all the names that the other has, in the same order. */
static bool has_same_names(const ckpt_tensor *a, const ckpt_tensor *b) {
  if (strcmp(a->name, b->name) != 0 || (a->aliases == NULL) != (b->aliases == NULL)) return false;
  const char *const *x = a->aliases, *const *y = b->aliases;
  while (x != NULL && *x != NULL && *y != NULL && strcmp(*x, *y) == 0) x++, y++;
  return x == NULL || (*x == NULL && *y == NULL);
}

ckpt_status ckpt_described_numbers(uint32_t **out, uint32_t *n_numbers, const ckpt_index *described, bool renamed,
                                   ckpt_error *err) {
  uint32_t n = described->objects_of == NULL ? 0 : described->objects_of->n_tensors;
  uint32_t *numbers = reallocarray(NULL, (size_t)n + 1, sizeof *numbers);
  CKPT_TRY_ALLOC(numbers, err);
  for (uint32_t i = 0; i < n; i++) numbers[i] = UINT32_MAX;
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    const ckpt_tensor *tensor = &described->tensors[i];
    uint32_t like = tensor->details->like - 1;
    if (tensor->details->like != 0 && like < n &&
        (renamed || has_same_names(&described->objects_of->tensors[like], tensor)))
      numbers[like] = i;
  }
  *out = numbers;
  *n_numbers = n;
  return CKPT_OK;
}
