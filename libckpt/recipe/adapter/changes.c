/* changes.c - the list of changes: sorted, joined, and free of what depends on order. See changes.h. */
#include "libckpt/recipe/adapter/changes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"

static ckpt_status add_note(ckpt_adapters *all, bool is_doubt, ckpt_error *err, const char *format, va_list list) {
  char text[1024];
  vsnprintf(text, sizeof text, format, list);
  CKPT_TRY(ckpt_grow(&all->notes, all->n_notes, &all->note_capacity, sizeof *all->notes, err));
  const char *copy = ckpt_arena_copy(&all->arena, text);
  CKPT_TRY_ALLOC(copy, err);
  all->notes[all->n_notes++] = (ckpt_adapters_note_text){copy, is_doubt};
  return CKPT_OK;
}

ckpt_status ckpt_adapters_note(ckpt_adapters *all, ckpt_error *err, const char *format, ...) {
  va_list list;
  va_start(list, format);
  const ckpt_status status = add_note(all, false, err, format, list);
  va_end(list);
  return status;
}

ckpt_status ckpt_adapters_doubt(ckpt_adapters *all, ckpt_error *err, const char *format, ...) {
  va_list list;
  va_start(list, format);
  const ckpt_status status = add_note(all, true, err, format, list);
  va_end(list);
  return status;
}

ckpt_status ckpt_change_add(ckpt_change **out, ckpt_adapters *all, const ckpt_change *change, ckpt_error *err) {
  CKPT_TRY(ckpt_grow(&all->changes, all->n_changes, &all->capacity, sizeof *all->changes, err));
  *out = &all->changes[all->n_changes++];
  **out = *change;
  if (all->is_given != NULL && change->base != NULL) all->is_given[change->base - all->base->tensors] = true;
  return CKPT_OK;
}

const ckpt_tensor *ckpt_change_tensor(const ckpt_change *change) {
  const ckpt_tensor *const any[] = {change->output, change->input, change->whole,
                                    change->rows,   change->bias,  change->magnitude};
  for (size_t i = 0; i < sizeof any / sizeof *any; i++)
    if (any[i] != NULL) return any[i];
  return change->base;
}

const char *ckpt_change_rows_module(const ckpt_change *change) {
  return change->rows_module != NULL ? change->rows_module : change->module;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static int order(const ckpt_tensor *a, const char *a_name, const ckpt_tensor *b, const char *b_name) {
  if (a != b) return a < b ? -1 : 1;
  return strcmp(a_name, b_name);
}

static int by_place(const void *x, const void *y) {
  const ckpt_change *a = x, *b = y;
  const int by = order(a->base, a->name, b->base, b->name);
  return by != 0 ? by : a->adapter < b->adapter ? -1 : a->adapter > b->adapter;
}

static bool is_one_place(const ckpt_change *a, const ckpt_change *b) {
  return order(a->base, a->name, b->base, b->name) == 0;
}

static ckpt_status refuse_twice(const ckpt_adapters *all, const ckpt_change *change, const ckpt_tensor *a,
                                const ckpt_tensor *b, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EFORMAT, all->list[change->adapter].index->path, b->name, "'%s' says the same of '%s'",
                   a->name, change->name);
}

static bool is_saved(const ckpt_tensor *whole) { return strstr(whole->name, ".modules_to_save.") != NULL; }

/* PEFT saves an embedding of another size beside the module of it that was trained: as the same, or as it was before.
 */
static ckpt_status join_whole(const ckpt_adapters *all, ckpt_change *to, const ckpt_change *other, ckpt_error *err) {
  const ckpt_index *index = all->list[to->adapter].index;
  const ckpt_tensor *a = to->whole, *b = other->whole;
  bool is_same = a != NULL && b != NULL && ckpt_tensor_same_shape(a, b);
  if (b == NULL) return CKPT_OK;
  if (is_same) CKPT_TRY(ckpt_same_values(&is_same, index, a, index, b, false, err));
  if (a != NULL && !is_same && is_saved(a) == is_saved(b)) return refuse_twice(all, to, a, b, err);
  if (a != NULL && (is_same || is_saved(a))) return CKPT_OK;
  to->whole = b;
  to->is_below = other->is_below;
  return CKPT_OK;
}

/* What else the same adapter does to the same tensor. */
static ckpt_status join(const ckpt_adapters *all, ckpt_change *to, const ckpt_change *other, ckpt_error *err) {
  const ckpt_tensor *const *from[] = {&other->rows, &other->bias, &other->output};
  const ckpt_tensor **into[] = {&to->rows, &to->bias, &to->output};
  for (size_t i = 0; i < 3; i++)
    if (*into[i] != NULL && *from[i] != NULL) return refuse_twice(all, to, *into[i], *from[i], err);
  CKPT_TRY(join_whole(all, to, other, err));
  if (other->bias != NULL) {
    to->bias = other->bias;
    to->scale = other->scale;
  }
  if (other->rows != NULL) {
    to->rows = other->rows;
    to->rows_module = ckpt_change_rows_module(other);
  }
  if (other->input == NULL) return CKPT_OK;
  const ckpt_change kept = *to;
  *to = *other;
  to->whole = kept.whole;
  to->is_below = kept.is_below;
  to->rows = kept.rows;
  to->rows_module = kept.rows != NULL ? ckpt_change_rows_module(&kept) : NULL;
  to->bias = kept.bias;
  return CKPT_OK;
}

ckpt_status ckpt_changes_settle(ckpt_adapters *all, ckpt_error *err) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < all->n_changes; i++)
    if (all->list[all->changes[i].adapter].scale != 0) all->changes[n++] = all->changes[i]; /* 0: no change at all */
  all->n_changes = n;
  if (n == 0) return CKPT_OK;
  qsort(all->changes, n, sizeof *all->changes, by_place);
  n = 1;
  for (uint32_t i = 1; i < all->n_changes; i++) {
    ckpt_change *last = &all->changes[n - 1], *next = &all->changes[i];
    if (is_one_place(last, next) && last->adapter == next->adapter)
      CKPT_TRY(join(all, last, next, err));
    else
      all->changes[n++] = *next;
  }
  all->n_changes = n;
  return CKPT_OK;
}

const ckpt_change *ckpt_changes_of(const ckpt_adapters *all, const ckpt_tensor *tensor, const char *name, uint32_t *n) {
  uint32_t low = 0, high = all->n_changes;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (order(all->changes[middle].base, all->changes[middle].name, tensor, name) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  *n = 0;
  while (low + *n < all->n_changes &&
         order(all->changes[low + *n].base, all->changes[low + *n].name, tensor, name) == 0)
    ++*n;
  return &all->changes[low];
}

/* A scale is one of updates: what takes a tensor's place does so as it is. */
ckpt_status ckpt_changes_note_unscaled(ckpt_adapters *all, ckpt_error *err) {
  for (uint32_t adapter = 0; adapter < all->n; adapter++) {
    const ckpt_opened_adapter *of = &all->list[adapter];
    const ckpt_change *first = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; of->scale != 1 && i < all->n_changes; i++) {
      const ckpt_change *c = &all->changes[i];
      if (c->adapter != adapter || (c->rows == NULL && (c->whole == NULL || c->is_below))) continue;
      if (n++ == 0) first = c;
    }
    if (n != 0)
      CKPT_TRY(ckpt_adapters_note(all, err, "%s: the scale %g is of updates: '%s'%s as the adapter has saved %s",
                                  of->path, of->scale, first->name, n == 1 ? " is" : " and others are",
                                  n == 1 ? "it" : "them"));
  }
  return CKPT_OK;
}

/* ---- several adapters -------------------------------------------------------------------------------------------- */

/* Whether a change only adds to its tensor: then others may. */
static bool adds(const ckpt_change *c) { return c->whole == NULL && c->rows == NULL && c->magnitude == NULL; }

/* Two adapters may add to one tensor, or put the same in its place. Everything else depends on their order. */
static ckpt_status check_pair(const ckpt_adapters *all, const ckpt_change *a, const ckpt_change *b, ckpt_error *err) {
  const ckpt_index *index = all->list[a->adapter].index, *other = all->list[b->adapter].index;
  bool is_same = a->whole != NULL && b->whole != NULL && a->input == NULL && b->input == NULL && a->rows == NULL &&
                 b->rows == NULL && ckpt_tensor_same_shape(a->whole, b->whole);
  if (!is_one_place(a, b) || (adds(a) && adds(b))) return CKPT_OK;
  if (is_same) CKPT_TRY(ckpt_same_values(&is_same, index, a->whole, other, b->whole, false, err));
  if (is_same) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, other->path, ckpt_change_tensor(b)->name,
                   "changes '%s', as '%s' of %s does: the result would depend on their order", a->name,
                   ckpt_change_tensor(a)->name, index->path);
}

ckpt_status ckpt_changes_check_pairs(const ckpt_adapters *all, ckpt_error *err) {
  for (uint32_t i = 1; i < all->n_changes; i++) CKPT_TRY(check_pair(all, &all->changes[i - 1], &all->changes[i], err));
  return CKPT_OK;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

enum { COMPARED = 1 << 16 }; /* elements at a time */

/* Rows [first, first + n) of a, and of b, of which they may be columns. */
static ckpt_status compare_rows(bool *same, const ckpt_index *of_a, const ckpt_tensor *a, const ckpt_index *of_b,
                                const ckpt_tensor *b, bool is_transposed, uint64_t first, uint64_t n, float *buffer,
                                ckpt_error *err) {
  const ckpt_dtype as = (ckpt_dtype)a->dtype;
  const uint64_t width = a->n_elements / a->shape[0], n_elements = n * width;
  ckpt_box box = {.start = {first}, .count = {n}}, swapped = {.start = {0, first}, .count = {width, n}};
  uint64_t n_bytes;
  uint8_t *x = (uint8_t *)buffer, *y = (uint8_t *)(buffer + n_elements);
  if (!ckpt_dtype_bytes(as, n_elements, &n_bytes)) return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "rows of no size");
  for (uint32_t axis = 1; axis < a->rank; axis++) box.count[axis] = a->shape[axis];
  CKPT_TRY(ckpt_read(of_a, a, &box, as, x, (size_t)n_bytes, err));
  CKPT_TRY(ckpt_read(of_b, b, is_transposed ? &swapped : &box, as, y, (size_t)n_bytes, err));
  const size_t n_each = (size_t)(n_bytes / n_elements);
  if (!is_transposed) *same = memcmp(x, y, (size_t)n_bytes) == 0;
  for (uint64_t i = 0; is_transposed && i < n_elements && *same; i++)
    *same = memcmp(x + i * n_each, y + (i % width * n + i / width) * n_each, n_each) == 0;
  return CKPT_OK;
}

ckpt_status ckpt_same_values(bool *same, const ckpt_index *of_a, const ckpt_tensor *a, const ckpt_index *of_b,
                             const ckpt_tensor *b, bool is_transposed, ckpt_error *err) {
  *same = true;
  if (a->n_elements == 0 || a->rank == 0 || a->n_elements != b->n_elements) {
    *same = a->n_elements == b->n_elements && a->n_elements == 0;
    return CKPT_OK;
  }
  const uint64_t width = a->n_elements / a->shape[0], at_once = width > COMPARED ? 1 : COMPARED / width;
  float *buffer = reallocarray(NULL, (size_t)(2 * at_once), (size_t)width * sizeof *buffer);
  CKPT_TRY_ALLOC(buffer, err);
  ckpt_status status = CKPT_OK;
  for (uint64_t first = 0; status == CKPT_OK && *same && first < a->shape[0]; first += at_once) {
    const uint64_t left = a->shape[0] - first;
    status = compare_rows(same, of_a, a, of_b, b, is_transposed, first, left < at_once ? left : at_once, buffer, err);
  }
  free(buffer);
  return status;
}
