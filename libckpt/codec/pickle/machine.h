/* machine.h - inside the pickle machine: reader, values, graph, calls and memo share these types.
 *
 *   reader (read.c)   bytes -> opcodes and operands; windows, frames, lines
 *   pickle.c                 the loop; stack, marks, memo, containers
 *   value.c           operands -> scalars: text forms, long integers, escapes
 *   graph.c           nodes, containers that grow, extras
 *   call.c            names, calls, and the few calls that are plain data
 *
 * Every failure goes through ckpt_pickle_fail, which knows the opcode's offset. */
#ifndef CKPT_CODEC_PICKLE_MACHINE_H
#define CKPT_CODEC_PICKLE_MACHINE_H

#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/pickle/memo.h"
#include "libckpt/codec/pickle/pickle.h"

/* The reader's window, nodes kept of recent integers, longest "module.qualname". */
/* The first read is short: where one small pickle stands behind another, each would read on into those that follow. */
enum {
  PICKLE_WINDOW_BYTES = 1 << 16,
  PICKLE_FIRST_BYTES = 1 << 10,
  PICKLE_CACHED_INTS = 1 << 12,
  PICKLE_MAX_NAME = 4096
};

/* The input, read forward. Offsets count from its start. */
typedef struct ckpt_pickle_reader {
  const uint8_t *cursor, *limit; /* what may be taken at once: neither the window nor the frame ends before limit */
  const uint8_t *window, *window_end;
  uint64_t window_at; /* offset of window[0] */
  uint64_t frame_end; /* offset; UINT64_MAX outside a frame */
  uint64_t n_bytes;   /* of input that may be read */
  uint8_t *own;       /* memory of the window, NULL for input in memory */
  uint8_t *line;      /* of a line that does not lie in the window */
  uint32_t line_room;
} ckpt_pickle_reader;

typedef struct ckpt_pickle_machine {
  ckpt_pickle_reader reader;
  ckpt_pickle_options options;
  ckpt_pickle_limits limits;
  ckpt_pickle_report *report;
  ckpt_arena *arena;
  ckpt_error *err;
  uint8_t op;     /* the current opcode */
  uint64_t op_at; /* its offset */
  bool is_done;

  ckpt_object **stack;
  uint32_t n_stack, stack_room;
  uint32_t fence;  /* values below belong to before the last mark */
  uint32_t *marks; /* the fences that the marks replaced, outermost first */
  uint32_t n_marks, marks_room;
  ckpt_pickle_memo memo;

  uint64_t n_nodes;
  uint64_t n_wanted; /* bytes of the last request for memory */
  uint64_t n_before; /* bytes that the arena had taken when this pickle began */
  uint64_t n_ahead;  /* bytes of input that are available and will be taken next */
  uint64_t n_copied; /* bytes copied from one node to another */
  ckpt_object *none, *yes, *no, *empty_tuple;
  ckpt_object *ints[PICKLE_CACHED_INTS];

  ckpt_pickle_global **globals; /* in order of appearance */
  uint32_t n_globals, globals_room;
  uint32_t *slots; /* hash of name -> number + 1 */
  uint32_t n_slots;
} ckpt_pickle_machine;

/* Fails with `pickle at byte N: ...`. */
ckpt_status ckpt_pickle_fail(const ckpt_pickle_machine *m, ckpt_status status, const char *format, ...)
    CKPT_PRINTF(3, 4);

/* Fails because there was no memory: ELIMIT when a limit is the reason, else ENOMEM. */
ckpt_status ckpt_pickle_fail_memory(const ckpt_pickle_machine *m);

#define PICKLE_TRY_ALLOC(m, pointer)                          \
  do {                                                        \
    if ((pointer) == NULL) return ckpt_pickle_fail_memory(m); \
  } while (0)

/* Offset of the next byte. */
static inline uint64_t ckpt_pickle_at(const ckpt_pickle_reader *r) {
  return r->window_at + (uint64_t)(r->cursor - r->window);
}

/* Bytes of memory that the pickle may take, by what was read of it. */
static inline uint64_t ckpt_pickle_allowed(const ckpt_pickle_machine *m) {
  return CKPT_PICKLE_FREE_BYTES + m->limits.n_memory * (ckpt_pickle_at(&m->reader) + m->n_ahead);
}

/* Bytes that it has taken. */
static inline uint64_t ckpt_pickle_taken(const ckpt_pickle_machine *m) {
  return m->arena->n_taken - m->n_before + m->stack_room * sizeof *m->stack + m->marks_room * sizeof *m->marks +
         ckpt_pickle_memo_bytes(&m->memo);
}

/* Whether it may take n_wanted more. */
static inline bool ckpt_pickle_fits(const ckpt_pickle_machine *m) {
  uint64_t n_taken = ckpt_pickle_taken(m), n_allowed = ckpt_pickle_allowed(m);
  return n_taken <= n_allowed && m->n_wanted <= n_allowed - n_taken;
}

/* n items of this size from the arena, zeroed; NULL as there, or where it may not have them. */
static inline void *ckpt_pickle_alloc(ckpt_pickle_machine *m, size_t n, size_t item_bytes) {
  if (!ckpt_mul_u64(n, item_bytes, &m->n_wanted)) m->n_wanted = UINT64_MAX;
  return ckpt_pickle_fits(m) ? ckpt_arena_array(m->arena, n, item_bytes) : NULL;
}

/* Whether it may take n more bytes outside of the arena: ELIMIT. */
ckpt_status ckpt_pickle_check_memory(ckpt_pickle_machine *m, uint64_t n);

/* A terminated copy. */
static inline char *ckpt_pickle_text(ckpt_pickle_machine *m, const void *text, size_t n) {
  char *copy = ckpt_pickle_alloc(m, n + 1, 1);
  return copy == NULL || n == 0 ? copy : memcpy(copy, text, n);
}

/* ---- reader ------------------------------------------------------------------------------------------------- */

/* Opens options' input; ckpt_pickle_reader_free is for after any outcome. */
ckpt_status ckpt_pickle_reader_init(ckpt_pickle_machine *m);
void ckpt_pickle_reader_free(ckpt_pickle_reader *reader); /* as above */

/* Makes n bytes (at most a window) available at the cursor; fails where input or frame ends before. */
ckpt_status ckpt_pickle_need(ckpt_pickle_machine *m, size_t n);

/* Takes n bytes (at most a window): *bytes is valid until the next call. */
static inline ckpt_status ckpt_pickle_take(ckpt_pickle_machine *m, size_t n, const uint8_t **bytes) {
  *bytes = NULL;
  if ((size_t)(m->reader.limit - m->reader.cursor) < n) CKPT_TRY(ckpt_pickle_need(m, n));
  *bytes = m->reader.cursor;
  m->reader.cursor += n;
  return CKPT_OK;
}

/* Takes the operand of the current opcode as a number (0 for NONE and LINE). */
ckpt_status ckpt_pickle_operand(ckpt_pickle_machine *m, uint64_t *operand);

/* Takes n bytes as terminated text in the arena; n is checked against limit and input first. */
ckpt_status ckpt_pickle_payload(ckpt_pickle_machine *m, uint64_t n, char **text);

/* Takes a line without its newline. Valid until the next call. */
ckpt_status ckpt_pickle_line(ckpt_pickle_machine *m, const uint8_t **line, size_t *n);

/* Enters a frame of n bytes. */
ckpt_status ckpt_pickle_enter_frame(ckpt_pickle_machine *m, uint64_t n);

/* ---- stack -------------------------------------------------------------------------------------------------- */

/* Makes room for one more value; fails at the limit. */
ckpt_status ckpt_pickle_stack_grow(ckpt_pickle_machine *m);

/* Pushes a node; NULL is an allocation that failed. */
static inline ckpt_status ckpt_pickle_push(ckpt_pickle_machine *m, ckpt_object *object) {
  PICKLE_TRY_ALLOC(m, object);
  if (m->n_stack == m->stack_room) CKPT_TRY(ckpt_pickle_stack_grow(m));
  m->stack[m->n_stack++] = object;
  return CKPT_OK;
}

/* Fails with how many values the opcode wants. */
ckpt_status ckpt_pickle_underflow(const ckpt_pickle_machine *m, uint32_t n);

/* Takes the n topmost values, none of them below the last mark: *values is valid until the next push. */
static inline ckpt_status ckpt_pickle_pop(ckpt_pickle_machine *m, uint32_t n, ckpt_object ***values) {
  *values = NULL;
  if (m->n_stack - m->fence < n) return ckpt_pickle_underflow(m, n);
  m->n_stack -= n;
  *values = m->stack + m->n_stack;
  return CKPT_OK;
}

/* Takes everything above the last mark, and the mark. */
ckpt_status ckpt_pickle_pop_mark(ckpt_pickle_machine *m, ckpt_object ***values, uint32_t *n);

/* The topmost value, not below the last mark. */
ckpt_status ckpt_pickle_top(const ckpt_pickle_machine *m, ckpt_object **object);

/* ---- graph -------------------------------------------------------------------------------------------------- */

/* A node; fails at the limit. */
ckpt_status ckpt_pickle_node(ckpt_pickle_machine *m, ckpt_object_kind kind, ckpt_object **object);

/* A container or FOREIGN node with a copy of these children; n counts pairs of a DICT. */
ckpt_status ckpt_pickle_container(ckpt_pickle_machine *m, ckpt_object_kind kind, ckpt_object *const *children,
                                  uint64_t n, ckpt_object **object);

/* Adds n children (a DICT's keys and values: 2 for a pair) behind the others, before extras. */
ckpt_status ckpt_pickle_extend(ckpt_pickle_machine *m, ckpt_object *object, ckpt_object *const *children, uint64_t n);

/* What APPENDS (LIST), SETITEMS (DICT) or ADDITEMS (SET) change: the object itself, or the contents of an instance. */
ckpt_status ckpt_pickle_contents(ckpt_pickle_machine *m, ckpt_object *object, ckpt_object_kind kind,
                                 ckpt_object **contents);

/* Adds an extra; it has none of this kind yet. */
ckpt_status ckpt_pickle_add_extra(ckpt_pickle_machine *m, ckpt_object *object, ckpt_object_extra extra,
                                  ckpt_object *value);

/* Counts n bytes that one opcode copies from existing nodes. ELIMIT if the pickle consists mostly of copies (a large
 * list copied again and again through the memo). */
ckpt_status ckpt_pickle_copied(ckpt_pickle_machine *m, uint64_t n_bytes);

/* ---- values and names --------------------------------------------------------------------------------------- */

/* Where bytes are not UTF-8 (lone surrogates allowed); n where they are. */
size_t ckpt_pickle_utf8(const uint8_t *bytes, size_t n);

/* A line that is a decimal number which is no larger than UINT64_MAX: memo indices. */
ckpt_status ckpt_pickle_index(ckpt_pickle_machine *m, uint64_t *index);

/* Counts that a name is referred to again. */
void ckpt_pickle_copy_name(const ckpt_object *name);

/* What a callable of this name calls or makes of its arguments, + 1; 0 for nothing. */
uint32_t ckpt_pickle_caller(const char *name);

/* Its row in the tables, + 1; 0 for a name that has none. */
uint32_t ckpt_pickle_row(const char *name, size_t n_module);

/* Whether such a row is that of a known framework class. */
bool ckpt_pickle_is_known_class(uint32_t row);

/* The global that a node's name belongs to; NULL for a node without one. */
ckpt_pickle_global *ckpt_pickle_global_of(const ckpt_object *object);

/* Counts a call with arguments whose methods it may call. */
void ckpt_pickle_check_args(ckpt_pickle_machine *m, const ckpt_object *args);

/* Counts, of a name that is called, what honest files do not do with it. */
ckpt_status ckpt_pickle_check_call(ckpt_pickle_machine *m, ckpt_pickle_global *global, const ckpt_object *args);

/* Whether a state sets attributes that Python itself uses: __class__, __dict__, __setstate__. */
ckpt_status ckpt_pickle_check_state(ckpt_pickle_machine *m, const ckpt_object *state, bool *is_misuse);

/* Whether a state is one of those that honest files give to what this global made. */
bool ckpt_pickle_is_state_of(const ckpt_pickle_global *global, const ckpt_object *state);

/* Frees what names took. */
void ckpt_pickle_names_free(ckpt_pickle_machine *m);

/* ---- actions ------------------------------------------------------------------------------------------------ */

/* What an opcode does. */
typedef ckpt_status ckpt_pickle_action(ckpt_pickle_machine *m, uint64_t operand);

/* ckpt_pickle_do_<action>, one for each of opcodes.def. */
#define CKPT_PICKLE_OP(name, code, operand, action) ckpt_pickle_action ckpt_pickle_do_##action;
#include "libckpt/codec/pickle/opcodes.def"
#undef CKPT_PICKLE_OP

/* The opcodes by name: PICKLE_BININT1. */
enum {
#define CKPT_PICKLE_OP(name, code, operand, action) PICKLE_##name = code,
#include "libckpt/codec/pickle/opcodes.def"
#undef CKPT_PICKLE_OP
};

#endif
