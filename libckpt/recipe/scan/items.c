/* items.c - what the metadata of a DCP folder places in its files: torch.load gets those bytes, wherever they lie.
 *
 * Files of DCP are archives one behind another, and most items are one of them, which has been looked at as such. Any
 * other item is looked at from where it begins: a stream of torch or a pickle behind something else. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/recipe/scan/look.h"

typedef unsigned long long ull;

/* An attribute of an instance, from its state or, of one that was called, its i-th argument. NULL, too, where the state
 * has more attributes than any honest one. */
static const ckpt_object *field(const ckpt_object *object, const char *name, uint64_t i) {
  enum { MAX_ATTRIBUTES = 64 };
  if (object->kind != CKPT_OBJECT_FOREIGN || object->form > CKPT_FORM_NEW) return NULL;
  const ckpt_object *state = ckpt_object_extra_of(object, CKPT_EXTRA_STATE);
  if (state != NULL && (state->kind != CKPT_OBJECT_DICT || state->n > MAX_ATTRIBUTES)) return NULL;
  const ckpt_object *value = ckpt_object_field(state, name);
  return value != NULL ? value : ckpt_foreign_arg(object, i);
}

/* What the root of a pickle has as storage_data; NULL for what is none of DCP's. */
static const ckpt_object *places_of(const ckpt_object *root) {
  if (root->kind != CKPT_OBJECT_FOREIGN || root->form > CKPT_FORM_NEW) return NULL;
  const char *dot = strrchr(root->name, '.');
  const ckpt_object *places = ckpt_foreign_attribute(root, "storage_data");
  bool is_metadata = dot != NULL && strstr(dot, "Metadata") != NULL;
  return places != NULL || !is_metadata ? places : ckpt_foreign_arg(root, 2);
}

static bool is_size(const ckpt_object *object) {
  return object != NULL && object->kind == CKPT_OBJECT_INT && object->integer >= 0;
}

/* A path below the folder that no other text means, too. */
static bool is_path(const ckpt_object *object) {
  if (object == NULL || object->kind != CKPT_OBJECT_TEXT || strlen(object->text) != object->n) return false;
  const char *part = object->text;
  for (;;) {
    size_t n = strcspn(part, "/");
    if (n == 0 || (n <= 2 && strncmp(part, "..", n) == 0)) return false;
    if (part[n] == '\0') return true;
    part += n + 1;
  }
}

/* The path of an item's file from the root, which the walk gives its own. */
static const char *path_of(ckpt_scan_items *items, const char *name, const char *relative) {
  const char *slash = strrchr(name, '/');
  int n = slash == NULL ? 0 : (int)(slash + 1 - name);
  if (items->n != 0) { /* mostly the last one's */
    const char *last = items->all[items->n - 1].path;
    if (strncmp(last, name, (size_t)n) == 0 && strcmp(last + n, relative) == 0) return last;
  }
  return ckpt_arena_printf(&items->arena, "%.*s%s", n, name, relative);
}

/* Whether it is a file that DCP takes for its metadata, and names such a class. */
static bool names_metadata(const char *file, const ckpt_pickle_report *report) {
  static const char end[] = ".Metadata";
  const char *slash = strrchr(file, '/');
  bool has = false;
  if (strcmp(slash == NULL ? file : slash + 1, ".metadata") != 0) return false;
  for (uint32_t i = 0; i < report->n_globals && !has; i++) {
    const char *name = report->globals[i]->name;
    size_t n = strlen(name);
    has = n >= sizeof end && strcmp(name + n - (sizeof end - 1), end) == 0;
  }
  return has;
}

ckpt_status ckpt_scan_items_add(ckpt_scanner *s, const ckpt_place *place, const ckpt_object *root,
                                const ckpt_pickle_report *report, ckpt_error *err) {
  const ckpt_object *places = places_of(root);
  ckpt_scan_items *items = s->items;
  uint64_t n_unknown = 0;
  if (items == NULL) return CKPT_OK;
  if (places == NULL && names_metadata(s->name, report))
    return ckpt_scan_problem(s, place, err, "its storage_data cannot be read: what that places is not looked into");
  if (places == NULL || places->kind == CKPT_OBJECT_NONE) return CKPT_OK;
  if (places->kind != CKPT_OBJECT_DICT)
    return ckpt_scan_problem(s, place, err, "its storage_data is no dict: what that places is not looked into");
  for (uint64_t i = 0; i < places->n; i++) {
    const ckpt_object *info = places->items[2 * i + 1], *path = field(info, "relative_path", 0);
    const ckpt_object *offset = field(info, "offset", 1), *length = field(info, "length", 2);
    bool is_known = is_path(path) && is_size(offset) && is_size(length);
    n_unknown += !is_known;
    if (!is_known) continue;
    CKPT_TRY(ckpt_grow(&items->all, items->n, &items->capacity, sizeof *items->all, err));
    const char *full = path_of(items, s->name, path->text);
    CKPT_TRY_ALLOC(full, err);
    items->all[items->n++] = (ckpt_scan_item){full, (uint64_t)offset->integer, (uint64_t)length->integer};
  }
  if (n_unknown == 0) return CKPT_OK;
  return ckpt_scan_problem(s, place, err, "storage_data has %llu item%s that %s no plain path, offset and length",
                           (ull)n_unknown, ckpt_plural(n_unknown), n_unknown == 1 ? "has" : "have");
}

ckpt_status ckpt_scan_items_seen(ckpt_scanner *s, const ckpt_place *place, uint64_t n_bytes, ckpt_error *err) {
  ckpt_scan_items *items = s->items;
  if (items == NULL || place->record != NULL || place->depth != 0) return CKPT_OK;
  CKPT_TRY(ckpt_grow(&items->seen, items->n_seen, &items->seen_capacity, sizeof *items->seen, err));
  items->seen[items->n_seen++] = (ckpt_scan_item){s->name, place->offset, n_bytes};
  return CKPT_OK;
}

static int compare(const void *a, const void *b) {
  const ckpt_scan_item *x = a, *y = b;
  int order = x->path == y->path ? 0 : strcmp(x->path, y->path);
  if (order != 0) return order;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes);
}

ckpt_status ckpt_scan_items_each(ckpt_scan_items *items,
                                 ckpt_status (*look)(void *arg, const ckpt_scan_item *item, bool is_first,
                                                     ckpt_error *err),
                                 void *arg, ckpt_error *err) {
  if (items->n != 0) qsort(items->all, items->n, sizeof *items->all, compare);
  if (items->n_seen != 0) qsort(items->seen, items->n_seen, sizeof *items->seen, compare);
  const ckpt_scan_item *last = NULL;
  uint32_t k = 0;
  for (uint32_t i = 0; i < items->n; i++) {
    const ckpt_scan_item *item = &items->all[i];
    if (i != 0 && compare(item, item - 1) == 0) continue;
    while (k < items->n_seen && compare(&items->seen[k], item) < 0) k++;
    if (k < items->n_seen && compare(&items->seen[k], item) == 0) continue;
    CKPT_TRY(look(arg, item, last == NULL || strcmp(last->path, item->path) != 0, err));
    last = item;
  }
  return CKPT_OK;
}

void ckpt_scan_items_free(ckpt_scan_items *items) {
  ckpt_arena_free(&items->arena);
  free(items->all);
  free(items->seen);
}
