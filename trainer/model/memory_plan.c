/* memory_plan.c - schedule, liveness, places.
 *
 * A value lives from the step that makes it to the last that reads it, forward or backward; one that is made again has
 * a second life then. Its gradient lives from the first step that adds to it to the step that uses it up. Buffers get
 * places from the largest to the smallest, each at the lowest offset where nothing that lives at the same time stands.
 */
#include "trainer/model/memory_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "trainer/model/recompute.h"

typedef struct planner {
  ckpt_memory_plan *plan;
  ckpt_arena *arena;
  const ckpt_tape *tape;
  const ckpt_tape_limits *limits;
  ckpt_recompute recompute; /* with limits->recompute */
  ckpt_error *err;
} planner;

/* ---- the schedule ---------------------------------------------------------------------------------------------------
 */

/* The entries that run again before the backward of the layer whose last entry is given. */
static void make_again(planner *p, uint32_t last) {
  const ckpt_tape *tape = p->tape;
  uint32_t first = last;
  if (p->limits->recompute == CKPT_RECOMPUTE_NONE) return;
  while (first > 0 && tape->entries[first - 1].layer == tape->entries[last].layer) first--;
  for (uint32_t i = first; i <= last; i++)
    if (p->recompute.entries[i])
      p->plan->steps[p->plan->n_steps++] = (ckpt_schedule_step){.entry = i, .scratch = CKPT_NEVER};
}

static ckpt_status make_steps(planner *p, bool has_backward) {
  const ckpt_tape *tape = p->tape;
  ckpt_memory_plan *plan = p->plan;
  plan->steps = ckpt_arena_array(p->arena, 3 * (size_t)tape->n_entries + 1, sizeof *plan->steps);
  CKPT_TRY_ALLOC(plan->steps, p->err);
  for (uint32_t i = 0; i < tape->n_entries; i++)
    if (!has_backward || !ckpt_tape_ops[tape->entries[i].op]->is_forward_in_backward)
      plan->steps[plan->n_steps++] = (ckpt_schedule_step){.entry = i, .scratch = CKPT_NEVER};
  plan->n_forward = plan->n_steps;
  for (uint32_t i = tape->n_entries; i-- > 0 && has_backward;) {
    if (i + 1 == tape->n_entries || tape->entries[i + 1].layer != tape->entries[i].layer) make_again(p, i);
    plan->steps[plan->n_steps++] = (ckpt_schedule_step){.entry = i, .is_backward = true, .scratch = CKPT_NEVER};
  }
  return CKPT_OK;
}

/* ---- liveness -------------------------------------------------------------------------------------------------------
 */

static void use(ckpt_planned_buffer *buffer, uint32_t step) {
  if (buffer->first == CKPT_NEVER) buffer->first = step;
  buffer->last = step;
}

static bool is_activation(const planner *p, uint32_t value) {
  return value != CKPT_NO_VALUE && p->tape->values[value].residency == CKPT_RESIDES_ACTIVATION;
}

static void use_value(planner *p, uint32_t value, uint32_t step) {
  const bool is_again = p->limits->recompute != CKPT_RECOMPUTE_NONE && step >= p->plan->n_forward;
  if (!is_activation(p, value)) return;
  use(&p->plan->buffers[value + (is_again && p->recompute.values[value] ? 2 * p->tape->n_values : 0)], step);
}

static void look_at_backward(planner *p, uint32_t number) {
  ckpt_schedule_step *step = &p->plan->steps[number];
  const ckpt_tape_entry *entry = &p->tape->entries[step->entry];
  const ckpt_tape_op *op = ckpt_tape_ops[entry->op];
  const ckpt_tape_keeps keeps = op->keeps(entry);
  ckpt_planned_buffer *gradients = p->plan->buffers + p->tape->n_values;
  for (uint32_t i = 0; i < entry->n_in; i++) {
    if ((keeps.in >> i & 1) != 0) use_value(p, entry->in[i], number);
    if ((keeps.d_in >> i & 1) == 0 || !is_activation(p, entry->in[i])) continue;
    ckpt_planned_buffer *gradient = &gradients[entry->in[i]];
    if (gradient->first != CKPT_NEVER && gradient->first != number) step->adds |= (uint8_t)(1U << i);
    use(gradient, number);
  }
  for (uint32_t i = 0; i < entry->n_parameters; i++) { /* gathered ones live as values do */
    if (!is_activation(p, entry->parameters[i])) continue;
    use_value(p, entry->parameters[i], number);
    use(&gradients[entry->parameters[i]], number);
  }
  for (uint32_t i = 0; i < entry->n_out; i++) {
    if ((keeps.out >> i & 1) != 0 || op->is_forward_in_backward) use_value(p, entry->out[i], number);
    if ((keeps.d_out >> i & 1) != 0 && gradients[entry->out[i]].first != CKPT_NEVER)
      use(&gradients[entry->out[i]], number);
  }
}

static void look_at_forward(planner *p, uint32_t number) {
  const ckpt_tape_entry *entry = &p->tape->entries[p->plan->steps[number].entry];
  for (uint32_t i = 0; i < entry->n_in; i++) use_value(p, entry->in[i], number);
  for (uint32_t i = 0; i < entry->n_parameters; i++) use_value(p, entry->parameters[i], number);
  for (uint32_t i = 0; i < entry->n_out; i++) use_value(p, entry->out[i], number);
}

/* ---- gradients of parameters ----------------------------------------------------------------------------------------
 */

/* The number of an entry's i-th parameter in the flat buffers, or CKPT_NO_VALUE. */
static uint32_t parameter_of(const planner *p, const ckpt_tape_entry *entry, uint32_t i) {
  const uint32_t value = entry->parameters[i];
  if (value == CKPT_NO_VALUE || p->tape->values[value].residency != CKPT_RESIDES_PARAMETER) return CKPT_NO_VALUE;
  return p->tape->values[value].parameter;
}

static ckpt_status find_first_gradients(planner *p) {
  ckpt_memory_plan *plan = p->plan;
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->tape->n_values; i++)
    if (p->tape->values[i].residency == CKPT_RESIDES_PARAMETER && p->tape->values[i].parameter >= n)
      n = p->tape->values[i].parameter + 1;
  plan->is_set = ckpt_arena_array(p->arena, n + 1, sizeof *plan->is_set);
  CKPT_TRY_ALLOC(plan->is_set, p->err);
  bool *is_begun = ckpt_arena_array(p->arena, n + 1, sizeof *is_begun);
  CKPT_TRY_ALLOC(is_begun, p->err);
  for (uint32_t number = plan->n_forward; number < plan->n_steps; number++) {
    ckpt_schedule_step *step = &plan->steps[number];
    const ckpt_tape_entry *entry = &p->tape->entries[step->entry];
    if (!step->is_backward || entry->n_parameters == 0) continue;
    const uint32_t weight = parameter_of(p, entry, 0);
    step->may_set = ckpt_tape_ops[entry->op]->sets_weight && !entry->attributes.is_frozen && weight != CKPT_NO_VALUE &&
                    !is_begun[weight];
    if (step->may_set) plan->is_set[weight] = true;
    for (uint32_t i = 0; i < entry->n_parameters; i++)
      if (parameter_of(p, entry, i) != CKPT_NO_VALUE) is_begun[parameter_of(p, entry, i)] = true;
  }
  return CKPT_OK;
}

/* ---- factors --------------------------------------------------------------------------------------------------------
 */

static bool is_product(const ckpt_tape_entry *entry) {
  return entry->attributes.is_bf16 && ckpt_tape_ops[entry->op]->linears != NULL;
}

/* Values that products of bf16 read, and nothing else. */
static void find_factors(const planner *p, bool has_backward) {
  bool *is_factor = p->plan->is_factor;
  for (uint32_t i = 0; i < p->tape->n_entries; i++)
    if (is_product(&p->tape->entries[i]))
      is_factor[p->tape->entries[i].in[0]] = is_activation(p, p->tape->entries[i].in[0]);
  for (uint32_t i = 0; i < p->tape->n_entries; i++) {
    const ckpt_tape_entry *entry = &p->tape->entries[i];
    const uint32_t kept = has_backward ? ckpt_tape_ops[entry->op]->keeps(entry).out : 0;
    for (uint32_t k = is_product(entry) ? 1 : 0; k < entry->n_in; k++)
      if (entry->in[k] != CKPT_NO_VALUE) is_factor[entry->in[k]] = false;
    for (uint32_t k = 0; k < entry->n_parameters; k++)
      if (entry->parameters[k] != CKPT_NO_VALUE) is_factor[entry->parameters[k]] = false;
    for (uint32_t k = 0; k < entry->n_out; k++)
      if ((kept >> k & 1) != 0) is_factor[entry->out[k]] = false;
  }
}

/* Tells each step whether its products may round their factor where it lies, and whether a step before has. A value
 * that is made again is as it was. */
static ckpt_status plan_factors(planner *p, bool has_backward) {
  ckpt_memory_plan *plan = p->plan;
  plan->is_factor = ckpt_arena_array(p->arena, (size_t)p->tape->n_values + 1, sizeof *plan->is_factor);
  CKPT_TRY_ALLOC(plan->is_factor, p->err);
  bool *is_rounded = ckpt_arena_array(p->arena, (size_t)p->tape->n_values + 1, sizeof *is_rounded);
  CKPT_TRY_ALLOC(is_rounded, p->err);
  find_factors(p, has_backward);
  for (uint32_t i = 0; i < plan->n_steps; i++) {
    ckpt_schedule_step *step = &plan->steps[i];
    const ckpt_tape_entry *entry = &p->tape->entries[step->entry];
    for (uint32_t k = 0; k < entry->n_out && !step->is_backward; k++) is_rounded[entry->out[k]] = false;
    if (!is_product(entry) || !plan->is_factor[entry->in[0]]) continue;
    step->x_is_scratch = true;
    step->x_is_rounded = is_rounded[entry->in[0]];
    is_rounded[entry->in[0]] = !step->is_backward || step->x_is_rounded;
  }
  return CKPT_OK;
}

/* ---- sizes ----------------------------------------------------------------------------------------------------------
 */

static ckpt_status fail_size(planner *p, const char *what) {
  return ckpt_fail(p->err, CKPT_ELIMIT, NULL, NULL,
                   "%s of a batch of %" PRIu64 " tokens does not fit 64 bits (fewer rows or positions)", what,
                   p->limits->n_tokens);
}

static ckpt_status bytes_of(planner *p, const char *what, uint64_t n, uint64_t each, uint64_t *out) {
  uint64_t n_bytes;
  if (!ckpt_mul_u64(n, each, &n_bytes) || n_bytes > UINT64_MAX / 4) return fail_size(p, what);
  *out = (n_bytes + CKPT_PLAN_ALIGNMENT - 1) / CKPT_PLAN_ALIGNMENT * CKPT_PLAN_ALIGNMENT;
  return CKPT_OK;
}

static ckpt_status make_sizes(planner *p) {
  ckpt_memory_plan *plan = p->plan;
  const uint32_t n = p->tape->n_values;
  for (uint32_t i = 0; i < n; i++) {
    const ckpt_tape_value *value = &p->tape->values[i];
    uint64_t n_bytes = 0,
             per_token = ckpt_tape_columns(p->tape, i) * (value->shape.times == 0 ? 1 : value->shape.times);
    uint64_t n_elements = ckpt_tape_elements(value, 0);
    if (value->residency != CKPT_RESIDES_ACTIVATION) continue;
    if (value->shape.kinds[0] == CKPT_AXIS_TOKENS && !ckpt_mul_u64(p->limits->n_tokens, per_token, &n_elements))
      return fail_size(p, value->name);
    CKPT_TRY(bytes_of(p, value->name, n_elements, p->limits->real_bytes, &n_bytes));
    if (plan->buffers[i].first != CKPT_NEVER) plan->buffers[i].n_bytes = n_bytes;
    if (plan->buffers[n + i].first != CKPT_NEVER) plan->buffers[n + i].n_bytes = n_bytes;
    if (plan->buffers[2 * n + i].first != CKPT_NEVER) plan->buffers[2 * n + i].n_bytes = n_bytes;
  }
  return CKPT_OK;
}

/* Scratch of a step lives for that step. */
static ckpt_status make_scratch(planner *p) {
  ckpt_memory_plan *plan = p->plan;
  for (uint32_t i = 0; i < plan->n_steps; i++) {
    const ckpt_tape_entry *entry = &p->tape->entries[plan->steps[i].entry];
    const ckpt_tape_op *op = ckpt_tape_ops[entry->op];
    if (op->scratch == NULL || (op->has_backward_scratch && !plan->steps[i].is_backward)) continue;
    plan->steps[i].scratch = plan->n_buffers;
    ckpt_planned_buffer *buffer = &plan->buffers[plan->n_buffers++];
    *buffer = (ckpt_planned_buffer){.first = i, .last = i};
    CKPT_TRY(bytes_of(p, "scratch", op->scratch(p->tape, entry, p->limits), 1, &buffer->n_bytes));
  }
  return CKPT_OK;
}

static ckpt_status make_states(planner *p) {
  ckpt_memory_plan *plan = p->plan;
  plan->states = ckpt_arena_array(p->arena, p->tape->n_entries + 1, sizeof *plan->states);
  CKPT_TRY_ALLOC(plan->states, p->err);
  for (uint32_t i = 0; i < CKPT_N_INPUTS; i++) {
    uint64_t n_bytes = 0;
    CKPT_TRY(bytes_of(p, "a batch", p->limits->n_tokens, i == CKPT_INPUT_MASK ? 1 : sizeof(int32_t), &n_bytes));
    plan->inputs[i] = plan->state;
    plan->state += n_bytes;
  }
  for (uint32_t i = 0; i < p->tape->n_entries; i++) {
    const ckpt_tape_op *op = ckpt_tape_ops[p->tape->entries[i].op];
    uint64_t n_bytes = 0;
    if (op->state_bytes != NULL) CKPT_TRY(bytes_of(p, "state", op->state_bytes(&p->tape->entries[i]), 1, &n_bytes));
    plan->states[i] = plan->state;
    plan->state += n_bytes;
  }
  return CKPT_OK;
}

/* ---- places ---------------------------------------------------------------------------------------------------------
 */

static int by_size(const void *a, const void *b) {
  const ckpt_planned_buffer *x = *(ckpt_planned_buffer *const *)a, *y = *(ckpt_planned_buffer *const *)b;
  if (x->n_bytes != y->n_bytes) return x->n_bytes > y->n_bytes ? -1 : 1;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return x < y ? -1 : x > y;
}

static int by_offset(const void *a, const void *b) {
  const ckpt_planned_buffer *x = *(ckpt_planned_buffer *const *)a, *y = *(ckpt_planned_buffer *const *)b;
  return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1) : 0;
}

/* The lowest offset where nothing in placed[0, n), which is in order of offsets, lives at the same time. */
static uint64_t lowest_offset(ckpt_planned_buffer *const *placed, uint32_t n, const ckpt_planned_buffer *buffer) {
  uint64_t offset = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (placed[i]->last < buffer->first || buffer->last < placed[i]->first) continue;
    if (placed[i]->offset >= offset + buffer->n_bytes) break;
    if (placed[i]->offset + placed[i]->n_bytes > offset) offset = placed[i]->offset + placed[i]->n_bytes;
  }
  return offset;
}

/* Keeps placed[0, n] in order of offsets after one was put at its end. */
static void sort_in(ckpt_planned_buffer **placed, uint32_t n) {
  for (uint32_t i = n; i > 0 && by_offset(&placed[i - 1], &placed[i]) > 0; i--) {
    ckpt_planned_buffer *moved = placed[i];
    placed[i] = placed[i - 1];
    placed[i - 1] = moved;
  }
}

static ckpt_status make_places(planner *p) {
  ckpt_memory_plan *plan = p->plan;
  ckpt_planned_buffer **all = calloc((size_t)plan->n_buffers * 2 + 1, sizeof *all);
  CKPT_TRY_ALLOC(all, p->err);
  ckpt_planned_buffer **placed = all + plan->n_buffers;
  uint32_t n = 0;
  for (uint32_t i = 0; i < plan->n_buffers; i++)
    if (plan->buffers[i].n_bytes != 0) all[n++] = &plan->buffers[i];
  qsort(all, n, sizeof(ckpt_planned_buffer *), by_size);
  for (uint32_t i = 0; i < n; i++) {
    all[i]->offset = lowest_offset(placed, i, all[i]);
    placed[i] = all[i];
    sort_in(placed, i);
    if (all[i]->offset + all[i]->n_bytes > plan->arena) plan->arena = all[i]->offset + all[i]->n_bytes;
  }
  free(all);
  return CKPT_OK;
}

static void sum_live(ckpt_memory_plan *plan) {
  for (uint32_t step = 0; step < plan->n_steps; step++) {
    uint64_t live = 0;
    for (uint32_t i = 0; i < plan->n_buffers; i++)
      if (plan->buffers[i].n_bytes != 0 && plan->buffers[i].first <= step && step <= plan->buffers[i].last)
        live += plan->buffers[i].n_bytes;
    if (live > plan->live) plan->live = live;
  }
}

ckpt_status ckpt_memory_plan_make(ckpt_memory_plan *out, ckpt_arena *arena, const ckpt_tape *tape,
                                  const ckpt_tape_limits *limits, bool has_backward, ckpt_error *err) {
  planner p = {.plan = out, .arena = arena, .tape = tape, .limits = limits, .err = err};
  *out = (ckpt_memory_plan){.n_values = tape->n_values};
  if (limits->recompute != CKPT_RECOMPUTE_NONE)
    CKPT_TRY(ckpt_recompute_find(&p.recompute, arena, tape, limits->recompute, err));
  CKPT_TRY(make_steps(&p, has_backward));
  out->n_buffers = 3 * tape->n_values;
  out->buffers = ckpt_arena_array(arena, (size_t)out->n_buffers + out->n_steps, sizeof *out->buffers);
  CKPT_TRY_ALLOC(out->buffers, err);
  for (uint32_t i = 0; i < out->n_buffers; i++) out->buffers[i].first = out->buffers[i].last = CKPT_NEVER;
  for (uint32_t i = 0; i < out->n_steps; i++) {
    if (out->steps[i].is_backward)
      look_at_backward(&p, i);
    else
      look_at_forward(&p, i);
  }
  CKPT_TRY(find_first_gradients(&p));
  CKPT_TRY(plan_factors(&p, has_backward));
  CKPT_TRY(make_sizes(&p));
  CKPT_TRY(make_scratch(&p));
  CKPT_TRY(make_states(&p));
  CKPT_TRY(make_places(&p));
  sum_live(out);
  return CKPT_OK;
}
