/* parts.c - subclasses of torch's tensors that wrap others, and say how large the whole is: DTensors and sharded
 * tensors of FSDP, of which a file may have one rank's part, and those that are made of several (torchao's).
 *
 *   _rebuild_from_type_v2(_rebuild_wrapper_subclass, DTensor, (class, dtype, size, ...), state)
 *     DTensor         (None, {"_local_tensor": tensor, "_spec": its placements, ...}), or that dict
 *     ShardedTensor   ([Shard, ...], metadata, ...), a Shard's state being {"tensor": tensor, ...} as above
 *     others          {"qdata": tensor, "scale": tensor, ...} as above */
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/codec/torch/read/graph.h"

enum { MAX_SHARDS = 8, MAX_PLACEMENTS = 16 }; /* looked at: many calls can share a list */

/* How many there are, and the first with both shapes. */
typedef struct parts {
  const char *first;
  uint64_t n;
} parts;

bool ckpt_torch_is_wrapper(const ckpt_object *node) {
  return ckpt_torch_is_from_type(node) &&
         ckpt_foreign_is_name(node->items[0], "torch._utils", "_rebuild_wrapper_subclass");
}

/* An attribute in a state: a dict, or (None, slots). */
static const ckpt_object *attribute(const ckpt_object *state, const char *key) {
  if (state != NULL && state->kind == CKPT_OBJECT_TUPLE && state->n == 2) state = state->items[1];
  return ckpt_object_field(state, key);
}

/* Whether a rank's values are to be put together with the others' first: a placement Partial() of a DTensor, or one
 * that is made of it (_MaskPartial, _NormPartial). */
static bool is_summand(const ckpt_object *state) {
  const ckpt_object *spec = attribute(state, "_spec");
  const ckpt_object *fields = spec == NULL ? NULL : ckpt_object_extra_of(spec, CKPT_EXTRA_STATE);
  const ckpt_object *placements = attribute(fields, "placements");
  if (placements == NULL || placements->kind != CKPT_OBJECT_TUPLE) return false;
  for (uint64_t i = 0; i < placements->n && i < MAX_PLACEMENTS; i++) {
    const ckpt_object *placement = placements->items[i];
    const char *end = placement->kind == CKPT_OBJECT_FOREIGN ? strstr(placement->name, "Partial") : NULL;
    if (end != NULL && strcmp(end, "Partial") == 0) return true;
  }
  return false;
}

/* One tensor that a wrapper is around, against the whole of the call's size. */
static ckpt_status compare(parts *found, const ckpt_object *leaf, const ckpt_object *size, bool is_summand,
                           ckpt_index *index, ckpt_error *err) {
  ckpt_tensor whole = {0};
  uint64_t shape[CKPT_MAX_RANK];
  uint32_t rank;
  if (leaf == NULL || leaf->kind != CKPT_OBJECT_TENSOR) return CKPT_OK;
  const ckpt_tensor *local = &index->tensors[leaf->tensor];
  if (!ckpt_foreign_u64s(size, shape, CKPT_MAX_RANK, &rank)) return CKPT_OK;
  if (local->dtype == CKPT_F4_E2M1 && rank != 0 && !ckpt_mul_u64(shape[rank - 1], 2, &shape[rank - 1])) return CKPT_OK;
  whole.rank = rank;
  whole.shape = shape;
  const bool is_part = !ckpt_tensor_same_shape(local, &whole);
  if ((!is_part && !is_summand) || found->n++ != 0) return CKPT_OK;
  char has[CKPT_SHAPE_TEXT], of[CKPT_SHAPE_TEXT];
  found->first = ckpt_arena_printf(&index->arena, "%.400s: %s of %s", local->name,
                                   is_part ? ckpt_tensor_shape_text(local, has, sizeof has) : "a summand",
                                   ckpt_tensor_shape_text(&whole, of, sizeof of));
  CKPT_TRY_ALLOC(found->first, err);
  return CKPT_OK;
}

/* What a wrapper is around, in its state. */
static ckpt_status look_into(parts *found, const ckpt_object *state, const ckpt_object *size, ckpt_index *index,
                             ckpt_error *err) {
  const bool has_shards = state->kind == CKPT_OBJECT_TUPLE && state->n > 2 && state->items[0]->kind == CKPT_OBJECT_LIST;
  const ckpt_object *shards = has_shards ? state->items[0] : NULL;
  for (uint64_t i = 0; shards != NULL && i < shards->n && i < MAX_SHARDS; i++) {
    const ckpt_object *shard = ckpt_object_extra_of(shards->items[i], CKPT_EXTRA_STATE);
    CKPT_TRY(compare(found, attribute(shard, "tensor"), size, false, index, err));
  }
  return compare(found, attribute(state, "_local_tensor"), size, is_summand(state), index, err);
}

/* ---- made of several ----------------------------------------------------------------------------------------------
 */

enum { MAX_PARTS = 16 }; /* as above */

/* Tensors among a wrapper's attributes that have names of their own, <name>.<attribute>: the name has n_name bytes of
 * the first, of a wrapper without such tensors none. That in a DTensor has the DTensor's. */
typedef struct wrapped {
  const char *parts[MAX_PARTS + 1];
  size_t n_name;
} wrapped;

static void take_wrapped(wrapped *out, const ckpt_object *call, const ckpt_index *index) {
  const ckpt_object *state = ckpt_foreign_arg(call, 3);
  uint32_t n = 0;
  *out = (wrapped){.n_name = 0};
  if (state != NULL && state->kind == CKPT_OBJECT_TUPLE && state->n == 2) state = state->items[1];
  if (state == NULL || state->kind != CKPT_OBJECT_DICT || state->n > MAX_PARTS) return;
  for (uint64_t i = 0; i < state->n; i++) {
    const ckpt_object *key = state->items[2 * i], *leaf = state->items[2 * i + 1];
    const size_t n_name = key->kind == CKPT_OBJECT_TEXT ? ckpt_torch_name_of(index, leaf, key->text) : 0;
    if (n_name == 0) continue;
    if (n == 0) out->n_name = n_name;
    out->parts[n++] = index->tensors[leaf->tensor].name;
  }
}

ckpt_status ckpt_torch_wrapped_add(const ckpt_torch_graph *graph, ckpt_index *index, ckpt_error *err) {
  for (uint32_t i = 0; i < graph->n_wrappers; i++) {
    const ckpt_object *args = ckpt_foreign_arg(graph->wrappers[i], 2), *size = ckpt_foreign_arg(args, 2);
    uint64_t shape[CKPT_MAX_RANK];
    wrapped found;
    ckpt_composite composite = {.kind = CKPT_COMPOSITE_WRAPPED, .shape = shape, .components = found.parts};
    take_wrapped(&found, graph->wrappers[i], index);
    if (found.n_name == 0 || size == NULL || !ckpt_foreign_u64s(size, shape, CKPT_MAX_RANK, &composite.rank)) continue;
    composite.dtype = ckpt_torch_dtype(ckpt_foreign_arg(args, 1));
    CKPT_TRY_ALLOC(composite.name = ckpt_arena_text(&index->arena, found.parts[0], found.n_name), err);
    CKPT_TRY(ckpt_index_add_composite(index, &composite, err));
  }
  return CKPT_OK;
}

/* Says of how many the parts are read. */
static ckpt_status note_wrapped(const ckpt_torch_graph *graph, ckpt_index *index, ckpt_error *err) {
  wrapped found, first = {.n_name = 0};
  const char *class = NULL;
  uint32_t n = 0;
  for (uint32_t i = 0; i < graph->n_wrappers; i++) {
    take_wrapped(&found, graph->wrappers[i], index);
    const ckpt_object *type = ckpt_foreign_arg(graph->wrappers[i], 1);
    if (found.n_name == 0 || type == NULL || type->kind != CKPT_OBJECT_FOREIGN || n++ != 0) continue;
    first = found;
    class = type->name;
  }
  if (n == 0) return CKPT_OK;
  return ckpt_index_note(
      index, false, err, "holds the parts of %" PRIu32 " tensor%s that a subclass wraps (%s%.*s: %.200s)", n,
      ckpt_plural(n), n == 1 ? "" : "first ", first.n_name > 400 ? 400 : (int)first.n_name, first.parts[0], class);
}

/* ---- of one rank --------------------------------------------------------------------------------------------------
 */

ckpt_status ckpt_torch_parts_note(const ckpt_torch_graph *graph, ckpt_index *index, uint32_t file, ckpt_error *err) {
  parts found = {0};
  for (uint32_t i = 0; i < graph->n_wrappers; i++) {
    const ckpt_object *call = graph->wrappers[i], *state = ckpt_foreign_arg(call, 3);
    const ckpt_object *size = ckpt_foreign_arg(ckpt_foreign_arg(call, 2), 2);
    if (size != NULL && state != NULL) CKPT_TRY(look_into(&found, state, size, index, err));
  }
  CKPT_TRY(note_wrapped(graph, index, err));
  if (found.n == 0) return CKPT_OK;
  const char *said = ckpt_arena_printf(&index->arena, "holds one rank's part of %" PRIu64 " tensor%s (%s%s)", found.n,
                                       ckpt_plural(found.n), found.n == 1 ? "" : "first ", found.first);
  CKPT_TRY_ALLOC(said, err);
  if (index->part == NULL) index->part = said;
  return ckpt_index_problem(index, file, err, "%s", said);
}
