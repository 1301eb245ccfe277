/* pickle.c - the pickle machine's loop: opcodes to actions, the stack with its marks, the memo, containers.
 *
 * A mark is a fence on the stack: nothing takes a value from below it. Nothing here calls anything that a file names;
 * there is no way from a name to code. */
#include "libckpt/codec/pickle/pickle.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "libckpt/base/grow.h"
#include "libckpt/codec/pickle/machine.h"

static const struct opcode {
  const char *name;
  ckpt_pickle_action *action;
} opcodes[256] = {
#define CKPT_PICKLE_OP(name, code, operand, action) [code] = {#name, ckpt_pickle_do_##action},
#include "libckpt/codec/pickle/opcodes.def"
#undef CKPT_PICKLE_OP
};

const char *ckpt_pickle_opcode_name(uint8_t opcode) { return opcodes[opcode].name; }

ckpt_status ckpt_pickle_fail(const ckpt_pickle_machine *m, ckpt_status status, const char *format, ...) {
  char text[256];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return ckpt_fail(m->err, status, m->options.file, NULL, "pickle at byte %" PRIu64 ": %s", m->options.base + m->op_at,
                   text);
}

ckpt_status ckpt_pickle_fail_memory(const ckpt_pickle_machine *m) {
  if (!ckpt_pickle_fits(m))
    return ckpt_pickle_fail(m, CKPT_ELIMIT,
                            "what it describes takes more than %" PRIu64
                            " bytes of memory for each of its own (%" PRIu64 " in all, at most %" PRIu64 " here)",
                            m->limits.n_memory, ckpt_pickle_taken(m) + m->n_wanted, ckpt_pickle_allowed(m));
  uint64_t n_left = m->arena->limit - m->arena->n_taken;
  if (n_left < 64 || m->n_wanted > n_left - 64) /* 64: more than the arena's own bytes */
    return ckpt_pickle_fail(m, CKPT_ELIMIT, "its objects take more than the %" PRIu64 " bytes that there are for them",
                            m->arena->limit);
  return ckpt_pickle_fail(m, CKPT_ENOMEM, "out of memory");
}

ckpt_status ckpt_pickle_check_memory(ckpt_pickle_machine *m, uint64_t n) {
  m->n_wanted = n;
  return ckpt_pickle_fits(m) ? CKPT_OK : ckpt_pickle_fail_memory(m);
}

/* ---- stack -------------------------------------------------------------------------------------------------- */

ckpt_status ckpt_pickle_stack_grow(ckpt_pickle_machine *m) {
  if (m->n_stack >= m->limits.n_stack)
    return ckpt_pickle_fail(m, CKPT_ELIMIT, "more than %" PRIu64 " values on the stack", m->limits.n_stack);
  uint32_t wanted = m->stack_room < 128 ? 256 : 2 * m->stack_room;
  if (wanted > m->limits.n_stack) wanted = (uint32_t)m->limits.n_stack;
  CKPT_TRY(ckpt_pickle_check_memory(m, (wanted - m->stack_room) * sizeof *m->stack));
  ckpt_object **moved = reallocarray(m->stack, wanted, sizeof *moved);
  CKPT_TRY_ALLOC(moved, m->err);
  m->stack = moved;
  m->stack_room = wanted;
  return CKPT_OK;
}

ckpt_status ckpt_pickle_underflow(const ckpt_pickle_machine *m, uint32_t n) {
  m->report->is_refused = true;
  return ckpt_pickle_fail(m, CKPT_EFORMAT, "%s takes %" PRIu32 " from a stack of %" PRIu32 "%s",
                          ckpt_pickle_opcode_name(m->op), n, m->n_stack - m->fence,
                          m->n_marks != 0 ? " above its last mark" : "");
}

ckpt_status ckpt_pickle_top(const ckpt_pickle_machine *m, ckpt_object **object) {
  *object = NULL;
  if (m->n_stack == m->fence) return ckpt_pickle_underflow(m, 1);
  *object = m->stack[m->n_stack - 1];
  return CKPT_OK;
}

ckpt_status ckpt_pickle_pop_mark(ckpt_pickle_machine *m, ckpt_object ***values, uint32_t *n) {
  *values = NULL;
  *n = 0;
  m->report->is_refused = m->n_marks == 0;
  if (m->n_marks == 0) return ckpt_pickle_fail(m, CKPT_EFORMAT, "%s without a mark", ckpt_pickle_opcode_name(m->op));
  *values = m->stack + m->fence;
  *n = m->n_stack - m->fence;
  m->n_stack = m->fence;
  m->fence = m->marks[--m->n_marks];
  return CKPT_OK;
}

ckpt_status ckpt_pickle_do_mark(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  if (m->n_marks >= m->limits.n_stack)
    return ckpt_pickle_fail(m, CKPT_ELIMIT, "more than %" PRIu64 " marks", m->limits.n_stack);
  CKPT_TRY(ckpt_grow(&m->marks, m->n_marks, &m->marks_room, sizeof *m->marks, m->err));
  m->marks[m->n_marks++] = m->fence;
  m->fence = m->n_stack;
  return CKPT_OK;
}

ckpt_status ckpt_pickle_do_pop_mark(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  ckpt_object **values;
  uint32_t n;
  return ckpt_pickle_pop_mark(m, &values, &n);
}

/* Takes a value, or the mark where nothing lies above it. */
ckpt_status ckpt_pickle_do_pop(ckpt_pickle_machine *m, uint64_t operand) {
  ckpt_object **value;
  if (m->n_stack == m->fence && m->n_marks != 0) return ckpt_pickle_do_pop_mark(m, operand);
  return ckpt_pickle_pop(m, 1, &value);
}

ckpt_status ckpt_pickle_do_dup(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  ckpt_object *object;
  CKPT_TRY(ckpt_pickle_top(m, &object));
  ckpt_pickle_copy_name(object);
  return ckpt_pickle_push(m, object);
}

/* ---- memo --------------------------------------------------------------------------------------------------- */

ckpt_status ckpt_pickle_do_put(ckpt_pickle_machine *m, uint64_t number) {
  ckpt_object *object;
  CKPT_TRY(ckpt_pickle_top(m, &object));
  uint64_t n_dense = m->op_at < m->limits.n_memo ? m->op_at : m->limits.n_memo;
  CKPT_TRY(ckpt_pickle_check_memory(m, ckpt_pickle_memo_growth(&m->memo, number, n_dense)));
  ckpt_status status = ckpt_pickle_memo_put(&m->memo, number, n_dense, object);
  if (status == CKPT_ELIMIT)
    return ckpt_pickle_fail(m, status, "more than %d memo numbers larger than where they stand",
                            CKPT_PICKLE_MAX_SPARSE);
  if (status != CKPT_OK) return ckpt_pickle_fail(m, status, "out of memory");
  if (m->memo.n > m->limits.n_memo)
    return ckpt_pickle_fail(m, CKPT_ELIMIT, "more than %" PRIu64 " memo entries", m->limits.n_memo);
  return CKPT_OK;
}

ckpt_status ckpt_pickle_do_memoize(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  return ckpt_pickle_do_put(m, m->memo.n);
}

ckpt_status ckpt_pickle_do_put_line(ckpt_pickle_machine *m, uint64_t number) {
  CKPT_TRY(ckpt_pickle_index(m, &number));
  return ckpt_pickle_do_put(m, number);
}

ckpt_status ckpt_pickle_do_get(ckpt_pickle_machine *m, uint64_t number) {
  ckpt_object *object = ckpt_pickle_memo_get(&m->memo, number);
  if (object != NULL) {
    ckpt_pickle_copy_name(object);
    return ckpt_pickle_push(m, object);
  }
  m->report->is_refused = m->options.base == 0; /* one Unpickler keeps its memo from pickle to pickle */
  return ckpt_pickle_fail(m, CKPT_EFORMAT, "%s of memo number %" PRIu64 ", which nothing was put under",
                          ckpt_pickle_opcode_name(m->op), number);
}

ckpt_status ckpt_pickle_do_get_line(ckpt_pickle_machine *m, uint64_t number) {
  CKPT_TRY(ckpt_pickle_index(m, &number));
  return ckpt_pickle_do_get(m, number);
}

/* ---- containers --------------------------------------------------------------------------------------------- */

ckpt_status ckpt_pickle_do_constant(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  return ckpt_pickle_push(m, m->op == PICKLE_NONE ? m->none : m->op == PICKLE_NEWTRUE ? m->yes : m->no);
}

ckpt_status ckpt_pickle_do_empty_tuple(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  return ckpt_pickle_push(m, m->empty_tuple);
}

ckpt_status ckpt_pickle_do_empty(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  ckpt_object *object;
  CKPT_TRY(ckpt_pickle_node(m,
                            m->op == PICKLE_EMPTY_LIST   ? CKPT_OBJECT_LIST
                            : m->op == PICKLE_EMPTY_DICT ? CKPT_OBJECT_DICT
                                                         : CKPT_OBJECT_SET,
                            &object));
  return ckpt_pickle_push(m, object);
}

/* LIST, TUPLE, DICT, FROZENSET: what lies above the mark. */
ckpt_status ckpt_pickle_do_collect(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  ckpt_object **values, *object;
  uint32_t n;
  CKPT_TRY(ckpt_pickle_pop_mark(m, &values, &n));
  if (m->op == PICKLE_TUPLE && n == 0) return ckpt_pickle_push(m, m->empty_tuple);
  if (m->op == PICKLE_DICT && n % 2 != 0)
    return ckpt_pickle_fail(m, CKPT_EFORMAT, "DICT of a key without a value (values: %" PRIu32 ")", n);
  ckpt_object_kind kind = m->op == PICKLE_LIST    ? CKPT_OBJECT_LIST
                          : m->op == PICKLE_TUPLE ? CKPT_OBJECT_TUPLE
                          : m->op == PICKLE_DICT  ? CKPT_OBJECT_DICT
                                                  : CKPT_OBJECT_SET;
  CKPT_TRY(ckpt_pickle_container(m, kind, values, kind == CKPT_OBJECT_DICT ? n / 2 : n, &object));
  if (kind == CKPT_OBJECT_SET) object->name = CKPT_PICKLE_FROZENSET;
  return ckpt_pickle_push(m, object);
}

ckpt_status ckpt_pickle_do_tuple_n(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  uint32_t n = (uint32_t)m->op - PICKLE_TUPLE1 + 1;
  ckpt_object **values, *object;
  CKPT_TRY(ckpt_pickle_pop(m, n, &values));
  CKPT_TRY(ckpt_pickle_container(m, CKPT_OBJECT_TUPLE, values, n, &object));
  return ckpt_pickle_push(m, object);
}

/* Adds values to what lies on top of the stack. */
static ckpt_status add(ckpt_pickle_machine *m, ckpt_object_kind kind, ckpt_object **values, uint32_t n) {
  ckpt_object *object, *contents;
  CKPT_TRY(ckpt_pickle_top(m, &object));
  if (kind == CKPT_OBJECT_DICT && n % 2 != 0)
    return ckpt_pickle_fail(m, CKPT_EFORMAT, "SETITEMS of a key without a value (values: %" PRIu32 ")", n);
  CKPT_TRY(ckpt_pickle_contents(m, object, kind, &contents));
  return ckpt_pickle_extend(m, contents, values, n);
}

static ckpt_status add_marked(ckpt_pickle_machine *m, ckpt_object_kind kind) {
  ckpt_object **values;
  uint32_t n;
  CKPT_TRY(ckpt_pickle_pop_mark(m, &values, &n));
  return add(m, kind, values, n);
}

ckpt_status ckpt_pickle_do_append(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  ckpt_object **values;
  CKPT_TRY(ckpt_pickle_pop(m, 1, &values));
  return add(m, CKPT_OBJECT_LIST, values, 1);
}

ckpt_status ckpt_pickle_do_setitem(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  ckpt_object **values;
  CKPT_TRY(ckpt_pickle_pop(m, 2, &values));
  return add(m, CKPT_OBJECT_DICT, values, 2);
}

ckpt_status ckpt_pickle_do_appends(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  return add_marked(m, CKPT_OBJECT_LIST);
}

ckpt_status ckpt_pickle_do_setitems(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  return add_marked(m, CKPT_OBJECT_DICT);
}

ckpt_status ckpt_pickle_do_additems(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  return add_marked(m, CKPT_OBJECT_SET);
}

/* ---- the loop ----------------------------------------------------------------------------------------------- */

ckpt_status ckpt_pickle_do_proto(ckpt_pickle_machine *m, uint64_t protocol) {
  if (protocol > CKPT_PICKLE_PROTOCOL)
    return ckpt_pickle_fail(m, CKPT_EUNSUPPORTED, "protocol %" PRIu64 ", the highest known is %d", protocol,
                            CKPT_PICKLE_PROTOCOL);
  if (protocol > m->report->protocol) m->report->protocol = (uint8_t)protocol;
  return CKPT_OK;
}

ckpt_status ckpt_pickle_do_frame(ckpt_pickle_machine *m, uint64_t n_bytes) {
  return ckpt_pickle_enter_frame(m, n_bytes);
}

ckpt_status ckpt_pickle_do_buffer(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  return ckpt_pickle_fail(m, CKPT_EUNSUPPORTED, "%s: a buffer that lies outside of the file",
                          ckpt_pickle_opcode_name(m->op));
}

ckpt_status ckpt_pickle_do_stop(ckpt_pickle_machine *m, uint64_t operand) {
  (void)operand;
  m->is_done = true;
  ckpt_object *root;
  return ckpt_pickle_top(m, &root);
}

static ckpt_status run(ckpt_pickle_machine *m) {
  while (!m->is_done) {
    const uint8_t *byte;
    uint64_t operand;
    m->op_at = ckpt_pickle_at(&m->reader);
    CKPT_TRY(ckpt_pickle_take(m, 1, &byte));
    m->op = *byte;
    m->report->counts[m->op]++;
    CKPT_TRY(ckpt_pickle_operand(m, &operand));
    CKPT_TRY(opcodes[m->op].action(m, operand));
  }
  return CKPT_OK;
}

/* None, False, True and (): shared by the graph, and not counted. */
static ckpt_status make_constants(ckpt_pickle_machine *m) {
  PICKLE_TRY_ALLOC(m, m->none = ckpt_object_none(m->arena));
  PICKLE_TRY_ALLOC(m, m->no = ckpt_object_bool(m->arena, false));
  PICKLE_TRY_ALLOC(m, m->yes = ckpt_object_bool(m->arena, true));
  PICKLE_TRY_ALLOC(m, m->empty_tuple = ckpt_pickle_alloc(m, sizeof(ckpt_object), 1));
  m->empty_tuple->kind = CKPT_OBJECT_TUPLE;
  return CKPT_OK;
}

/* Completes the report, whatever happened. */
static void complete(ckpt_pickle_machine *m) {
  ckpt_pickle_report *r = m->report;
  r->n_consumed = m->is_done ? m->op_at + 1 : m->op_at;
  r->n_read = ckpt_pickle_at(&m->reader);
  r->n_nodes = m->n_nodes;
  r->n_memo = m->memo.n;
  r->n_left = m->n_stack == 0 ? 0 : m->n_stack - 1;
  r->globals = m->globals;
  r->n_globals = m->n_globals;
}

ckpt_status ckpt_pickle_read(ckpt_object **root, uint64_t *n_consumed, const ckpt_pickle_options *options,
                             ckpt_arena *arena, ckpt_error *err) {
  ckpt_pickle_report own, *report = options->report != NULL ? options->report : &own;
  *report = (ckpt_pickle_report){0};
  ckpt_pickle_machine *m = calloc(1, sizeof *m);
  CKPT_TRY_ALLOC(m, err);
  m->options = *options;
  m->limits = options->limits != NULL ? *options->limits : (ckpt_pickle_limits)CKPT_PICKLE_LIMITS;
  if (m->limits.n_name > PICKLE_MAX_NAME) m->limits.n_name = PICKLE_MAX_NAME;
  if (m->limits.n_long > PICKLE_WINDOW_BYTES) m->limits.n_long = PICKLE_WINDOW_BYTES;
  if (m->limits.n_stack > UINT32_MAX / 4) m->limits.n_stack = UINT32_MAX / 4;
  m->report = report;
  m->arena = arena;
  m->n_before = arena->n_taken;
  m->err = err;
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_pickle_reader_init(m));
  CKPT_TRY_GOTO(make_constants(m));
  CKPT_TRY_GOTO(ckpt_pickle_stack_grow(m));
  CKPT_TRY_GOTO(run(m));
  *root = m->stack[m->n_stack - 1];
  if (n_consumed != NULL) *n_consumed = m->op_at + 1;
done:
  complete(m);
  ckpt_pickle_reader_free(&m->reader);
  ckpt_pickle_memo_free(&m->memo);
  ckpt_pickle_names_free(m);
  free(m->stack);
  free(m->marks);
  free(m);
  return status;
}
