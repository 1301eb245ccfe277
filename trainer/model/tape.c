/* tape.c - values, entries, and what an entry is checked for when it is recorded. */
#include "trainer/model/tape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "trainer/model/op.h"

const ckpt_tape_op *const ckpt_tape_ops[CKPT_N_TAPE_OPS] = {
#define CKPT_TAPE_OP(id) [CKPT_OP_##id] = &ckpt_tape_op_##id,
#include "trainer/model/tape_ops.def"
#undef CKPT_TAPE_OP
};

static const char *const input_names[CKPT_N_INPUTS] = {"ids", "targets", "positions", "documents", "mask"};

/* Room for one more item of an array in the arena. */
static ckpt_status reserve(ckpt_arena *arena, void **items, uint32_t n, uint32_t *capacity, size_t item_bytes,
                           ckpt_error *err) {
  if (n < *capacity) return CKPT_OK;
  uint32_t wanted = *capacity == 0 ? 64 : *capacity * 2;
  void *grown = ckpt_arena_array(arena, wanted, item_bytes);
  CKPT_TRY_ALLOC(grown, err);
  if (n > 0) memcpy(grown, *items, n * item_bytes);
  *items = grown;
  *capacity = wanted;
  return CKPT_OK;
}

static ckpt_status add_value(ckpt_tape *tape, const ckpt_tape_value *value, uint32_t *number, ckpt_error *err) {
  void *items = tape->values;
  CKPT_TRY(reserve(tape->arena, &items, tape->n_values, &tape->value_capacity, sizeof *value, err));
  tape->values = items;
  *number = tape->n_values;
  tape->values[tape->n_values++] = *value;
  return CKPT_OK;
}

ckpt_status ckpt_tape_init(ckpt_tape *tape, ckpt_arena *arena, bool needs_backward, ckpt_error *err) {
  *tape = (ckpt_tape){.arena = arena, .needs_backward = needs_backward, .layer = -1};
  for (uint8_t i = 0; i < CKPT_N_INPUTS; i++) {
    ckpt_tape_value value = {.name = input_names[i],
                             .shape = {.rank = 1, .kinds = {CKPT_AXIS_TOKENS}},
                             .dtype = i == CKPT_INPUT_MASK ? CKPT_VALUE_U8 : CKPT_VALUE_I32,
                             .residency = CKPT_RESIDES_INPUT,
                             .input = i,
                             .maker = CKPT_NO_VALUE};
    CKPT_TRY(add_value(tape, &value, &tape->inputs[i], err));
  }
  return CKPT_OK;
}

ckpt_status ckpt_tape_parameter(ckpt_tape *tape, const char *name, uint32_t number, uint32_t rank,
                                const uint64_t *shape, uint32_t *value, ckpt_error *err) {
  ckpt_tape_value made = {.name = name,
                          .shape = {.rank = (uint8_t)rank},
                          .dtype = CKPT_VALUE_REAL,
                          .residency = CKPT_RESIDES_PARAMETER,
                          .parameter = number,
                          .maker = CKPT_NO_VALUE};
  if (rank > CKPT_TAPE_MAX_RANK) return ckpt_fail(err, CKPT_EINTERNAL, NULL, name, "rank %u", rank);
  for (uint32_t i = 0; i < rank; i++) made.shape.sizes[i] = shape[i];
  return add_value(tape, &made, value, err);
}

ckpt_status ckpt_tape_output(ckpt_tape *tape, ckpt_tape_entry *entry, const char *name, uint64_t n_columns,
                             ckpt_error *err) {
  ckpt_tape_value value = {
      .shape = {.rank = 2, .kinds = {CKPT_AXIS_TOKENS, CKPT_AXIS_CONSTANT}, .sizes = {0, n_columns}},
      .dtype = CKPT_VALUE_REAL,
      .residency = CKPT_RESIDES_ACTIVATION,
      .maker = tape->n_entries};
  value.name = tape->layer < 0 ? name : ckpt_arena_printf(tape->arena, "layer.%d.%s", (int)tape->layer, name);
  CKPT_TRY_ALLOC(value.name, err);
  return add_value(tape, &value, &entry->out[entry->n_out++], err);
}

uint64_t ckpt_tape_elements(const ckpt_tape_value *value, uint64_t n_tokens) {
  uint64_t n = 1;
  for (uint32_t i = 0; i < value->shape.rank; i++)
    n *= value->shape.kinds[i] == CKPT_AXIS_TOKENS ? n_tokens : value->shape.sizes[i];
  return value->shape.times == 0 ? n : n * value->shape.times;
}

ckpt_status ckpt_tape_check_op(const ckpt_tape_op *op, bool needs_backward, ckpt_error *err) {
  const char *lacks = op->shapes == NULL                       ? "shapes"
                      : op->keeps == NULL                      ? "memory"
                      : op->forward == NULL                    ? "forward"
                      : needs_backward && op->backward == NULL ? "backward"
                                                               : NULL;
  if (lacks == NULL) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "operation '%s' has no %s, which this tape needs", op->name,
                   lacks);
}

static ckpt_status check_count(const ckpt_tape_op *op, const char *what, uint32_t n, uint32_t min, uint32_t max,
                               ckpt_error *err) {
  if (n >= min && n <= max) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "operation '%s' takes %u to %u %s, not %u", op->name, min, max, what,
                   n);
}

/* A parameter, or what was gathered of one: it has no tokens. */
static bool is_parameter(const ckpt_tape_value *value) {
  return value->residency == CKPT_RESIDES_PARAMETER ||
         (value->residency == CKPT_RESIDES_ACTIVATION && value->shape.kinds[0] == CKPT_AXIS_CONSTANT);
}

static ckpt_status check_inputs(const ckpt_tape *tape, const ckpt_tape_op *op, const ckpt_tape_entry *entry,
                                ckpt_error *err) {
  CKPT_TRY(check_count(op, "values", entry->n_in, op->min_in, op->max_in, err));
  CKPT_TRY(check_count(op, "parameters", entry->n_parameters, op->min_parameters, op->max_parameters, err));
  for (uint32_t i = 0; i < entry->n_in; i++) {
    uint32_t in = entry->in[i];
    if (in == CKPT_NO_VALUE) continue;
    if (in >= tape->n_values || tape->values[in].residency == CKPT_RESIDES_PARAMETER)
      return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "operation '%s': input %u is no value of the tape", op->name, i);
    for (uint32_t j = 0; j < i; j++)
      if (entry->in[j] == in && !op->may_share_inputs)
        return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "operation '%s' takes '%s' twice", op->name,
                         tape->values[in].name);
  }
  for (uint32_t i = 0; i < entry->n_parameters; i++)
    if (entry->parameters[i] >= tape->n_values || !is_parameter(&tape->values[entry->parameters[i]]))
      return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "operation '%s': %u is no parameter", op->name, i);
  return CKPT_OK;
}

ckpt_status ckpt_tape_record(ckpt_tape *tape, ckpt_tape_entry *entry, ckpt_error *err) {
  if (entry->op >= CKPT_N_TAPE_OPS) return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "no operation %u", entry->op);
  const ckpt_tape_op *op = ckpt_tape_ops[entry->op];
  entry->n_out = 0;
  entry->layer = tape->layer;
  if (tape->is_bf16) entry->attributes.is_bf16 = true;
  CKPT_TRY(ckpt_tape_check_op(op, tape->needs_backward, err));
  CKPT_TRY(check_inputs(tape, op, entry, err));
  CKPT_TRY(op->shapes(tape, entry, err));
  entry->attributes.site = tape->n_sites;
  if (entry->attributes.dropout > 0) tape->n_sites += entry->attributes.n_heads == 0 ? 1 : entry->attributes.n_heads;
  void *items = tape->entries;
  CKPT_TRY(reserve(tape->arena, &items, tape->n_entries, &tape->entry_capacity, sizeof *entry, err));
  tape->entries = items;
  tape->entries[tape->n_entries++] = *entry;
  return CKPT_OK;
}

ckpt_status ckpt_tape_expect_columns(const ckpt_tape *tape, const ckpt_tape_entry *entry, uint32_t value,
                                     uint64_t n_columns, ckpt_error *err) {
  const ckpt_tape_value *v = &tape->values[value];
  uint64_t has = ckpt_tape_columns(tape, value);
  if (v->shape.rank == 2 && v->shape.kinds[0] == CKPT_AXIS_TOKENS && has == n_columns) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "operation '%s': '%s' has %" PRIu64 " columns, expected %" PRIu64,
                   ckpt_tape_ops[entry->op]->name, v->name, has, n_columns);
}

ckpt_status ckpt_tape_expect_parameter(const ckpt_tape *tape, const ckpt_tape_entry *entry, uint32_t which,
                                       uint64_t n_rows, uint64_t n_columns, ckpt_error *err) {
  const ckpt_tape_value *v = &tape->values[entry->parameters[which]];
  const uint64_t *sizes = v->shape.sizes;
  if (n_rows == 0 ? v->shape.rank == 1 && sizes[0] == n_columns
                  : v->shape.rank == 2 && sizes[0] == n_rows && sizes[1] == n_columns)
    return CKPT_OK;
  return ckpt_fail(err, CKPT_EINVAL, NULL, v->name,
                   "operation '%s' needs it %" PRIu64 " x %" PRIu64 ", it is %" PRIu64 " x %" PRIu64,
                   ckpt_tape_ops[entry->op]->name, n_rows == 0 ? 1 : n_rows, n_columns,
                   v->shape.rank < 2 ? 1 : sizes[0], v->shape.rank == 0 ? 0 : sizes[v->shape.rank - 1]);
}

static int print_values(char *line, size_t n_bytes, const ckpt_tape *tape, const uint32_t *values, uint32_t n) {
  size_t used = 0;
  for (uint32_t i = 0; i < n && used < n_bytes; i++)
    used += (size_t)snprintf(line + used, n_bytes - used, " %s",
                             values[i] == CKPT_NO_VALUE ? "-" : tape->values[values[i]].name);
  return used < n_bytes ? (int)used : (int)n_bytes - 1;
}

void ckpt_tape_print(const ckpt_tape *tape, void (*print)(void *arg, const char *line), void *arg) {
  for (uint32_t i = 0; i < tape->n_entries; i++) {
    const ckpt_tape_entry *entry = &tape->entries[i];
    char line[1024];
    size_t used = (size_t)snprintf(line, sizeof line, "%-12s", ckpt_tape_ops[entry->op]->name);
    used += (size_t)print_values(line + used, sizeof line - used, tape, entry->in, entry->n_in);
    used += (size_t)print_values(line + used, sizeof line - used, tape, entry->parameters, entry->n_parameters);
    if (used + 4 < sizeof line) used += (size_t)snprintf(line + used, sizeof line - used, " ->");
    (void)print_values(line + used, sizeof line - used, tape, entry->out, entry->n_out);
    print(arg, line);
  }
}

ckpt_dropout ckpt_tape_dropout(const ckpt_tape_call *call) {
  const double rate = call->is_training ? call->entry->attributes.dropout : 0;
  return (ckpt_dropout){.key = call->batch->dropout_key,
                        .scale = 1 / (1 - rate),
                        .threshold = (uint32_t)(rate * 0x1p32),
                        .first_row = call->batch->first_row,
                        .site = call->entry->attributes.site};
}

/* ---- launching ------------------------------------------------------------------------------------------------------
 */

enum { PART_ELEMENTS = 16384, PART_COLUMNS = 64 };

void ckpt_tape_over_rows(const ckpt_tape_call *call, ckpt_tape_kernel_id kernel, const void *args, size_t n_rows,
                         size_t n_columns) {
  size_t grain = n_columns >= PART_ELEMENTS ? 1 : PART_ELEMENTS / (n_columns == 0 ? 1 : n_columns);
  call->device->table->launch(call->device, kernel, args, n_rows, grain);
}

void ckpt_tape_over_columns(const ckpt_tape_call *call, ckpt_tape_kernel_id kernel, const void *args,
                            size_t n_columns) {
  call->device->table->launch(call->device, kernel, args, n_columns, PART_COLUMNS);
}

void ckpt_tape_over_elements(const ckpt_tape_call *call, ckpt_tape_kernel_id kernel, const void *args, size_t n) {
  call->device->table->launch(call->device, kernel, args, n, PART_ELEMENTS);
}
