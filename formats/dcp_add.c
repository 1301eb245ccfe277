/* dcp_add.c - all items of a checkpoint's metadata to tensors and objects, those of several ranks together. Items that
 * are no tensors go to dcp_objects.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp_add.h"
#include "libckpt/checked.h"
#include "libckpt/error.h"

typedef unsigned long long ull;

enum { MAX_LISTED = 4 };

/* ---- objects ---- */

/* The path of rank R's own object: the last key gets @R. */
static ckpt_status rank_path(ckpt_dcp_adder *a, const ckpt_dcp_item *of, const ckpt_object *path, ckpt_object **out,
                             ckpt_error *err) {
  ckpt_arena *arena = &a->index->arena;
  bool has_path = path != NULL && path->kind == CKPT_OBJECT_TUPLE && path->n != 0;
  uint64_t n = has_path ? path->n : 1;
  const ckpt_object *last = has_path ? path->items[n - 1] : of->name;
  char *text = last->kind == CKPT_OBJECT_TEXT  ? ckpt_arena_printf(arena, "%s@%u", last->text, of->root)
               : last->kind == CKPT_OBJECT_INT ? ckpt_arena_printf(arena, "%lld@%u", (long long)last->integer, of->root)
                                               : ckpt_arena_printf(arena, "@%u", of->root);
  CKPT_TRY_ALLOC(text, err);
  ckpt_object *own = *out = ckpt_object_new(arena, CKPT_OBJECT_TUPLE, n, NULL);
  CKPT_TRY_ALLOC(own, err);
  for (uint64_t i = 0; i + 1 < n; i++) own->items[i] = path->items[i];
  own->items[n - 1] = ckpt_object_text(arena, text, strlen(text));
  CKPT_TRY_ALLOC(own->items[n - 1], err);
  return CKPT_OK;
}

/* Whether a rank's object is the first one's, as far as its own bytes go: one can share a long text among many. */
static ckpt_status compare_objects(bool *is_same, const ckpt_object *first, const ckpt_object *own,
                                   const ckpt_dcp_slice *at, ckpt_error *err) {
  enum { DEFLATED = 64 }; /* what honest streams have of nodes for each byte at most */
  uint64_t n_left;
  if (!ckpt_mul_u64(at->n_bytes, at->is_zstd ? DEFLATED : 1, &n_left)) n_left = UINT64_MAX;
  *is_same = false;
  return first == NULL ? CKPT_OK : ckpt_object_compare(is_same, first, own, &n_left, err);
}

/* The objects of n roots with one name: one where all are equal, else those that differ from the first are their
 * ranks' own. */
static ckpt_status add_objects(ckpt_dcp_adder *a, const ckpt_dcp_item *items, uint64_t n, const char *name,
                               const ckpt_object *path, ckpt_error *err) {
  ckpt_object *first = NULL;
  for (uint64_t i = 0; i < n; i++) {
    char own_name[CKPT_DCP_NAME_BYTES + 32];
    ckpt_dcp_slice at;
    ckpt_object *value, *own = NULL;
    CKPT_TRY(ckpt_dcp_find_slice(a, &items[i], NULL, &at, err));
    if (at.file == CKPT_FILE_LITERAL) continue;
    snprintf(own_name, sizeof own_name, "%s@%u", name, items[i].root);
    CKPT_TRY(ckpt_dcp_objects_read(&value, a->objects, &at, i == 0 ? name : own_name, err));
    if (i == 0) first = value;
    bool is_same = i != 0 && value == NULL;
    if (i != 0 && !is_same) CKPT_TRY(compare_objects(&is_same, first, value, &at, err));
    if (is_same) continue;
    if (i != 0) CKPT_TRY(rank_path(a, &items[i], path, &own, err));
    CKPT_TRY(ckpt_dcp_objects_add(a->objects, items[i].name, i == 0 ? path : own, value, err));
  }
  return CKPT_OK;
}

/* ---- all items ---- */

static int compare_items(const void *x, const void *y) {
  const ckpt_dcp_item *a = x, *b = y;
  uint64_t n = a->name->n < b->name->n ? a->name->n : b->name->n;
  int order = memcmp(a->name->text, b->name->text, (size_t)n);
  if (order == 0) order = (a->name->n > b->name->n) - (a->name->n < b->name->n);
  return order != 0 ? order : (a->root > b->root) - (a->root < b->root);
}

static bool is_same_name(const ckpt_dcp_item *a, const ckpt_dcp_item *b) {
  return a->name->n == b->name->n && memcmp(a->name->text, b->name->text, (size_t)a->name->n) == 0;
}

static bool is_tensor(const ckpt_dcp_item *of) { return ckpt_dcp_attribute(of->value, "size") != NULL; }

static ckpt_status refuse_name(const ckpt_object *name, uint64_t number, ckpt_error *err) {
  if (name->kind == CKPT_OBJECT_TEXT && name->n > CKPT_DCP_NAME_BYTES)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL,
                     "the name of item %llu of state_dict_metadata has %llu bytes, at most %d", (ull)number,
                     (ull)name->n, CKPT_DCP_NAME_BYTES);
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "the name of item %llu of state_dict_metadata is %s", (ull)number,
                   ckpt_dcp_no_name(name));
}

/* The pickle that a root's defects are told of, where all are asked for. */
static const char *path_of(const ckpt_dcp_adder *a, uint32_t root) {
  if (a->index->defects.report == NULL) return NULL;
  return ckpt_source_path(a->index->source, a->metadata->roots[root].file);
}

/* Lists the items of all roots; those of several are sorted so that one name's follow each other. */
static ckpt_status list_items(ckpt_dcp_adder *a, ckpt_error *err) {
  for (uint32_t r = 0; r < a->metadata->n_roots; r++) a->n_items += a->metadata->roots[r].tensors->n;
  a->items = reallocarray(NULL, (size_t)a->n_items + 1, sizeof *a->items);
  CKPT_TRY_ALLOC(a->items, err);
  uint64_t n = 0;
  for (uint32_t r = 0; r < a->metadata->n_roots; r++) {
    const ckpt_object *rows = a->metadata->roots[r].tensors;
    for (uint64_t i = 0; i < rows->n; i++) {
      ckpt_dcp_item of = {rows->items[2 * i], rows->items[2 * i + 1], r};
      if (!ckpt_dcp_is_name(of.name)) return ckpt_fail_at(refuse_name(of.name, i, err), err, path_of(a, r), NULL);
      a->items[n++] = of;
    }
  }
  if (a->metadata->n_roots > 1) qsort(a->items, (size_t)n, sizeof *a->items, compare_items);
  return CKPT_OK;
}

/* What n items are that have one name: a tensor, or an object of each root. */
static ckpt_status add_named(ckpt_dcp_adder *a, const ckpt_dcp_item *items, uint64_t n, const char *name,
                             ckpt_role role, const ckpt_object *path, ckpt_error *err) {
  const uint32_t n_before = a->index->n_tensors;
  for (uint64_t i = 0; i < n; i++)
    if (is_tensor(&items[i]) != is_tensor(&items[0]))
      return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "a tensor for one rank, something else for another");
  uint32_t number = UINT32_MAX;
  bool has_tensors = is_tensor(&items[0]);
  if (has_tensors) {
    const uint32_t first = a->places.n;
    CKPT_TRY(ckpt_dcp_add_tensor(a, items, n, name, role, &number, err));
    ckpt_dcp_places_own(&a->places, first, number == UINT32_MAX ? CKPT_DCP_UNREAD : number);
    if (number == UINT32_MAX) return CKPT_OK;
    CKPT_TRY(ckpt_dcp_objects_add_tensor(a->objects, items[0].name, path, number, err));
  } else {
    CKPT_TRY(add_objects(a, items, n, name, path, err));
    has_tensors = a->index->n_tensors != n_before; /* objects may hold some */
  }
  if (has_tensors && strcmp(name, items[0].name->text) != 0) a->index->is_renamed = true;
  return CKPT_OK;
}

/* Says of which item a defect is: one of bytes is no tensor. */
static void fail_in(ckpt_error *defect, const ckpt_dcp_item *of, const char *path) {
  const ckpt_error why = *defect;
  if (is_tensor(of) || why.tensor[0] != '\0' || of->name->kind != CKPT_OBJECT_TEXT) {
    ckpt_fail_at(why.status, defect, path, of->name->text);
    return;
  }
  *defect = (ckpt_error){0};
  (void)ckpt_fail(defect, why.status, why.file[0] == '\0' ? path : why.file, NULL, "item '%.200s': %s", of->name->text,
                  why.message);
}

/* The same, which goes past what is broken where all defects are asked for. */
static ckpt_status add_items(ckpt_dcp_adder *a, const ckpt_dcp_item *items, uint64_t n, ckpt_error *err) {
  char name[CKPT_DCP_NAME_BYTES + 1];
  ckpt_role role;
  ckpt_error defect = {0};
  ckpt_index *index = a->index;
  const uint32_t n_before = index->n_tensors;
  const ckpt_object *path = ckpt_dcp_find(&a->metadata->paths, items[0].root, items[0].name, NULL, NULL);
  ckpt_status status = ckpt_dcp_name(&a->structure, items[0].name, path, name, &role, &defect);
  const bool is_named = status == CKPT_OK;
  const char *used = a->stored_names && items[0].name->n != 0 ? items[0].name->text : name;
  if (is_named) status = add_named(a, items, n, used, role, path, &defect);
  if (status != CKPT_OK) fail_in(&defect, &items[0], path_of(a, items[0].root));
  CKPT_TRY(ckpt_defects_pass(&index->defects, status, &defect, err));
  if (status == CKPT_OK) return CKPT_OK;
  ckpt_index_break(index, n_before, index->n_tensors);
  if (!is_named || index->n_tensors != n_before || !is_tensor(&items[0])) return CKPT_OK;
  return ckpt_index_add_broken(index, used, role, a->metadata->roots[items[0].root].file, err);
}

static int compare_paths(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static ckpt_status refuse_missing(ckpt_dcp_adder *a, ckpt_error *err) {
  char listed[512] = "";
  uint32_t n = 0;
  qsort(a->missing, a->n_missing, sizeof *a->missing, compare_paths);
  for (uint32_t i = 0; i < a->n_missing; i++) {
    if (i != 0 && strcmp(a->missing[i - 1], a->missing[i]) == 0) continue;
    size_t end = strlen(listed);
    if (n++ < MAX_LISTED) snprintf(listed + end, sizeof listed - end, "%s%.100s", end == 0 ? "" : ", ", a->missing[i]);
  }
  return ckpt_fail(err, CKPT_ENOTFOUND, NULL, NULL,
                   "%u of the files that its metadata names are missing: %s%s (__R_... are rank R's; copy them, or "
                   "save again)",
                   n, listed, n > MAX_LISTED ? ", ..." : "");
}

static ckpt_status add_everything(ckpt_dcp_adder *a, ckpt_error *err) {
  CKPT_TRY(list_items(a, err));
  ckpt_error defect = {0};
  for (uint64_t i = 0, n; i < a->n_items; i += n) {
    for (n = 1; a->metadata->n_roots > 1 && i + n < a->n_items; n++)
      if (!is_same_name(&a->items[i], &a->items[i + n])) break;
    CKPT_TRY(add_items(a, &a->items[i], n, err));
  }
  if (a->n_missing != 0) CKPT_TRY(ckpt_defects_pass(&a->index->defects, refuse_missing(a, &defect), &defect, err));
  CKPT_TRY(ckpt_torch_unread_note(&a->unread, a->index, err));
  CKPT_TRY(ckpt_dcp_table_note(&a->metadata->places, a->index, err));
  uint32_t n = 0;
  for (uint32_t i = 0; i < a->places.n; i++) { /* offsets in safetensors files mean nothing */
    const ckpt_dcp_place *place = &a->places.items[i];
    if (place->file >= a->n_files || !a->files[place->file].is_safetensors) a->places.items[n++] = *place;
  }
  a->places.n = n;
  CKPT_TRY(ckpt_dcp_places_note(&a->places, a->index, err));
  return ckpt_dcp_objects_set(a->objects, &a->structure, err);
}

ckpt_status ckpt_dcp_add_all(ckpt_index *index, ckpt_dcp_objects *objects, const ckpt_dcp_metadata *metadata,
                             bool stored_names, ckpt_error *err) {
  ckpt_dcp_adder *a = calloc(1, sizeof *a);
  CKPT_TRY_ALLOC(a, err);
  a->index = index;
  a->objects = objects;
  a->metadata = metadata;
  a->stored_names = stored_names;
  ckpt_dcp_structure_find(&a->structure, metadata);
  ckpt_dcp_objects_begin(objects, index, metadata);
  ckpt_status status = add_everything(a, err);
  for (uint32_t i = 0; i < a->n_files; i++) {
    ckpt_index_free(a->files[i].held);
    ckpt_name_table_free(a->files[i].table);
    free(a->files[i].is_taken);
  }
  ckpt_dcp_twins_free(&a->twins);
  ckpt_dcp_places_free(&a->places);
  free(a->files);
  free(a->items);
  free(a->missing);
  free(a->extents);
  free(a->boxes);
  free(a);
  return status;
}
