/* dcpv2.c - a folder of torch_checkpointing, which calls itself DCPv2: reading, the row.
 *
 *   metadata.pkl         how the tensors of each item are cut among ranks (metadata.c)
 *   <item>_<rank>.pt     a torch.save archive of what the rank has of an item; or at the path that the metadata says,
 *                        there also as safetensors
 *
 * docs/formats/dcp.md has the layout. What a rank has are whole files: each is opened as an index of its own, whose
 * tensors become chunks. It is opened twice, by the paths in it, which the metadata speaks of, and by the names that
 * they have here. */
#include "formats/dcpv2/dcpv2.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/codec/safetensors/safetensors.h"
#include "libckpt/codec/side_files/side_files.h"
#include "libckpt/codec/torch/read/file.h"
#include "libckpt/codec/torch/state/dict.h"
#include "libckpt/codec/torch/state/groups.h"
#include "libckpt/codec/torch/state/state.h"
#include "libckpt/index/arch.h"

typedef unsigned long long ull;

enum { MAX_PATH_BYTES = 4096 + 32 }; /* of an item's key, a rank and an ending */

/* The object of an item: the first rank's. Its leaves are chunks first_id on. */
typedef struct kept_object {
  const ckpt_dcpv2_item *item;
  ckpt_torch_graph graph;
  uint32_t first_id;
} kept_object;

typedef struct reader {
  ckpt_index *index;
  const ckpt_open_options *options;
  ckpt_dcpv2_metadata metadata;
  bool has_model; /* an item that is called as one */
  ckpt_dcpv2_chunks chunks;
  kept_object *objects;
  uint32_t n_objects, object_capacity;
  uint8_t *is_taken; /* by file */
  uint32_t n_taken, taken_capacity;
  uint64_t n_files, n_missing, n_others;
  const char *missing, *other; /* the first */
  char usual[MAX_PATH_BYTES];  /* the path of the file at hand, where no layout says one */
  ckpt_torch_globals globals;
} reader;

static bool probe(const ckpt_probe *p) {
  for (size_t i = 0; p->is_folder && i < p->n_entries; i++)
    if (!p->entries[i].is_folder && strcmp(p->entries[i].name, CKPT_DCPV2_METADATA) == 0) return true;
  return false;
}

/* ---- items ------------------------------------------------------------------------------------------------------ */

static bool is_model(const char *key) { return ckpt_torch_is_model_key(key, strlen(key)); }

static const char *prefix_of(const reader *r, const ckpt_dcpv2_item *item, bool is_stored) {
  return !is_stored && r->has_model && is_model(item->key) ? "" : item->key;
}

static bool is_state(const reader *r, const ckpt_dcpv2_item *item) {
  return r->has_model ? !is_model(item->key) : strncmp(item->key, "optim", 5) == 0;
}

static ckpt_status add_chunks(reader *r, const ckpt_dcpv2_item *item, uint64_t rank, const ckpt_index *stored,
                              const ckpt_index *named, ckpt_error *err) {
  if (stored->n_tensors != named->n_tensors)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "a file whose tensors change with their names");
  for (uint32_t i = 0; i < stored->n_tensors; i++)
    CKPT_TRY(ckpt_dcpv2_chunks_take(&r->chunks, item, rank, &stored->tensors[i], &named->tensors[i], err));
  r->index->is_renamed = r->index->is_renamed || named->is_renamed || prefix_of(r, item, false)[0] == '\0';
  return CKPT_OK;
}

/* ---- DTensors ---------------------------------------------------------------------------------------------------- */

/* The local part of a DTensor, which is a call around it whose state is its attributes, or (attributes, slots); NULL
 * for anything else. */
static ckpt_object *local_of(const ckpt_object *node) {
  const ckpt_object *state =
      ckpt_foreign_is(node, "torch._tensor", "_rebuild_from_type_v2") ? ckpt_foreign_arg(node, 3) : NULL;
  const ckpt_object *parts[] = {state, ckpt_foreign_arg(state, 0), ckpt_foreign_arg(state, 1)};
  for (size_t i = 0; i < sizeof parts / sizeof *parts && state != NULL; i++) {
    if (parts[i] == NULL || parts[i]->kind != CKPT_OBJECT_DICT || parts[i]->n > 16) continue;
    const ckpt_object *local = ckpt_object_get(parts[i], "_local_tensor");
    if (local != NULL && local->kind == CKPT_OBJECT_TENSOR) return (ckpt_object *)(uintptr_t)local;
  }
  return NULL;
}

/* Walks all that holds tensors, once, and puts the tensors themselves where DTensors were. Marks go from one to
 * another, and back in a second walk. */
static ckpt_status walk(ckpt_object **root, unsigned from, unsigned to, ckpt_error *err) {
  ckpt_object *local = local_of(*root), **path = NULL;
  uint32_t n = 0, capacity = 0;
  ckpt_status status = CKPT_OK;
  if (local != NULL) *root = local;
  if ((*root)->kind == CKPT_OBJECT_TENSOR || (*root)->mark != from) return CKPT_OK;
  CKPT_TRY_GOTO(ckpt_grow(&path, n, &capacity, sizeof *path, err));
  (*root)->mark = to & 3;
  for (path[n++] = *root; n != 0;) {
    ckpt_object *node = path[--n];
    for (uint64_t i = 0; i < ckpt_object_n_children(node); i++) {
      local = node->items[i] == NULL ? NULL : local_of(node->items[i]);
      if (local != NULL) node->items[i] = local;
      ckpt_object *child = node->items[i];
      if (child == NULL || child->kind == CKPT_OBJECT_TENSOR || child->mark != from) continue;
      child->mark = to & 3;
      CKPT_TRY_GOTO(ckpt_grow(&path, n, &capacity, sizeof *path, err));
      path[n++] = child;
    }
  }
done:
  free(path);
  return status;
}

static ckpt_status unwrap(ckpt_object **root, ckpt_error *err) {
  CKPT_TRY(walk(root, TORCH_HOLDS, TORCH_ON_PATH, err));
  return walk(root, TORCH_ON_PATH, TORCH_HOLDS, err);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* What an archive holds as an index of its own, under the names of its paths or its own. */
static ckpt_status read_archive(reader *r, const ckpt_dcpv2_item *item, uint32_t file, bool is_stored,
                                ckpt_torch_graph *graph, ckpt_arena *nodes, ckpt_index **out, ckpt_error *err) {
  ckpt_source *source = r->index->source;
  ckpt_pickle_report report;
  *graph = (ckpt_torch_graph){.role = is_state(r, item) ? CKPT_ROLE_OTHER : CKPT_ROLE_PARAMETER};
  CKPT_TRY(ckpt_index_new(out, NULL, ckpt_source_path(source, file), "torch", NULL, err));
  ckpt_torch_arena_init(nodes, r->index);
  CKPT_TRY(ckpt_torch_archive_read(graph, source, file, 0, ckpt_source_size(source, file), nodes, &report, err));
  CKPT_TRY(unwrap(&graph->root, err));
  if (is_stored) CKPT_TRY(ckpt_torch_globals_add(&r->globals, &report, &r->index->arena, err));
  return ckpt_torch_graph_add(graph, *out, prefix_of(r, item, is_stored), is_stored, err);
}

/* Keeps the object of an item's first file; the nodes then are the index's. */
static ckpt_status keep_object(reader *r, const ckpt_dcpv2_item *item, ckpt_torch_graph *graph, ckpt_arena *nodes,
                               uint32_t first_id, ckpt_error *err) {
  CKPT_TRY(ckpt_grow(&r->objects, r->n_objects, &r->object_capacity, sizeof *r->objects, err));
  r->objects[r->n_objects++] = (kept_object){item, *graph, first_id};
  *graph = (ckpt_torch_graph){.root = NULL};
  ckpt_arena_adopt(&r->index->arena, nodes);
  return CKPT_OK;
}

/* Carries what is not read, of the first file of an item. */
static ckpt_status carry_unread(reader *r, const ckpt_index *named, ckpt_error *err) {
  for (uint32_t i = 0; i < named->n_unread; i++)
    CKPT_TRY(ckpt_index_add_unread(r->index, named->unread[i].name, named->unread[i].role, named->unread[i].why, err));
  for (uint32_t i = 0; i < named->n_notes; i++) {
    if (named->notes[i].kind != CKPT_NOTE_UNREAD) continue;
    CKPT_TRY(ckpt_index_note(r->index, false, err, "%s", named->notes[i].text));
    CKPT_TRY(ckpt_index_note_is(r->index, CKPT_NOTE_UNREAD, NULL, err));
  }
  return CKPT_OK;
}

static ckpt_status read_torch(reader *r, const ckpt_dcpv2_item *item, uint64_t rank, uint32_t file, bool is_first,
                              ckpt_error *err) {
  ckpt_index *stored = NULL, *named = NULL;
  ckpt_torch_graph graph = {.root = NULL}, again = {.root = NULL};
  ckpt_arena nodes = {0}, more = {0};
  const uint32_t first_id = r->chunks.n;
  ckpt_status status;
  CKPT_TRY_GOTO(read_archive(r, item, file, true, &graph, &nodes, &stored, err));
  CKPT_TRY_GOTO(read_archive(r, item, file, r->options->stored_names, &again, &more, &named, err));
  CKPT_TRY_GOTO(add_chunks(r, item, rank, stored, named, err));
  if (is_first) CKPT_TRY_GOTO(carry_unread(r, named, err));
  if (is_first) status = keep_object(r, item, &again, &more, first_id, err);
done:
  ckpt_index_free(stored);
  ckpt_index_free(named);
  ckpt_torch_graph_free(&graph);
  ckpt_torch_graph_free(&again);
  ckpt_arena_free(&nodes);
  ckpt_arena_free(&more);
  return status;
}

/* Names in safetensors are paths below the item's. */
static ckpt_status read_safetensors(reader *r, const ckpt_dcpv2_item *item, uint64_t rank, uint32_t file,
                                    ckpt_error *err) {
  ckpt_index *held = NULL;
  CKPT_TRY(ckpt_safetensors_read_alone(&held, r->index->source, file, 0, &r->index->defects, err));
  const char *prefix = prefix_of(r, item, r->options->stored_names);
  ckpt_status status;
  for (uint32_t i = 0; i < held->n_tensors; i++) {
    ckpt_tensor stored = held->tensors[i], named = held->tensors[i];
    stored.name = ckpt_arena_printf(&held->arena, "%s.%s", item->key, held->tensors[i].name);
    if (prefix[0] != '\0') named.name = stored.name;
    status = stored.name == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : CKPT_OK;
    if (is_state(r, item)) named.role = (uint8_t)ckpt_role_of_name(named.name);
    if (is_state(r, item) && named.role == CKPT_ROLE_PARAMETER) named.role = CKPT_ROLE_OTHER;
    if (status == CKPT_OK) status = ckpt_dcpv2_chunks_take(&r->chunks, item, rank, &stored, &named, err);
    if (status != CKPT_OK) goto done;
  }
  r->index->is_renamed = r->index->is_renamed || prefix[0] == '\0';
  status = CKPT_OK;
done:
  ckpt_index_free(held);
  return status;
}

/* A file belongs to one rank and one item. */
static ckpt_status take_file(reader *r, uint32_t file, ckpt_error *err) {
  while (file >= r->n_taken) {
    CKPT_TRY(ckpt_grow(&r->is_taken, r->n_taken, &r->taken_capacity, sizeof *r->is_taken, err));
    r->is_taken[r->n_taken++] = 0;
  }
  if (r->is_taken[file])
    return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(r->index->source, file), NULL,
                     "two ranks or items of the metadata have this file");
  r->is_taken[file] = 1;
  return CKPT_OK;
}

/* The file of a rank: where its layout says, else where torch_checkpointing puts it. *kind is what is in it. */
static ckpt_status find_file(reader *r, const ckpt_dcpv2_item *item, uint64_t rank, const ckpt_object *layout,
                             const char **path, const char **kind, ckpt_error *err) {
  *kind = "TorchSerialization";
  if (layout == NULL || layout->kind == CKPT_OBJECT_NONE) {
    snprintf(r->usual, sizeof r->usual, "%s_%llu.pt", item->key, (ull)rank);
    *path = r->usual;
    return CKPT_OK;
  }
  const ckpt_object *named = ckpt_object_field(layout, "file_path");
  const ckpt_object *type = ckpt_object_field(ckpt_object_field(layout, "serialization_format"), "type");
  if (named == NULL || named->kind != CKPT_OBJECT_TEXT || type == NULL || type->kind != CKPT_OBJECT_TEXT)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, item->key, "its metadata says no file and format of rank %llu",
                     (ull)rank);
  *path = named->text;
  *kind = type->text;
  return CKPT_OK;
}

static ckpt_status read_rank(reader *r, const ckpt_dcpv2_item *item, uint64_t rank, const ckpt_object *layout,
                             bool *is_first, ckpt_error *err) {
  const char *path = NULL, *kind = NULL;
  uint32_t file;
  uint64_t n_bytes;
  ckpt_error why = {0};
  CKPT_TRY(find_file(r, item, rank, layout, &path, &kind, err));
  bool is_tensors = strcmp(kind, "SafetensorsSerialization") == 0;
  if (!is_tensors && strcmp(kind, "TorchSerialization") != 0) {
    if (r->n_others++ == 0) r->other = path;
    return CKPT_OK;
  }
  ckpt_status status = ckpt_source_add(r->index->source, path, &file, &n_bytes, &why);
  if (status == CKPT_ENOTFOUND) {
    if (r->n_missing++ == 0) CKPT_TRY_ALLOC(r->missing = ckpt_arena_copy(&r->metadata.arena, path), err);
    return CKPT_OK;
  }
  if (status != CKPT_OK && err != NULL) *err = why;
  CKPT_TRY(status);
  CKPT_TRY(take_file(r, file, err));
  r->n_files++;
  status = is_tensors ? read_safetensors(r, item, rank, file, err) : read_torch(r, item, rank, file, *is_first, err);
  *is_first = false;
  return ckpt_fail_at(status, err, ckpt_source_path(r->index->source, file), NULL);
}

static ckpt_status read_item(reader *r, const ckpt_dcpv2_item *item, ckpt_error *err) {
  const uint64_t n_before = r->index->defects.n;
  bool is_first = true;
  ckpt_error defect = {0};
  for (uint64_t i = 0; i < item->files->n; i++) {
    const ckpt_object *rank = item->files->items[2 * i];
    if (rank->kind != CKPT_OBJECT_INT || rank->integer < 0)
      return ckpt_fail(err, CKPT_EFORMAT, NULL, item->key, "the metadata's ranks are no numbers");
    ckpt_status status = read_rank(r, item, (uint64_t)rank->integer, item->files->items[2 * i + 1], &is_first, &defect);
    CKPT_TRY(ckpt_defects_pass(&r->index->defects, status, &defect, err));
  }
  if (r->index->defects.n != n_before) return CKPT_OK; /* what that leaves holes in is told of */
  for (uint32_t i = 0; i < item->n; i++)
    if (item->places[i].used == NULL && r->n_missing != 0)
      return ckpt_fail(err, CKPT_ENOTFOUND, NULL, item->places[i].name,
                       "in none of the files that are there: %llu are missing, first %s (copy them, or save again)",
                       (ull)r->n_missing, r->missing);
    else if (item->places[i].used == NULL && r->n_others == 0)
      return ckpt_fail(err, CKPT_EFORMAT, NULL, item->places[i].name, "it is in none of its files");
  return CKPT_OK;
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

/* The dict of items, with tensors of the index as its leaves. */
static ckpt_status set_objects(reader *r, ckpt_error *err) {
  ckpt_object *groups = NULL;
  if (r->n_objects == 0) return CKPT_OK;
  ckpt_object *root = ckpt_object_new(&r->index->arena, CKPT_OBJECT_DICT, r->n_objects, NULL);
  CKPT_TRY_ALLOC(root, err);
  for (uint32_t i = 0; i < r->n_objects; i++) {
    kept_object *kept = &r->objects[i];
    ckpt_torch_graph *graph = &kept->graph;
    for (uint32_t k = 0; k < graph->n_leaves; k++) {
      ckpt_object *leaf = graph->leaves[k].node;
      if (leaf->kind == CKPT_OBJECT_TENSOR) leaf->tensor = r->chunks.numbers[kept->first_id + leaf->tensor];
    }
    root->items[2 * i] = ckpt_object_text(&r->index->arena, kept->item->key, strlen(kept->item->key));
    root->items[2 * i + 1] = graph->root;
    CKPT_TRY_ALLOC(root->items[2 * i], err);
    if (groups == NULL) CKPT_TRY(ckpt_torch_groups_of(&groups, graph->optimizer, &r->index->arena, err));
  }
  return ckpt_torch_state_set(r->index, root, root, groups, err);
}

/* ---- the row ----------------------------------------------------------------------------------------------------- */

/* Files beside those of the metadata: items that it does not place, of which each rank has its own. */
static ckpt_status note_files(reader *r, const ckpt_probe *p, ckpt_error *err) {
  const char *first = NULL;
  uint64_t n = 0;
  for (size_t i = 0; i < p->n_entries; i++) {
    const char *name = p->entries[i].name, *suffix = strrchr(name, '.');
    uint32_t file;
    uint64_t n_bytes;
    if (p->entries[i].is_folder || suffix == NULL || strcmp(suffix, ".pt") != 0) continue;
    CKPT_TRY(ckpt_source_add(r->index->source, name, &file, &n_bytes, err));
    if (file < r->n_taken && r->is_taken[file]) continue;
    if (n++ == 0) first = name;
  }
  if (n != 0)
    CKPT_TRY(ckpt_index_note(r->index, false, err,
                             "not read: %llu file%s of items that the metadata does not place (%s%s)", (ull)n,
                             ckpt_plural(n), first, n > 1 ? ", ..." : ""));
  if (r->n_others != 0)
    CKPT_TRY(ckpt_index_note(r->index, false, err, "not read: %llu file%s (%s%s)", (ull)r->n_others,
                             r->n_others == 1 ? " that is no tensor" : "s that are no tensors", r->other,
                             r->n_others > 1 ? ", ..." : ""));
  if (r->n_missing == 0) return CKPT_OK;
  return ckpt_index_note(r->index, true, err, "%llu file%s of ranks %s missing (%s%s)", (ull)r->n_missing,
                         ckpt_plural(r->n_missing), r->n_missing == 1 ? "is" : "are", r->missing,
                         r->n_missing > 1 ? ", ..." : "");
}

static ckpt_status read_all(reader *r, const ckpt_probe *p, ckpt_error *err) {
  ckpt_index *index = r->index;
  ckpt_pickle_report report;
  uint32_t file;
  uint64_t n_bytes;
  CKPT_TRY(ckpt_source_add(index->source, CKPT_DCPV2_METADATA, &file, &n_bytes, err));
  CKPT_TRY(ckpt_dcpv2_metadata_read(&r->metadata, index->source, file, &report, err));
  CKPT_TRY(ckpt_torch_globals_add(&r->globals, &report, &index->arena, err));
  CKPT_TRY(take_file(r, file, err));
  if (index->defects.report != NULL) index->defects.path = ckpt_source_path(index->source, file);
  for (uint32_t i = 0; i < r->metadata.n; i++) r->has_model = r->has_model || is_model(r->metadata.items[i].key);
  for (uint32_t i = 0; i < r->metadata.n; i++) {
    ckpt_error defect = {0};
    CKPT_TRY(ckpt_defects_pass(&index->defects, read_item(r, &r->metadata.items[i], &defect), &defect, err));
  }
  CKPT_TRY(ckpt_dcpv2_chunks_add(&r->chunks, err));
  CKPT_TRY(set_objects(r, err));
  CKPT_TRY(note_files(r, p, err));
  CKPT_TRY(ckpt_torch_globals_note(&r->globals, index, err));
  index->writer = ckpt_arena_printf(&index->arena, "torch_checkpointing (DCPv2, %llu file%s)", (ull)r->n_files,
                                    ckpt_plural(r->n_files));
  CKPT_TRY_ALLOC(index->writer, err);
  return CKPT_OK;
}

static ckpt_status read_index(ckpt_index *index, const ckpt_probe *p, const char *name,
                              const ckpt_open_options *options, ckpt_error *err) {
  (void)name;
  reader *r = calloc(1, sizeof *r);
  CKPT_TRY_ALLOC(r, err);
  r->index = r->chunks.index = index;
  r->chunks.metadata = &r->metadata;
  r->options = options;
  ckpt_torch_arena_init(&r->metadata.arena, index);
  ckpt_status status;
  CKPT_TRY_GOTO(read_all(r, p, err));
  CKPT_TRY_GOTO(ckpt_side_files_read(index, err));
  CKPT_TRY_GOTO(ckpt_index_canonical_names(index, options->stored_names, options->like, err));
  for (uint32_t i = 0; i < r->n_objects; i++)
    CKPT_TRY_GOTO(ckpt_torch_graph_composites(&r->objects[i].graph, index, err));
  status = ckpt_index_finish(index, err);
done:
  for (uint32_t i = 0; i < r->n_objects; i++) ckpt_torch_graph_free(&r->objects[i].graph);
  ckpt_dcpv2_metadata_free(&r->metadata);
  ckpt_dcpv2_chunks_free(&r->chunks);
  free(r->objects);
  free(r->is_taken);
  free(r);
  return status;
}

const ckpt_format ckpt_format_dcpv2 = {
    .name = "dcpv2",
    .suffixes = "",
    .caps = {.is_folder = true,
             .aliases = true,
             .objects = true,
             .training_state = true,
             .side_files = true,
             .ranks = true,
             .max_rank = CKPT_MAX_RANK},
    .probe = probe,
    .read = read_index,
    .parts = CKPT_DCPV2_METADATA,
    .is_known = ckpt_torch_state_is_known,
};
