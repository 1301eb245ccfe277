/* executor.c - memory of a planned tape, and its runs: pointers are made for each call, and nobody keeps one. */
#include "trainer/model/executor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "trainer/model/memory_plan.h"

enum {
  LOSS_ROWS = 256,
  TRAINED_LOSS_ROWS = 512
}; /* the second where the weight's gradient is read and written with each chunk */

struct ckpt_executor {
  ckpt_arena records; /* of the plan */
  const ckpt_model *model;
  ckpt_device *device;
  bool owns_device, owns_parameters, owns_gradients, has_backward;
  ckpt_tape_limits limits;
  uint32_t max_rows, max_length;
  ckpt_memory_plan plan;
  ckpt_executor_memory memory;
  uint64_t high_water;
  char *arena, *state; /* of the device */
  char *parameters, *gradients;
  const ckpt_unit_hooks *hooks;
  const ckpt_parameter_place *places; /* the caller's; NULL: parameters are in the flat buffers */
  ckpt_axis_group *axes[CKPT_N_MESH_AXES];
  char *log_probabilities; /* of the host: one a token */
  float *logits;           /* of the host: a chunk's, where the device is another; NULL before the first */
};

/* ---- the plan -------------------------------------------------------------------------------------------------------
 */

static ckpt_status make_limits(ckpt_tape_limits *out, const ckpt_model *model, const ckpt_executor_options *options,
                               uint64_t real_bytes, ckpt_error *err) {
  const uint64_t rows = options->max_rows == 0 ? 1 : options->max_rows;
  const uint64_t length = options->max_length == 0 ? model->max_positions : options->max_length;
  if (length > model->max_positions)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "a length of %" PRIu64 ", the model has %" PRIu64 " positions",
                     length, model->max_positions);
  *out = (ckpt_tape_limits){.n_rows = rows,
                            .length = length,
                            .real_bytes = real_bytes,
                            .recompute = options->has_backward ? options->recompute : CKPT_RECOMPUTE_NONE};
  if (!ckpt_mul_u64(rows, length, &out->n_tokens) || out->n_tokens > INT32_MAX)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL,
                     "a batch of %" PRIu64 " rows of %" PRIu64 " tokens (at most %d tokens)", rows, length, INT32_MAX);
  const uint64_t loss_rows = options->loss_rows != 0 ? options->loss_rows
                             : options->has_backward ? TRAINED_LOSS_ROWS
                                                     : LOSS_ROWS;
  out->loss_rows = loss_rows < out->n_tokens ? loss_rows : out->n_tokens;
  return CKPT_OK;
}

static ckpt_status make_plan(ckpt_memory_plan *plan, ckpt_executor_memory *memory, ckpt_arena *records,
                             const ckpt_tape_limits *limits, const ckpt_model *model, bool has_backward,
                             ckpt_error *err) {
  if (has_backward && !model->tape.needs_backward)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "the model was made without backward");
  CKPT_TRY(ckpt_memory_plan_make(plan, records, &model->tape, limits, has_backward, err));
  *memory = (ckpt_executor_memory){.parameters = model->n_flat * limits->real_bytes,
                                   .gradients = has_backward ? model->n_flat * limits->real_bytes : 0,
                                   .arena = plan->arena,
                                   .state = plan->state,
                                   .live = plan->live};
  return CKPT_OK;
}

/* Both factors of the last may be those of a smaller batch; of the others the matrix is as it is, and forward it may be
 * stored otherwise. x_is_scratch: x is rounded where it lies, and lies so backward unless it is made again. The last
 * has the gradient of y for a, or x where the matrix is in by out. */
static void plan_linear(const ckpt_tape_linear *l, bool is_bf16, const ckpt_parameter_place *place, uint32_t n_products,
                        bool x_is_scratch, bool is_made_again, bool is_in_by_out, size_t *shared, size_t *panels) {
  ckpt_gemm products[] = {{.m = l->n_tokens, .n = l->n_out, .k = l->n_in, .is_b_transposed = !is_in_by_out},
                          {.m = l->n_tokens, .n = l->n_in, .k = l->n_out, .is_b_transposed = is_in_by_out},
                          {.m = l->n_out, .n = l->n_in, .k = l->n_tokens}};
  products[0].is_a_scratch = x_is_scratch;
  products[1].is_a_scratch = true;
  if (is_in_by_out) products[2].m = l->n_in, products[2].n = l->n_out;
  products[2].is_a_transposed = true, products[2].lda = products[2].m;
  products[2].is_a_scratch = !is_in_by_out || x_is_scratch;
  products[2].is_b_rounded = is_in_by_out || (x_is_scratch && !is_made_again);
  if (place != NULL) products[0].b_dtype = place->dtype, products[0].is_b_turned = place->is_turned;
  for (uint32_t i = 0; i < n_products; i++) {
    size_t own;
    products[i].is_bf16 = is_bf16, products[i].ldb = products[i].is_b_transposed ? products[i].k : products[i].n;
    const ckpt_tape_kernels *kernels = is_bf16 ? ckpt_device_cpu_kernels() : ckpt_tape_kernels_cpu_f32();
    const size_t n_bytes = ckpt_gemm_cpu_bytes(kernels, &products[i], i == 2, &own);
    *shared = n_bytes > *shared ? n_bytes : *shared;
    *panels = own > *panels ? own : *panels;
  }
}

static uint64_t plan_products(const ckpt_model *model, const ckpt_executor_options *options,
                              const ckpt_tape_limits *limits, const ckpt_memory_plan *plan) {
  size_t shared = 0, panels = 0;
  for (uint32_t i = 0; i < model->tape.n_entries; i++) {
    const ckpt_tape_entry *entry = &model->tape.entries[i];
    const ckpt_tape_op *op = ckpt_tape_ops[entry->op];
    ckpt_tape_linear linears[CKPT_TAPE_MAX_LINEARS];
    if (op->linears == NULL) continue;
    const ckpt_tape_value *weight = &model->tape.values[entry->parameters[0]];
    const bool has_place = options->places != NULL && weight->residency == CKPT_RESIDES_PARAMETER;
    const ckpt_parameter_place *place = has_place ? &options->places[weight->parameter] : NULL;
    const uint32_t n = op->linears(&model->tape, entry, limits, linears);
    for (uint32_t k = 0; k < n; k++) {
      const bool is_frozen = k == 0 && entry->attributes.is_frozen;
      const uint32_t n_products = !options->has_backward ? 1 : is_frozen ? 2 : 3;
      plan_linear(&linears[k], entry->attributes.is_bf16, k == 0 ? place : NULL, n_products,
                  k == 0 && plan->is_factor[entry->in[0]], limits->recompute != CKPT_RECOMPUTE_NONE,
                  k == 0 && entry->attributes.is_in_by_out, &shared, &panels);
    }
  }
  return shared + (uint64_t)panels * ckpt_device_cpu_threads(options->n_threads);
}

ckpt_status ckpt_executor_plan(ckpt_executor_memory *out, const ckpt_model *model, const ckpt_executor_options *options,
                               ckpt_error *err) {
  ckpt_arena records;
  ckpt_memory_plan plan;
  ckpt_tape_limits limits;
  const uint64_t real_bytes = options->device == NULL ? sizeof(float) : options->device->kernels->real_bytes;
  CKPT_TRY(make_limits(&limits, model, options, real_bytes, err));
  ckpt_arena_init(&records, UINT64_MAX);
  ckpt_status status = make_plan(&plan, out, &records, &limits, model, options->has_backward, err);
  if (status == CKPT_OK) out->products = plan_products(model, options, &limits, &plan);
  ckpt_arena_free(&records);
  return status;
}

/* ---- life -----------------------------------------------------------------------------------------------------------
 */

static ckpt_status allocate(ckpt_executor *x, char **out, uint64_t n_bytes, const char *what, ckpt_error *err) {
  *out = x->device->table->allocate(x->device, n_bytes == 0 ? 1 : (size_t)n_bytes);
  if (*out != NULL) return CKPT_OK;
  return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "no memory for %s (%" PRIu64 " bytes)", what, n_bytes);
}

static ckpt_status fill_states(ckpt_executor *x, ckpt_error *err) {
  const ckpt_tape *tape = &x->model->tape;
  for (uint32_t i = 0; i < tape->n_entries; i++) {
    const ckpt_tape_op *op = ckpt_tape_ops[tape->entries[i].op];
    if (op->state == NULL) continue;
    const size_t n_bytes = (size_t)op->state_bytes(&tape->entries[i]);
    void *host = malloc(n_bytes == 0 ? 1 : n_bytes);
    CKPT_TRY_ALLOC(host, err);
    op->state(&tape->entries[i], host);
    x->device->table->copy_in(x->device, x->state + x->plan.states[i], host, n_bytes);
    free(host);
  }
  return CKPT_OK;
}

/* Every collective has its group. */
static ckpt_status check_axes(const ckpt_executor *x, ckpt_error *err) {
  for (uint32_t i = 0; i < x->model->tape.n_entries; i++) {
    const ckpt_tape_entry *entry = &x->model->tape.entries[i];
    const ckpt_axis_group *group = ckpt_tape_ops[entry->op]->is_collective ? x->axes[entry->attributes.axis] : NULL;
    if (!ckpt_tape_ops[entry->op]->is_collective || (group != NULL && group->size == entry->attributes.axis_size))
      continue;
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "a group of %u ranks is needed for axis %s, not %u",
                     entry->attributes.axis_size, ckpt_mesh_names[entry->attributes.axis],
                     group == NULL ? 0 : group->size);
  }
  return CKPT_OK;
}

static ckpt_status allocate_all(ckpt_executor *x, const ckpt_executor_options *options, ckpt_error *err) {
  x->places = options->places;
  x->hooks = options->hooks;
  for (uint32_t i = 0; i < CKPT_N_MESH_AXES; i++) x->axes[i] = options->axes[i];
  CKPT_TRY(check_axes(x, err));
  x->owns_parameters = options->parameters == NULL && x->places == NULL;
  x->owns_gradients = options->gradients == NULL && x->has_backward && x->places == NULL;
  x->parameters = (char *)options->parameters;
  x->gradients = x->has_backward ? (char *)options->gradients : NULL;
  if (x->owns_parameters) CKPT_TRY(allocate(x, &x->parameters, x->memory.parameters, "parameters", err));
  if (x->owns_gradients) CKPT_TRY(allocate(x, &x->gradients, x->memory.gradients, "gradients", err));
  CKPT_TRY(allocate(x, &x->arena, x->memory.arena, "activations", err));
  CKPT_TRY(allocate(x, &x->state, x->memory.state, "states", err));
  x->log_probabilities = calloc((size_t)x->limits.n_tokens + 1, (size_t)x->limits.real_bytes);
  CKPT_TRY_ALLOC(x->log_probabilities, err);
  return fill_states(x, err);
}

static ckpt_status build(ckpt_executor *x, const ckpt_executor_options *options, ckpt_error *err) {
  x->device = options->device;
  if (x->device == NULL) {
    CKPT_TRY(ckpt_device_cpu_new(&x->device, options->n_threads, NULL, err));
    x->owns_device = true;
  }
  CKPT_TRY(make_limits(&x->limits, x->model, options, x->device->kernels->real_bytes, err));
  CKPT_TRY(make_plan(&x->plan, &x->memory, &x->records, &x->limits, x->model, x->has_backward, err));
  return allocate_all(x, options, err);
}

ckpt_status ckpt_executor_new(ckpt_executor **out, const ckpt_model *model, const ckpt_executor_options *options,
                              ckpt_error *err) {
  ckpt_executor *x = calloc(1, sizeof *x);
  CKPT_TRY_ALLOC(x, err);
  ckpt_arena_init(&x->records, UINT64_MAX);
  x->model = model;
  x->has_backward = options->has_backward;
  ckpt_status status = build(x, options, err);
  if (status == CKPT_OK)
    *out = x;
  else
    ckpt_executor_free(x);
  return status;
}

static void release(ckpt_executor *x, char *memory, uint64_t n_bytes) {
  if (memory != NULL) x->device->table->release(x->device, memory, (size_t)n_bytes);
}

void ckpt_executor_free(ckpt_executor *x) {
  if (x == NULL) return;
  free(x->log_probabilities);
  free(x->logits);
  if (x->device != NULL) {
    release(x, x->state, x->memory.state);
    release(x, x->arena, x->memory.arena);
    if (x->owns_gradients) release(x, x->gradients, x->memory.gradients);
    if (x->owns_parameters) release(x, x->parameters, x->memory.parameters);
  }
  if (x->owns_device) ckpt_device_free(x->device);
  ckpt_arena_free(&x->records);
  free(x);
}

ckpt_status ckpt_executor_load(ckpt_executor *x, const ckpt_index *index, const ckpt_load_options *options,
                               ckpt_error *err) {
  const ckpt_device_table *table = x->device->table;
  if (table->is_host) return ckpt_model_load(ckpt_executor_parameters(x), x->model, index, options, NULL, err);
  float *host = calloc((size_t)x->model->n_flat + 1, sizeof *host);
  CKPT_TRY_ALLOC(host, err);
  ckpt_status status = ckpt_model_load(host, x->model, index, options, NULL, err);
  if (status == CKPT_OK) {
    table->copy_in(x->device, x->parameters, host, (size_t)x->model->n_flat * sizeof *host);
    status = table->synchronize(x->device, err);
  }
  free(host);
  return status;
}

const ckpt_executor_memory *ckpt_executor_memory_of(const ckpt_executor *executor) { return &executor->memory; }
uint64_t ckpt_executor_high_water(const ckpt_executor *executor) { return executor->high_water; }
float *ckpt_executor_parameters(ckpt_executor *executor) { return (float *)(void *)executor->parameters; }
float *ckpt_executor_gradients(ckpt_executor *executor) { return (float *)(void *)executor->gradients; }
ckpt_device *ckpt_executor_device(ckpt_executor *executor) { return executor->device; }

/* ---- a batch --------------------------------------------------------------------------------------------------------
 */

static ckpt_status check_numbers(const ckpt_token_batch *batch, const int32_t *numbers, const char *what,
                                 bool may_be_negative, uint64_t limit, ckpt_error *err) {
  const size_t n = (size_t)batch->n_rows * batch->length;
  for (size_t t = 0; numbers != NULL && t < n; t++) {
    if (numbers[t] < 0 ? may_be_negative : (uint64_t)numbers[t] < limit) continue;
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "row %zu, position %zu: %s %d is not below %" PRIu64,
                     t / batch->length, t % batch->length, what, numbers[t], limit);
  }
  return CKPT_OK;
}

static ckpt_status check_batch(const ckpt_executor *x, const ckpt_token_batch *batch, ckpt_error *err) {
  const ckpt_model *model = x->model;
  if (batch->n_rows > x->limits.n_rows || batch->length > x->limits.length)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                     "a batch of %u rows of %u tokens, planned are %" PRIu64 " of %" PRIu64, batch->n_rows,
                     batch->length, x->limits.n_rows, x->limits.length);
  if (batch->ids == NULL && batch->n_rows != 0 && batch->length != 0)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "a batch without ids");
  CKPT_TRY(check_numbers(batch, batch->ids, "id", false, model->vocabulary, err));
  CKPT_TRY(check_numbers(batch, batch->targets, "target", true, model->vocabulary, err));
  return check_numbers(batch, batch->positions, "position", false,
                       model->has_position_table ? model->max_positions : INT32_MAX, err);
}

static const void *array_of(const ckpt_token_batch *batch, uint32_t input) {
  switch ((ckpt_tape_input)input) {
    case CKPT_INPUT_IDS: return batch->ids;
    case CKPT_INPUT_TARGETS: return batch->targets;
    case CKPT_INPUT_POSITIONS: return batch->positions;
    case CKPT_INPUT_DOCUMENTS: return batch->documents;
    case CKPT_INPUT_MASK: return batch->mask;
    case CKPT_N_INPUTS: break;
  }
  return NULL;
}

static void copy_batch(ckpt_executor *x, const ckpt_token_batch *batch) {
  const size_t n = (size_t)batch->n_rows * batch->length;
  for (uint32_t i = 0; i < CKPT_N_INPUTS; i++) {
    const void *from = array_of(batch, i);
    if (from != NULL)
      x->device->table->copy_in(x->device, x->state + x->plan.inputs[i], from,
                                n * (i == CKPT_INPUT_MASK ? 1 : sizeof(int32_t)));
  }
}

/* ---- pointers -------------------------------------------------------------------------------------------------------
 */

/* Where a planned buffer is; n_bytes of it are about to be used. */
static void *place_of(ckpt_executor *x, const ckpt_planned_buffer *buffer, uint64_t n_bytes) {
  if (buffer->n_bytes == 0) return NULL;
  if (n_bytes != 0 && buffer->offset + n_bytes > x->high_water) x->high_water = buffer->offset + n_bytes;
  return x->arena + buffer->offset;
}

static uint64_t used_bytes(const ckpt_executor *x, uint32_t value, size_t n_tokens) {
  uint64_t n = ckpt_tape_elements(&x->model->tape.values[value], n_tokens) * x->limits.real_bytes;
  return (n + CKPT_PLAN_ALIGNMENT - 1) / CKPT_PLAN_ALIGNMENT * CKPT_PLAN_ALIGNMENT;
}

static void *value_of(ckpt_executor *x, const ckpt_tape_call *call, uint32_t number, uint32_t step) {
  if (number == CKPT_NO_VALUE) return NULL;
  const ckpt_tape_value *value = &x->model->tape.values[number];
  if (value->residency == CKPT_RESIDES_INPUT)
    return array_of(call->batch, value->input) == NULL ? NULL : x->state + x->plan.inputs[value->input];
  return place_of(x, ckpt_planned_value(&x->plan, number, step), used_bytes(x, number, call->n_tokens));
}

/* The gradient of a value at this step; NULL where it has none. */
static void *gradient_of(ckpt_executor *x, const ckpt_tape_call *call, uint32_t number, uint32_t step) {
  if (number == CKPT_NO_VALUE) return NULL;
  const ckpt_planned_buffer *buffer = &x->plan.buffers[x->plan.n_values + number];
  if (buffer->n_bytes == 0 || step < buffer->first || step > buffer->last) return NULL;
  return place_of(x, buffer, used_bytes(x, number, call->n_tokens));
}

/* The gradient of a gathered parameter is added to: it begins with zeros. */
static void *gathered_gradient(ckpt_executor *x, const ckpt_tape_call *call, uint32_t value, uint32_t step) {
  const ckpt_planned_buffer *buffer = &x->plan.buffers[x->plan.n_values + value];
  void *gradient = gradient_of(x, call, value, step);
  if (gradient != NULL && buffer->first == step)
    x->device->table->fill_zero(x->device, gradient, (size_t)used_bytes(x, value, call->n_tokens));
  return gradient;
}

static void give_parameters(ckpt_executor *x, ckpt_tape_call *call, uint32_t number) {
  for (uint32_t i = 0; i < call->entry->n_parameters; i++) {
    const ckpt_tape_value *value = &x->model->tape.values[call->entry->parameters[i]];
    if (value->residency == CKPT_RESIDES_ACTIVATION) { /* gathered */
      call->parameters[i] = value_of(x, call, call->entry->parameters[i], number);
      call->d_parameters[i] = gathered_gradient(x, call, call->entry->parameters[i], number);
      continue;
    }
    if (x->places != NULL) {
      call->parameters[i] = x->places[value->parameter].weights;
      call->dtypes[i] = x->places[value->parameter].dtype;
      if (i == 0) call->is_turned = x->places[value->parameter].is_turned;
      call->d_parameters[i] = x->places[value->parameter].gradients;
      continue;
    }
    const uint64_t offset = x->model->parameters[value->parameter].offset * x->limits.real_bytes;
    call->parameters[i] = x->parameters + offset;
    call->d_parameters[i] = x->gradients == NULL ? NULL : x->gradients + offset;
  }
}

static void give_gradients(ckpt_executor *x, ckpt_tape_call *call, uint32_t number) {
  const ckpt_schedule_step *step = &x->plan.steps[number];
  const ckpt_tape_keeps keeps = ckpt_tape_ops[call->entry->op]->keeps(call->entry);
  for (uint32_t i = 0; i < call->entry->n_in; i++) {
    if ((keeps.d_in >> i & 1) != 0) call->d_in[i] = gradient_of(x, call, call->entry->in[i], number);
    call->adds[i] = (step->adds >> i & 1) != 0;
  }
  for (uint32_t i = 0; i < call->entry->n_out; i++)
    if ((keeps.d_out >> i & 1) != 0) call->d_out[i] = gradient_of(x, call, call->entry->out[i], number);
}

static void give_scratch(ckpt_executor *x, ckpt_tape_call *call, uint32_t number) {
  if (x->plan.steps[number].scratch == CKPT_NEVER) return;
  const ckpt_planned_buffer *buffer = &x->plan.buffers[x->plan.steps[number].scratch];
  call->scratch = place_of(x, buffer, call->n_tokens == 0 ? 0 : buffer->n_bytes);
}

/* Zeros in the gradients that no step sets: those that are added to, and those that get none. */
static void begin_gradients(ckpt_executor *x) {
  const ckpt_tape *tape = &x->model->tape;
  for (uint32_t i = 0; i < tape->n_values; i++) {
    const ckpt_tape_value *value = &tape->values[i];
    if (value->residency != CKPT_RESIDES_PARAMETER || x->plan.is_set[value->parameter]) continue;
    void *gradient = x->places != NULL
                         ? x->places[value->parameter].gradients
                         : x->gradients + x->model->parameters[value->parameter].offset * x->limits.real_bytes;
    const size_t n_bytes = (size_t)(ckpt_tape_elements(value, 0) * x->limits.real_bytes);
    if (gradient != NULL) x->device->table->fill_zero(x->device, gradient, n_bytes);
  }
}

/* ---- runs -----------------------------------------------------------------------------------------------------------
 */

typedef struct run {
  const ckpt_token_batch *batch;
  size_t n_tokens;
  size_t head_first, head_rows;
  bool keeps_logits;
  double scale;
  bool is_training;
  int32_t layer; /* that the hooks were told of */
  bool is_inside, is_past;
} run;

/* Runs the entry of a planned step, forward or backward. */
static ckpt_status run_step(ckpt_executor *x, const run *r, uint32_t number, bool is_backward, ckpt_error *err) {
  const ckpt_tape *tape = &x->model->tape;
  const uint32_t entry_number = x->plan.steps[number].entry;
  const ckpt_tape_entry *entry = &tape->entries[entry_number];
  const ckpt_tape_op *op = ckpt_tape_ops[entry->op];
  ckpt_tape_call call = {.device = x->device,
                         .tape = tape,
                         .entry = entry,
                         .batch = r->batch,
                         .n_tokens = r->n_tokens,
                         .state = x->state + x->plan.states[entry_number],
                         .x_is_scratch = x->plan.steps[number].x_is_scratch,
                         .x_is_rounded = x->plan.steps[number].x_is_rounded,
                         .axes = x->axes,
                         .loss_rows = (size_t)x->limits.loss_rows,
                         .head_first = r->head_first,
                         .head_rows = r->head_rows,
                         .keeps_logits = r->keeps_logits,
                         .scale = r->scale,
                         .is_training = r->is_training};
  for (uint32_t i = 0; i < entry->n_in; i++) call.in[i] = value_of(x, &call, entry->in[i], number);
  for (uint32_t i = 0; i < entry->n_out; i++) call.out[i] = value_of(x, &call, entry->out[i], number);
  give_parameters(x, &call, number);
  give_scratch(x, &call, number);
  if (is_backward) give_gradients(x, &call, number);
  call.sets = r->batch->begins_gradients && x->plan.steps[number].may_set;
  CKPT_TRY(is_backward ? op->backward(&call, err) : op->forward(&call, err));
  if (entry->op == CKPT_OP_linear_loss && r->batch->targets != NULL) {
    const size_t at = r->head_first * (size_t)x->limits.real_bytes;
    x->device->table->copy_out(x->device, x->log_probabilities + at, (char *)call.out[0] + at,
                               r->head_rows * (size_t)x->limits.real_bytes);
  }
  return CKPT_OK;
}

static void sum_loss(const ckpt_executor *x, const run *r, ckpt_forward_result *result) {
  const bool is_double = x->limits.real_bytes == sizeof(double);
  *result = (ckpt_forward_result){0};
  for (size_t t = 0; r->batch->targets != NULL && t < r->n_tokens; t++) {
    const double p = is_double ? ((const double *)(const void *)x->log_probabilities)[t]
                               : (double)((const float *)(const void *)x->log_probabilities)[t];
    if (r->batch->log_probabilities != NULL) r->batch->log_probabilities[t] = (float)p;
    if (r->batch->targets[t] < 0) continue;
    result->loss_sum -= p;
    result->n_targets++;
  }
}

static ckpt_status start(ckpt_executor *x, run *r, const ckpt_token_batch *batch, ckpt_error *err) {
  CKPT_TRY(check_batch(x, batch, err));
  *r = (run){.batch = batch, .n_tokens = (size_t)batch->n_rows * batch->length};
  r->head_rows = r->n_tokens;
  copy_batch(x, batch);
  return CKPT_OK;
}

static ckpt_status leave(const ckpt_executor *x, run *r, ckpt_error *err) {
  if (x->hooks == NULL || !r->is_inside) return CKPT_OK;
  r->is_inside = false;
  return x->hooks->leave(x->hooks->arg, r->layer, r->is_past, err);
}

/* Runs a step, and tells of the layer where it begins. */
static ckpt_status visit_step(ckpt_executor *x, run *r, uint32_t number, bool is_backward, ckpt_error *err) {
  const int32_t layer = x->model->tape.entries[x->plan.steps[number].entry].layer;
  const bool is_past = r->is_training && number >= x->plan.n_forward;
  if (x->hooks != NULL && (!r->is_inside || r->layer != layer || r->is_past != is_past)) {
    CKPT_TRY(leave(x, r, err));
    CKPT_TRY(x->hooks->enter(x->hooks->arg, layer, is_past, err));
    r->layer = layer;
    r->is_past = is_past;
    r->is_inside = true;
  }
  return r->n_tokens == 0 ? CKPT_OK : run_step(x, r, number, is_backward, err);
}

ckpt_status ckpt_executor_forward(ckpt_executor *x, const ckpt_token_batch *batch, ckpt_forward_result *result,
                                  ckpt_error *err) {
  run r;
  CKPT_TRY(start(x, &r, batch, err));
  for (uint32_t i = 0; i < x->plan.n_forward; i++) CKPT_TRY(visit_step(x, &r, i, false, err));
  /* what training does backward alone stands there; forward it is run at the same place */
  for (uint32_t i = x->plan.n_forward; i < x->plan.n_steps; i++)
    if (ckpt_tape_ops[x->model->tape.entries[x->plan.steps[i].entry].op]->is_forward_in_backward)
      CKPT_TRY(visit_step(x, &r, i, false, err));
  CKPT_TRY(leave(x, &r, err));
  CKPT_TRY(x->device->table->synchronize(x->device, err));
  sum_loss(x, &r, result);
  return CKPT_OK;
}

/* ---- the head by itself ---------------------------------------------------------------------------------------------
 */

/* The planned step of the head, the tape's only linear_loss. */
static uint32_t head_step(const ckpt_executor *x) {
  uint32_t i = 0;
  while (i < x->plan.n_steps && x->model->tape.entries[x->plan.steps[i].entry].op != CKPT_OP_linear_loss) i++;
  return i;
}

uint32_t ckpt_executor_chunk(const ckpt_executor *x) { return (uint32_t)x->limits.loss_rows; }

ckpt_status ckpt_executor_body(ckpt_executor *x, const ckpt_token_batch *batch, ckpt_error *err) {
  run r;
  const uint32_t head = head_step(x);
  CKPT_TRY(start(x, &r, batch, err));
  for (uint32_t i = 0; i < head && r.n_tokens != 0; i++) CKPT_TRY(run_step(x, &r, i, false, err));
  return x->device->table->synchronize(x->device, err);
}

/* Where the host reads the chunk's logits, which are in the head's scratch. */
static ckpt_status show_logits(ckpt_executor *x, const float **out, uint32_t step, size_t n_rows, ckpt_error *err) {
  const void *scratch = x->arena + x->plan.buffers[x->plan.steps[step].scratch].offset;
  const size_t n = n_rows * (size_t)ckpt_model_logits(x->model);
  *out = scratch;
  if (x->device->table->is_host) return CKPT_OK;
  if (x->logits == NULL)
    x->logits = calloc((size_t)(x->limits.loss_rows * ckpt_model_logits(x->model)) + 1, sizeof *x->logits);
  CKPT_TRY_ALLOC(x->logits, err);
  x->device->table->copy_out(x->device, x->logits, scratch, n * sizeof *x->logits);
  *out = x->logits;
  return CKPT_OK;
}

ckpt_status ckpt_executor_head(ckpt_executor *x, const ckpt_token_batch *batch, uint32_t first, uint32_t n_rows,
                               const float **logits, ckpt_error *err) {
  const uint32_t step = head_step(x);
  run r = {.batch = batch, .n_tokens = (size_t)batch->n_rows * batch->length, .head_first = first, .head_rows = n_rows};
  r.keeps_logits = true;
  if (first > r.n_tokens || n_rows > r.n_tokens - first || n_rows > x->limits.loss_rows || step == x->plan.n_steps)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "tokens %u to %u of %zu, at most %" PRIu64 " at once", first,
                     first + n_rows, r.n_tokens, x->limits.loss_rows);
  CKPT_TRY(run_step(x, &r, step, false, err));
  CKPT_TRY(show_logits(x, logits, step, n_rows, err));
  CKPT_TRY(x->device->table->synchronize(x->device, err));
  const float *p = (const float *)(const void *)x->log_probabilities;
  for (uint32_t i = 0; i < n_rows && batch->targets != NULL && batch->log_probabilities != NULL; i++)
    batch->log_probabilities[first + i] = p[first + i];
  return CKPT_OK;
}

ckpt_status ckpt_executor_train(ckpt_executor *x, const ckpt_token_batch *batch, double scale,
                                ckpt_forward_result *result, ckpt_error *err) {
  run r;
  if (!x->has_backward) return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "the executor was made without backward");
  if (batch->targets == NULL && batch->n_rows != 0)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "a batch without targets");
  CKPT_TRY(start(x, &r, batch, err));
  r.scale = scale;
  r.is_training = true;
  if (batch->begins_gradients) begin_gradients(x);
  for (uint32_t i = 0; i < x->plan.n_steps; i++) CKPT_TRY(visit_step(x, &r, i, x->plan.steps[i].is_backward, err));
  CKPT_TRY(leave(x, &r, err));
  CKPT_TRY(x->device->table->synchronize(x->device, err));
  sum_loss(x, &r, result);
  return CKPT_OK;
}
