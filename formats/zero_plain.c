/* zero_plain.c - objects of a DeepSpeed checkpoint that is written: copies of what is plain data.
 *
 * That is what torch.load takes without a class of somebody's own: what weights-only loading takes, and, once it was
 * told of them, namespaces, numpy's arrays and Python's collections, dates and paths (torch_safe.h). Cycles are not,
 * and tensors only those that are written for their own sake. */
#include "formats/zero_write.h"
#include "libckpt/codec/torch_safe.h"
#include "libckpt/error.h"

enum { MAX_DEPTH = 200, OPEN = 1 /* in the map, where else the copy is: in work, or found not to be plain */ };

static bool is_written(const ckpt_zero_plain *p, const ckpt_object *leaf) {
  const uint32_t number = leaf->tensor < p->n_numbers ? p->numbers[leaf->tensor] : UINT32_MAX;
  return number != UINT32_MAX && p->described->tensors[number].role == CKPT_ROLE_OTHER;
}

static ckpt_status copy(ckpt_zero_plain *p, ckpt_object **out, const ckpt_object *node, int depth, ckpt_error *err);

/* Copies a node that is plain, but for what it holds. */
static ckpt_status copy_parts(ckpt_zero_plain *p, ckpt_object **out, const ckpt_object *node, uint32_t first, int depth,
                              ckpt_error *err) {
  const uint64_t n = ckpt_object_n_children(node);
  ckpt_object *made = ckpt_arena_alloc(p->arena, sizeof *made);
  CKPT_TRY_ALLOC(made, err);
  *made = *node;
  made->room = 0;
  made->mark = 0;
  if (n != 0) CKPT_TRY_ALLOC(made->items = ckpt_arena_array(p->arena, n, sizeof *made->items), err);
  for (uint64_t i = 0; i < n; i++) {
    made->items[i] = node->items[i];
    if (i < first || node->items[i] == NULL) continue;
    CKPT_TRY(copy(p, &made->items[i], node->items[i], depth + 1, err));
    if (made->items[i] == NULL) return CKPT_OK;
  }
  *out = made;
  return CKPT_OK;
}

static ckpt_status copy(ckpt_zero_plain *p, ckpt_object **out, const ckpt_object *node, int depth, ckpt_error *err) {
  const bool is_persistent = node->kind == CKPT_OBJECT_FOREIGN && node->form == CKPT_FORM_PERSISTENT;
  ckpt_torch_numpy numpy;
  ckpt_torch_collection collection;
  *out = NULL;
  if (depth == MAX_DEPTH || (node->kind == CKPT_OBJECT_TENSOR && !is_written(p, node))) return CKPT_OK;
  if (node->kind == CKPT_OBJECT_TENSOR || ckpt_torch_numpy_of(&numpy, node)) {
    *out = (ckpt_object *)(uintptr_t)node;
    return CKPT_OK;
  }
  CKPT_TRY(ckpt_torch_collection_of(&collection, node, p->arena, err));
  const bool is_known = collection.what != NULL || ckpt_torch_namespace(node) != NULL;
  if (is_persistent || (!is_known && !ckpt_torch_is_safe(node))) {
    p->refused = ckpt_torch_class(node);
    return CKPT_OK;
  }
  if (node->kind <= CKPT_OBJECT_BYTES) {
    *out = (ckpt_object *)(uintptr_t)node;
    return CKPT_OK;
  }
  uint64_t *known = ckpt_node_map_at(&p->copies, node);
  CKPT_TRY_ALLOC(known, err);
  if (*known != 0) {
    if (*known != OPEN) *out = (ckpt_object *)(uintptr_t)*known;
    return CKPT_OK;
  }
  *known = OPEN;
  const ckpt_object *from = collection.what != NULL ? collection.node : node;
  CKPT_TRY(copy_parts(p, out, from, collection.first, depth, err));
  if (*out == NULL) return CKPT_OK;
  CKPT_TRY_ALLOC(known = ckpt_node_map_at(&p->copies, node), err); /* which may have moved */
  *known = (uint64_t)(uintptr_t)*out;
  return CKPT_OK;
}

ckpt_status ckpt_zero_plain_copy(ckpt_zero_plain *p, ckpt_object **out, const ckpt_object *node, ckpt_error *err) {
  p->refused = NULL;
  return copy(p, out, node, 0, err);
}

ckpt_status ckpt_zero_plain_say(const ckpt_zero_plain *p, const char *of, const char *key, ckpt_losses *losses,
                                ckpt_error *err) {
  const char *dot = of[0] == '\0' ? "" : ".";
  if (p->refused == NULL) return ckpt_losses_add(losses, err, "%s%s%.200s (no plain data)", of, dot, key);
  return ckpt_losses_add(losses, err, "%s%s%.200s (no plain data: %.200s)", of, dot, key, p->refused);
}
