/* file.c - the torch files of a ZeRO checkpoint: opening them, and what lies in their objects.
 *
 * A file is opened as an index of its own, which proves that its tensors lie in their storages; what is taken from it
 * are extents, and the graph of its object. */
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/pickle/pickle.h"

static ckpt_status read_file(ckpt_zero_file *file, ckpt_zero *zero, ckpt_error *err) {
  ckpt_source *source = zero->index->source;
  ckpt_pickle_report report;
  file->graph.n_expanded = zero->n_expanded;
  CKPT_TRY(ckpt_torch_any_read(&file->graph, source, file->number, &file->nodes, &report, err));
  if (zero->checks_names) CKPT_TRY(ckpt_zero_check_name(file->path, file->graph.archive, err));
  file->n_pickled = report.n_consumed;
  CKPT_TRY(ckpt_torch_globals_add(&zero->globals, &report, &zero->index->arena, err));
  CKPT_TRY(ckpt_torch_graph_add(&file->graph, file->held, "", true, err));
  zero->n_expanded = file->graph.n_expanded;
  if (zero->is_universal || file->graph.root->kind == CKPT_OBJECT_DICT) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "its object is no dict: DeepSpeed did not write it");
}

ckpt_status ckpt_zero_open(ckpt_zero_file *file, ckpt_zero *zero, const char *path, ckpt_error *err) {
  uint64_t size;
  *file = (ckpt_zero_file){.path = path};
  CKPT_TRY(ckpt_source_add(zero->index->source, path, &file->number, &size, err));
  file->path = ckpt_source_path(zero->index->source, file->number);
  CKPT_TRY(ckpt_index_new(&file->held, NULL, file->path, "torch", NULL, err));
  ckpt_torch_arena_init(&file->nodes, zero->index);
  return ckpt_fail_at(read_file(file, zero, err), err, file->path, NULL);
}

void ckpt_zero_close(ckpt_zero_file *file) {
  ckpt_index_free(file->held);
  ckpt_torch_graph_free(&file->graph);
  ckpt_arena_free(&file->nodes);
  *file = (ckpt_zero_file){0};
}

void ckpt_zero_keep(ckpt_zero_file *file, ckpt_zero *zero, const uint32_t *numbers) {
  for (uint32_t i = 0; i < file->graph.n_leaves; i++) {
    ckpt_object *leaf = file->graph.leaves[i].node;
    if (leaf->kind != CKPT_OBJECT_TENSOR) continue;
    leaf->tensor = numbers == NULL ? UINT32_MAX : numbers[leaf->tensor];
    if (leaf->tensor == UINT32_MAX) *leaf = (ckpt_object){.kind = CKPT_OBJECT_NONE};
  }
  file->graph.n_leaves = 0;
  ckpt_arena_adopt(&zero->index->arena, &file->nodes);
}

const ckpt_tensor *ckpt_zero_tensor(const ckpt_zero_file *file, const ckpt_object *node) {
  return node == NULL || node->kind != CKPT_OBJECT_TENSOR ? NULL : &file->held->tensors[node->tensor];
}

ckpt_status ckpt_zero_flat_of(const ckpt_zero_file *file, const ckpt_object *node, const char *what,
                              ckpt_extent *extent, uint64_t *n, uint8_t *dtype, ckpt_error *err) {
  const ckpt_tensor *tensor = ckpt_zero_tensor(file, node);
  if (tensor == NULL) return ckpt_fail(err, CKPT_EFORMAT, file->path, NULL, "%s is no tensor", what);
  if (tensor->details->extent_form != CKPT_EXTENT_FLAT ||
      ckpt_dtype_get((ckpt_dtype)tensor->dtype)->block_elements != 1)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, file->path, NULL, "%s is no row of elements", what);
  *extent = tensor->n_extents == 0 ? (ckpt_extent){.file = CKPT_FILE_LITERAL} : tensor->extents[0];
  *n = tensor->n_elements;
  *dtype = tensor->dtype;
  return CKPT_OK;
}

ckpt_extent ckpt_zero_part(const ckpt_extent *flat, ckpt_dtype dtype, uint64_t at, uint64_t count, uint64_t start) {
  uint64_t unit_bytes = ckpt_dtype_get(dtype)->block_bytes;
  ckpt_extent part = *flat;
  bool is_random =
      flat->chain[1] == CKPT_DECODE_RAW && (flat->chain[0] == CKPT_DECODE_RAW || flat->chain[0] == CKPT_DECODE_SWAPPED);
  if (is_random) {
    part.offset += at * unit_bytes;
    part.n_stored = count * unit_bytes;
  } else {
    part.skip += at * unit_bytes;
  }
  part.start = start;
  part.count = count;
  return part;
}

ckpt_status ckpt_zero_copy(ckpt_zero *zero, const ckpt_zero_file *file, uint32_t held, const char *name, ckpt_role role,
                           uint32_t *number, ckpt_error *err) {
  const ckpt_tensor *tensor = &file->held->tensors[held];
  ckpt_index *index = zero->index;
  ckpt_extent extent = {0};
  if (tensor->n_extents != 0) extent = tensor->extents[0];
  if (tensor->details->extent_form != CKPT_EXTENT_FLAT && tensor->n_extents != 0) {
    uint64_t *box = ckpt_arena_array(&index->arena, 3 * (size_t)tensor->rank, sizeof *box);
    CKPT_TRY_ALLOC(box, err);
    memcpy(box, extent.box, 3 * (size_t)tensor->rank * sizeof *box);
    extent.box = box;
  }
  uint32_t added;
  CKPT_TRY(ckpt_index_add(index, name, strlen(name), (ckpt_dtype)tensor->dtype, tensor->rank, tensor->shape, role,
                          &extent, tensor->n_extents, &added, err));
  index->tensors[added].details->extent_form = tensor->details->extent_form;
  if (number != NULL) *number = added;
  return CKPT_OK;
}

int64_t ckpt_zero_number(const ckpt_object *node) {
  if (node != NULL && node->kind == CKPT_OBJECT_FOREIGN && node->form == CKPT_FORM_CALL && node->n == 1)
    node = node->items[0];
  return node == NULL || node->kind != CKPT_OBJECT_INT || node->integer < 0 ? -1 : node->integer;
}
