/* metadata.c - the pickle of a checkpoint's metadata as tables: which items there are, and where each chunk lies.
 *
 * Classes are known by their own name, not by their module: PyTorch moved them twice, Megatron derives from them. What
 * is unknown is passed over. Tables are sorted by hash, then by key, so that looking up is n log n whatever the file
 * says. */
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/codec/torch/state/dict.h"
#include "libckpt/codec/torch/state/groups.h"

typedef unsigned long long ull;

/* ---- the tables ---- */

static uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
  return hash ^ hash >> 29;
}

static uint64_t hash_of(uint32_t root, const ckpt_object *name, const ckpt_object *offset) {
  uint64_t axes[CKPT_MAX_RANK], hash = mix(name->n, root), word;
  uint32_t n = 0;
  for (uint64_t i = 0; i < name->n; i += sizeof word) {
    word = 0;
    memcpy(&word, name->text + i, name->n - i < sizeof word ? (size_t)(name->n - i) : sizeof word);
    hash = mix(hash, word);
  }
  if (offset == NULL || !ckpt_foreign_u64s(offset, axes, CKPT_MAX_RANK, &n)) return hash;
  hash = mix(hash, n + 1);
  for (uint32_t i = 0; i < n; i++) hash = mix(hash, axes[i]);
  return hash;
}

/* Order of two offsets, none before any. */
static int compare_offsets(const ckpt_object *x, const ckpt_object *y) {
  uint64_t a[CKPT_MAX_RANK], b[CKPT_MAX_RANK];
  uint32_t n = 0, m = 0;
  if (x == y) return 0;
  if (x == NULL || y == NULL) return x == NULL ? -1 : 1;
  (void)ckpt_foreign_u64s(x, a, CKPT_MAX_RANK, &n);
  (void)ckpt_foreign_u64s(y, b, CKPT_MAX_RANK, &m);
  if (n != m) return n < m ? -1 : 1;
  for (uint32_t i = 0; i < n; i++)
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  return 0;
}

static int compare_keys(const ckpt_dcp_entry *x, const ckpt_dcp_entry *y) {
  if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
  if (x->root != y->root) return x->root < y->root ? -1 : 1;
  if (x->name->n != y->name->n) return x->name->n < y->name->n ? -1 : 1;
  int order = x->name == y->name ? 0 : memcmp(x->name->text, y->name->text, (size_t)x->name->n);
  return order != 0 ? order : compare_offsets(x->offset, y->offset);
}

static int compare_entries(const void *a, const void *b) {
  const ckpt_dcp_entry *x = a, *y = b;
  int order = compare_keys(x, y);
  return order != 0 ? order : (x->order > y->order) - (x->order < y->order);
}

static uint64_t bucket_of(const ckpt_dcp_table *table, uint64_t hash) { return hash >> 1 >> (63 - table->n_bits); }

const ckpt_object *ckpt_dcp_find(const ckpt_dcp_table *table, uint32_t root, const ckpt_object *name,
                                 const ckpt_object *offset, bool *is_first) {
  const ckpt_dcp_entry wanted = {.hash = hash_of(root, name, offset), .name = name, .offset = offset, .root = root};
  if (table->n == 0) return NULL;
  uint64_t bucket = bucket_of(table, wanted.hash);
  size_t begin = table->buckets[bucket], low = begin, high = table->buckets[bucket + 1];
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (compare_keys(&table->entries[middle], &wanted) <= 0)
      low = middle + 1;
    else
      high = middle;
  }
  /* low is past the last that is not above */
  if (low == begin || compare_keys(&table->entries[low - 1], &wanted) != 0) return NULL;
  ckpt_dcp_entry *found = &table->entries[low - 1];
  if (is_first != NULL) {
    *is_first = found->order != CKPT_DCP_FOUND;
    found->order = CKPT_DCP_FOUND;
  }
  return found->value;
}

ckpt_status ckpt_dcp_table_note(const ckpt_dcp_table *places, ckpt_index *index, ckpt_error *err) {
  const ckpt_dcp_entry *first = NULL;
  uint64_t n = 0;
  for (size_t i = 0; i < places->n; i++) {
    const ckpt_dcp_entry *entry = &places->entries[i];
    bool is_old = i + 1 < places->n && compare_keys(entry, entry + 1) == 0; /* a key stated again */
    if (entry->order == CKPT_DCP_FOUND || is_old) continue;
    if (n++ == 0 || strcmp(entry->name->text, first->name->text) < 0) first = entry;
  }
  if (n == 0) return CKPT_OK;
  return ckpt_index_note(index, true, err,
                         "storage_data has places for %llu item%s of which state_dict_metadata says nothing (%.200s%s)",
                         (ull)n, ckpt_plural(n), first->name->text, n == 1 ? "" : ", ...");
}

/* Room for n more entries: exactly that for the first pickle, by half more where there are many. */
static ckpt_status make_room(ckpt_dcp_table *table, uint64_t n, ckpt_error *err) {
  if (n <= table->capacity - table->n) return CKPT_OK;
  size_t wanted = table->n + (size_t)n, grown = table->capacity + table->capacity / 2;
  if (wanted < grown) wanted = grown;
  void *moved = reallocarray(table->entries, wanted, sizeof *table->entries);
  CKPT_TRY_ALLOC(moved, err);
  table->entries = moved;
  table->capacity = wanted;
  return CKPT_OK;
}

static void enter(ckpt_dcp_table *table, uint32_t root, const ckpt_object *name, const ckpt_object *offset,
                  const ckpt_object *value) {
  table->entries[table->n] =
      (ckpt_dcp_entry){hash_of(root, name, offset), name, offset, value, root, (uint32_t)table->n};
  table->n++;
}

static ckpt_status sort_table(ckpt_dcp_table *table, ckpt_error *err) {
  if (table->n > UINT32_MAX / 2) return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "more than 2^31 entries");
  while (table->n >> table->n_bits > 1) table->n_bits++;
  size_t n_buckets = (size_t)1 << table->n_bits;
  ckpt_dcp_entry *sorted = reallocarray(NULL, table->n + 1, sizeof *sorted);
  uint32_t *ends = table->buckets = calloc(n_buckets + 1, sizeof *ends);
  if (sorted == NULL || ends == NULL) {
    free(sorted);
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  for (size_t i = 0; i < table->n; i++) ends[bucket_of(table, table->entries[i].hash)]++;
  for (size_t i = 0, sum = 0; i <= n_buckets; i++) ends[i] = (uint32_t)(sum += ends[i]);
  for (size_t i = table->n; i-- > 0;) sorted[--ends[bucket_of(table, table->entries[i].hash)]] = table->entries[i];
  free(table->entries);
  table->entries = sorted;
  for (size_t i = 0; i < n_buckets; i++) /* ends now are beginnings */
    if (ends[i + 1] - ends[i] > 1) qsort(sorted + ends[i], ends[i + 1] - ends[i], sizeof *sorted, compare_entries);
  return CKPT_OK;
}

/* ---- one pickle ---- */

typedef struct input {
  ckpt_source *source;
  uint32_t file;
} input;

static ckpt_status fetch(void *arg, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  const input *in = arg;
  return ckpt_source_read(in->source, in->file, offset, dst, n_bytes, err);
}

/* Whether a node is an instance of a class of this name, of whatever module. */
static bool is_class(const ckpt_object *object, const char *class) {
  if (object == NULL || object->kind != CKPT_OBJECT_FOREIGN || object->form > CKPT_FORM_NEW) return false;
  const char *dot = strrchr(object->name, '.');
  return dot != NULL && strcmp(dot + 1, class) == 0;
}

const ckpt_object *ckpt_dcp_attribute(const ckpt_object *object, const char *name) {
  const ckpt_object *state = object == NULL ? NULL : ckpt_object_extra_of(object, CKPT_EXTRA_STATE);
  return ckpt_object_field(state, name);
}

bool ckpt_dcp_is_name(const ckpt_object *object) {
  return object != NULL && object->kind == CKPT_OBJECT_TEXT && object->n <= CKPT_DCP_NAME_BYTES &&
         strlen(object->text) == object->n;
}

/* The storage's dict: MetadataIndex -> _StorageInfo. */
static ckpt_status enter_places(ckpt_dcp_metadata *metadata, const ckpt_object *places, const char *path,
                                ckpt_error *err) {
  if (places == NULL || places->kind != CKPT_OBJECT_DICT)
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "its metadata has no storage_data (saved by another storage?)");
  CKPT_TRY(make_room(&metadata->places, places->n, err));
  for (uint64_t i = 0; i < places->n; i++) {
    const ckpt_object *key = places->items[2 * i], *name = ckpt_dcp_attribute(key, "fqn");
    const ckpt_object *offset = ckpt_dcp_attribute(key, "offset");
    uint64_t axes[CKPT_MAX_RANK];
    uint32_t n;
    if (offset != NULL && offset->kind == CKPT_OBJECT_NONE) offset = NULL;
    if (!ckpt_dcp_is_name(name) || (offset != NULL && !ckpt_foreign_u64s(offset, axes, CKPT_MAX_RANK, &n)))
      return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "key %llu of storage_data is no index of a tensor's chunk",
                       (ull)i);
    enter(&metadata->places, metadata->n_roots, name, offset, places->items[2 * i + 1]);
  }
  return CKPT_OK;
}

/* The planner's dict: name -> tuple of keys; anything else is its own affair. */
static ckpt_status enter_paths(ckpt_dcp_metadata *metadata, const ckpt_object *paths, ckpt_error *err) {
  if (paths == NULL || paths->kind != CKPT_OBJECT_DICT) return CKPT_OK;
  CKPT_TRY(make_room(&metadata->paths, paths->n, err));
  for (uint64_t i = 0; i < paths->n; i++)
    if (ckpt_dcp_is_name(paths->items[2 * i]))
      enter(&metadata->paths, metadata->n_roots, paths->items[2 * i], NULL, paths->items[2 * i + 1]);
  return CKPT_OK;
}

static ckpt_status enter_root(ckpt_dcp_metadata *metadata, const ckpt_object *object, const char *path,
                              const char *folder, ckpt_error *err) {
  if (!is_class(object, "Metadata") && !is_class(object, "MCoreMetadata"))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL, "its pickle holds %s, not PyTorch's Metadata",
                     object->kind == CKPT_OBJECT_FOREIGN ? object->name : "plain data");
  if (ckpt_foreign_attribute(object, "all_tensor_metadata") != NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL, "a ByteCheckpoint checkpoint; this version cannot read it");
  ckpt_dcp_root root = {.tensors = ckpt_foreign_attribute(object, "state_dict_metadata"), .folder = folder};
  if (root.tensors == NULL || root.tensors->kind != CKPT_OBJECT_DICT)
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "its metadata has no state_dict_metadata");
  CKPT_TRY(enter_places(metadata, ckpt_foreign_attribute(object, "storage_data"), path, err));
  CKPT_TRY(enter_paths(metadata, ckpt_foreign_attribute(object, "planner_data"), err));
  CKPT_TRY(ckpt_dcp_agree(&metadata->agreement, root.tensors, ckpt_foreign_attribute(object, "planner_data"), err));
  ckpt_dcp_check_kinds(&metadata->agreement, root.tensors, ckpt_foreign_attribute(object, "storage_data"));
  const ckpt_object *version = ckpt_foreign_attribute(object, "version");
  if (ckpt_dcp_is_name(version) && version->n < 32) root.version = version->text;
  CKPT_TRY(ckpt_grow(&metadata->roots, metadata->n_roots, &metadata->capacity, sizeof *metadata->roots, err));
  metadata->roots[metadata->n_roots++] = root;
  return CKPT_OK;
}

ckpt_status ckpt_dcp_metadata_read(ckpt_dcp_metadata *metadata, ckpt_source *source, uint32_t file, const char *folder,
                                   ckpt_error *err) {
  input in = {source, file};
  const char *path = ckpt_source_path(source, file);
  ckpt_pickle_limits limits = CKPT_PICKLE_LIMITS;
  limits.n_memory = 12; /* a chunk takes 100 bytes and more of it, opening at most 1,200 for each (index.h) */
  ckpt_pickle_report report;
  ckpt_pickle_options options = {.fetch = fetch,
                                 .arg = &in,
                                 .n_bytes = ckpt_source_size(source, file),
                                 .file = path,
                                 .limits = &limits,
                                 .report = &report};
  ckpt_object *root;
  uint64_t n_consumed;
  if (options.n_bytes == 0)
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "the file is empty: the save was cut off (save again)");
  CKPT_TRY(ckpt_pickle_read(&root, &n_consumed, &options, &metadata->arena, err));
  if (n_consumed != options.n_bytes)
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "bytes follow the pickle (%llu after %llu)",
                     (ull)(options.n_bytes - n_consumed), (ull)n_consumed);
  metadata->n_bytes += n_consumed;
  CKPT_TRY(ckpt_torch_globals_add(&metadata->globals, &report, &metadata->arena, err));
  CKPT_TRY(ckpt_dcp_look_up(&metadata->agreement, &report, &metadata->arena, err));
  CKPT_TRY(enter_root(metadata, root, path, folder, err));
  metadata->roots[metadata->n_roots - 1].file = file;
  return CKPT_OK;
}

/* ---- parts ---- */

/* Whether a key is one of those that hold a model, or, like "optimizer", an optimizer. */
static bool is_container(const char *key, const char *like) {
  return ckpt_torch_is_optimizer_key(like) ? ckpt_torch_is_optimizer_key(key)
                                           : ckpt_torch_is_model_key(key, strlen(key));
}

static bool is_keys(const ckpt_object *path) {
  return path != NULL && (path->kind == CKPT_OBJECT_TUPLE || path->kind == CKPT_OBJECT_LIST) && path->n != 0;
}

/* Whether a path leads through a container of its kind. */
static bool is_below(const ckpt_object *path, const char *container) {
  return is_keys(path) && path->n >= 2 && ckpt_dcp_is_name(path->items[0]) &&
         is_container(path->items[0]->text, container);
}

static bool is_any_below(const ckpt_dcp_metadata *metadata, uint32_t first_root, const char *container) {
  for (size_t i = 0; i < metadata->paths.n; i++) {
    const ckpt_dcp_entry *entry = &metadata->paths.entries[i];
    if (entry->root >= first_root && is_below(entry->value, container)) return true;
  }
  return false;
}

static int compare_hashes(const void *a, const void *b) {
  const uint64_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* Sorted hashes of the keys that paths of the roots before `root` begin with: places at the top that are taken. */
static ckpt_status find_taken(uint64_t **taken, size_t *n, const ckpt_dcp_metadata *metadata, uint32_t root,
                              ckpt_error *err) {
  *taken = reallocarray(NULL, metadata->paths.n + 1, sizeof **taken);
  CKPT_TRY_ALLOC(*taken, err);
  *n = 0;
  for (size_t i = 0; i < metadata->paths.n; i++) {
    const ckpt_dcp_entry *entry = &metadata->paths.entries[i];
    if (entry->root < root && is_keys(entry->value) && ckpt_dcp_is_name(entry->value->items[0]))
      (*taken)[(*n)++] = hash_of(0, entry->value->items[0], NULL);
  }
  qsort(*taken, *n, sizeof **taken, compare_hashes);
  return CKPT_OK;
}

static bool is_taken(const uint64_t *taken, size_t n, const ckpt_object *key) {
  const uint64_t hash = ckpt_dcp_is_name(key) ? hash_of(0, key, NULL) : 0;
  return n != 0 && ckpt_dcp_is_name(key) && bsearch(&hash, taken, n, sizeof *taken, compare_hashes) != NULL;
}

/* A path of n keys behind the container. NULL: no memory. */
static ckpt_object *path_below(ckpt_object *container, ckpt_object *const *keys, uint64_t n, ckpt_arena *arena) {
  ckpt_object *path = ckpt_object_new(arena, CKPT_OBJECT_TUPLE, n + 1, NULL);
  if (path == NULL) return NULL;
  path->items[0] = container;
  memcpy(path->items + 1, keys, n * sizeof *keys);
  return path;
}

/* Where a folder has such a container, what stands beside it was saved there, and stays, but for what the folder before
 * has, too. */
static ckpt_status put_paths_below(ckpt_dcp_metadata *metadata, uint32_t first_root, ckpt_object *key, bool *has_paths,
                                   ckpt_error *err) {
  enum { MAX_KEYS = 255 }; /* what has more is no path (dict.c) */
  const bool is_beside = is_any_below(metadata, first_root, key->text);
  uint64_t *taken = NULL;
  size_t n_taken = 0;
  ckpt_status status = CKPT_OK;
  if (is_beside) CKPT_TRY(find_taken(&taken, &n_taken, metadata, first_root, err));
  for (size_t i = 0; i < metadata->paths.n; i++) {
    ckpt_dcp_entry *entry = &metadata->paths.entries[i];
    if (entry->root < first_root) continue;
    *has_paths = true;
    const ckpt_object *path = entry->value;
    if (!is_keys(path) || path->n > MAX_KEYS || is_below(path, key->text)) continue;
    if (is_beside && !is_taken(taken, n_taken, path->items[0])) continue;
    entry->value = path_below(key, path->items, path->n, &metadata->arena);
    if (entry->value != NULL) continue;
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    break;
  }
  free(taken);
  return status;
}

ckpt_status ckpt_dcp_metadata_put_below(ckpt_dcp_metadata *metadata, uint32_t first_root, const char *container,
                                        ckpt_error *err) {
  ckpt_object *key = ckpt_object_text(&metadata->arena, container, strlen(container));
  bool has_paths = false;
  CKPT_TRY_ALLOC(key, err);
  CKPT_TRY(put_paths_below(metadata, first_root, key, &has_paths, err));
  for (uint32_t r = first_root; r < metadata->n_roots && !has_paths; r++) { /* the planner left none: names are keys */
    const ckpt_object *items = metadata->roots[r].tensors;
    CKPT_TRY(make_room(&metadata->paths, items->n, err));
    for (uint64_t i = 0; i < items->n; i++) {
      if (!ckpt_dcp_is_name(items->items[2 * i])) continue;
      const ckpt_object *path = path_below(key, &items->items[2 * i], 1, &metadata->arena);
      CKPT_TRY_ALLOC(path, err);
      enter(&metadata->paths, r, items->items[2 * i], NULL, path);
    }
  }
  return CKPT_OK;
}

void ckpt_dcp_metadata_drop(ckpt_dcp_metadata *metadata, uint32_t first_root) {
  ckpt_dcp_table *const tables[] = {&metadata->places, &metadata->paths};
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
    while (tables[t]->n != 0 && tables[t]->entries[tables[t]->n - 1].root >= first_root) tables[t]->n--;
  metadata->n_roots = first_root;
}

ckpt_status ckpt_dcp_metadata_sort(ckpt_dcp_metadata *metadata, ckpt_error *err) {
  CKPT_TRY(sort_table(&metadata->places, err));
  return sort_table(&metadata->paths, err);
}

void ckpt_dcp_metadata_free(ckpt_dcp_metadata *metadata) {
  ckpt_arena_free(&metadata->arena);
  free(metadata->roots);
  free(metadata->places.entries);
  free(metadata->places.buckets);
  free(metadata->paths.entries);
  free(metadata->paths.buckets);
}
