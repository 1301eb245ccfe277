/* carry.c - items of a DCP folder that go to another one as they lie: their archives, byte for byte.
 *
 * What we would not print again, an object of a class that we do not model (a path, a date, a named tuple), and tuples
 * and namespaces that hold tensors, which torch keeps in one item. Nothing in them is executed, and nothing that is
 * dangerous is carried. Among the pairs such an item is a persistent id: the number of the description's archive. */
#include <string.h>

#include "formats/dcp/write.h"
#include "libckpt/base/error.h"

enum { MAX_DEPTH = 64 };

ckpt_status ckpt_dcp_carried_find(ckpt_node_map *roots, const ckpt_index *from, ckpt_error *err) {
  for (uint32_t i = 0; from != NULL && i < from->n_archives; i++) {
    if (from->archives[i].root == NULL) continue;
    uint64_t *number = ckpt_node_map_at(roots, from->archives[i].root);
    CKPT_TRY_ALLOC(number, err);
    *number = (uint64_t)i + 1;
  }
  return CKPT_OK;
}

/* Whether the tensors in a value are all written as they are stored; *of, by their numbers, becomes what has them. */
static bool keeps_tensors(ckpt_dcp_flattener *f, const ckpt_object *value, uint32_t depth, uint8_t *of) {
  const uint64_t n = ckpt_object_n_children(value);
  if (value->kind == CKPT_OBJECT_TENSOR) {
    const uint32_t number = f->numbers != NULL && value->tensor < f->n_numbers ? f->numbers[value->tensor] : UINT32_MAX;
    if (number == UINT32_MAX) return false;
    const ckpt_tensor *was = &f->described->objects_of->tensors[value->tensor], *is = &f->described->tensors[number];
    if (of != NULL) of[number] = 1;
    return was->dtype == is->dtype && strcmp(was->name, is->name) == 0;
  }
  if (depth == MAX_DEPTH || (f->n_steps += 1 + n) > CKPT_DCP_MAX_STEPS) return false;
  for (uint64_t i = 0; i < n; i++)
    if (!keeps_tensors(f, value->items[i], depth + 1, of)) return false;
  return true;
}

ckpt_status ckpt_dcp_carry(ckpt_dcp_flattener *f, const ckpt_object **value, ckpt_error *err) {
  const ckpt_index *from = f->described->objects_of;
  const uint64_t *number = f->roots == NULL ? NULL : ckpt_node_map_at(f->roots, *value);
  if (number == NULL || *number == 0 || !keeps_tensors(f, *value, 0, NULL)) return CKPT_OK;
  ckpt_archive archive = from->archives[*number - 1];
  ckpt_arena *arena = &f->described->arena;
  archive.source = from->source;
  ckpt_object *carried = ckpt_object_new(arena, CKPT_OBJECT_FOREIGN, 1, CKPT_PERSISTENT_ID);
  CKPT_TRY_ALLOC(carried, err);
  carried->form = CKPT_FORM_PERSISTENT;
  CKPT_TRY_ALLOC(carried->items[0] = ckpt_object_int(arena, f->described->n_archives), err);
  CKPT_TRY(ckpt_index_add_archive(f->described, &archive, err));
  (void)keeps_tensors(f, *value, 0, f->is_carried);
  *value = carried;
  return CKPT_OK;
}

const ckpt_archive *ckpt_dcp_carried(const ckpt_index *described, const ckpt_object *value) {
  if (value->kind != CKPT_OBJECT_FOREIGN || value->form != CKPT_FORM_PERSISTENT) return NULL;
  return &described->archives[value->items[0]->integer];
}

void ckpt_dcp_print_carried(const ckpt_layout *layout, const void *archive, ckpt_stream *out) {
  const ckpt_archive *a = archive;
  (void)layout;
  ckpt_stream_range(out, a->source, a->file, a->offset, a->n_bytes);
}
