/* norm.c - rmsnorm and layernorm, with the residual that is added before them.
 *
 * in: x [, residual]; parameters: weight [, bias]; out: y, inverse [, mean] [, sum]. `sum` is x + residual, what is
 * normalized and what the residual stream goes on with. */
#include "libckpt/base/error.h"
#include "trainer/model/op.h"

enum { OUT_Y, OUT_INVERSE };

static bool has_residual(const ckpt_tape_entry *entry) { return entry->n_in == 2; }

static ckpt_status shapes(ckpt_tape *tape, ckpt_tape_entry *entry, ckpt_error *err) {
  uint64_t n_columns = ckpt_tape_columns(tape, entry->in[0]);
  for (uint32_t i = 0; i < entry->n_in; i++)
    CKPT_TRY(ckpt_tape_expect_columns(tape, entry, entry->in[i], n_columns, err));
  for (uint32_t i = 0; i < entry->n_parameters; i++)
    CKPT_TRY(ckpt_tape_expect_parameter(tape, entry, i, 0, n_columns, err));
  CKPT_TRY(ckpt_tape_output(tape, entry, "norm", n_columns, err));
  /* layernorm's mean and inverse are one value of two halves */
  CKPT_TRY(ckpt_tape_output(tape, entry, "norm.inverse", entry->op == CKPT_OP_layernorm ? 2 : 1, err));
  return has_residual(entry) ? ckpt_tape_output(tape, entry, "residual", n_columns, err) : CKPT_OK;
}

/* Rows are whole. */
static ckpt_status shard(ckpt_shard_rule *rule, const ckpt_tape *tape, ckpt_tape_entry *entry,
                         const ckpt_shard_query *query, ckpt_error *err) {
  (void)rule, (void)tape, (void)entry, (void)query, (void)err;
  return CKPT_OK;
}

static ckpt_tape_keeps keeps(const ckpt_tape_entry *entry) {
  if (has_residual(entry)) return (ckpt_tape_keeps){.in = 0, .out = 2 | 4, .d_in = 1 | 2, .d_out = 1 | 4};
  return (ckpt_tape_keeps){.in = 1, .out = 2, .d_in = 1, .d_out = 1};
}

static void *mean_of(const ckpt_tape_call *call) {
  return (char *)call->out[OUT_INVERSE] + call->n_tokens * call->device->kernels->real_bytes;
}

static ckpt_status forward(const ckpt_tape_call *call, ckpt_error *err) {
  (void)err;
  const ckpt_tape_entry *entry = call->entry;
  bool is_layernorm = entry->op == CKPT_OP_layernorm, adds = has_residual(entry);
  ckpt_norm_args args = {.x = call->in[0],
                         .residual = adds ? call->in[1] : NULL,
                         .weight = call->parameters[0],
                         .bias = entry->n_parameters == 2 ? call->parameters[1] : NULL,
                         .sum = adds ? call->out[2] : NULL,
                         .y = call->out[OUT_Y],
                         .mean = is_layernorm ? mean_of(call) : NULL,
                         .inverse = call->out[OUT_INVERSE],
                         .n_columns = ckpt_tape_columns(call->tape, entry->in[0]),
                         .epsilon = entry->attributes.epsilon};
  ckpt_tape_over_rows(call, is_layernorm ? CKPT_KERNEL_layernorm : CKPT_KERNEL_rmsnorm, &args, call->n_tokens,
                      args.n_columns);
  return CKPT_OK;
}

static ckpt_status backward(const ckpt_tape_call *call, ckpt_error *err) {
  (void)err;
  const ckpt_tape_entry *entry = call->entry;
  bool is_layernorm = entry->op == CKPT_OP_layernorm, adds = has_residual(entry);
  ckpt_norm_backward_args args = {.x = adds ? call->out[2] : call->in[0],
                                  .weight = call->parameters[0],
                                  .mean = is_layernorm ? mean_of(call) : NULL,
                                  .inverse = call->out[OUT_INVERSE],
                                  .d_y = call->d_out[OUT_Y],
                                  .d_sum = adds ? call->d_out[2] : NULL,
                                  .d_x = call->d_in[0],
                                  .d_residual = adds ? call->d_in[1] : NULL,
                                  .d_weight = call->d_parameters[0],
                                  .d_bias = entry->n_parameters == 2 ? call->d_parameters[1] : NULL,
                                  .n_tokens = call->n_tokens,
                                  .n_columns = ckpt_tape_columns(call->tape, entry->in[0]),
                                  .adds_x = call->adds[0],
                                  .adds_residual = call->adds[1]};
  if (args.d_weight != NULL || args.d_bias != NULL)
    ckpt_tape_over_columns(call, is_layernorm ? CKPT_KERNEL_layernorm_weights : CKPT_KERNEL_rmsnorm_weights, &args,
                           args.n_columns);
  ckpt_tape_over_rows(call, is_layernorm ? CKPT_KERNEL_layernorm_backward : CKPT_KERNEL_rmsnorm_backward, &args,
                      call->n_tokens, args.n_columns);
  return CKPT_OK;
}

const ckpt_tape_op ckpt_tape_op_rmsnorm = {.name = "rmsnorm",
                                           .min_in = 1,
                                           .max_in = 2,
                                           .min_parameters = 1,
                                           .max_parameters = 1,
                                           .shapes = shapes,
                                           .keeps = keeps,
                                           .forward = forward,
                                           .backward = backward,
                                           .shard = shard};

const ckpt_tape_op ckpt_tape_op_layernorm = {.name = "layernorm",
                                             .min_in = 1,
                                             .max_in = 2,
                                             .min_parameters = 2,
                                             .max_parameters = 2,
                                             .shapes = shapes,
                                             .keeps = keeps,
                                             .forward = forward,
                                             .backward = backward,
                                             .shard = shard};
