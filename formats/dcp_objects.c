/* dcp_objects.c - what a checkpoint holds besides tensors: its items of bytes, and the dict that all of it was.
 *
 * An item is a torch.save archive in a slice of a file, or that behind zstd; tensors in it are the index's, named by
 * the item and their place in it. The planner's paths put items and tensors back into nested dicts and lists: leaves
 * sorted by path, so that what is below one container lies together, then each container in stored order. Where two
 * leaves claim one place, or one lies below another, paths are left aside and the dict is as flat as the names. */
#include <stdlib.h>
#include <string.h>

#include "formats/dcp_objects.h"
#include "libckpt/checked.h"
#include "libckpt/codec/torch_groups.h"
#include "libckpt/codec/torch_state.h"
#include "libckpt/decode.h"
#include "libckpt/error.h"
#include "libckpt/grow.h"

typedef unsigned long long ull;

enum { MAX_KEYS = 256, MAX_DECODED_BYTES = 64 << 20 };

/* ---- leaves ---- */

static bool is_key(const ckpt_object *key) {
  return key != NULL && (key->kind == CKPT_OBJECT_TEXT || key->kind == CKPT_OBJECT_INT);
}

/* Whether a path leads through dicts and lists only. */
static bool is_path(const ckpt_object *path) {
  if (path == NULL || (path->kind != CKPT_OBJECT_TUPLE && path->kind != CKPT_OBJECT_LIST) || path->n == 0 ||
      path->n > MAX_KEYS)
    return false;
  for (uint64_t i = 0; i < path->n; i++)
    if (!is_key(path->items[i])) return false;
  return true;
}

static bool has_structure(const ckpt_dcp_metadata *metadata) {
  for (size_t i = 0; i < metadata->paths.n; i++)
    if (is_path(metadata->paths.entries[i].value) && metadata->paths.entries[i].value->n > 1) return true;
  for (uint32_t r = 0; r < metadata->n_roots; r++)
    for (uint64_t i = 0; i < metadata->roots[r].tensors->n; i++) {
      ckpt_object *const *pair = &metadata->roots[r].tensors->items[2 * i];
      if (pair[0]->n == 0 || ckpt_dcp_attribute(pair[1], "size") == NULL) return true; /* it has a name all the same */
    }
  return false;
}

void ckpt_dcp_objects_begin(ckpt_dcp_objects *objects, ckpt_index *index, const ckpt_dcp_metadata *metadata) {
  *objects = (ckpt_dcp_objects){
      .index = index, .is_kept = has_structure(metadata), .max_keys = metadata->n_bytes, .globals = metadata->globals};
}

ckpt_status ckpt_dcp_objects_add(ckpt_dcp_objects *objects, const ckpt_object *name, const ckpt_object *path,
                                 ckpt_object *value, ckpt_error *err) {
  if (!objects->is_kept) return CKPT_OK;
  CKPT_TRY(ckpt_grow(&objects->leaves, objects->n, &objects->capacity, sizeof *objects->leaves, err));
  ckpt_dcp_leaf *leaf = &objects->leaves[objects->n];
  *leaf = (ckpt_dcp_leaf){.name = name, .path = is_path(path) ? path : NULL, .value = value, .order = objects->n};
  objects->n_keys += leaf->path == NULL ? 1 : leaf->path->n;
  objects->n++;
  return CKPT_OK;
}

ckpt_status ckpt_dcp_objects_add_tensor(ckpt_dcp_objects *objects, const ckpt_object *name, const ckpt_object *path,
                                        uint32_t number, ckpt_error *err) {
  if (!objects->is_kept) return CKPT_OK;
  ckpt_object *value = ckpt_object_tensor(&objects->index->arena, number);
  CKPT_TRY_ALLOC(value, err);
  return ckpt_dcp_objects_add(objects, name, path, value, err);
}

/* ---- items of bytes ---- */

ckpt_status ckpt_dcp_slice_check(ckpt_source *source, const ckpt_dcp_slice *at, ckpt_error *err) {
  uint64_t size = ckpt_source_size(source, at->file);
  if (ckpt_range_within(at->offset, at->n_bytes, size)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(source, at->file), NULL,
                   "bytes %llu to %llu lie past the end of the file (%llu byte%s); it is truncated or lies",
                   (ull)at->offset, (ull)at->offset + at->n_bytes, (ull)size, ckpt_plural(size));
}

/* Storages of an archive in memory, which is what the slice's zstd stream decodes to, are parts of that stream. */
static void place_storages(ckpt_torch_graph *graph, const ckpt_dcp_slice *at) {
  for (uint32_t i = 0; i < graph->n_storages; i++) {
    ckpt_extent *extent = &graph->storages[i].extent;
    bool is_deflated = extent->chain[0] != CKPT_DECODE_RAW;
    for (uint32_t k = 0; k < graph->n_tensors && is_deflated; k++) {
      if (graph->tensors[k].storage != i || graph->tensors[k].status != CKPT_OK) continue;
      graph->tensors[k].status = CKPT_EUNSUPPORTED;
      graph->tensors[k].reason = "deflated inside zstd";
    }
    *extent = (ckpt_extent){.file = at->file,
                            .offset = at->offset,
                            .n_stored = at->n_bytes,
                            .skip = extent->offset,
                            .chain = {CKPT_DECODE_ZSTD}};
  }
}

static ckpt_status read_zstd(ckpt_torch_graph *graph, ckpt_dcp_objects *objects, const ckpt_dcp_slice *at,
                             ckpt_pickle_report *report, ckpt_error *err) {
  ckpt_arena *arena = &objects->index->arena;
  const ckpt_extent extent = {.file = at->file, .offset = at->offset, .n_stored = at->n_bytes};
  uint64_t max = arena->limit - arena->n_taken;
  ckpt_source *source = NULL;
  uint8_t *bytes = NULL;
  size_t n;
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_decode_zstd(&bytes, &n, objects->index->source, &extent,
                                 max < MAX_DECODED_BYTES ? (size_t)max : MAX_DECODED_BYTES, err));
  CKPT_TRY_GOTO(ckpt_source_memory(&source, bytes, n, ckpt_source_path(objects->index->source, at->file), err));
  CKPT_TRY_GOTO(ckpt_torch_archive_read(graph, source, 0, 0, n, arena, report, err));
  place_storages(graph, at);
done:
  ckpt_source_free(source);
  free(bytes);
  return status;
}

/* What is damaged or not understood is left out, and said: each where all defects are asked for, else the first of them
 * by name. */
static ckpt_status refuse(ckpt_dcp_objects *objects, const ckpt_dcp_slice *at, const char *name, const ckpt_error *why,
                          ckpt_error *err) {
  if (objects->index->defects.report != NULL)
    return ckpt_index_problem(objects->index, at->file, err, "not read: %.200s (%.300s)", name, why->message);
  if (objects->n_refused++ != 0) return CKPT_OK;
  objects->refused = ckpt_arena_printf(&objects->index->arena, "%.200s (%.300s)", name, why->message);
  CKPT_TRY_ALLOC(objects->refused, err);
  return CKPT_OK;
}

/* Keeps a graph whose sparse tensors are named later. */
static ckpt_status keep_graph(ckpt_dcp_objects *objects, ckpt_torch_graph *graph, ckpt_error *err) {
  CKPT_TRY(ckpt_grow(&objects->graphs, objects->n_graphs, &objects->graph_capacity, sizeof *objects->graphs, err));
  objects->graphs[objects->n_graphs++] = *graph;
  *graph = (ckpt_torch_graph){0};
  return CKPT_OK;
}

ckpt_status ckpt_dcp_objects_read(ckpt_object **out, ckpt_dcp_objects *objects, const ckpt_dcp_slice *at,
                                  const char *name, ckpt_error *err) {
  ckpt_index *index = objects->index;
  ckpt_torch_graph graph = {.first_storage = objects->n_storages, .n_expanded = objects->n_expanded, .is_state = true};
  ckpt_pickle_report report = {0};
  ckpt_error why = {.status = CKPT_OK};
  *out = NULL;
  CKPT_TRY(ckpt_dcp_slice_check(index->source, at, err));
  const ckpt_archive whole = {
      .name = name, .offset = at->offset, .n_bytes = at->n_bytes, .file = at->file, .is_zstd = at->is_zstd};
  CKPT_TRY(ckpt_index_add_archive(index, &whole, err));
  ckpt_status status, read = at->is_zstd ? read_zstd(&graph, objects, at, &report, &why)
                                         : ckpt_torch_archive_read(&graph, index->source, at->file, at->offset,
                                                                   at->n_bytes, &index->arena, &report, &why);
  CKPT_TRY_GOTO(ckpt_torch_globals_add(&objects->globals, &report, &index->arena, err));
  if (read == CKPT_ELIMIT && at->is_zstd) { /* ours: the item is as it should be, and may hold tensors */
    CKPT_TRY_GOTO(ckpt_index_note(index, false, err, "not read: %.200s (%.300s)", name, why.message));
    status = ckpt_index_add_unread(index, name, CKPT_ROLE_OTHER, why.message, err);
    goto done;
  }
  if (read == CKPT_EFORMAT || read == CKPT_EUNSUPPORTED) {
    status = refuse(objects, at, name, &why, err);
    goto done;
  }
  if (read != CKPT_OK) {
    if (err != NULL) *err = why;
    status = read;
    goto done;
  }
  CKPT_TRY_GOTO(ckpt_torch_graph_add(&graph, index, name, true, err));
  objects->n_storages += graph.n_storages;
  objects->n_expanded = graph.n_expanded;
  *out = graph.root;
  if (ckpt_pickle_judge_all(&report, NULL) != CKPT_PICKLE_DANGEROUS)
    index->archives[index->n_archives - 1].root = graph.root;
  if (graph.n_sparse != 0) status = keep_graph(objects, &graph, err);
done:
  ckpt_torch_graph_free(&graph);
  return status;
}

/* ---- the dict ---- */

static uint64_t n_keys_of(const ckpt_dcp_leaf *leaf) { return leaf->path == NULL ? 1 : leaf->path->n; }

static const ckpt_object *key_of(const ckpt_dcp_leaf *leaf, uint64_t depth) {
  return leaf->path == NULL ? leaf->name : leaf->path->items[depth];
}

static int compare_keys(const ckpt_object *a, const ckpt_object *b) {
  if (a == b) return 0;
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  if (a->kind == CKPT_OBJECT_INT) return (a->integer > b->integer) - (a->integer < b->integer);
  int order = memcmp(a->text, b->text, (size_t)(a->n < b->n ? a->n : b->n));
  return order != 0 ? order : (a->n > b->n) - (a->n < b->n);
}

static int compare_leaves(const void *x, const void *y) {
  const ckpt_dcp_leaf *a = x, *b = y;
  uint64_t n_a = n_keys_of(a), n_b = n_keys_of(b);
  if (a->path == NULL || a->path != b->path)
    for (uint64_t i = 0; i < n_a && i < n_b; i++) {
      int order = compare_keys(key_of(a, i), key_of(b, i));
      if (order != 0) return order;
    }
  if (n_a != n_b) return n_a < n_b ? -1 : 1;
  return (a->order > b->order) - (a->order < b->order);
}

/* Leaves with one key at a depth: leaves[low, high), the first of which was met as number `order`. */
typedef struct member {
  uint32_t low, high, order;
} member;

static int compare_members(const void *x, const void *y) {
  const member *a = x, *b = y;
  return (a->order > b->order) - (a->order < b->order);
}

/* A key's own node, which outlives the metadata. */
static ckpt_object *copy_key(ckpt_arena *arena, const ckpt_object *key) {
  return key->kind == CKPT_OBJECT_INT ? ckpt_object_int(arena, key->integer)
                                      : ckpt_object_text(arena, key->text, key->n);
}

/* Lists the members at a depth in order of keys; *is_list: these are 0, 1, 2 and so on. */
static ckpt_status list_members(const ckpt_dcp_objects *objects, uint32_t low, uint32_t high, uint32_t depth,
                                member **out, uint32_t *n, bool *is_list, ckpt_error *err) {
  const ckpt_dcp_leaf *leaves = objects->leaves;
  *n = 1;
  for (uint32_t i = low + 1; i < high; i++)
    *n += compare_keys(key_of(&leaves[i - 1], depth), key_of(&leaves[i], depth)) != 0;
  member *members = *out = reallocarray(NULL, *n, sizeof *members);
  CKPT_TRY_ALLOC(members, err);
  *is_list = true;
  for (uint32_t i = low, k = 0; i < high; k++) {
    const ckpt_object *key = key_of(&leaves[i], depth);
    members[k] = (member){i, i, leaves[i].order};
    for (; i < high && compare_keys(key, key_of(&leaves[i], depth)) == 0; i++)
      if (leaves[i].order < members[k].order) members[k].order = leaves[i].order;
    members[k].high = i;
    *is_list = *is_list && key->kind == CKPT_OBJECT_INT && key->integer == k;
  }
  return CKPT_OK;
}

/* What leaves[low, high), which agree in their first `depth` keys, are: one value or a container; NULL for a value that
 * was not read. Goes at most MAX_KEYS deep. */
static ckpt_status build(ckpt_dcp_objects *objects, uint32_t low, uint32_t high, uint32_t depth, ckpt_object **out,
                         ckpt_error *err) {
  ckpt_arena *arena = &objects->index->arena;
  if (n_keys_of(&objects->leaves[low]) == depth) {
    objects->is_ambiguous = objects->is_ambiguous || high - low > 1;
    *out = objects->leaves[high - 1].value;
    return CKPT_OK;
  }
  member *members = NULL;
  uint32_t n;
  bool is_list = false;
  ckpt_status status;
  CKPT_TRY_GOTO(list_members(objects, low, high, depth, &members, &n, &is_list, err));
  if (!is_list) qsort(members, n, sizeof *members, compare_members);
  ckpt_object *container = *out = ckpt_object_new(arena, is_list ? CKPT_OBJECT_LIST : CKPT_OBJECT_DICT, n, NULL);
  ckpt_object *key = container;
  if (container != NULL) container->n = 0;
  for (uint32_t i = 0; i < n && key != NULL; i++) {
    ckpt_object *value;
    CKPT_TRY_GOTO(build(objects, members[i].low, members[i].high, depth + 1, &value, err));
    if (is_list) {
      key = container->items[container->n++] = value != NULL ? value : ckpt_object_none(arena);
    } else if (value != NULL) {
      key = container->items[2 * container->n] = copy_key(arena, key_of(&objects->leaves[members[i].low], depth));
      container->items[2 * container->n++ + 1] = value;
    }
  }
  if (key == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
done:
  free(members);
  return status;
}

static ckpt_status build_root(ckpt_dcp_objects *objects, ckpt_object **root, ckpt_error *err) {
  objects->is_ambiguous = objects->n_keys > objects->max_keys; /* long paths, many times */
  for (int is_flat = objects->is_ambiguous; is_flat < 2; is_flat++) {
    for (uint32_t i = 0; i < objects->n && is_flat; i++) objects->leaves[i].path = NULL;
    objects->is_ambiguous = false;
    qsort(objects->leaves, objects->n, sizeof *objects->leaves, compare_leaves);
    CKPT_TRY(build(objects, 0, objects->n, 0, root, err));
    if (!objects->is_ambiguous) break;
  }
  return CKPT_OK;
}

static ckpt_status note_refused(ckpt_dcp_objects *objects, ckpt_error *err) {
  if (objects->n_refused == 0) return CKPT_OK;
  return objects->n_refused == 1 ? ckpt_index_note(objects->index, true, err, "not read: %s", objects->refused)
                                 : ckpt_index_note(objects->index, true, err, "not read: %s and %llu more",
                                                   objects->refused, (ull)objects->n_refused - 1);
}

/* Whether all parameters of an optimizer's groups are numbers. */
static bool are_numbered(const ckpt_object *groups) {
  if (groups == NULL || groups->kind != CKPT_OBJECT_LIST || groups->n == 0) return false;
  for (uint64_t g = 0; g < groups->n; g++) {
    const ckpt_object *params = ckpt_object_field(groups->items[g], "params");
    if (params == NULL || params->kind != CKPT_OBJECT_LIST) return false;
    for (uint64_t i = 0; i < params->n; i++)
      if (params->items[i]->kind != CKPT_OBJECT_INT) return false;
  }
  return true;
}

/* The planner makes texts of keys: where groups number their parameters, states are by these numbers again, by which
 * load_state_dict finds them. */
static ckpt_status number_states(const ckpt_object *optimizer, ckpt_arena *arena, ckpt_error *err) {
  enum { MAX_DIGITS = 18 };
  const ckpt_object *state = ckpt_object_field(optimizer, "state");
  if (state == NULL || state->kind != CKPT_OBJECT_DICT || !are_numbered(ckpt_object_field(optimizer, "param_groups")))
    return CKPT_OK;
  for (uint64_t i = 0; i < state->n; i++) {
    const ckpt_object *key = state->items[2 * i];
    bool is_number = key->kind == CKPT_OBJECT_TEXT && key->n != 0 && key->n <= MAX_DIGITS &&
                     strspn(key->text, "0123456789") == key->n && (key->n == 1 || key->text[0] != '0');
    if (!is_number) return CKPT_OK;
  }
  for (uint64_t i = 0; i < state->n; i++) {
    ckpt_object **key = &state->items[2 * i];
    CKPT_TRY_ALLOC(*key = ckpt_object_int(arena, strtoll((*key)->text, NULL, 10)), err);
  }
  return CKPT_OK;
}

ckpt_status ckpt_dcp_objects_set(ckpt_dcp_objects *objects, const ckpt_dcp_structure *structure, ckpt_error *err) {
  ckpt_index *index = objects->index;
  ckpt_object *root, *groups = NULL;
  CKPT_TRY(ckpt_torch_globals_note(&objects->globals, index, err));
  CKPT_TRY(note_refused(objects, err));
  if (objects->n == 0) return CKPT_OK;
  CKPT_TRY(build_root(objects, &root, err));
  const ckpt_object *top = root;
  if (structure->n_common != 0 && root->kind == CKPT_OBJECT_DICT && root->n == 1) top = root->items[1];
  const ckpt_object *optimizer = structure->is_optimizer           ? top
                                 : structure->optimizer[0] == '\0' ? NULL
                                                                   : ckpt_object_get(top, structure->optimizer);
  if (optimizer != NULL) CKPT_TRY(number_states(optimizer, &index->arena, err));
  CKPT_TRY(ckpt_torch_groups_of(&groups, optimizer, &index->arena, err));
  return ckpt_torch_state_set(index, root, top, groups, err);
}

ckpt_status ckpt_dcp_objects_composites(const ckpt_dcp_objects *objects, ckpt_error *err) {
  for (uint32_t i = 0; i < objects->n_graphs; i++)
    CKPT_TRY(ckpt_torch_graph_composites(&objects->graphs[i], objects->index, err));
  return CKPT_OK;
}

void ckpt_dcp_objects_free(ckpt_dcp_objects *objects) {
  for (uint32_t i = 0; i < objects->n_graphs; i++) ckpt_torch_graph_free(&objects->graphs[i]);
  free(objects->graphs);
  free(objects->leaves);
  *objects = (ckpt_dcp_objects){0};
}
