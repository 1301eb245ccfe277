/* agree.c - what one pickle of metadata says three times over: the names of items in state_dict_metadata, of their
 * places in storage_data (metadata.c looks these up), and of their paths in planner_data, whose keys joined by dots are
 * the name (torch/distributed/checkpoint/_nested_dict.py). A planner that does not flatten leaves no paths. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "formats/dcp/dict.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"

typedef unsigned long long ull;

static int compare_names(const void *a, const void *b) {
  const ckpt_object *x = *(const ckpt_object *const *)a, *y = *(const ckpt_object *const *)b;
  const int order = memcmp(x->text, y->text, (size_t)(x->n < y->n ? x->n : y->n));
  return order != 0 ? order : (x->n > y->n) - (x->n < y->n);
}

/* The keys of a dict that are names, sorted. */
static ckpt_status sort_names(const ckpt_object ***out, size_t *n, const ckpt_object *dict, ckpt_error *err) {
  const ckpt_object **names = *out = reallocarray(NULL, (size_t)dict->n + 1, sizeof *names);
  CKPT_TRY_ALLOC(names, err);
  *n = 0;
  for (uint64_t i = 0; i < dict->n; i++)
    if (ckpt_dcp_is_name(dict->items[2 * i])) names[(*n)++] = dict->items[2 * i];
  qsort(names, *n, sizeof *names, compare_names);
  return CKPT_OK;
}

static void count(ckpt_dcp_count *count, const ckpt_object *name) {
  if (count->n++ == 0) count->first = name->text;
}

/* Whether a path's keys, joined by dots, are a name. */
static bool is_joined(const ckpt_object *name, const ckpt_object *path) {
  uint64_t at = 0;
  for (uint64_t i = 0; i < path->n; i++) {
    const ckpt_object *key = path->items[i];
    char number[32];
    const char *text = key->text;
    uint64_t n = key->n;
    if (key->kind == CKPT_OBJECT_INT) {
      n = (uint64_t)snprintf(number, sizeof number, "%lld", (long long)key->integer);
      text = number;
    }
    if (i != 0 && (at == name->n || name->text[at++] != '.')) return false;
    if (n > name->n - at || memcmp(name->text + at, text, (size_t)n) != 0) return false;
    at += n;
  }
  return at == name->n;
}

ckpt_status ckpt_dcp_agree(ckpt_dcp_agreement *agreement, const ckpt_object *items, const ckpt_object *paths,
                           ckpt_error *err) {
  const ckpt_object **of_items = NULL, **of_paths = NULL;
  size_t n_items = 0, n_paths = 0;
  ckpt_status status;
  if (paths == NULL || paths->kind != CKPT_OBJECT_DICT || paths->n == 0) return CKPT_OK;
  for (uint64_t i = 0; i < paths->n; i++)
    if (ckpt_dcp_is_name(paths->items[2 * i]) && ckpt_dcp_is_path(paths->items[2 * i + 1]) &&
        !is_joined(paths->items[2 * i], paths->items[2 * i + 1]))
      count(&agreement->elsewhere, paths->items[2 * i]);
  CKPT_TRY_GOTO(sort_names(&of_items, &n_items, items, err));
  CKPT_TRY_GOTO(sort_names(&of_paths, &n_paths, paths, err));
  for (size_t i = 0, k = 0; i < n_items || k < n_paths;) {
    const int order = i == n_items ? 1 : k == n_paths ? -1 : compare_names(&of_items[i], &of_paths[k]);
    if (order < 0) count(&agreement->without_path, of_items[i]);
    if (order > 0) count(&agreement->without_item, of_paths[k]);
    i += order <= 0;
    k += order >= 0;
  }
done:
  free(of_items);
  free(of_paths);
  return status;
}

static ckpt_status note(const ckpt_dcp_count *count, bool is_problem, const char *what, ckpt_index *index,
                        ckpt_error *err) {
  if (count->n == 0) return CKPT_OK;
  return ckpt_index_note(index, is_problem, err, "%s (%llu item%s: %.200s%s)", what, (ull)count->n,
                         ckpt_plural(count->n), count->first, count->n == 1 ? "" : ", ...");
}

/* Whether a name is one of a module that PyTorch or Python have, or of a class that metadata are read by, wherever it
 * is: one of these that is not known is none. Other frameworks have classes of their own. */
static bool is_theirs(const char *name) {
  static const char *const modules[] = {"torch.", "pathlib.", "builtins.", "collections.", "_codecs."};
  static const char *const classes[] = {"Metadata",      "TensorStorageMetadata", "BytesStorageMetadata",
                                        "MetadataIndex", "ChunkStorageMetadata",  "TensorProperties",
                                        "StorageMeta",   "_StorageInfo",          "_MEM_FORMAT_ENCODING",
                                        "Size",          "_get_layout",           "PosixPath"};
  const char *dot = strrchr(name, '.');
  for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
    if (strncmp(name, modules[i], strlen(modules[i])) == 0) return true;
  for (size_t i = 0; dot != NULL && i < sizeof classes / sizeof *classes; i++)
    if (strcmp(dot + 1, classes[i]) == 0) return true;
  return false;
}

ckpt_status ckpt_dcp_look_up(ckpt_dcp_agreement *agreement, const ckpt_pickle_report *report, ckpt_arena *arena,
                             ckpt_error *err) {
  for (uint32_t i = 0; i < report->n_globals; i++) {
    const ckpt_pickle_global *global = report->globals[i];
    const bool is_made = global->n_called != 0; /* dtypes are named alone */
    if (ckpt_pickle_judge(global) != CKPT_PICKLE_FOREIGN || !is_made || global->row != 0 || !is_theirs(global->name))
      continue;
    if (agreement->unknown.n++ != 0) continue;
    CKPT_TRY_ALLOC(agreement->unknown.first = ckpt_arena_copy(arena, global->name), err);
  }
  return CKPT_OK;
}

/* Whether a node is an instance of a class of this name, made as pickle makes it; NULL is none. */
static bool is_instance(const ckpt_object *object, const char *class) {
  if (object == NULL || object->kind != CKPT_OBJECT_FOREIGN || object->form > CKPT_FORM_NEW) return false;
  const char *dot = strrchr(object->name, '.');
  return dot != NULL && strcmp(dot + 1, class) == 0;
}

/* A torch.Size, or a tuple as older releases have. */
static bool is_size(const ckpt_object *object) {
  return object != NULL && (object->kind == CKPT_OBJECT_TUPLE || is_instance(object, "Size"));
}

static bool is_layout(const ckpt_object *layout) {
  static const char *const names[] = {"torch.strided",    "torch.sparse_coo", "torch.sparse_csr", "torch.sparse_csc",
                                      "torch.sparse_bsr", "torch.sparse_bsc", "torch._mkldnn",    "torch.jagged"};
  if (layout->kind != CKPT_OBJECT_FOREIGN) return layout->kind == CKPT_OBJECT_NONE;
  const ckpt_object *name = ckpt_foreign_arg(layout, 0);
  for (size_t i = 0; i < sizeof names / sizeof *names && name != NULL && name->kind == CKPT_OBJECT_TEXT; i++)
    if (strcmp(name->text, names[i]) == 0) return true;
  return name == NULL;
}

static bool is_format(const ckpt_object *format) {
  enum { N_FORMATS = 3 };
  if (format->kind != CKPT_OBJECT_FOREIGN) return format->kind == CKPT_OBJECT_NONE; /* the tuple that it is made of */
  const ckpt_object *number = ckpt_foreign_arg(format, 0);
  if (number == NULL) return format->form == CKPT_FORM_CALL; /* not the class itself */
  return number->kind == CKPT_OBJECT_INT && (uint64_t)number->integer < N_FORMATS;
}

/* What PyTorch has no use for any more, and makes all the same: a layout by its name, a memory format by its number. */
static bool are_properties(const ckpt_object *properties) {
  enum { LAYOUT = 1, FORMAT = 3, N_LEAST = 5 };
  const ckpt_object *state = properties == NULL ? NULL : ckpt_object_extra_of(properties, CKPT_EXTRA_STATE);
  if (!is_instance(properties, "TensorProperties")) return false;
  if (state == NULL || state->kind != CKPT_OBJECT_TUPLE) return true; /* of other releases */
  return state->n >= N_LEAST && state->n <= N_LEAST + 1 && is_layout(state->items[LAYOUT]) &&
         is_format(state->items[FORMAT]);
}

/* Whether an item of state_dict_metadata is one that PyTorch can go through. */
static bool is_item(const ckpt_object *item) {
  if (is_instance(item, "BytesStorageMetadata")) return true;
  const ckpt_object *chunks = ckpt_dcp_attribute(item, "chunks");
  if (!is_instance(item, "TensorStorageMetadata") || !is_size(ckpt_dcp_attribute(item, "size")) ||
      !are_properties(ckpt_dcp_attribute(item, "properties")))
    return false;
  for (uint64_t i = 0; chunks != NULL && chunks->kind == CKPT_OBJECT_LIST && i < chunks->n; i++)
    if (!is_instance(chunks->items[i], "ChunkStorageMetadata") ||
        !is_size(ckpt_dcp_attribute(chunks->items[i], "offsets")) ||
        !is_size(ckpt_dcp_attribute(chunks->items[i], "sizes")))
      return false;
  return true;
}

/* The same of a place: the index of a chunk is a hint. */
static bool is_place(const ckpt_object *key, const ckpt_object *place) {
  const ckpt_object *index = ckpt_dcp_attribute(key, "index"), *offset = ckpt_dcp_attribute(key, "offset");
  const bool has_index = index != NULL && index->kind != CKPT_OBJECT_NONE;
  const bool has_offset = offset != NULL && offset->kind != CKPT_OBJECT_NONE;
  return is_instance(key, "MetadataIndex") && is_instance(place, "_StorageInfo") &&
         (!has_index || index->kind == CKPT_OBJECT_INT) && (!has_offset || is_size(offset));
}

void ckpt_dcp_check_kinds(ckpt_dcp_agreement *agreement, const ckpt_object *items, const ckpt_object *places) {
  for (uint64_t i = 0; i < items->n; i++)
    if (!is_item(items->items[2 * i + 1]) && ckpt_dcp_is_name(items->items[2 * i]))
      count(&agreement->odd, items->items[2 * i]);
  for (uint64_t i = 0; i < places->n; i++)
    if (!is_place(places->items[2 * i], places->items[2 * i + 1]))
      count(&agreement->odd, ckpt_dcp_attribute(places->items[2 * i], "fqn")); /* a name: metadata.c has looked */
}

ckpt_status ckpt_dcp_agreement_note(const ckpt_dcp_agreement *agreement, ckpt_index *index, ckpt_error *err) {
  const ckpt_dcp_count *unknown = &agreement->unknown;
  if (unknown->n != 0) /* it unpickles metadata whole: where it cannot find one class, it loads nothing */
    CKPT_TRY(ckpt_index_note(index, true, err, "its metadata names %llu class%s that PyTorch cannot find (%.200s%s)",
                             (ull)unknown->n, unknown->n == 1 ? "" : "es", unknown->first,
                             unknown->n == 1 ? "" : ", ..."));
  CKPT_TRY(note(&agreement->odd, true, "its metadata are not of the classes and kinds that PyTorch goes through", index,
                err));
  CKPT_TRY(
      note(&agreement->without_path, true, "planner_data has no path for what state_dict_metadata names", index, err));
  CKPT_TRY(note(&agreement->elsewhere, true, "planner_data has another path than the name says", index, err));
  return note(&agreement->without_item, agreement->without_path.n != 0,
              "planner_data has paths for what was not saved: a rank's own objects are lost", index, err);
}
