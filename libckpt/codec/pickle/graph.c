/* graph.c - nodes of the graph, containers that grow, and what reads them (pickle.h).
 *
 * A container's first children fill its array exactly, since most containers are filled once; whatever grows after that
 * has room for a power of two (`room`), so that growing is linear. Extras stand behind the children. */
#include <inttypes.h>

#include "libckpt/base/checked.h"
#include "libckpt/codec/pickle/machine.h"

ckpt_status ckpt_pickle_node(ckpt_pickle_machine *m, ckpt_object_kind kind, ckpt_object **object) {
  if (m->n_nodes >= m->limits.n_nodes)
    return ckpt_pickle_fail(m, CKPT_ELIMIT, "more than %" PRIu64 " objects", m->limits.n_nodes);
  PICKLE_TRY_ALLOC(m, *object = ckpt_pickle_alloc(m, 1, sizeof **object));
  (*object)->kind = kind;
  m->n_nodes++;
  return CKPT_OK;
}

ckpt_status ckpt_pickle_copied(ckpt_pickle_machine *m, uint64_t n_bytes) {
  m->n_copied += n_bytes;
  uint64_t allowed = 64 * (m->op_at + 64);
  if (m->n_copied <= allowed) return CKPT_OK;
  return ckpt_pickle_fail(m, CKPT_ELIMIT,
                          "copies of the same values again and again (%" PRIu64 " bytes, at most %" PRIu64 " here)",
                          m->n_copied, allowed);
}

ckpt_status ckpt_pickle_container(ckpt_pickle_machine *m, ckpt_object_kind kind, ckpt_object *const *children,
                                  uint64_t n, ckpt_object **object) {
  CKPT_TRY(ckpt_pickle_node(m, kind, object));
  (*object)->n = n;
  if (n == 0) return CKPT_OK;
  size_t n_children = (size_t)(kind == CKPT_OBJECT_DICT ? 2 * n : n);
  PICKLE_TRY_ALLOC(m, (*object)->items = ckpt_pickle_alloc(m, n_children, sizeof *children));
  memcpy((*object)->items, children, n_children * sizeof *children);
  return CKPT_OK;
}

/* Room for n more nodes in a container's array. */
static ckpt_status make_room(ckpt_pickle_machine *m, ckpt_object *object, uint64_t n) {
  uint64_t n_has = ckpt_object_n_children(object), n_wanted = n_has + n;
  if (object->room != 0 && n_wanted <= UINT64_C(1) << object->room) return CKPT_OK;
  uint64_t n_room = n_wanted;
  if (n_has != 0 && object->kind != CKPT_OBJECT_FOREIGN) {
    uint32_t room = 64 - (uint32_t)__builtin_clzll(n_wanted - 1); /* n_wanted is 2 and more */
    n_room = UINT64_C(1) << room;
    object->room = room & 0x3F;
  }
  ckpt_object **moved;
  PICKLE_TRY_ALLOC(m, moved = ckpt_pickle_alloc(m, (size_t)n_room, sizeof *moved));
  if (n_has != 0) memcpy(moved, object->items, (size_t)n_has * sizeof *moved);
  object->items = moved;
  return CKPT_OK;
}

ckpt_status ckpt_pickle_extend(ckpt_pickle_machine *m, ckpt_object *object, ckpt_object *const *children, uint64_t n) {
  if (n == 0) return CKPT_OK;
  CKPT_TRY(make_room(m, object, n));
  uint64_t n_items = object->kind == CKPT_OBJECT_DICT ? 2 * object->n : object->n;
  uint64_t n_extras = ckpt_object_n_children(object) - n_items;
  if (n_extras != 0) memmove(object->items + n_items + n, object->items + n_items, n_extras * sizeof *children);
  memcpy(object->items + n_items, children, n * sizeof *children);
  object->n += object->kind == CKPT_OBJECT_DICT ? n / 2 : n;
  return CKPT_OK;
}

ckpt_status ckpt_pickle_add_extra(ckpt_pickle_machine *m, ckpt_object *object, ckpt_object_extra extra,
                                  ckpt_object *value) {
  uint64_t n = ckpt_object_n_children(object);
  if (object->kind == CKPT_OBJECT_FOREIGN) CKPT_TRY(ckpt_pickle_copied(m, n * sizeof(ckpt_object *)));
  CKPT_TRY(make_room(m, object, 1));
  uint64_t n_above = 0;
  for (uint32_t bits = object->extras / ((uint32_t)extra * 2); bits != 0; bits >>= 1) n_above += bits & 1;
  memmove(object->items + n - n_above + 1, object->items + n - n_above, n_above * sizeof *object->items);
  object->items[n - n_above] = value;
  object->extras |= (uint32_t)extra & 0xF;
  return CKPT_OK;
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

/* Whether the name is "module.name", parted where these two are. */
static bool is_named(const ckpt_object *object, const char *module, const char *name) {
  size_t n = strlen(module);
  return object->n_module == n && strncmp(object->name, module, n) == 0 && strcmp(object->name + n + 1, name) == 0;
}

bool ckpt_foreign_is_call(const ckpt_object *object) {
  return object != NULL && object->kind == CKPT_OBJECT_FOREIGN &&
         (object->form == CKPT_FORM_CALL || object->form == CKPT_FORM_CALLED);
}

bool ckpt_foreign_is(const ckpt_object *object, const char *module, const char *name) {
  const bool is_new = object != NULL && object->kind == CKPT_OBJECT_FOREIGN && object->form == CKPT_FORM_NEW;
  return (is_new || ckpt_foreign_is_call(object)) && is_named(object, module, name);
}

bool ckpt_foreign_is_name(const ckpt_object *object, const char *module, const char *name) {
  return object != NULL && object->kind == CKPT_OBJECT_FOREIGN && object->form == CKPT_FORM_NAME &&
         is_named(object, module, name);
}

const ckpt_object *ckpt_foreign_arg(const ckpt_object *object, uint64_t i) {
  if (object == NULL || i >= object->n) return NULL;
  bool has_items =
      object->kind == CKPT_OBJECT_FOREIGN || object->kind == CKPT_OBJECT_TUPLE || object->kind == CKPT_OBJECT_LIST;
  return has_items ? object->items[i] : NULL;
}

const ckpt_object *ckpt_foreign_attribute(const ckpt_object *object, const char *name) {
  const ckpt_object *state = object == NULL ? NULL : ckpt_object_extra_of(object, CKPT_EXTRA_STATE);
  if (state == NULL || state->kind != CKPT_OBJECT_TUPLE || state->n != 2) return ckpt_object_field(state, name);
  const ckpt_object *value = ckpt_object_field(state->items[0], name);
  return value != NULL ? value : ckpt_object_field(state->items[1], name);
}

bool ckpt_foreign_u64s(const ckpt_object *object, uint64_t *values, uint32_t max, uint32_t *n) {
  if (object != NULL && object->kind == CKPT_OBJECT_FOREIGN && object->form == CKPT_FORM_CALL && object->n == 1)
    object = object->items[0];
  if (object == NULL || (object->kind != CKPT_OBJECT_TUPLE && object->kind != CKPT_OBJECT_LIST) || object->n > max)
    return false;
  for (uint64_t i = 0; i < object->n; i++) {
    const ckpt_object *item = object->items[i];
    if (item->kind != CKPT_OBJECT_INT || item->integer < 0) return false;
    values[i] = (uint64_t)item->integer;
  }
  *n = (uint32_t)object->n;
  return true;
}
