/* pointwise.c - embedding, dropout, silu_mul and gelu.
 *
 * embedding: in ids, positions; parameters table [, table of positions]; out hidden; has_padding. silu_mul: in gate,
 * up. gelu: in x; by tanh, or by erf (is_exact). */
#include "libckpt/base/backend.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "trainer/model/op.h"

/* ---- embedding ------------------------------------------------------------------------------------------------------
 */

static uint64_t width_of(const ckpt_tape *tape, const ckpt_tape_entry *entry) {
  return tape->values[entry->parameters[0]].shape.sizes[1];
}

/* The vocabulary is whole on every rank. */
static ckpt_status embedding_shard(ckpt_shard_rule *rule, const ckpt_tape *tape, ckpt_tape_entry *entry,
                                   const ckpt_shard_query *query, ckpt_error *err) {
  (void)rule, (void)tape, (void)entry, (void)query, (void)err;
  return CKPT_OK;
}

/* Elements as they lie, whole or cut. Dropout counts columns, so that it takes whole rows. */
static ckpt_status elements_shard(ckpt_shard_rule *rule, const ckpt_tape *tape, ckpt_tape_entry *entry,
                                  const ckpt_shard_query *query, ckpt_error *err) {
  (void)tape, (void)err;
  const bool is_cut = query->in[0] == CKPT_SHARD_CUT && entry->op != CKPT_OP_dropout;
  for (uint32_t i = 0; i < entry->n_in; i++) rule->in[i] = is_cut ? CKPT_SHARD_CUT : CKPT_SHARD_WHOLE;
  rule->out[0] = rule->in[0];
  return CKPT_OK;
}

static ckpt_status embedding_shapes(ckpt_tape *tape, ckpt_tape_entry *entry, ckpt_error *err) {
  uint64_t n_columns = width_of(tape, entry);
  for (uint32_t i = 0; i < entry->n_parameters; i++) {
    uint64_t n_rows = tape->values[entry->parameters[i]].shape.sizes[0];
    CKPT_TRY(ckpt_tape_expect_parameter(tape, entry, i, n_rows, n_columns, err));
  }
  return ckpt_tape_output(tape, entry, "embedding", n_columns, err);
}

static ckpt_tape_keeps embedding_keeps(const ckpt_tape_entry *entry) {
  (void)entry;
  return (ckpt_tape_keeps){.in = 1 | 2, .d_out = 1};
}

static ckpt_embedding_args embedding_args(const ckpt_tape_call *call) {
  return (ckpt_embedding_args){.ids = call->in[0],
                               .positions = call->in[1],
                               .n_tokens = call->n_tokens,
                               .n_columns = width_of(call->tape, call->entry),
                               .length = call->batch->length,
                               .has_padding = call->entry->attributes.has_padding,
                               .padding = (int32_t)call->entry->attributes.padding};
}

/* Rows of a table as it is stored, for tokens [begin, end): in f32 they are the table that the kernel reads. */
static void look_up_stored(const void *arg, size_t begin, size_t end) {
  const ckpt_tape_call *call = arg;
  ckpt_embedding_args args = embedding_args(call);
  const ckpt_dtype_row *type = ckpt_dtype_get(call->dtypes[0]);
  const size_t row_bytes = args.n_columns / type->block_elements * type->block_bytes;
  const float *positions = call->entry->n_parameters == 2 ? call->parameters[1] : NULL;
  ckpt_cast_stats ignored = {0};
  for (size_t t = begin; t < end; t++) {
    float *out = (float *)call->out[0] + t * args.n_columns;
    const size_t position = args.positions == NULL ? t % args.length : (size_t)args.positions[t];
    const char *row = (const char *)call->parameters[0] + (size_t)args.ids[t] * row_bytes;
    ckpt_backend_read(&ckpt_backend_cpu, CKPT_F32, out, call->dtypes[0], row, args.n_columns, &ignored);
    for (size_t i = 0; i < args.n_columns && positions != NULL; i++) out[i] += positions[position * args.n_columns + i];
  }
}

static ckpt_status embedding_forward(const ckpt_tape_call *call, ckpt_error *err) {
  ckpt_embedding_args args = embedding_args(call);
  args.out = call->out[0];
  args.table = call->parameters[0];
  args.position_table = call->entry->n_parameters == 2 ? call->parameters[1] : NULL;
  if (call->dtypes[0] != CKPT_DTYPE_NONE) {
    if (!call->device->table->is_host)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "a table of another dtype than f32 on %s",
                       call->device->table->name);
    call->device->table->run_host(call->device, look_up_stored, call, call->n_tokens, 16);
    return CKPT_OK;
  }
  ckpt_tape_over_rows(call, CKPT_KERNEL_embedding, &args, call->n_tokens, args.n_columns);
  return CKPT_OK;
}

static ckpt_status embedding_backward(const ckpt_tape_call *call, ckpt_error *err) {
  (void)err;
  for (uint32_t i = 0; i < call->entry->n_parameters; i++) {
    ckpt_embedding_args args = embedding_args(call);
    if (call->d_parameters[i] == NULL) continue;
    if (i == 1) args.ids = NULL;
    args.out = call->d_out[0];
    args.table = call->d_parameters[i];
    ckpt_tape_over_columns(call, CKPT_KERNEL_embedding_backward, &args, args.n_columns);
  }
  return CKPT_OK;
}

const ckpt_tape_op ckpt_tape_op_embedding = {.name = "embedding",
                                             .min_in = 2,
                                             .max_in = 2,
                                             .min_parameters = 1,
                                             .max_parameters = 2,
                                             .stored_parameters = 1,
                                             .shapes = embedding_shapes,
                                             .keeps = embedding_keeps,
                                             .forward = embedding_forward,
                                             .backward = embedding_backward,
                                             .shard = embedding_shard};

/* ---- dropout --------------------------------------------------------------------------------------------------------
 */

static ckpt_status dropout_shapes(ckpt_tape *tape, ckpt_tape_entry *entry, ckpt_error *err) {
  return ckpt_tape_output(tape, entry, "dropped", ckpt_tape_columns(tape, entry->in[0]), err);
}

static ckpt_tape_keeps dropout_keeps(const ckpt_tape_entry *entry) {
  (void)entry;
  return (ckpt_tape_keeps){.d_in = 1, .d_out = 1};
}

static ckpt_status drop(const ckpt_tape_call *call, const void *x, void *y, bool adds) {
  ckpt_dropout_args args = {.x = x,
                            .y = y,
                            .n_columns = ckpt_tape_columns(call->tape, call->entry->in[0]),
                            .length = call->batch->length,
                            .adds = adds,
                            .dropout = ckpt_tape_dropout(call)};
  ckpt_tape_over_rows(call, CKPT_KERNEL_dropout, &args, call->n_tokens, args.n_columns);
  return CKPT_OK;
}

static ckpt_status dropout_forward(const ckpt_tape_call *call, ckpt_error *err) {
  (void)err;
  return drop(call, call->in[0], call->out[0], false);
}

static ckpt_status dropout_backward(const ckpt_tape_call *call, ckpt_error *err) {
  (void)err;
  return drop(call, call->d_out[0], call->d_in[0], call->adds[0]);
}

const ckpt_tape_op ckpt_tape_op_dropout = {.name = "dropout",
                                           .min_in = 1,
                                           .max_in = 1,
                                           .shapes = dropout_shapes,
                                           .keeps = dropout_keeps,
                                           .forward = dropout_forward,
                                           .backward = dropout_backward,
                                           .shard = elements_shard};

/* ---- silu_mul, gelu -------------------------------------------------------------------------------------------------
 */

static ckpt_status same_shapes(ckpt_tape *tape, ckpt_tape_entry *entry, ckpt_error *err) {
  uint64_t n_columns = ckpt_tape_columns(tape, entry->in[0]);
  for (uint32_t i = 0; i < entry->n_in; i++)
    CKPT_TRY(ckpt_tape_expect_columns(tape, entry, entry->in[i], n_columns, err));
  return ckpt_tape_output(tape, entry, "activation", n_columns, err);
}

static ckpt_tape_keeps inputs_kept(const ckpt_tape_entry *entry) {
  uint32_t all = (1U << entry->n_in) - 1;
  return (ckpt_tape_keeps){.in = all, .d_in = all, .d_out = 1};
}

static ckpt_activation_args activation_args(const ckpt_tape_call *call) {
  return (ckpt_activation_args){.a = call->in[0],
                                .b = call->in[1],
                                .out = call->out[0],
                                .d_out = call->d_out[0],
                                .d_a = call->d_in[0],
                                .d_b = call->d_in[1],
                                .adds_a = call->adds[0],
                                .adds_b = call->adds[1]};
}

static size_t n_elements_of(const ckpt_tape_call *call) {
  return call->n_tokens * ckpt_tape_columns(call->tape, call->entry->in[0]);
}

static ckpt_status silu_mul_forward(const ckpt_tape_call *call, ckpt_error *err) {
  (void)err;
  ckpt_activation_args args = activation_args(call);
  ckpt_tape_over_elements(call, CKPT_KERNEL_silu_mul, &args, n_elements_of(call));
  return CKPT_OK;
}

static ckpt_status silu_mul_backward(const ckpt_tape_call *call, ckpt_error *err) {
  (void)err;
  ckpt_activation_args args = activation_args(call);
  ckpt_tape_over_elements(call, CKPT_KERNEL_silu_mul_backward, &args, n_elements_of(call));
  return CKPT_OK;
}

const ckpt_tape_op ckpt_tape_op_silu_mul = {.name = "silu_mul",
                                            .min_in = 2,
                                            .max_in = 2,
                                            .shapes = same_shapes,
                                            .keeps = inputs_kept,
                                            .forward = silu_mul_forward,
                                            .backward = silu_mul_backward,
                                            .shard = elements_shard};

static ckpt_status gelu_forward(const ckpt_tape_call *call, ckpt_error *err) {
  (void)err;
  ckpt_activation_args args = activation_args(call);
  bool is_exact = call->entry->attributes.is_exact;
  ckpt_tape_over_elements(call, is_exact ? CKPT_KERNEL_gelu_exact : CKPT_KERNEL_gelu, &args, n_elements_of(call));
  return CKPT_OK;
}

static ckpt_status gelu_backward(const ckpt_tape_call *call, ckpt_error *err) {
  (void)err;
  ckpt_activation_args args = activation_args(call);
  bool is_exact = call->entry->attributes.is_exact;
  ckpt_tape_over_elements(call, is_exact ? CKPT_KERNEL_gelu_exact_backward : CKPT_KERNEL_gelu_backward, &args,
                          n_elements_of(call));
  return CKPT_OK;
}

const ckpt_tape_op ckpt_tape_op_gelu = {.name = "gelu",
                                        .min_in = 1,
                                        .max_in = 1,
                                        .shapes = same_shapes,
                                        .keeps = inputs_kept,
                                        .forward = gelu_forward,
                                        .backward = gelu_backward,
                                        .shard = elements_shard};
