/* read.c - the pickle machine's input: a window, frames, operands, lines.
 *
 * Frames (protocol 4) follow Python's own reading: a read lies within the frame, or begins where it has ended. So
 * `limit` is the smaller of the window's end and the frame's, and only ckpt_pickle_need knows which. */
#include <inttypes.h>
#include <stdlib.h>

#include "libckpt/base/grow.h"
#include "libckpt/codec/pickle/machine.h"

/* Kinds of operands, as opcodes.def names them. */
typedef enum operand_kind {
  OPERAND_UNKNOWN, /* no opcode */
  OPERAND_NONE,
  OPERAND_U8,
  OPERAND_U16,
  OPERAND_U32,
  OPERAND_I32,
  OPERAND_U64,
  OPERAND_F64,
  OPERAND_LINE
} operand_kind;

static const uint8_t operands[256] = {
#define CKPT_PICKLE_OP(name, code, operand, action) [code] = OPERAND_##operand,
#include "libckpt/codec/pickle/opcodes.def"
#undef CKPT_PICKLE_OP
};

ckpt_status ckpt_pickle_reader_init(ckpt_pickle_machine *m) {
  ckpt_pickle_reader *r = &m->reader;
  r->n_bytes = m->options.n_bytes < m->limits.n_bytes ? m->options.n_bytes : m->limits.n_bytes;
  r->frame_end = UINT64_MAX;
  if (m->options.data != NULL) {
    r->window = m->options.data;
    r->window_end = r->limit = r->window + r->n_bytes;
  } else {
    r->own = malloc(r->n_bytes < PICKLE_WINDOW_BYTES ? (size_t)r->n_bytes + 1 : PICKLE_WINDOW_BYTES);
    CKPT_TRY_ALLOC(r->own, m->err);
    r->window = r->window_end = r->limit = r->own;
  }
  r->cursor = r->window;
  return CKPT_OK;
}

void ckpt_pickle_reader_free(ckpt_pickle_reader *r) {
  free(r->own);
  free(r->line);
}

/* Sets limit after the window or the frame has changed. */
static void set_limit(ckpt_pickle_reader *r) {
  uint64_t n = (uint64_t)(r->window_end - r->cursor), n_frame = r->frame_end - ckpt_pickle_at(r);
  r->limit = n_frame < n ? r->cursor + n_frame : r->window_end;
}

/* Fails because n more bytes were wanted than there are. */
static ckpt_status ends(const ckpt_pickle_machine *m, uint64_t n) {
  uint64_t left = m->reader.n_bytes - ckpt_pickle_at(&m->reader);
  if (m->reader.n_bytes < m->options.n_bytes && ckpt_pickle_at(&m->reader) + n <= m->options.n_bytes)
    return ckpt_pickle_fail(m, CKPT_ELIMIT, "longer than the limit of %" PRIu64 " bytes", m->limits.n_bytes);
  m->report->is_refused = true;
  if (n == 1 && ckpt_pickle_at(&m->reader) == m->op_at)
    return ckpt_pickle_fail(m, CKPT_EFORMAT, "the input ends without STOP");
  const char *name = ckpt_pickle_opcode_name(m->op);
  return ckpt_pickle_fail(m, CKPT_EFORMAT, "the input ends within %s (bytes wanted: %" PRIu64 ", left: %" PRIu64 ")",
                          name == NULL ? "an opcode" : name, n, left);
}

/* Checks that n > 0 bytes may be read here, and leaves a frame that has ended. */
static ckpt_status check(ckpt_pickle_machine *m, uint64_t n) {
  ckpt_pickle_reader *r = &m->reader;
  uint64_t at = ckpt_pickle_at(r);
  if (at == r->frame_end) {
    r->frame_end = UINT64_MAX;
    set_limit(r);
  }
  if (n > r->frame_end - at)
    return ckpt_pickle_fail(m, CKPT_EFORMAT,
                            "%s goes past the end of its frame (bytes wanted: %" PRIu64 ", in the frame: %" PRIu64 ")",
                            ckpt_pickle_opcode_name(m->op), n, r->frame_end - at);
  return n > r->n_bytes - at ? ends(m, n) : CKPT_OK;
}

/* Reads n bytes at an offset. */
static ckpt_status fetch(ckpt_pickle_machine *m, uint64_t at, void *dst, size_t n) {
  return ckpt_fail_at(m->options.fetch(m->options.arg, at, dst, n, m->err), m->err, m->options.file, NULL);
}

ckpt_status ckpt_pickle_need(ckpt_pickle_machine *m, size_t n) {
  ckpt_pickle_reader *r = &m->reader;
  CKPT_TRY(check(m, n));
  size_t n_kept = (size_t)(r->window_end - r->cursor);
  if (n_kept < n) {
    uint64_t at = ckpt_pickle_at(r), n_rest = r->n_bytes - at;
    size_t n_window = at == 0 && n < PICKLE_FIRST_BYTES ? PICKLE_FIRST_BYTES : PICKLE_WINDOW_BYTES;
    if (n_rest < n_window) n_window = (size_t)n_rest;
    memmove(r->own, r->cursor, n_kept);
    r->window_at = at;
    r->cursor = r->own;
    r->window_end = r->own + n_kept;
    CKPT_TRY(fetch(m, at + n_kept, r->own + n_kept, n_window - n_kept));
    r->window_end = r->own + n_window;
  }
  set_limit(r);
  return CKPT_OK;
}

/* Little-endian. */
static uint64_t number_of(const uint8_t *bytes, size_t n) {
  uint64_t number = 0;
  while (n-- > 0) number = number << 8 | bytes[n];
  return number;
}

ckpt_status ckpt_pickle_operand(ckpt_pickle_machine *m, uint64_t *operand) {
  static const uint8_t sizes[] = {[OPERAND_U8] = 1,  [OPERAND_U16] = 2, [OPERAND_U32] = 4, [OPERAND_I32] = 4,
                                  [OPERAND_U64] = 8, [OPERAND_F64] = 8, [OPERAND_LINE] = 0};
  uint8_t kind = operands[m->op];
  size_t n = sizes[kind];
  const uint8_t *bytes;
  *operand = 0;
  m->report->is_refused = kind == OPERAND_UNKNOWN;
  if (kind == OPERAND_UNKNOWN)
    return ckpt_pickle_fail(m, CKPT_EFORMAT, "0x%02x is no opcode of protocols 0 to %d", m->op, CKPT_PICKLE_PROTOCOL);
  if (n == 0) return CKPT_OK;
  CKPT_TRY(ckpt_pickle_take(m, n, &bytes));
  if (n == 1)
    *operand = *bytes;
  else
    *operand = number_of(bytes, n);
  if (kind == OPERAND_I32) *operand = (uint64_t)(int64_t)(int32_t)(uint32_t)*operand;
  if (kind == OPERAND_F64) *operand = __builtin_bswap64(*operand); /* the one big-endian operand */
  return CKPT_OK;
}

ckpt_status ckpt_pickle_payload(ckpt_pickle_machine *m, uint64_t n, char **text) {
  ckpt_pickle_reader *r = &m->reader;
  if (n > m->limits.n_text)
    return ckpt_pickle_fail(m, CKPT_ELIMIT, "%s of %" PRIu64 " bytes, at most %" PRIu64, ckpt_pickle_opcode_name(m->op),
                            n, m->limits.n_text);
  if (n != 0) CKPT_TRY(check(m, n));
  m->n_ahead = n;
  PICKLE_TRY_ALLOC(m, *text = ckpt_pickle_alloc(m, (size_t)n + 1, 1));
  m->n_ahead = 0;
  size_t n_here = (uint64_t)(r->window_end - r->cursor) < n ? (size_t)(r->window_end - r->cursor) : (size_t)n;
  memcpy(*text, r->cursor, n_here);
  r->cursor += n_here;
  if (n_here < n) { /* so the window is used up: read past it, and begin a new one behind */
    uint64_t at = ckpt_pickle_at(r), n_rest = n - n_here;
    CKPT_TRY(fetch(m, at, *text + n_here, (size_t)n_rest));
    r->window_at = at + n_rest;
    r->window = r->cursor = r->window_end = r->own;
  }
  set_limit(r);
  return CKPT_OK;
}

/* Appends n bytes to the line that is put together. */
static ckpt_status append(ckpt_pickle_machine *m, size_t n_line, const uint8_t *bytes, size_t n) {
  ckpt_pickle_reader *r = &m->reader;
  if (n_line + n > r->line_room) {
    size_t wanted = 2 * (n_line + n);
    uint8_t *moved = wanted > UINT32_MAX ? NULL : realloc(r->line, wanted);
    CKPT_TRY_ALLOC(moved, m->err);
    r->line = moved;
    r->line_room = (uint32_t)wanted;
  }
  memcpy(r->line + n_line, bytes, n);
  return CKPT_OK;
}

ckpt_status ckpt_pickle_line(ckpt_pickle_machine *m, const uint8_t **line, size_t *n) {
  ckpt_pickle_reader *r = &m->reader;
  size_t n_line = 0, n_here;
  for (;;) {
    if (r->cursor == r->limit) {
      if (n_line != 0 && ckpt_pickle_at(r) == r->frame_end)
        return ckpt_pickle_fail(m, CKPT_EFORMAT, "%s goes past the end of its frame (a line without end)",
                                ckpt_pickle_opcode_name(m->op));
      CKPT_TRY(ckpt_pickle_need(m, 1));
    }
    const uint8_t *start = r->cursor, *end = memchr(start, '\n', (size_t)(r->limit - start));
    n_here = (size_t)((end == NULL ? r->limit : end) - start);
    if (n_here > m->limits.n_text - n_line)
      return ckpt_pickle_fail(m, CKPT_ELIMIT, "%s has a line of more than %" PRIu64 " bytes",
                              ckpt_pickle_opcode_name(m->op), m->limits.n_text);
    r->cursor = start + n_here + (end != NULL);
    if (end != NULL && n_line == 0) {
      *line = start;
      *n = n_here;
      return CKPT_OK;
    }
    CKPT_TRY(append(m, n_line, start, n_here));
    n_line += n_here;
    if (end == NULL) continue;
    *line = r->line;
    *n = n_line;
    return CKPT_OK;
  }
}

ckpt_status ckpt_pickle_enter_frame(ckpt_pickle_machine *m, uint64_t n) {
  ckpt_pickle_reader *r = &m->reader;
  uint64_t at = ckpt_pickle_at(r);
  if (r->frame_end != UINT64_MAX && at != r->frame_end)
    return ckpt_pickle_fail(m, CKPT_EFORMAT, "a frame begins before the last one ends (by %" PRIu64 ")",
                            r->frame_end - at);
  if (n > r->n_bytes - at) {
    if (r->n_bytes < m->options.n_bytes) return ends(m, n);
    return ckpt_pickle_fail(m, CKPT_EFORMAT, "a frame of size %" PRIu64 " where %" PRIu64 " are left", n,
                            r->n_bytes - at);
  }
  r->frame_end = n == 0 ? UINT64_MAX : at + n;
  set_limit(r);
  return CKPT_OK;
}
