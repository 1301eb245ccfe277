/* add.c - named tensors of a torch graph into an index: extents, aliases, sparse tensors, notes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/codec/torch/read/graph.h"
#include "libckpt/codec/torch/read/record.h"

/* ---- extents ----------------------------------------------------------------------------------------------------- */

/* The one extent of a tensor, which holds nothing where it has no elements; *is_strided says its form. */
static ckpt_status make_extent(ckpt_extent *out, bool *is_strided, const ckpt_torch_tensor *tensor,
                               const ckpt_torch_storage *storage, ckpt_arena *arena, ckpt_error *err) {
  uint64_t unit_bytes = ckpt_dtype_get(tensor->dtype)->block_bytes;
  *out = storage->extent;
  out->start = out->count = 0;
  out->signs = tensor->signs;
  if (out->chain[0] == CKPT_DECODE_RAW) {
    out->offset += tensor->offset * unit_bytes;
    out->n_stored = tensor->reach * unit_bytes;
  } else {
    out->skip += tensor->offset * unit_bytes;
  }
  if (storage->is_big_endian && unit_bytes > 1) out->chain[out->chain[0] != CKPT_DECODE_RAW] = CKPT_DECODE_SWAPPED;
  *is_strided = !ckpt_is_row_major(tensor->rank, tensor->shape, tensor->strides);
  if (!*is_strided) {
    out->count = tensor->n_elements;
    return CKPT_OK;
  }
  uint64_t *box = ckpt_arena_array(arena, 3 * (size_t)tensor->rank, sizeof *box);
  CKPT_TRY_ALLOC(box, err);
  memcpy(box + tensor->rank, tensor->shape, tensor->rank * sizeof *box);
  memcpy(box + 2 * tensor->rank, tensor->strides, tensor->rank * sizeof *box);
  out->box = box;
  return CKPT_OK;
}

static ckpt_status add_tensor(ckpt_torch_graph *g, ckpt_torch_tensor *tensor, ckpt_index *index, ckpt_error *err) {
  const ckpt_torch_name *name = &g->names[tensor->first_name];
  uint64_t shape[CKPT_MAX_RANK] = {0};
  ckpt_extent extent = {0};
  bool is_strided = false;
  if (tensor->is_literal)
    extent = (ckpt_extent){.file = CKPT_FILE_LITERAL, .offset = tensor->literal, .count = 1};
  else
    CKPT_TRY(make_extent(&extent, &is_strided, tensor, &g->storages[tensor->storage], &index->arena, err));
  for (uint32_t i = 0; i < tensor->rank; i++) shape[i] = tensor->shape[i];
  if (tensor->dtype == CKPT_F4_E2M1 && __builtin_mul_overflow(shape[tensor->rank - 1], 2, &shape[tensor->rank - 1]))
    return ckpt_fail(err, CKPT_EFORMAT, index->path, name->text, "shape has more than 2^64 elements");
  CKPT_TRY(ckpt_index_add(index, name->text, strlen(name->text), tensor->dtype, tensor->rank, shape, name->role,
                          &extent, 1, &tensor->number, err));
  ckpt_tensor *added = &index->tensors[tensor->number];
  if (is_strided) added->details->extent_form = CKPT_EXTENT_STRIDED;
  if (!tensor->is_literal && g->storages[tensor->storage].n_tensors > 1)
    added->storage = g->first_storage + tensor->storage + 1;
  for (uint32_t i = name->next; i != UINT32_MAX; i = g->names[i].next)
    CKPT_TRY(ckpt_index_alias_as(index, tensor->number, g->names[i].text, g->names[i].role, err));
  return CKPT_OK;
}

/* ---- views of little ---------------------------------------------------------------------------------------------*/

/* What the tensors of a graph take to read, against what its storages hold. */
typedef struct view_budget {
  uint64_t n_stored, n_viewed, n_before; /* bytes; n_before: beyond the limit, of other graphs */
  const char *reason;                    /* why the first was refused, and so are the others */
} view_budget;

static void start_budget(view_budget *budget, const ckpt_torch_graph *g) {
  *budget = (view_budget){.n_before = g->n_expanded};
  for (uint32_t i = 0; i < g->n_storages; i++)
    if (!ckpt_add_u64(budget->n_stored, g->storages[i].n_bytes, &budget->n_stored)) budget->n_stored = UINT64_MAX;
}

/* Bytes of views beyond what is allowed, n_viewed of them in this graph. */
static uint64_t expanded(const view_budget *budget, uint64_t n_viewed) {
  uint64_t n_free = budget->n_stored < UINT64_MAX / CKPT_TORCH_VIEWS ? CKPT_TORCH_VIEWS * budget->n_stored : UINT64_MAX;
  return budget->n_before + (n_viewed > n_free ? n_viewed - n_free : 0);
}

/* Takes a tensor into account, or refuses it. A sequential decoder goes through what lies before it as well. */
static ckpt_status take_budget(view_budget *budget, ckpt_torch_graph *g, ckpt_torch_tensor *tensor, ckpt_error *err) {
  const ckpt_torch_storage *storage = &g->storages[tensor->storage];
  uint64_t n_units = tensor->n_elements, n_bytes, n_viewed, unit_bytes = ckpt_dtype_get(tensor->dtype)->block_bytes;
  if (storage->extent.chain[0] != CKPT_DECODE_RAW && !ckpt_add_u64(n_units, tensor->offset, &n_units)) return CKPT_OK;
  if (!ckpt_mul_u64(n_units, unit_bytes, &n_bytes)) return CKPT_OK; /* no tensor at all: said when it is added */
  bool fits = ckpt_add_u64(budget->n_viewed, n_bytes, &n_viewed) && expanded(budget, n_viewed) <= CKPT_TORCH_EXPANDED;
  if (fits) {
    budget->n_viewed = n_viewed;
    return CKPT_OK;
  }
  if (budget->reason == NULL)
    budget->reason = ckpt_arena_printf(g->arena,
                                       "a view of %" PRIu64 " bytes of a storage of %" PRIu64
                                       "; such views are read up to %" PRIu64 " bytes in all",
                                       n_bytes, storage->n_bytes, CKPT_TORCH_EXPANDED);
  CKPT_TRY_ALLOC(budget->reason, err);
  tensor->status = CKPT_EUNSUPPORTED;
  tensor->reason = budget->reason;
  return CKPT_OK;
}

/* ---- what is not read --------------------------------------------------------------------------------------------*/

void ckpt_torch_unread_add(ckpt_torch_unread *seen, const char *reason, const char *name) {
  uint32_t i = 0;
  while (i < seen->n_rows && strcmp(seen->rows[i].reason, reason) != 0) i++;
  if (i == CKPT_TORCH_N_REASONS) i--, seen->rows[i].reason = "of other kinds that are not read";
  if (i == seen->n_rows) {
    seen->rows[i].reason = reason;
    seen->rows[i].first = name;
    seen->n_rows++;
  }
  seen->rows[i].n++;
}

ckpt_status ckpt_torch_unread_note(const ckpt_torch_unread *seen, ckpt_index *index, ckpt_error *err) {
  for (uint32_t i = 0; i < seen->n_rows; i++) {
    char more[48] = "";
    if (seen->rows[i].n > 1) snprintf(more, sizeof more, " and %" PRIu64 " more", seen->rows[i].n - 1);
    CKPT_TRY(
        ckpt_index_note(index, false, err, "not read: %.400s%s (%s)", seen->rows[i].first, more, seen->rows[i].reason));
    CKPT_TRY(ckpt_index_note_is(index, CKPT_NOTE_UNREAD, NULL, err));
  }
  return CKPT_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Leaves get the index's numbers; calls that are not read are put back, those around others last. */
static void settle_leaves(ckpt_torch_graph *g) {
  for (uint32_t i = 0; i < g->n_leaves; i++) {
    ckpt_torch_leaf *leaf = &g->leaves[i];
    const ckpt_torch_tensor *tensor = &g->tensors[leaf->tensor];
    if (tensor->status == CKPT_OK)
      leaf->node->tensor = tensor->number;
    else
      *leaf->node = leaf->original;
  }
}

/* A dict of the model's tensors without more: there is nothing that the index has not. */
static bool is_tensors_only(const ckpt_torch_graph *g) {
  if (g->root->kind != CKPT_OBJECT_DICT || g->root->name != NULL) return false; /* OrderedDict, with _metadata */
  for (uint64_t i = 0; i < g->root->n; i++) {
    const ckpt_object *key = g->root->items[2 * i], *value = g->root->items[2 * i + 1];
    if (key->kind != CKPT_OBJECT_TEXT || value->kind != CKPT_OBJECT_TENSOR) return false;
    if (key->n == 0) return false; /* its tensor has a name all the same */
    if (value->name != NULL || (value->form & CKPT_GRAD_YES) != 0) return false; /* Parameter, subclass, gradients */
  }
  return ckpt_torch_is_model(g);
}

/* A tensor that is broken: told where all defects are asked for, and left out. */
static ckpt_status pass_tensor(const ckpt_torch_graph *g, ckpt_torch_tensor *tensor, ckpt_index *index,
                               const char *name, ckpt_error *err) {
  bool is_stored = index->source != NULL && tensor->storage < g->n_storages;
  uint32_t file = is_stored ? g->storages[tensor->storage].extent.file : 0;
  is_stored = is_stored && file < ckpt_source_count(index->source);
  ckpt_error defect = {0};
  ckpt_status status =
      ckpt_fail(&defect, tensor->status, is_stored ? ckpt_source_path(index->source, file) : index->path, name, "%s",
                tensor->reason);
  CKPT_TRY(ckpt_defects_pass(&index->defects, status, &defect, err));
  tensor->number = index->n_tensors;
  CKPT_TRY(ckpt_index_add_broken(index, name, g->names[tensor->first_name].role, file, err));
  if (index->n_tensors != tensor->number) return CKPT_OK;
  return ckpt_fail(err, tensor->status, NULL, NULL, "%s", tensor->reason); /* nor can its name be one */
}

/* Counts a tensor that is not read. */
static ckpt_status add_unread(ckpt_torch_unread *seen, const char *name, ckpt_role role, const char *why, bool is_kept,
                              ckpt_index *index, ckpt_error *err) {
  ckpt_torch_unread_add(seen, why, name);
  CKPT_TRY(ckpt_index_add_unread(index, name, role, why, err));
  index->unread[index->n_unread - 1].is_kept = is_kept;
  return CKPT_OK;
}

/* Those whose storage is one: they are called as that without `.storage`. */
static ckpt_status add_opaque(ckpt_torch_unread *seen, const ckpt_torch_graph *g, const ckpt_torch_tensor *tensor,
                              ckpt_index *index, ckpt_error *err) {
  static const char end[] = ".storage";
  for (uint32_t i = tensor->first_name; i != UINT32_MAX; i = g->names[i].next) {
    const char *name = g->names[i].text;
    const size_t n = strlen(name), n_end = sizeof end - 1;
    if (n > n_end && strcmp(name + n - n_end, end) == 0) name = ckpt_arena_text(g->arena, name, n - n_end);
    CKPT_TRY_ALLOC(name, err);
    CKPT_TRY(add_unread(seen, name, g->names[i].whole, tensor->opaque, tensor->status == CKPT_OK, index, err));
  }
  return CKPT_OK;
}

ckpt_status ckpt_torch_graph_add(ckpt_torch_graph *graph, ckpt_index *index, const char *prefix, bool stored_names,
                                 ckpt_error *err) {
  CKPT_TRY(ckpt_torch_names_find(graph, index, prefix, stored_names, err));
  return ckpt_torch_graph_add_named(graph, index, err);
}

ckpt_status ckpt_torch_graph_add_named(ckpt_torch_graph *graph, ckpt_index *index, ckpt_error *err) {
  ckpt_torch_unread seen = {.n_rows = 0};
  view_budget budget;
  start_budget(&budget, graph);
  for (uint32_t i = 0; i < graph->n_tensors; i++) {
    ckpt_torch_tensor *tensor = &graph->tensors[i];
    if (tensor->first_name == UINT32_MAX) continue; /* a copy */
    const char *name = graph->names[tensor->first_name].text;
    if (tensor->status == CKPT_OK && !tensor->is_literal) CKPT_TRY(take_budget(&budget, graph, tensor, err));
    if (tensor->opaque != NULL && graph->storages[tensor->storage].is_big_endian) tensor->status = CKPT_EUNSUPPORTED;
    if (tensor->status == CKPT_OK) CKPT_TRY(add_tensor(graph, tensor, index, err));
    if (tensor->opaque != NULL)
      CKPT_TRY(add_opaque(&seen, graph, tensor, index, err));
    else if (tensor->status == CKPT_EUNSUPPORTED) {
      CKPT_TRY(
          add_unread(&seen, name, graph->names[tensor->first_name].role, tensor->reason, tensor->is_kept, index, err));
      index->unread[index->n_unread - 1].is_unknown = tensor->is_unknown;
    } else if (tensor->status != CKPT_OK)
      CKPT_TRY(pass_tensor(graph, tensor, index, name, err));
  }
  graph->n_expanded = expanded(&budget, budget.n_viewed);
  settle_leaves(graph);
  graph->is_state_dict = is_tensors_only(graph);
  return ckpt_torch_unread_note(&seen, index, err);
}

size_t ckpt_torch_name_of(const ckpt_index *index, const ckpt_object *leaf, const char *part) {
  if (leaf == NULL || leaf->kind != CKPT_OBJECT_TENSOR) return 0;
  const char *name = index->tensors[leaf->tensor].name;
  size_t n = strlen(name), n_part = strlen(part);
  return n > n_part + 1 && name[n - n_part - 1] == '.' && strcmp(name + n - n_part, part) == 0 ? n - n_part - 1 : 0;
}

/* (layout, (indices, values, size)): values of the tensor, and where they are. */
static ckpt_status add_sparse(const ckpt_object *call, ckpt_index *index, ckpt_error *err) {
  const ckpt_object *data = ckpt_foreign_arg(call, 1);
  const ckpt_object *indices = ckpt_foreign_arg(data, 0), *values = ckpt_foreign_arg(data, 1);
  uint64_t shape[CKPT_MAX_RANK];
  uint32_t rank;
  size_t n = ckpt_torch_name_of(index, values, "values");
  if (n == 0 || indices == NULL || indices->kind != CKPT_OBJECT_TENSOR || ckpt_foreign_arg(data, 2) == NULL ||
      !ckpt_foreign_u64s(ckpt_foreign_arg(data, 2), shape, CKPT_MAX_RANK, &rank))
    return CKPT_OK;
  const ckpt_tensor *held = &index->tensors[values->tensor];
  const char *const parts[] = {index->tensors[indices->tensor].name, held->name, NULL};
  const ckpt_composite composite = {.name = ckpt_arena_text(&index->arena, held->name, n),
                                    .kind = CKPT_COMPOSITE_SPARSE_COO,
                                    .dtype = held->dtype,
                                    .rank = rank,
                                    .shape = shape,
                                    .components = parts};
  CKPT_TRY_ALLOC(composite.name, err);
  return ckpt_index_add_composite(index, &composite, err);
}

/* Integers, and for each place along an axis what to take off and what to multiply with. */
static ckpt_status add_quantized(const ckpt_object *call, ckpt_index *index, ckpt_error *err) {
  const ckpt_object *values = ckpt_foreign_arg(call, 0), *with = ckpt_foreign_arg(call, 4);
  const ckpt_object *scales = ckpt_foreign_arg(with, 1), *zero_points = ckpt_foreign_arg(with, 2);
  size_t n = ckpt_torch_name_of(index, values, "values");
  if (n == 0 || ckpt_torch_name_of(index, scales, "scales") == 0 ||
      ckpt_torch_name_of(index, zero_points, "zero_points") == 0)
    return CKPT_OK;
  const ckpt_tensor *held = &index->tensors[values->tensor];
  const char *const parts[] = {held->name, index->tensors[scales->tensor].name,
                               index->tensors[zero_points->tensor].name, NULL};
  const ckpt_composite composite = {.name = ckpt_arena_text(&index->arena, held->name, n),
                                    .kind = CKPT_COMPOSITE_QUANTIZED,
                                    .dtype = CKPT_F32,
                                    .rank = held->rank,
                                    .shape = held->shape,
                                    .components = parts};
  CKPT_TRY_ALLOC(composite.name, err);
  return ckpt_index_add_composite(index, &composite, err);
}

ckpt_status ckpt_torch_graph_composites(const ckpt_torch_graph *graph, ckpt_index *index, ckpt_error *err) {
  for (uint32_t i = 0; i < graph->n_sparse; i++)
    CKPT_TRY(ckpt_torch_is_quantized(graph->sparse[i]) ? add_quantized(graph->sparse[i], index, err)
                                                       : add_sparse(graph->sparse[i], index, err));
  return ckpt_torch_wrapped_add(graph, index, err);
}
