/* collective.c - the five dual collectives, which the sharding pass records (shard.h). Each is the other's backward.
 *
 * copy_to: in x; out the same, whose gradient is summed. reduce_from: in parts; out their sum. gather: in a value,
 * whose tokens are gathered, or a parameter's shard, whose rows are; scatter_sum: the reverse. all_to_all: block i of
 * the tokens goes to rank i. Attributes: axis, axis_size; of a parameter axis_rows, the rows of the whole. */
#include <inttypes.h>

#include "libckpt/base/error.h"
#include "trainer/model/op.h"

enum { MAX_RANKS = 1024 };

static ckpt_axis_group *group_of(const ckpt_tape_call *call) { return call->axes[call->entry->attributes.axis]; }

static size_t n_elements_of(const ckpt_tape_call *call) {
  return (size_t)ckpt_tape_elements(&call->tape->values[call->entry->in[0]], call->n_tokens);
}

static ckpt_axis_call call_of(const ckpt_tape_call *call, ckpt_axis_kind_of_call kind, const void *src, void *dst) {
  return (ckpt_axis_call){.kind = kind,
                          .dtype = call->device->kernels->real_bytes == sizeof(double) ? CKPT_F64 : CKPT_F32,
                          .src = src,
                          .dst = dst,
                          .stream = call->device->table->stream(call->device)};
}

/* What is queued before is done: a transport of the host's reads memory itself. */
static ckpt_status run_call(const ckpt_tape_call *call, const ckpt_axis_call *asked, ckpt_error *err) {
  CKPT_TRY(call->device->table->synchronize(call->device, err));
  return ckpt_axis_run(group_of(call), asked, err);
}

static void *at(const ckpt_tape_call *call, void *reals, uint64_t first) {
  return (char *)reals + first * call->device->kernels->real_bytes;
}

static void add_to(const ckpt_tape_call *call, void *to, const void *from, size_t n) {
  const ckpt_add_args args = {from, to};
  ckpt_tape_over_elements(call, CKPT_KERNEL_add, &args, n);
}

/* to = from, or += */
static void pass_on(const ckpt_tape_call *call, void *to, const void *from, size_t n, bool adds) {
  if (!adds) call->device->table->fill_zero(call->device, to, n * call->device->kernels->real_bytes);
  add_to(call, to, from, n);
}

/* d_in[0] (+)= what the call makes of d_out[0], n elements. */
static ckpt_status bring_back(const ckpt_tape_call *call, ckpt_axis_call *asked, size_t n, ckpt_error *err) {
  asked->src = call->d_out[0];
  asked->dst = call->adds[0] ? call->scratch : call->d_in[0];
  CKPT_TRY(run_call(call, asked, err));
  if (call->adds[0]) add_to(call, call->d_in[0], call->scratch, n);
  return CKPT_OK;
}

static ckpt_tape_keeps gradients_alone(const ckpt_tape_entry *entry) {
  return (ckpt_tape_keeps){.d_in = entry->n_in == 0 ? 0 : 1, .d_out = 1};
}

static uint64_t value_scratch(const ckpt_tape *tape, const ckpt_tape_entry *entry, const ckpt_tape_limits *limits) {
  return ckpt_tape_elements(&tape->values[entry->in[0]], limits->n_tokens) * limits->real_bytes;
}

static ckpt_status check_axis(const ckpt_tape_entry *entry, ckpt_error *err) {
  const ckpt_tape_attributes *a = &entry->attributes;
  if (a->axis < CKPT_N_MESH_AXES && a->axis_size >= 1 && a->axis_size <= MAX_RANKS) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "operation '%s': axis %u of %u ranks (at most %d)",
                   ckpt_tape_ops[entry->op]->name, a->axis, a->axis_size, MAX_RANKS);
}

/* Nothing that is cut already is cut again. */
static ckpt_status no_rule(ckpt_shard_rule *rule, const ckpt_tape *tape, ckpt_tape_entry *entry,
                           const ckpt_shard_query *query, ckpt_error *err) {
  (void)rule, (void)tape, (void)query;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "operation '%s': the tape is cut already",
                   ckpt_tape_ops[entry->op]->name);
}

/* ---- copy_to, reduce_from ---------------------------------------------------------------------------------------- */

static ckpt_status same_shape(ckpt_tape *tape, ckpt_tape_entry *entry, ckpt_error *err) {
  const ckpt_tape_shape shape = tape->values[entry->in[0]].shape;
  const char *name = tape->values[entry->in[0]].name;
  CKPT_TRY(check_axis(entry, err));
  CKPT_TRY(ckpt_tape_output(tape, entry, "part", ckpt_tape_columns(tape, entry->in[0]), err));
  tape->values[entry->out[0]].shape = shape;
  tape->values[entry->out[0]].name = name;
  return CKPT_OK;
}

static ckpt_status copy_forward(const ckpt_tape_call *call, ckpt_error *err) {
  (void)err;
  pass_on(call, call->out[0], call->in[0], n_elements_of(call), false);
  return CKPT_OK;
}

static ckpt_status sum_backward(const ckpt_tape_call *call, ckpt_error *err) {
  ckpt_axis_call asked = call_of(call, CKPT_ALL_REDUCE, NULL, NULL);
  asked.n = n_elements_of(call);
  return bring_back(call, &asked, (size_t)asked.n, err);
}

static ckpt_status sum_forward(const ckpt_tape_call *call, ckpt_error *err) {
  ckpt_axis_call asked = call_of(call, CKPT_ALL_REDUCE, call->in[0], call->out[0]);
  asked.n = n_elements_of(call);
  return run_call(call, &asked, err);
}

static ckpt_status copy_backward(const ckpt_tape_call *call, ckpt_error *err) {
  (void)err;
  pass_on(call, call->d_in[0], call->d_out[0], n_elements_of(call), call->adds[0]);
  return CKPT_OK;
}

const ckpt_tape_op ckpt_tape_op_copy_to = {.name = "copy_to",
                                           .min_in = 1,
                                           .max_in = 1,
                                           .dual = CKPT_OP_reduce_from,
                                           .is_collective = true,
                                           .shapes = same_shape,
                                           .keeps = gradients_alone,
                                           .forward = copy_forward,
                                           .backward = sum_backward,
                                           .shard = no_rule,
                                           .scratch = value_scratch};

const ckpt_tape_op ckpt_tape_op_reduce_from = {.name = "reduce_from",
                                               .min_in = 1,
                                               .max_in = 1,
                                               .dual = CKPT_OP_copy_to,
                                               .is_collective = true,
                                               .shapes = same_shape,
                                               .keeps = gradients_alone,
                                               .forward = sum_forward,
                                               .backward = copy_backward,
                                               .shard = no_rule};

/* ---- gather, scatter_sum ----------------------------------------------------------------------------------------- */

/* Rows of the whole, or more tokens. */
static ckpt_status gather_shapes(ckpt_tape *tape, ckpt_tape_entry *entry, ckpt_error *err) {
  const uint32_t of = entry->n_in == 0 ? entry->parameters[0] : entry->in[0];
  ckpt_tape_shape shape = tape->values[of].shape;
  const char *name = tape->values[of].name;
  CKPT_TRY(check_axis(entry, err));
  if (entry->n_in + entry->n_parameters != 1)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "operation 'gather' takes a value or a parameter");
  CKPT_TRY(ckpt_tape_output(tape, entry, "gathered", 1, err));
  if (entry->n_in == 0)
    shape.sizes[0] = entry->attributes.axis_rows;
  else
    shape.times = (shape.times == 0 ? 1 : shape.times) * entry->attributes.axis_size;
  tape->values[entry->out[0]].shape = shape;
  tape->values[entry->out[0]].name = name;
  return CKPT_OK;
}

static ckpt_status scatter_shapes(ckpt_tape *tape, ckpt_tape_entry *entry, ckpt_error *err) {
  CKPT_TRY(same_shape(tape, entry, err));
  ckpt_tape_shape *shape = &tape->values[entry->out[0]].shape;
  if (shape->times % entry->attributes.axis_size != 0)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "operation 'scatter_sum': %u times the tokens over %u ranks",
                     shape->times, entry->attributes.axis_size);
  shape->times /= entry->attributes.axis_size;
  return CKPT_OK;
}

/* Of a parameter: each rank's rows, as torch.chunk cuts them. */
static void cut_rows(const ckpt_tape_call *call, ckpt_range *ranges) {
  const ckpt_tape_attributes *a = &call->entry->attributes;
  const ckpt_tape_shape *shape = &call->tape->values[call->entry->parameters[0]].shape;
  const uint64_t width = shape->rank < 2 ? 1 : shape->sizes[1], rows = a->axis_rows;
  const uint64_t each = rows == 0 ? 0 : (rows - 1) / a->axis_size + 1;
  for (uint32_t r = 0; r < a->axis_size; r++) {
    const uint64_t first = each * r < rows ? each * r : rows;
    ranges[r] = (ckpt_range){first * width, (rows - first < each ? rows - first : each) * width};
  }
}

/* Positions of a row lie together, those of ranks do not: attention over gathered keys has no kernel yet. */
static ckpt_status refuse_tokens(const ckpt_tape_call *call, ckpt_error *err) {
  if (call->entry->n_in == 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "operation '%s': tokens over %s %u cannot be run yet",
                   ckpt_tape_ops[call->entry->op]->name, ckpt_mesh_names[call->entry->attributes.axis],
                   call->entry->attributes.axis_size);
}

/* Over the rows of each rank, in place. */
static ckpt_status run_rows(const ckpt_tape_call *call, ckpt_axis_kind_of_call kind, void *rows,
                            const ckpt_range *ranges, ckpt_error *err) {
  ckpt_axis_call asked = call_of(call, kind, NULL, rows);
  asked.ranges = ranges;
  asked.n_ranges = 1;
  return run_call(call, &asked, err);
}

static ckpt_status gather_forward(const ckpt_tape_call *call, ckpt_error *err) {
  ckpt_range ranges[MAX_RANKS];
  CKPT_TRY(refuse_tokens(call, err));
  cut_rows(call, ranges);
  const ckpt_range own = ranges[group_of(call)->rank];
  pass_on(call, at(call, call->out[0], own.first), call->parameters[0], own.n, false);
  return run_rows(call, CKPT_ALL_GATHER, call->out[0], ranges, err);
}

/* Nobody reads d_out afterwards. */
static ckpt_status gather_backward(const ckpt_tape_call *call, ckpt_error *err) {
  ckpt_range ranges[MAX_RANKS];
  CKPT_TRY(refuse_tokens(call, err));
  if (call->d_parameters[0] == NULL || call->d_out[0] == NULL) return CKPT_OK;
  cut_rows(call, ranges);
  const ckpt_range own = ranges[group_of(call)->rank];
  CKPT_TRY(run_rows(call, CKPT_REDUCE_SCATTER, call->d_out[0], ranges, err));
  add_to(call, call->d_parameters[0], at(call, call->d_out[0], own.first), own.n);
  return CKPT_OK;
}

const ckpt_tape_op ckpt_tape_op_gather = {.name = "gather",
                                          .max_in = 1,
                                          .max_parameters = 1,
                                          .dual = CKPT_OP_scatter_sum,
                                          .is_collective = true,
                                          .shapes = gather_shapes,
                                          .keeps = gradients_alone,
                                          .forward = gather_forward,
                                          .backward = gather_backward,
                                          .shard = no_rule};

const ckpt_tape_op ckpt_tape_op_scatter_sum = {.name = "scatter_sum",
                                               .min_in = 1,
                                               .max_in = 1,
                                               .dual = CKPT_OP_gather,
                                               .is_collective = true,
                                               .shapes = scatter_shapes,
                                               .keeps = gradients_alone,
                                               .forward = refuse_tokens,
                                               .backward = refuse_tokens,
                                               .shard = no_rule};

/* ---- all_to_all -------------------------------------------------------------------------------------------------- */

static ckpt_status exchange_forward(const ckpt_tape_call *call, ckpt_error *err) {
  ckpt_axis_call asked = call_of(call, CKPT_ALL_TO_ALL, call->in[0], call->out[0]);
  asked.n = n_elements_of(call);
  if (asked.n % call->entry->attributes.axis_size != 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "operation 'all_to_all': %" PRIu64 " elements over %u ranks",
                     asked.n, call->entry->attributes.axis_size);
  return run_call(call, &asked, err);
}

static ckpt_status exchange_backward(const ckpt_tape_call *call, ckpt_error *err) {
  ckpt_axis_call asked = call_of(call, CKPT_ALL_TO_ALL, NULL, NULL);
  asked.n = n_elements_of(call);
  return bring_back(call, &asked, (size_t)asked.n, err);
}

const ckpt_tape_op ckpt_tape_op_all_to_all = {.name = "all_to_all",
                                              .min_in = 1,
                                              .max_in = 1,
                                              .dual = CKPT_OP_all_to_all,
                                              .is_collective = true,
                                              .shapes = same_shape,
                                              .keeps = gradients_alone,
                                              .forward = exchange_forward,
                                              .backward = exchange_backward,
                                              .shard = no_rule,
                                              .scratch = value_scratch};
