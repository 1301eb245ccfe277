/* objects.c - what a checkpoint holds besides tensors: its items of bytes.
 *
 * An item is a torch.save archive in a slice of a file, or that behind zstd; tensors in it are the index's, named by
 * the item and their place in it. dict.c puts items and tensors back into the dict that was saved. */
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/dict.h"
#include "formats/dcp/objects.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/crc32.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/codec/torch/state/groups.h"
#include "libckpt/codec/torch/state/state.h"
#include "libckpt/extents/decode.h"
#include "libckpt/io/records.h"

typedef unsigned long long ull;

enum { MAX_DECODED_BYTES = 64 << 20 };

static bool has_structure(const ckpt_dcp_metadata *metadata) {
  for (size_t i = 0; i < metadata->paths.n; i++)
    if (ckpt_dcp_is_path(metadata->paths.entries[i].value) && metadata->paths.entries[i].value->n > 1) return true;
  for (uint32_t r = 0; r < metadata->n_roots; r++)
    for (uint64_t i = 0; i < metadata->roots[r].tensors->n; i++) {
      ckpt_object *const *pair = &metadata->roots[r].tensors->items[2 * i];
      if (pair[0]->n == 0 || ckpt_dcp_attribute(pair[1], "size") == NULL) return true; /* it has a name all the same */
    }
  return false;
}

void ckpt_dcp_objects_begin(ckpt_dcp_objects *objects, ckpt_index *index, const ckpt_dcp_metadata *metadata) {
  *objects = (ckpt_dcp_objects){.index = index, .is_kept = has_structure(metadata), .globals = metadata->globals};
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

/* Storages of such an archive are compared here, where all of its bytes are. */
static ckpt_status check_records(ckpt_source *source, const uint8_t *bytes, const char *name, ckpt_error *err) {
  for (uint32_t i = 0; i < ckpt_source_n_records(source); i++) {
    const ckpt_stored_record *record = ckpt_source_record_at(source, i);
    if (record->n_stored != record->n_bytes) continue; /* deflated: not read */
    const uint32_t sum = ckpt_crc32(0, bytes + record->offset, (size_t)record->n_bytes);
    if (sum != record->crc32)
      CKPT_TRY(ckpt_source_refuse_record(source, record->file, name, record->name, sum, record->crc32, record->n_bytes,
                                         err));
  }
  return CKPT_OK;
}

static ckpt_status read_zstd(ckpt_torch_graph *graph, ckpt_dcp_objects *objects, const ckpt_dcp_slice *at,
                             const char *name, ckpt_pickle_report *report, ckpt_error *err) {
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
  ckpt_source_follow(source, objects->index->source);
  CKPT_TRY_GOTO(ckpt_torch_archive_read(graph, source, 0, 0, n, arena, report, err));
  CKPT_TRY_GOTO(check_records(source, bytes, name, err));
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
  if (objects->index->defects.report != NULL) {
    CKPT_TRY(ckpt_index_problem(objects->index, at->file, err, "not read: %.200s (%.300s)", name, why->message));
    return ckpt_index_note_is(objects->index, CKPT_NOTE_UNREAD, why->message, err);
  }
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

ckpt_status ckpt_dcp_objects_read(ckpt_torch_graph *graph, ckpt_dcp_objects *objects, const ckpt_dcp_slice *at,
                                  const char *name, ckpt_error *err) {
  ckpt_index *index = objects->index;
  ckpt_pickle_report report = {0};
  ckpt_error why = {.status = CKPT_OK};
  CKPT_TRY(ckpt_dcp_slice_check(index->source, at, err));
  const ckpt_archive whole = {
      .name = name, .offset = at->offset, .n_bytes = at->n_bytes, .file = at->file, .is_zstd = at->is_zstd};
  CKPT_TRY(ckpt_index_add_archive(index, &whole, err));
  const ckpt_status read = at->is_zstd ? read_zstd(graph, objects, at, name, &report, &why)
                                       : ckpt_torch_archive_read(graph, index->source, at->file, at->offset,
                                                                 at->n_bytes, &index->arena, &report, &why);
  CKPT_TRY(ckpt_torch_globals_add(&objects->globals, &report, &index->arena, err));
  if (read != CKPT_OK) graph->root = NULL;
  if (read == CKPT_ELIMIT && at->is_zstd) { /* ours: the item is as it should be, and may hold tensors */
    CKPT_TRY(ckpt_index_note(index, false, err, "not read: %.200s (%.300s)", name, why.message));
    CKPT_TRY(ckpt_index_note_is(index, CKPT_NOTE_UNREAD, why.message, err));
    return ckpt_index_add_unread(index, name, CKPT_ROLE_OTHER, why.message, err);
  }
  if (read == CKPT_EFORMAT || read == CKPT_EUNSUPPORTED) return refuse(objects, at, name, &why, err);
  if (read != CKPT_OK) {
    if (err != NULL) *err = why;
    return read;
  }
  graph->first_storage = objects->n_storages;
  objects->n_storages += graph->n_storages;
  if (ckpt_pickle_judge_all(&report, NULL) != CKPT_PICKLE_DANGEROUS)
    index->archives[index->n_archives - 1].root = graph->root;
  return CKPT_OK;
}

ckpt_status ckpt_dcp_objects_add(ckpt_dcp_objects *objects, ckpt_torch_graph *graph, uint32_t file, ckpt_error *err) {
  graph->n_expanded = objects->n_expanded;
  CKPT_TRY(ckpt_torch_graph_add_named(graph, objects->index, err));
  CKPT_TRY(ckpt_torch_parts_note(graph, objects->index, file, err)); /* of a planner that does not flatten */
  objects->n_expanded = graph->n_expanded;
  return graph->n_sparse == 0 ? CKPT_OK : keep_graph(objects, graph, err);
}

static ckpt_status note_refused(ckpt_dcp_objects *objects, ckpt_error *err) {
  if (objects->n_refused == 0) return CKPT_OK;
  return objects->n_refused == 1 ? ckpt_index_note(objects->index, true, err, "not read: %s", objects->refused)
                                 : ckpt_index_note(objects->index, true, err, "not read: %s and %llu more",
                                                   objects->refused, (ull)objects->n_refused - 1);
}

ckpt_status ckpt_dcp_objects_set(ckpt_dcp_objects *objects, ckpt_object *root, const ckpt_object *top,
                                 const ckpt_object *optimizer, ckpt_error *err) {
  ckpt_index *index = objects->index;
  ckpt_object *groups = NULL;
  CKPT_TRY(ckpt_torch_globals_note(&objects->globals, index, err));
  CKPT_TRY(note_refused(objects, err));
  if (!objects->is_kept || root == NULL) return CKPT_OK;
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
  *objects = (ckpt_dcp_objects){0};
}
