/* call.c - names of classes and callables, and what is done with them: data, never an action.
 *
 * A call becomes a node with the callable's name and arguments. The few calls that describe plain data whatever the
 * environment (an OrderedDict, a set, protocol 2's bytes) become that data; `models` is the whole list. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "libckpt/codec/pickle/machine.h"

/* ---- names -------------------------------------------------------------------------------------------------- */

/* Makes what the call describes, if it is plain data; leaves *object NULL otherwise. */
typedef ckpt_status model_fn(ckpt_pickle_machine *m, const ckpt_object *callable, const ckpt_object *args,
                             ckpt_object **object);
static model_fn model_ordered_dict, model_set, model_bytes, model_bytearray, model_encode, model_reconstructor,
    model_getattr;

static const struct model {
  const char *name;
  uint32_t n_module;
  model_fn *make;
} models[] = {
    {"collections.OrderedDict", 11, model_ordered_dict},
    {"_codecs.encode", 7, model_encode},
    {"builtins.set", 8, model_set},
    {"__builtin__.set", 11, model_set},
    {"builtins.frozenset", 8, model_set},
    {"__builtin__.frozenset", 11, model_set},
    {"builtins.bytes", 8, model_bytes},
    {"__builtin__.bytes", 11, model_bytes},
    {"builtins.bytearray", 8, model_bytearray},
    {"__builtin__.bytearray", 11, model_bytearray},
    {"copyreg._reconstructor", 7, model_reconstructor},
    {"copy_reg._reconstructor", 8, model_reconstructor},
    {"builtins.getattr", 8, model_getattr},
    {"__builtin__.getattr", 11, model_getattr},
};

/* The slot of a name; where it has none yet, a free one. */
static uint32_t *slot_of(const ckpt_pickle_machine *m, const char *name, uint32_t n_module) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
  for (const char *c = name; *c != '\0'; c++) hash = (hash ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
  for (uint32_t at = (uint32_t)(hash ^ hash >> 32);; at++) {
    uint32_t *slot = &m->slots[at &= m->n_slots - 1];
    if (*slot == 0) return slot;
    const ckpt_pickle_global *global = m->globals[*slot - 1];
    if (global->object->n_module == n_module && strcmp(global->name, name) == 0) return slot;
  }
}

static ckpt_status grow_slots(ckpt_pickle_machine *m) {
  if (2 * (m->n_globals + 1) <= m->n_slots) return CKPT_OK;
  uint32_t wanted = m->n_slots == 0 ? 64 : 2 * m->n_slots;
  uint32_t *slots = calloc(wanted, sizeof *slots);
  CKPT_TRY_ALLOC(slots, m->err);
  free(m->slots);
  m->slots = slots;
  m->n_slots = wanted;
  for (uint32_t i = 0; i < m->n_globals; i++) *slot_of(m, m->globals[i]->name, m->globals[i]->object->n_module) = i + 1;
  return CKPT_OK;
}

static ckpt_status add_global(ckpt_pickle_machine *m, const char *name, uint32_t n_module, ckpt_pickle_global **out) {
  if (m->n_globals >= m->limits.n_globals)
    return ckpt_pickle_fail(m, CKPT_ELIMIT, "more than %" PRIu64 " different names of classes", m->limits.n_globals);
  if (m->n_globals == m->globals_room) { /* in the arena, so that a report has them whatever happens */
    uint32_t wanted = m->globals_room == 0 ? 16 : 2 * m->globals_room;
    ckpt_pickle_global **moved = ckpt_pickle_alloc(m, wanted, sizeof *moved);
    PICKLE_TRY_ALLOC(m, moved);
    if (m->n_globals != 0) memcpy(moved, m->globals, m->n_globals * sizeof *moved);
    m->globals = moved;
    m->globals_room = wanted;
  }
  size_t n = strlen(name);
  ckpt_pickle_global *global;
  PICKLE_TRY_ALLOC(m, global = ckpt_pickle_alloc(m, sizeof *global + n + 1, 1));
  memcpy(global->name, name, n + 1);
  CKPT_TRY(ckpt_pickle_node(m, CKPT_OBJECT_FOREIGN, &global->object));
  global->object->form = CKPT_FORM_NAME;
  global->object->name = global->name;
  global->object->n_module = n_module & 0xFFFF;
  global->first = m->options.base + m->op_at;
  for (uint32_t i = 0; i < sizeof models / sizeof *models; i++)
    if (models[i].n_module == n_module && strcmp(models[i].name, name) == 0) global->model = i + 1;
  global->caller = ckpt_pickle_caller(name);
  global->row = ckpt_pickle_row(name, n_module);
  m->globals[m->n_globals++] = *out = global;
  return CKPT_OK;
}

/* Checks and appends one half of a name to joined. */
static ckpt_status append_name(ckpt_pickle_machine *m, char *joined, size_t *n_joined, const void *text, size_t n) {
  const char *what = *n_joined == 0 ? "module" : "class";
  if (n == 0) return ckpt_pickle_fail(m, CKPT_EFORMAT, "the name of a %s is empty", what);
  if (n > m->limits.n_name || *n_joined + n > m->limits.n_name)
    return ckpt_pickle_fail(m, CKPT_ELIMIT, "the name of a %s has %zu bytes, at most %" PRIu64, what, *n_joined + n,
                            m->limits.n_name);
  m->report->is_refused = ckpt_pickle_utf8(text, n) != n;
  if (m->report->is_refused || memchr(text, '\0', n) != NULL)
    return ckpt_pickle_fail(m, CKPT_EFORMAT, "the name of a %s is no text", what);
  memcpy(joined + *n_joined, text, n);
  *n_joined += n;
  joined[*n_joined] = '\0';
  return CKPT_OK;
}

/* The global of a joined name, which this opcode names. */
static ckpt_status intern(ckpt_pickle_machine *m, const char *name, size_t n_module, ckpt_pickle_global **out) {
  CKPT_TRY(grow_slots(m));
  uint32_t *slot = slot_of(m, name, (uint32_t)n_module);
  if (*slot == 0) {
    CKPT_TRY(add_global(m, name, (uint32_t)n_module, out));
    *slot = m->n_globals;
  }
  *out = m->globals[*slot - 1];
  (*out)->n_named++;
  return CKPT_OK;
}

/* The name of GLOBAL and INST: two lines. */
static ckpt_status take_name(ckpt_pickle_machine *m, ckpt_pickle_global **global) {
  char joined[PICKLE_MAX_NAME + 2];
  const uint8_t *line;
  size_t n, n_joined = 0, n_module;
  CKPT_TRY(ckpt_pickle_line(m, &line, &n));
  CKPT_TRY(append_name(m, joined, &n_joined, line, n));
  n_module = n_joined;
  joined[n_joined++] = '.';
  CKPT_TRY(ckpt_pickle_line(m, &line, &n));
  CKPT_TRY(append_name(m, joined, &n_joined, line, n));
  return intern(m, joined, n_module, global);
}

ckpt_status ckpt_pickle_do_global(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  ckpt_pickle_global *global;
  CKPT_TRY(take_name(m, &global));
  return ckpt_pickle_push(m, global->object);
}

ckpt_status ckpt_pickle_do_stack_global(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  char joined[PICKLE_MAX_NAME + 2];
  size_t n_joined = 0, n_module;
  ckpt_object **values;
  CKPT_TRY(ckpt_pickle_pop(m, 2, &values));
  if (values[0]->kind != CKPT_OBJECT_TEXT || values[1]->kind != CKPT_OBJECT_TEXT)
    return ckpt_pickle_fail(m, CKPT_EFORMAT, "STACK_GLOBAL of values that are no text");
  CKPT_TRY(append_name(m, joined, &n_joined, values[0]->text, (size_t)values[0]->n));
  n_module = n_joined;
  joined[n_joined++] = '.';
  CKPT_TRY(append_name(m, joined, &n_joined, values[1]->text, (size_t)values[1]->n));
  ckpt_pickle_global *global;
  CKPT_TRY(intern(m, joined, n_module, &global));
  return ckpt_pickle_push(m, global->object);
}

ckpt_status ckpt_pickle_do_extension(ckpt_pickle_machine *m, uint64_t operand) {
  char name[64];
  ckpt_pickle_global *global;
  if ((int64_t)operand <= 0) return ckpt_pickle_fail(m, CKPT_EFORMAT, "extension code %" PRId64, (int64_t)operand);
  snprintf(name, sizeof name, CKPT_PICKLE_EXTENSION ".%" PRIu64, operand);
  CKPT_TRY(intern(m, name, strlen(CKPT_PICKLE_EXTENSION), &global));
  return ckpt_pickle_push(m, global->object);
}

void ckpt_pickle_names_free(ckpt_pickle_machine *m) { free(m->slots); }

ckpt_pickle_global *ckpt_pickle_global_of(const ckpt_object *object) {
  bool has_one = object->kind == CKPT_OBJECT_FOREIGN ? object->form <= CKPT_FORM_NAME
                                                     : object->kind == CKPT_OBJECT_DICT && object->name != NULL;
  return has_one ? (ckpt_pickle_global *)(uintptr_t)(object->name - offsetof(ckpt_pickle_global, name)) : NULL;
}

void ckpt_pickle_copy_name(const ckpt_object *name) {
  if (name->kind == CKPT_OBJECT_FOREIGN && name->form == CKPT_FORM_NAME) ckpt_pickle_global_of(name)->n_copied++;
}

/* ---- calls that are data ------------------------------------------------------------------------------------ */

static bool is_sequence(const ckpt_object *object) {
  return object->kind == CKPT_OBJECT_LIST || object->kind == CKPT_OBJECT_TUPLE;
}

/* OrderedDict() and OrderedDict([[key, value], ...]) */
static ckpt_status model_ordered_dict(ckpt_pickle_machine *m, const ckpt_object *callable, const ckpt_object *args,
                                      ckpt_object **object) {
  const ckpt_object *pairs = args->n == 1 ? args->items[0] : NULL;
  if (args->n > 1 || (pairs != NULL && !is_sequence(pairs))) return CKPT_OK;
  if (pairs != NULL) CKPT_TRY(ckpt_pickle_copied(m, 2 * pairs->n * sizeof(ckpt_object *)));
  for (uint64_t i = 0; pairs != NULL && i < pairs->n; i++)
    if (!is_sequence(pairs->items[i]) || pairs->items[i]->n != 2) return CKPT_OK;
  CKPT_TRY(ckpt_pickle_container(m, CKPT_OBJECT_DICT, NULL, 0, object));
  for (uint64_t i = 0; pairs != NULL && i < pairs->n; i++)
    CKPT_TRY(ckpt_pickle_extend(m, *object, pairs->items[i]->items, 2));
  (*object)->name = callable->name;
  (*object)->n_module = callable->n_module;
  return CKPT_OK;
}

/* set([...]), frozenset([...]) */
static ckpt_status model_set(ckpt_pickle_machine *m, const ckpt_object *callable, const ckpt_object *args,
                             ckpt_object **object) {
  const ckpt_object *items = args->n == 1 ? args->items[0] : NULL;
  if (args->n > 1 || (items != NULL && !is_sequence(items))) return CKPT_OK;
  uint64_t n = items == NULL ? 0 : items->n;
  CKPT_TRY(ckpt_pickle_copied(m, n * sizeof(ckpt_object *)));
  CKPT_TRY(ckpt_pickle_container(m, CKPT_OBJECT_SET, n == 0 ? NULL : items->items, n, object));
  if (callable->name[callable->n_module + 1] == 'f') (*object)->name = CKPT_PICKLE_FROZENSET;
  return CKPT_OK;
}

/* BYTES of text whose characters are all below 256; *object stays NULL for other text. */
static ckpt_status latin1(ckpt_pickle_machine *m, const ckpt_object *text, ckpt_object **object) {
  uint64_t n = 0;
  CKPT_TRY(ckpt_pickle_copied(m, text->n));
  for (uint64_t i = 0; i < text->n; i++, n++) {
    uint8_t c = (uint8_t)text->text[i];
    if (c > 0xC3) return CKPT_OK;
    i += c >= 0xC2;
  }
  uint8_t *bytes;
  PICKLE_TRY_ALLOC(m, bytes = ckpt_pickle_alloc(m, (size_t)n + 1, 1));
  CKPT_TRY(ckpt_pickle_node(m, CKPT_OBJECT_BYTES, object));
  (*object)->n = n;
  (*object)->bytes = bytes;
  for (uint64_t i = 0; i < text->n; i++) {
    uint8_t c = (uint8_t)text->text[i];
    *bytes++ = c < 0x80 ? c : (uint8_t)(c << 6 | ((uint8_t)text->text[++i] & 0x3F));
  }
  return CKPT_OK;
}

static bool is_text(const ckpt_object *object, const char *text) {
  return object->kind == CKPT_OBJECT_TEXT && object->n == strlen(text) && memcmp(object->text, text, object->n) == 0;
}

static bool is_latin1(const ckpt_object *args) {
  if (args->n != 2 || args->items[0]->kind != CKPT_OBJECT_TEXT) return false;
  return is_text(args->items[1], "latin1") || is_text(args->items[1], "latin-1");
}

/* _codecs.encode(text, "latin1"): bytes below protocol 3 */
static ckpt_status model_encode(ckpt_pickle_machine *m, const ckpt_object *callable, const ckpt_object *args,
                                ckpt_object **object) {
  (void)callable;
  return is_latin1(args) ? latin1(m, args->items[0], object) : CKPT_OK;
}

/* bytes(): no bytes, below protocol 3 */
static ckpt_status model_bytes(ckpt_pickle_machine *m, const ckpt_object *callable, const ckpt_object *args,
                               ckpt_object **object) {
  (void)callable;
  if (args->n != 0) return CKPT_OK;
  CKPT_TRY(ckpt_pickle_node(m, CKPT_OBJECT_BYTES, object));
  (*object)->text = "";
  return CKPT_OK;
}

/* bytearray(), bytearray(bytes), bytearray(text, "latin-1") */
static ckpt_status model_bytearray(ckpt_pickle_machine *m, const ckpt_object *callable, const ckpt_object *args,
                                   ckpt_object **object) {
  if (args->n == 1 && args->items[0]->kind == CKPT_OBJECT_BYTES) {
    CKPT_TRY(ckpt_pickle_node(m, CKPT_OBJECT_BYTES, object));
    (*object)->n = args->items[0]->n;
    (*object)->bytes = args->items[0]->bytes;
  } else if (is_latin1(args)) {
    CKPT_TRY(latin1(m, args->items[0], object));
  } else {
    CKPT_TRY(model_bytes(m, callable, args, object));
  }
  if (*object != NULL) (*object)->name = CKPT_PICKLE_BYTEARRAY;
  return CKPT_OK;
}

/* copyreg._reconstructor(cls, object, None): object.__new__(cls), below protocol 2 */
static ckpt_status model_reconstructor(ckpt_pickle_machine *m, const ckpt_object *callable, const ckpt_object *args,
                                       ckpt_object **object) {
  (void)callable;
  if (args->n != 3 || args->items[0]->kind != CKPT_OBJECT_FOREIGN || args->items[0]->form != CKPT_FORM_NAME)
    return CKPT_OK;
  const ckpt_object *base = args->items[1];
  if (!ckpt_foreign_is_name(base, "__builtin__", "object") && !ckpt_foreign_is_name(base, "builtins", "object"))
    return CKPT_OK;
  if (args->items[2]->kind != CKPT_OBJECT_NONE) return CKPT_OK;
  CKPT_TRY(ckpt_pickle_node(m, CKPT_OBJECT_FOREIGN, object));
  (*object)->form = CKPT_FORM_NEW;
  (*object)->name = args->items[0]->name;
  (*object)->n_module = args->items[0]->n_module;
  ckpt_pickle_global_of(args->items[0])->n_called++;
  return CKPT_OK;
}

/* The class within a known class, as protocol 4 names it: getattr(ShardedTensor, "ProcessGroupState"). */
static ckpt_status inner_class(ckpt_pickle_machine *m, const ckpt_object *owner, const ckpt_object *inner,
                               ckpt_object **object) {
  char joined[PICKLE_MAX_NAME + 2];
  const size_t n = strlen(owner->name);
  ckpt_pickle_global *global;
  if (inner->kind != CKPT_OBJECT_TEXT || inner->n == 0 || inner->n > PICKLE_MAX_NAME - n) return CKPT_OK;
  if (memchr(inner->text, '.', inner->n) != NULL || memchr(inner->text, '\0', inner->n) != NULL) return CKPT_OK;
  memcpy(joined, owner->name, n);
  joined[n] = '.';
  memcpy(joined + n + 1, inner->text, inner->n);
  joined[n + 1 + inner->n] = '\0';
  if (!ckpt_pickle_is_known_class(ckpt_pickle_row(joined, owner->n_module))) return CKPT_OK;
  CKPT_TRY(intern(m, joined, owner->n_module, &global));
  *object = global->object;
  return CKPT_OK;
}

/* The calls of getattr that honest files make, counted: of a class within a known one, below protocol 4, and of
 * getattr(CyclicLR, "_triangular_scale_fn"), as that scheduler keeps its own method, which stays a call. */
static ckpt_status model_getattr(ckpt_pickle_machine *m, const ckpt_object *callable, const ckpt_object *args,
                                 ckpt_object **object) {
  static const char *const names[] = {"_triangular_scale_fn", "_triangular2_scale_fn", "_exp_range_scale_fn"};
  if (args->n != 2 || args->items[0]->kind != CKPT_OBJECT_FOREIGN) return CKPT_OK;
  const ckpt_object *owner = args->items[0];
  const bool is_owner = (owner->form == CKPT_FORM_NAME || owner->form == CKPT_FORM_NEW) &&
                        strcmp(owner->name, "torch.optim.lr_scheduler.CyclicLR") == 0 && owner->n_module == 24;
  bool is_known = false;
  for (size_t i = 0; i < sizeof names / sizeof *names && is_owner; i++)
    is_known = is_known || is_text(args->items[1], names[i]);
  if (owner->form == CKPT_FORM_NAME) CKPT_TRY(inner_class(m, owner, args->items[1], object));
  ckpt_pickle_global_of(callable)->n_methods += is_known || *object != NULL;
  return CKPT_OK;
}

/* ---- calls -------------------------------------------------------------------------------------------------- */

/* The class that legacy torch files pickle by a persistent id, ("module", class, file, source), and then call; NULL for
 * any other node. */
static const ckpt_object *module_of(const ckpt_object *object) {
  const ckpt_object *id = object->form == CKPT_FORM_PERSISTENT && object->n == 1 ? object->items[0] : NULL;
  if (id == NULL || id->kind != CKPT_OBJECT_TUPLE || id->n < 2 || !is_text(id->items[0], "module")) return NULL;
  const ckpt_object *name = id->items[1];
  return name->kind == CKPT_OBJECT_FOREIGN && name->form == CKPT_FORM_NAME ? name : NULL;
}

static void count_value_call(ckpt_pickle_machine *m) {
  if (m->report->n_value_calls++ == 0) m->report->first_value_call = m->options.base + m->op_at;
}

/* A node of the arguments in args (a TUPLE, whose items it shares) under the callable's name. They count as copied:
 * else a tuple that is called with again and again is as long a list of children each time, for whoever walks them. */
static ckpt_status call(ckpt_pickle_machine *m, ckpt_object *callable, ckpt_object *args, ckpt_object_form form,
                        ckpt_object **object) {
  m->report->is_refused = callable->kind != CKPT_OBJECT_FOREIGN;
  if (callable->kind != CKPT_OBJECT_FOREIGN)
    return ckpt_pickle_fail(m, CKPT_EFORMAT, "%s of something that is no class or function",
                            ckpt_pickle_opcode_name(m->op));
  if (args->kind != CKPT_OBJECT_TUPLE)
    return ckpt_pickle_fail(m, CKPT_EFORMAT, "%s with arguments that are no tuple", ckpt_pickle_opcode_name(m->op));
  CKPT_TRY(ckpt_pickle_copied(m, args->n * sizeof *args->items));
  ckpt_pickle_check_args(m, args);
  if (callable->form != CKPT_FORM_NAME) {
    const ckpt_object *class = module_of(callable);
    if (class != NULL) {
      ckpt_pickle_global_of(class)->n_called++;
      ckpt_pickle_global_of(class)->n_constructed += form == CKPT_FORM_CALL && args->n != 0;
    } else {
      count_value_call(m);
    }
    CKPT_TRY(ckpt_pickle_container(m, CKPT_OBJECT_FOREIGN, &callable, 1, object));
    (*object)->form = CKPT_FORM_CALL_VALUE;
    (*object)->name = "";
    return ckpt_pickle_extend(m, *object, args->items, args->n);
  }
  ckpt_pickle_global *global = ckpt_pickle_global_of(callable);
  global->n_called++;
  *object = NULL;
  if (form == CKPT_FORM_CALL) CKPT_TRY(ckpt_pickle_check_call(m, global, args));
  if (global->model != 0 && form == CKPT_FORM_CALL) CKPT_TRY(models[global->model - 1].make(m, callable, args, object));
  if (*object != NULL) return CKPT_OK;
  CKPT_TRY(ckpt_pickle_node(m, CKPT_OBJECT_FOREIGN, object));
  (*object)->form = (uint32_t)form & 0xF;
  (*object)->name = callable->name;
  (*object)->n_module = callable->n_module;
  (*object)->n = args->n;
  (*object)->items = args->items;
  return CKPT_OK;
}

ckpt_status ckpt_pickle_do_reduce(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  ckpt_object **values, *object;
  CKPT_TRY(ckpt_pickle_pop(m, 2, &values));
  CKPT_TRY(call(m, values[0], values[1], CKPT_FORM_CALL, &object));
  return ckpt_pickle_push(m, object);
}

ckpt_status ckpt_pickle_do_newobj(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  ckpt_object **values, *object;
  CKPT_TRY(ckpt_pickle_pop(m, 2, &values));
  CKPT_TRY(call(m, values[0], values[1], CKPT_FORM_NEW, &object));
  return ckpt_pickle_push(m, object);
}

ckpt_status ckpt_pickle_do_newobj_ex(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  ckpt_object **values, *object;
  CKPT_TRY(ckpt_pickle_pop(m, 3, &values));
  if (values[2]->kind != CKPT_OBJECT_DICT)
    return ckpt_pickle_fail(m, CKPT_EFORMAT, "NEWOBJ_EX with keyword arguments that are no dict");
  CKPT_TRY(call(m, values[0], values[1], CKPT_FORM_NEW, &object));
  if (values[2]->n != 0) CKPT_TRY(ckpt_pickle_add_extra(m, object, CKPT_EXTRA_KEYWORDS, values[2]));
  return ckpt_pickle_push(m, object);
}

/* The call of INST and OBJ, whose arguments lie on the stack. */
static ckpt_status call_values(ckpt_pickle_machine *m, ckpt_object *callable, ckpt_object **values, uint32_t n) {
  ckpt_object *args = m->empty_tuple, *object;
  if (n != 0) CKPT_TRY(ckpt_pickle_container(m, CKPT_OBJECT_TUPLE, values, n, &args));
  CKPT_TRY(call(m, callable, args, CKPT_FORM_CALL, &object));
  return ckpt_pickle_push(m, object);
}

ckpt_status ckpt_pickle_do_inst(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  ckpt_pickle_global *global;
  ckpt_object **values;
  uint32_t n;
  CKPT_TRY(take_name(m, &global));
  CKPT_TRY(ckpt_pickle_pop_mark(m, &values, &n));
  return call_values(m, global->object, values, n);
}

ckpt_status ckpt_pickle_do_obj(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  ckpt_object **values;
  uint32_t n;
  CKPT_TRY(ckpt_pickle_pop_mark(m, &values, &n));
  if (n == 0) return ckpt_pickle_fail(m, CKPT_EFORMAT, "OBJ without a class");
  return call_values(m, values[0], values + 1, n - 1);
}

/* ---- state, contents, persistent ids ------------------------------------------------------------------------ */

/* Refuses to change a class itself: no pickler does, and it would change the program. */
static ckpt_status check_instance(ckpt_pickle_machine *m, const ckpt_object *object) {
  if (object->kind != CKPT_OBJECT_FOREIGN || object->form != CKPT_FORM_NAME) return CKPT_OK;
  m->report->n_changed_globals++;
  return ckpt_pickle_fail(m, CKPT_EFORMAT, "%s changes %s itself, not an instance of it",
                          ckpt_pickle_opcode_name(m->op), object->name);
}

ckpt_status ckpt_pickle_do_build(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  ckpt_object **state, *object;
  CKPT_TRY(ckpt_pickle_pop(m, 1, &state));
  CKPT_TRY(ckpt_pickle_top(m, &object));
  ckpt_pickle_global *global = ckpt_pickle_global_of(object);
  if (global != NULL) global->n_built++;
  CKPT_TRY(check_instance(m, object));
  if (object->kind != CKPT_OBJECT_FOREIGN && global == NULL)
    return ckpt_pickle_fail(m, CKPT_EFORMAT, "BUILD of a value that has no attributes");
  if ((object->extras & CKPT_EXTRA_STATE) != 0)
    return ckpt_pickle_fail(m, CKPT_EUNSUPPORTED, "BUILD gives %s a second state", object->name);
  bool is_misuse;
  CKPT_TRY(ckpt_pickle_check_state(m, *state, &is_misuse));
  if (global != NULL) global->n_misused += is_misuse || !ckpt_pickle_is_state_of(global, *state);
  if (is_misuse && global == NULL) count_value_call(m);
  return ckpt_pickle_add_extra(m, object, CKPT_EXTRA_STATE, *state);
}

ckpt_status ckpt_pickle_contents(ckpt_pickle_machine *m, ckpt_object *object, ckpt_object_kind kind,
                                 ckpt_object **contents) {
  *contents = object;
  if (object->kind == kind) return CKPT_OK;
  CKPT_TRY(check_instance(m, object));
  if (object->kind != CKPT_OBJECT_FOREIGN || kind == CKPT_OBJECT_SET)
    return ckpt_pickle_fail(m, CKPT_EFORMAT, "%s on a value of another kind", ckpt_pickle_opcode_name(m->op));
  ckpt_object_extra extra = kind == CKPT_OBJECT_LIST ? CKPT_EXTRA_LIST : CKPT_EXTRA_DICT;
  ckpt_pickle_global *global = ckpt_pickle_global_of(object);
  if (kind == CKPT_OBJECT_LIST && global == NULL) count_value_call(m);
  if (kind == CKPT_OBJECT_LIST && global != NULL) global->n_appended++;
  *contents = (ckpt_object *)(uintptr_t)ckpt_object_extra_of(object, extra);
  if (*contents != NULL) return CKPT_OK;
  CKPT_TRY(ckpt_pickle_node(m, kind, contents));
  return ckpt_pickle_add_extra(m, object, extra, *contents);
}

/* A persistent id of one value. */
static ckpt_status push_persistent(ckpt_pickle_machine *m, ckpt_object *id) {
  ckpt_object *object;
  CKPT_TRY(ckpt_pickle_container(m, CKPT_OBJECT_FOREIGN, &id, 1, &object));
  object->form = CKPT_FORM_PERSISTENT;
  object->name = CKPT_PERSISTENT_ID;
  m->report->n_persistent++;
  return ckpt_pickle_push(m, object);
}

ckpt_status ckpt_pickle_do_binpersid(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  ckpt_object **id;
  CKPT_TRY(ckpt_pickle_pop(m, 1, &id));
  return push_persistent(m, *id);
}

ckpt_status ckpt_pickle_do_persid(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  const uint8_t *line;
  size_t n;
  ckpt_object *id;
  CKPT_TRY(ckpt_pickle_line(m, &line, &n));
  for (size_t i = 0; i < n; i++)
    if (line[i] >= 0x80) return ckpt_pickle_fail(m, CKPT_EFORMAT, "PERSID is no ASCII text (byte %zu of %zu)", i, n);
  CKPT_TRY(ckpt_pickle_node(m, CKPT_OBJECT_TEXT, &id));
  PICKLE_TRY_ALLOC(m, id->text = ckpt_pickle_text(m, (const char *)line, n));
  id->n = n;
  return push_persistent(m, id);
}
