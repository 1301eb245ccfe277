/* shard.c - see shard.h. Entries are recorded anew, so that each row's own `shapes` checks that the parts meet. */
#include "trainer/model/shard.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "trainer/model/op.h"

/* What is known of a parameter of the whole while the pass goes on. */
typedef struct cut {
  bool is_decided;
  int8_t axis;
  uint8_t parts;
  uint32_t shard;    /* its value in the rank's tape */
  uint32_t gathered; /* that it is read from */
} cut;

typedef struct pass {
  ckpt_sharded_model *out;
  const ckpt_model *whole;
  ckpt_tape *tape;
  uint32_t *value_of;         /* of each value of the whole tape: the rank's */
  uint32_t *copies, *gathers; /* of each of the rank's values: its copy_to, its gather; CKPT_NO_VALUE */
  uint32_t capacity;          /* of arrays over the rank's values */
  cut *cuts;                  /* of each parameter of the whole */
  ckpt_error *err;
} pass;

ckpt_status ckpt_shard_divide(uint64_t *out, uint64_t n, uint32_t by, const char *what, const char *name,
                              ckpt_error *err) {
  if (n % by != 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, name,
                     "%" PRIu64 " %s cannot be cut over tp %u (%" PRIu64 " are left over)", n, what, by, n % by);
  *out = n / by;
  return CKPT_OK;
}

static uint32_t tp_of(const pass *p) { return p->out->mesh.at[CKPT_MESH_TP]; }

/* ---- parameters -------------------------------------------------------------------------------------------------- */

/* The shape over tp, and what of it is this rank's. */
static ckpt_status make_origin(pass *p, uint32_t number, const cut *c, uint64_t shape[2], ckpt_shard_origin *o) {
  const ckpt_parameter *whole = &p->whole->parameters[number];
  const uint32_t n_dp = p->out->mesh.at[CKPT_MESH_DP_SHARD], dp = p->out->place.at[CKPT_MESH_DP_SHARD];
  for (uint32_t i = 0; i < whole->rank; i++) shape[i] = whole->shape[i];
  if (c->axis >= 0) {
    uint64_t part = 0;
    CKPT_TRY(ckpt_shard_divide(&part, shape[c->axis], c->parts * tp_of(p), c->axis == 0 ? "rows" : "columns",
                               whole->name, p->err));
    shape[c->axis] = part * c->parts;
  }
  *o = (ckpt_shard_origin){.parameter = number, .tp_axis = c->axis, .parts = c->parts};
  o->rows = shape[0], o->columns = whole->rank == 2 ? shape[1] : 1;
  const uint64_t each = o->rows == 0 ? 0 : (o->rows - 1) / n_dp + 1;
  o->first_row = each * dp < o->rows ? each * dp : o->rows;
  o->n_rows = o->rows - o->first_row < each ? o->rows - o->first_row : each;
  for (uint32_t i = 0; i < CKPT_N_MESH_AXES; i++)
    if ((i == CKPT_MESH_DP_REPLICATE || i == CKPT_MESH_CP) && p->out->mesh.at[i] > 1) o->sum_axes |= 1U << i;
  return CKPT_OK;
}

/* Adds the rank's shard of a parameter to its table and tape. */
static ckpt_status add_shard(pass *p, uint32_t number, cut *c, uint64_t whole_shape[2]) {
  ckpt_model *model = p->out->model;
  const uint32_t at = model->n_parameters++;
  ckpt_parameter *local = &model->parameters[at];
  ckpt_shard_origin *origin = &p->out->origins[at];
  CKPT_TRY(make_origin(p, number, c, whole_shape, origin));
  *local = p->whole->parameters[number];
  local->shape[0] = origin->n_rows;
  if (local->rank == 2) local->shape[1] = origin->columns;
  local->n_elements = origin->n_rows * origin->columns;
  local->offset = model->n_flat;
  model->n_flat += (local->n_elements + 15) / 16 * 16;
  model->n_elements += local->n_elements;
  CKPT_TRY(ckpt_tape_parameter(p->tape, local->name, at, local->rank, local->shape, &local->value, p->err));
  c->shard = local->value;
  return CKPT_OK;
}

/* The rows of each rank of dp_shard, which a gather needs. */
static ckpt_status gather_parameter(pass *p, cut *c, const uint64_t *shape) {
  const uint32_t n_dp = p->out->mesh.at[CKPT_MESH_DP_SHARD];
  c->gathered = c->shard;
  if (n_dp == 1) return CKPT_OK;
  ckpt_tape_entry entry = {.op = CKPT_OP_gather,
                           .n_parameters = 1,
                           .parameters = {c->shard},
                           .attributes = {.axis = CKPT_MESH_DP_SHARD, .axis_size = n_dp, .axis_rows = shape[0]}};
  CKPT_TRY(ckpt_tape_record(p->tape, &entry, p->err));
  c->gathered = entry.out[0];
  return CKPT_OK;
}

static ckpt_status take_parameter(pass *p, uint32_t number, int8_t axis, uint8_t parts, uint32_t *value) {
  cut *c = &p->cuts[number];
  const ckpt_parameter *whole = &p->whole->parameters[number];
  if (c->is_decided && c->axis != axis)
    return ckpt_fail(p->err, CKPT_EUNSUPPORTED, NULL, whole->name, "is used whole and cut over tp %u", tp_of(p));
  if (!c->is_decided) {
    uint64_t shape[CKPT_TAPE_MAX_RANK] = {0};
    *c = (cut){.is_decided = true, .axis = axis, .parts = parts};
    CKPT_TRY(add_shard(p, number, c, shape));
    CKPT_TRY(gather_parameter(p, c, shape));
  }
  *value = c->gathered;
  return CKPT_OK;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static bool grow(uint32_t **array, uint32_t n, uint32_t wanted) {
  uint32_t *grown = reallocarray(*array, wanted, sizeof *grown);
  if (grown == NULL) return false;
  for (uint32_t i = n; i < wanted; i++) grown[i] = CKPT_NO_VALUE;
  *array = grown;
  return true;
}

/* Room in the arrays over the rank's values. */
static ckpt_status make_room(pass *p) {
  if (p->tape->n_values < p->capacity) return CKPT_OK;
  const uint32_t wanted = p->tape->n_values * 2 + 64;
  ckpt_shard_layout *layouts = reallocarray(p->out->layouts, wanted, sizeof *layouts);
  if (layouts != NULL) p->out->layouts = layouts;
  if (layouts == NULL || !grow(&p->copies, p->capacity, wanted) || !grow(&p->gathers, p->capacity, wanted) ||
      !grow(&p->out->values, p->capacity, wanted))
    return ckpt_fail(p->err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  memset(layouts + p->capacity, 0, (wanted - p->capacity) * sizeof *layouts);
  p->capacity = wanted;
  return CKPT_OK;
}

/* Records a collective of one value. */
static ckpt_status record_node(pass *p, uint8_t op, ckpt_mesh_axis axis, uint32_t *value, ckpt_shard_layout layout) {
  const uint32_t origin = p->out->values[*value];
  ckpt_tape_entry entry = {
      .op = op, .n_in = 1, .in = {*value}, .attributes = {.axis = axis, .axis_size = p->out->mesh.at[axis]}};
  CKPT_TRY(ckpt_tape_record(p->tape, &entry, p->err));
  CKPT_TRY(make_room(p));
  *value = entry.out[0];
  p->out->layouts[*value] = layout;
  p->out->values[*value] = origin;
  return CKPT_OK;
}

static ckpt_status fail_layout(const pass *p, const ckpt_tape_entry *entry, uint32_t value, ckpt_shard_layout needed) {
  static const char *const names[CKPT_N_SHARD_LAYOUTS] = {"whole", "copied", "cut in columns", "a sum of parts"};
  return ckpt_fail(p->err, CKPT_EUNSUPPORTED, NULL, NULL, "operation '%s' needs '%s' %s, it is %s over tp %u",
                   ckpt_tape_ops[entry->op]->name, p->tape->values[value].name, names[needed],
                   names[p->out->layouts[value]], tp_of(p));
}

/* The value as an operation needs it: the collectives between. */
static ckpt_status bring(pass *p, const ckpt_tape_entry *entry, uint32_t *value, ckpt_shard_layout needed,
                         bool gathers_tokens) {
  const uint32_t before = *value;
  if (p->tape->values[before].residency == CKPT_RESIDES_INPUT) return CKPT_OK;
  if (p->out->layouts[*value] == CKPT_SHARD_PARTIAL && needed != CKPT_SHARD_PARTIAL) {
    CKPT_TRY(record_node(p, CKPT_OP_reduce_from, CKPT_MESH_TP, value, CKPT_SHARD_WHOLE));
    for (uint32_t i = 0; i < p->whole->tape.n_values; i++) /* everyone reads the sum from now on */
      if (p->value_of[i] == before) p->value_of[i] = *value;
  }
  if (p->out->layouts[*value] == CKPT_SHARD_WHOLE && needed == CKPT_SHARD_COPIED) {
    const uint32_t from = *value;
    if (p->copies[from] == CKPT_NO_VALUE) {
      CKPT_TRY(record_node(p, CKPT_OP_copy_to, CKPT_MESH_TP, value, CKPT_SHARD_COPIED));
      p->copies[from] = *value;
    }
    *value = p->copies[from];
  }
  if (p->out->layouts[*value] != needed) return fail_layout(p, entry, *value, needed);
  if (!gathers_tokens || p->out->mesh.at[CKPT_MESH_CP] == 1) return CKPT_OK;
  const uint32_t from = *value;
  if (p->gathers[from] == CKPT_NO_VALUE) {
    CKPT_TRY(record_node(p, CKPT_OP_gather, CKPT_MESH_CP, value, needed));
    p->gathers[from] = *value;
  }
  *value = p->gathers[from];
  return CKPT_OK;
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */

static ckpt_status ask(pass *p, ckpt_tape_entry *entry, ckpt_shard_rule *rule, ckpt_shard_query *query) {
  const ckpt_tape *tape = &p->whole->tape;
  const ckpt_tape_op *op = ckpt_tape_ops[entry->op];
  *query = (ckpt_shard_query){.n_tp = tp_of(p)};
  *rule = (ckpt_shard_rule){.parameter_axes = {-1, -1}};
  if (op->shard == NULL)
    return ckpt_fail(p->err, CKPT_EUNSUPPORTED, NULL, NULL, "operation '%s' has no shard rule", op->name);
  for (uint32_t i = 0; i < entry->n_in; i++)
    if (entry->in[i] != CKPT_NO_VALUE && tape->values[entry->in[i]].residency == CKPT_RESIDES_ACTIVATION)
      query->in[i] = p->out->layouts[p->value_of[entry->in[i]]];
  for (uint32_t i = 0; i < entry->n_parameters; i++) {
    const ckpt_parameter *parameter = &p->whole->parameters[tape->values[entry->parameters[i]].parameter];
    query->split_axes[i] = tp_of(p) == 1 ? -1 : parameter->split_axis;
    query->parts[i] = parameter->split_parts;
  }
  return op->shard(rule, tape, entry, query, p->err);
}

static ckpt_status convert(pass *p, const ckpt_tape_entry *whole) {
  ckpt_tape_entry entry = *whole;
  ckpt_shard_rule rule;
  ckpt_shard_query query;
  p->tape->layer = whole->layer;
  CKPT_TRY(ask(p, &entry, &rule, &query));
  for (uint32_t i = 0; i < entry.n_in; i++) {
    if (entry.in[i] == CKPT_NO_VALUE) continue;
    entry.in[i] = p->value_of[entry.in[i]];
    CKPT_TRY(bring(p, &entry, &entry.in[i], rule.in[i], (rule.gathers_tokens >> i & 1) != 0));
  }
  for (uint32_t i = 0; i < entry.n_parameters; i++) {
    const uint32_t number = p->whole->tape.values[entry.parameters[i]].parameter;
    CKPT_TRY(take_parameter(p, number, rule.parameter_axes[i], query.parts[i], &entry.parameters[i]));
    if ((rule.sums_over_tp >> i & 1) != 0)
      p->out->origins[p->tape->values[p->cuts[number].shard].parameter].sum_axes |= 1U << CKPT_MESH_TP;
  }
  /* of a sum of parts the bias is one rank's */
  entry.attributes.skips_bias = rule.out[0] == CKPT_SHARD_PARTIAL && p->out->place.at[CKPT_MESH_TP] != 0;
  CKPT_TRY(ckpt_tape_record(p->tape, &entry, p->err));
  CKPT_TRY(make_room(p));
  /* counters of dropout are those of the whole: heads of this rank begin further on */
  ckpt_tape_attributes *made = &p->tape->entries[p->tape->n_entries - 1].attributes;
  made->site = whole->attributes.site;
  if (made->n_heads != whole->attributes.n_heads) made->site += made->n_heads * p->out->place.at[CKPT_MESH_TP];
  for (uint32_t i = 0; i < entry.n_out; i++) {
    p->value_of[whole->out[i]] = entry.out[i];
    p->out->values[entry.out[i]] = whole->out[i];
    p->out->layouts[entry.out[i]] = rule.out[i];
  }
  return CKPT_OK;
}

static ckpt_status run(pass *p) {
  const ckpt_tape *whole = &p->whole->tape;
  CKPT_TRY(make_room(p));
  for (uint32_t i = 0; i < CKPT_N_INPUTS; i++) {
    p->value_of[whole->inputs[i]] = p->tape->inputs[i];
    p->out->values[p->tape->inputs[i]] = whole->inputs[i];
  }
  for (uint32_t i = 0; i < whole->n_entries; i++) CKPT_TRY(convert(p, &whole->entries[i]));
  for (uint32_t i = 0; i < p->whole->n_parameters; i++)
    if (!p->cuts[i].is_decided)
      return ckpt_fail(p->err, CKPT_EINTERNAL, NULL, p->whole->parameters[i].name, "is read by no operation");
  return CKPT_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static ckpt_status begin(ckpt_sharded_model *s, pass *p) {
  const ckpt_model *whole = s->whole;
  ckpt_model *model = s->model = calloc(1, sizeof *model);
  CKPT_TRY_ALLOC(model, p->err);
  *model = *whole;
  model->tape = (ckpt_tape){0};
  model->parameters = NULL;
  model->n_parameters = 0;
  model->n_flat = model->n_elements = 0;
  ckpt_arena_init(&model->arena, UINT64_C(1) << 30);
  model->parameters = ckpt_arena_array(&model->arena, (size_t)whole->n_parameters + 1, sizeof *model->parameters);
  s->origins = calloc((size_t)whole->n_parameters + 1, sizeof *s->origins);
  p->cuts = calloc((size_t)whole->n_parameters + 1, sizeof *p->cuts);
  p->value_of = calloc((size_t)whole->tape.n_values + 1, sizeof *p->value_of);
  if (model->parameters == NULL || s->origins == NULL || p->cuts == NULL || p->value_of == NULL)
    return ckpt_fail(p->err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint32_t i = 0; i < whole->tape.n_values; i++) p->value_of[i] = CKPT_NO_VALUE;
  p->tape = &model->tape;
  return ckpt_tape_init(p->tape, &model->arena, whole->tape.needs_backward, p->err);
}

ckpt_status ckpt_sharded_model_new(ckpt_sharded_model **out, const ckpt_model *whole, const ckpt_mesh *mesh,
                                   const ckpt_mesh *place, ckpt_error *err) {
  ckpt_sharded_model *s = calloc(1, sizeof *s);
  CKPT_TRY_ALLOC(s, err);
  *s = (ckpt_sharded_model){.whole = whole, .mesh = *mesh, .place = *place};
  pass p = {.out = s, .whole = whole, .err = err};
  ckpt_status status = begin(s, &p);
  if (status == CKPT_OK) status = run(&p);
  free(p.cuts);
  free(p.value_of);
  free(p.copies);
  free(p.gathers);
  if (status == CKPT_OK)
    *out = s;
  else
    ckpt_sharded_model_free(s);
  return status;
}

void ckpt_sharded_model_free(ckpt_sharded_model *s) {
  if (s == NULL) return;
  ckpt_model_free(s->model);
  free(s->origins);
  free(s->layouts);
  free(s->values);
  free(s);
}

/* ---- between the whole and the part ------------------------------------------------------------------------------ */

/* Where an index along the cut axis of the part is in the whole: parts lie side by side, each cut. */
static uint64_t index_in_whole(const ckpt_shard_origin *o, uint64_t i, uint64_t n_local, uint32_t n_tp, uint32_t tp) {
  const uint64_t each = n_local / o->parts;
  return i / each * each * n_tp + tp * each + i % each;
}

/* The whole's element for each of the rank's, in its order, copied one way or the other. */
static void copy_parameter(const ckpt_sharded_model *s, uint32_t number, char *local, char *whole, bool is_giving,
                           size_t real_bytes) {
  const ckpt_shard_origin *o = &s->origins[number];
  const ckpt_parameter *from = &s->whole->parameters[o->parameter], *to = &s->model->parameters[number];
  const uint32_t n_tp = s->mesh.at[CKPT_MESH_TP], tp = s->place.at[CKPT_MESH_TP];
  const uint64_t whole_columns = from->rank == 2 ? from->shape[1] : 1;
  for (uint64_t r = 0; r < o->n_rows; r++) {
    const uint64_t row = o->first_row + r;
    const uint64_t whole_row = o->tp_axis == 0 ? index_in_whole(o, row, o->rows, n_tp, tp) : row;
    for (uint64_t c = 0; c < o->columns; c++) {
      const uint64_t column = o->tp_axis == 1 ? index_in_whole(o, c, o->columns, n_tp, tp) : c;
      char *at = local + (to->offset + r * o->columns + c) * real_bytes;
      char *there = whole + (from->offset + whole_row * whole_columns + column) * real_bytes;
      if (is_giving)
        memcpy(there, at, real_bytes);
      else
        memcpy(at, there, real_bytes);
    }
  }
}

void ckpt_sharded_model_take(const ckpt_sharded_model *s, void *local, const void *whole, size_t real_bytes) {
  for (uint32_t i = 0; i < s->model->n_parameters; i++)
    copy_parameter(s, i, local, (char *)(uintptr_t)whole, false, real_bytes);
}

void ckpt_sharded_model_give(const ckpt_sharded_model *s, const void *local, void *whole, size_t real_bytes) {
  for (uint32_t i = 0; i < s->model->n_parameters; i++)
    copy_parameter(s, i, (char *)(uintptr_t)local, whole, true, real_bytes);
}
