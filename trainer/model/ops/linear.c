/* linear.c - linear, linear with a low-rank adapter, and linear with the loss behind it.
 *
 * linear: in x; parameters weight [, bias]; out y. The weight is (out, in) as torch's Linear has it, or (in, out).
 * lora: in x [, x after dropout]; parameters weight, A (rank, in), B (out, rank) [, bias]; out y + scale * x A^T B^T,
 * and x A^T. Its weight is frozen; its bias may be trained.
 * linear_loss: in x, targets; parameter weight (vocabulary, width); out log p of each target. Logits are made for
 * loss_rows tokens at a time, so tokens x vocabulary is never held. While training its backward is the whole of it: the
 * gradients of x and of the weight are made from a chunk's logits while they are there. */
#include <string.h>

#include "libckpt/base/error.h"
#include "trainer/model/op.h"

static size_t real_bytes(const ckpt_tape_call *call) { return call->device->kernels->real_bytes; }

static ckpt_status multiply(const ckpt_tape_call *call, const ckpt_gemm *gemm, ckpt_error *err) {
  ckpt_gemm g = *gemm;
  g.is_bf16 = call->entry->attributes.is_bf16;
  return call->device->table->gemm(call->device, &g, err);
}

/* ---- linear ---------------------------------------------------------------------------------------------------------
 */

static uint64_t n_out_of(const ckpt_tape *tape, const ckpt_tape_entry *entry) {
  return tape->values[entry->parameters[0]].shape.sizes[entry->attributes.is_in_by_out ? 1 : 0];
}

static uint32_t one_linear(const ckpt_tape *tape, const ckpt_tape_entry *entry, const ckpt_tape_limits *limits,
                           ckpt_tape_linear out[CKPT_TAPE_MAX_LINEARS]) {
  out[0] = (ckpt_tape_linear){
      .n_tokens = limits->n_tokens, .n_in = ckpt_tape_columns(tape, entry->in[0]), .n_out = n_out_of(tape, entry)};
  return 1;
}

/* The output is called as the module is. */
static ckpt_status name_output(ckpt_tape *tape, const ckpt_tape_entry *entry, ckpt_error *err) {
  const char *name = tape->values[entry->parameters[0]].name, *end = strrchr(name, '.');
  char *copy = ckpt_arena_text(tape->arena, name, end == NULL ? strlen(name) : (size_t)(end - name));
  CKPT_TRY_ALLOC(copy, err);
  tape->values[entry->out[0]].name = copy;
  return CKPT_OK;
}

/* bias: its place among the parameters, if there are so many. */
static ckpt_status shapes_of(ckpt_tape *tape, ckpt_tape_entry *entry, uint32_t bias, ckpt_error *err) {
  uint64_t n_in = ckpt_tape_columns(tape, entry->in[0]), n_out = n_out_of(tape, entry);
  bool swaps = entry->attributes.is_in_by_out;
  CKPT_TRY(ckpt_tape_expect_columns(tape, entry, entry->in[0], n_in, err));
  CKPT_TRY(ckpt_tape_expect_parameter(tape, entry, 0, swaps ? n_in : n_out, swaps ? n_out : n_in, err));
  if (entry->n_parameters > bias) CKPT_TRY(ckpt_tape_expect_parameter(tape, entry, bias, 0, n_out, err));
  CKPT_TRY(ckpt_tape_output(tape, entry, "linear", n_out, err));
  return name_output(tape, entry, err);
}

static ckpt_status product(const ckpt_tape_call *call, uint32_t bias, ckpt_error *err) {
  const ckpt_tape_entry *entry = call->entry;
  size_t n_in = ckpt_tape_columns(call->tape, entry->in[0]), n_out = n_out_of(call->tape, entry);
  bool swaps = entry->attributes.is_in_by_out;
  ckpt_gemm gemm = {.is_b_transposed = !swaps,
                    .m = call->n_tokens,
                    .n = n_out,
                    .k = n_in,
                    .a = call->in[0],
                    .lda = n_in,
                    .is_a_scratch = call->x_is_scratch,
                    .is_a_rounded = call->x_is_rounded,
                    .b = call->parameters[0],
                    .b_dtype = call->dtypes[0],
                    .is_b_turned = call->is_turned,
                    .ldb = swaps && !call->is_turned ? n_out : n_in,
                    .bias = entry->n_parameters > bias && !entry->attributes.skips_bias ? call->parameters[bias] : NULL,
                    .c = call->out[0],
                    .ldc = n_out,
                    .alpha = 1};
  return multiply(call, &gemm, err);
}

/* The gradient of x. That of y is its scratch: nothing but products reads it from here on. */
static ckpt_status product_to_x(const ckpt_tape_call *call, ckpt_error *err) {
  const ckpt_tape_entry *entry = call->entry;
  size_t n_in = ckpt_tape_columns(call->tape, entry->in[0]), n_out = n_out_of(call->tape, entry);
  bool swaps = entry->attributes.is_in_by_out;
  if (call->d_in[0] == NULL) return CKPT_OK;
  ckpt_gemm to_x = {.is_b_transposed = swaps, .m = call->n_tokens, .n = n_in, .k = n_out, .alpha = 1};
  to_x.a = call->d_out[0], to_x.lda = n_out, to_x.is_a_scratch = true;
  to_x.b = call->parameters[0], to_x.b_dtype = call->dtypes[0], to_x.ldb = swaps ? n_out : n_in;
  to_x.c = call->d_in[0], to_x.ldc = n_in, to_x.beta = call->adds[0] ? 1 : 0;
  return multiply(call, &to_x, err);
}

/* A matrix whose outputs are cut, or one whose inputs are: parts of a sum, of which one rank adds the bias. Of lora A
 * or B is whole and read in part, so that its gradient is a sum. */
static ckpt_status linear_shard(ckpt_shard_rule *rule, const ckpt_tape *tape, ckpt_tape_entry *entry,
                                const ckpt_shard_query *query, ckpt_error *err) {
  const bool swaps = entry->attributes.is_in_by_out, is_lora = entry->op == CKPT_OP_lora;
  const int8_t axis = query->split_axes[0];
  const uint32_t bias = is_lora ? 3 : 1;
  (void)tape, (void)err;
  if (axis < 0) return CKPT_OK;
  const bool cuts_outputs = axis == (swaps ? 1 : 0);
  for (uint32_t i = 0; i < entry->n_in; i++) rule->in[i] = cuts_outputs ? CKPT_SHARD_COPIED : CKPT_SHARD_CUT;
  rule->out[0] = cuts_outputs ? CKPT_SHARD_CUT : CKPT_SHARD_PARTIAL;
  rule->parameter_axes[0] = axis;
  if (cuts_outputs && entry->n_parameters > bias) rule->parameter_axes[bias] = 0;
  if (!is_lora) return CKPT_OK;
  rule->out[1] = cuts_outputs ? CKPT_SHARD_COPIED : CKPT_SHARD_PARTIAL;
  rule->parameter_axes[1] = cuts_outputs ? -1 : 1;
  rule->parameter_axes[2] = cuts_outputs ? 0 : -1;
  rule->sums_over_tp = cuts_outputs ? 1U << 1 : 1U << 2;
  return CKPT_OK;
}

static ckpt_status linear_shapes(ckpt_tape *tape, ckpt_tape_entry *entry, ckpt_error *err) {
  return shapes_of(tape, entry, 1, err);
}

static ckpt_tape_keeps linear_keeps(const ckpt_tape_entry *entry) {
  return (ckpt_tape_keeps){.in = entry->attributes.is_frozen ? 0 : 1, .d_in = 1, .d_out = 1};
}

static ckpt_status linear_forward(const ckpt_tape_call *call, ckpt_error *err) { return product(call, 1, err); }

/* A bias may be trained where the weight is frozen. */
static void give_bias(const ckpt_tape_call *call, uint32_t bias, size_t n_out) {
  if (call->entry->n_parameters <= bias || call->d_parameters[bias] == NULL) return;
  ckpt_bias_args args = {.y = call->d_out[0],
                         .bias = call->d_parameters[bias],
                         .n_rows = call->n_tokens,
                         .n_columns = n_out,
                         .stride = n_out};
  ckpt_tape_over_columns(call, CKPT_KERNEL_bias_backward, &args, n_out);
}

static ckpt_status linear_backward(const ckpt_tape_call *call, ckpt_error *err) {
  const ckpt_tape_entry *entry = call->entry;
  size_t n_in = ckpt_tape_columns(call->tape, entry->in[0]), n_out = n_out_of(call->tape, entry);
  bool swaps = entry->attributes.is_in_by_out;
  const bool d_y_is_rounded = call->d_in[0] != NULL;
  give_bias(call, 1, n_out);
  CKPT_TRY(product_to_x(call, err));
  if (entry->attributes.is_frozen) return CKPT_OK;
  if (call->d_parameters[0] != NULL) {
    ckpt_gemm to_weight = {.is_a_transposed = true, .k = call->n_tokens, .alpha = 1, .beta = call->sets ? 0 : 1};
    to_weight.m = swaps ? n_in : n_out, to_weight.n = swaps ? n_out : n_in;
    to_weight.a = swaps ? call->in[0] : call->d_out[0], to_weight.lda = to_weight.m;
    to_weight.b = swaps ? call->d_out[0] : call->in[0], to_weight.ldb = to_weight.n;
    to_weight.is_a_scratch = !swaps || call->x_is_scratch;
    to_weight.is_a_rounded = swaps ? call->x_is_rounded : d_y_is_rounded;
    to_weight.is_b_rounded = swaps ? d_y_is_rounded : call->x_is_rounded;
    to_weight.c = call->d_parameters[0], to_weight.ldc = to_weight.n;
    CKPT_TRY(multiply(call, &to_weight, err));
  }
  return CKPT_OK;
}

const ckpt_tape_op ckpt_tape_op_linear = {.name = "linear",
                                          .is_costly = true,
                                          .min_in = 1,
                                          .max_in = 1,
                                          .min_parameters = 1,
                                          .max_parameters = 2,
                                          .sets_weight = true,
                                          .stored_parameters = 1,
                                          .shapes = linear_shapes,
                                          .keeps = linear_keeps,
                                          .forward = linear_forward,
                                          .backward = linear_backward,
                                          .shard = linear_shard,
                                          .linears = one_linear};

/* ---- lora -----------------------------------------------------------------------------------------------------------
 */

enum { WEIGHT, LORA_A, LORA_B, LORA_BIAS };

static uint64_t rank_of(const ckpt_tape *tape, const ckpt_tape_entry *entry) {
  return tape->values[entry->parameters[LORA_A]].shape.sizes[0];
}

/* What goes through A: x, or what dropout left of it. */
static uint32_t adapted(const ckpt_tape_entry *entry) { return entry->n_in - 1; }

static ckpt_status lora_shapes(ckpt_tape *tape, ckpt_tape_entry *entry, ckpt_error *err) {
  const uint64_t n_in = ckpt_tape_columns(tape, entry->in[0]), n_out = n_out_of(tape, entry);
  const uint64_t rank = rank_of(tape, entry);
  if (!entry->attributes.is_frozen)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "operation 'lora': its weight has to be frozen");
  CKPT_TRY(ckpt_tape_expect_columns(tape, entry, entry->in[adapted(entry)], n_in, err));
  CKPT_TRY(ckpt_tape_expect_parameter(tape, entry, LORA_A, rank, n_in, err));
  CKPT_TRY(ckpt_tape_expect_parameter(tape, entry, LORA_B, n_out, rank, err));
  CKPT_TRY(shapes_of(tape, entry, LORA_BIAS, err));
  return ckpt_tape_output(tape, entry, "lora", rank, err);
}

static ckpt_tape_keeps lora_keeps(const ckpt_tape_entry *entry) {
  return (ckpt_tape_keeps){.in = 1U << adapted(entry), .out = 2, .d_in = (2U << adapted(entry)) - 1, .d_out = 1};
}

static uint64_t lora_scratch(const ckpt_tape *tape, const ckpt_tape_entry *entry, const ckpt_tape_limits *limits) {
  return limits->n_tokens * rank_of(tape, entry) * limits->real_bytes;
}

static uint32_t lora_linears(const ckpt_tape *tape, const ckpt_tape_entry *entry, const ckpt_tape_limits *limits,
                             ckpt_tape_linear out[CKPT_TAPE_MAX_LINEARS]) {
  const uint64_t rank = rank_of(tape, entry);
  (void)one_linear(tape, entry, limits, out);
  out[1] = (ckpt_tape_linear){.n_tokens = limits->n_tokens, .n_in = out[0].n_in, .n_out = rank};
  out[2] = (ckpt_tape_linear){.n_tokens = limits->n_tokens, .n_in = rank, .n_out = out[0].n_out};
  return 3;
}

/* low = x A^T, kept for backward; y += scale * low B^T */
static ckpt_status lora_forward(const ckpt_tape_call *call, ckpt_error *err) {
  const size_t n_in = ckpt_tape_columns(call->tape, call->entry->in[0]), n_out = n_out_of(call->tape, call->entry);
  const size_t rank = rank_of(call->tape, call->entry);
  ckpt_gemm low = {.is_b_transposed = true, .m = call->n_tokens, .n = rank, .k = n_in, .alpha = 1};
  low.a = call->in[adapted(call->entry)], low.lda = n_in,
  low.is_a_rounded = adapted(call->entry) == 0 && call->x_is_scratch; /* by the product */
  low.b = call->parameters[LORA_A], low.ldb = n_in;
  low.c = call->out[1], low.ldc = rank;
  ckpt_gemm up = {.is_b_transposed = true, .m = call->n_tokens, .n = n_out, .k = rank, .beta = 1};
  up.alpha = call->entry->attributes.scale;
  up.a = call->out[1], up.lda = rank;
  up.b = call->parameters[LORA_B], up.ldb = rank;
  up.c = call->out[0], up.ldc = n_out;
  CKPT_TRY(product(call, LORA_BIAS, err));
  CKPT_TRY(multiply(call, &low, err));
  return multiply(call, &up, err);
}

/* d_low = scale * d_y B; dx += d_low A; dA += d_low^T x; dB += scale * d_y^T low */
static ckpt_status lora_backward(const ckpt_tape_call *call, ckpt_error *err) {
  const uint32_t which = adapted(call->entry);
  const size_t n_in = ckpt_tape_columns(call->tape, call->entry->in[0]), n_out = n_out_of(call->tape, call->entry);
  const size_t rank = rank_of(call->tape, call->entry), n = call->n_tokens;
  const double scale = call->entry->attributes.scale;
  const bool d_y_is_rounded = call->d_in[0] != NULL;
  const ckpt_gemm to_low = {.is_a_scratch = true,
                            .is_a_rounded = d_y_is_rounded,
                            .m = n,
                            .n = rank,
                            .k = n_out,
                            .alpha = scale,
                            .a = call->d_out[0],
                            .lda = n_out,
                            .b = call->parameters[LORA_B],
                            .ldb = rank,
                            .c = call->scratch,
                            .ldc = rank};
  const ckpt_gemm to_x = {.m = n,
                          .n = n_in,
                          .k = rank,
                          .alpha = 1,
                          .beta = which == 0 || call->adds[which] ? 1 : 0,
                          .a = call->scratch,
                          .lda = rank,
                          .b = call->parameters[LORA_A],
                          .ldb = n_in,
                          .c = call->d_in[which],
                          .ldc = n_in};
  const ckpt_gemm to_a = {.is_a_transposed = true,
                          .is_b_rounded = which == 0 && call->x_is_rounded,
                          .m = rank,
                          .n = n_in,
                          .k = n,
                          .alpha = 1,
                          .beta = 1,
                          .a = call->scratch,
                          .lda = rank,
                          .b = call->in[which],
                          .ldb = n_in,
                          .c = call->d_parameters[LORA_A],
                          .ldc = n_in};
  const ckpt_gemm to_b = {.is_a_transposed = true,
                          .is_a_rounded = true, /* by to_low */
                          .m = n_out,
                          .n = rank,
                          .k = n,
                          .alpha = scale,
                          .beta = 1,
                          .a = call->d_out[0],
                          .lda = n_out,
                          .b = call->out[1],
                          .ldb = rank,
                          .c = call->d_parameters[LORA_B],
                          .ldc = rank};
  give_bias(call, LORA_BIAS, n_out);
  CKPT_TRY(product_to_x(call, err));
  CKPT_TRY(multiply(call, &to_low, err));
  if (call->d_in[which] != NULL) CKPT_TRY(multiply(call, &to_x, err));
  CKPT_TRY(multiply(call, &to_a, err));
  return multiply(call, &to_b, err);
}

const ckpt_tape_op ckpt_tape_op_lora = {.name = "lora",
                                        .is_costly = true,
                                        .min_in = 1,
                                        .max_in = 2,
                                        .min_parameters = 3,
                                        .max_parameters = 4,
                                        .stored_parameters = 1,
                                        .shapes = lora_shapes,
                                        .keeps = lora_keeps,
                                        .forward = lora_forward,
                                        .backward = lora_backward,
                                        .shard = linear_shard,
                                        .has_backward_scratch = true,
                                        .scratch = lora_scratch,
                                        .linears = lora_linears};

/* ---- linear_loss ----------------------------------------------------------------------------------------------------
 */

/* The vocabulary is whole on every rank: all make the same loss and gradients. */
static ckpt_status loss_shard(ckpt_shard_rule *rule, const ckpt_tape *tape, ckpt_tape_entry *entry,
                              const ckpt_shard_query *query, ckpt_error *err) {
  (void)rule, (void)tape, (void)entry, (void)query, (void)err;
  return CKPT_OK;
}

static ckpt_status loss_shapes(ckpt_tape *tape, ckpt_tape_entry *entry, ckpt_error *err) {
  uint64_t n_in = ckpt_tape_columns(tape, entry->in[0]);
  CKPT_TRY(ckpt_tape_expect_columns(tape, entry, entry->in[0], n_in, err));
  CKPT_TRY(ckpt_tape_expect_parameter(tape, entry, 0, n_out_of(tape, entry), n_in, err));
  return ckpt_tape_output(tape, entry, "log_probabilities", 1, err);
}

static ckpt_tape_keeps loss_keeps(const ckpt_tape_entry *entry) {
  (void)entry;
  return (ckpt_tape_keeps){.in = 1 | 2, .d_in = 1};
}

static uint64_t loss_scratch(const ckpt_tape *tape, const ckpt_tape_entry *entry, const ckpt_tape_limits *limits) {
  return limits->loss_rows * n_out_of(tape, entry) * limits->real_bytes;
}

static uint32_t loss_linears(const ckpt_tape *tape, const ckpt_tape_entry *entry, const ckpt_tape_limits *limits,
                             ckpt_tape_linear out[CKPT_TAPE_MAX_LINEARS]) {
  (void)one_linear(tape, entry, limits, out);
  out[0].n_tokens = limits->loss_rows;
  return 1;
}

/* Tokens of one chunk: their logits, and loss and gradients from them. */
typedef struct chunk {
  size_t first, n_rows, n_in, n_out;
} chunk;

static void *row_of(const ckpt_tape_call *call, void *matrix, size_t row, size_t n_columns) {
  return (char *)matrix + row * n_columns * real_bytes(call);
}

static ckpt_status make_logits(const ckpt_tape_call *call, const chunk *at, ckpt_error *err) {
  ckpt_gemm gemm = {.is_b_transposed = true, .m = at->n_rows, .n = at->n_out, .k = at->n_in, .alpha = 1};
  gemm.a = row_of(call, call->in[0], at->first, at->n_in), gemm.lda = at->n_in, gemm.is_a_scratch = call->x_is_scratch;
  gemm.b = call->parameters[0], gemm.b_dtype = call->dtypes[0], gemm.ldb = at->n_in;
  gemm.c = call->scratch, gemm.ldc = at->n_out;
  CKPT_TRY(multiply(call, &gemm, err));
  if (call->batch->logits != NULL)
    call->device->table->copy_out(call->device, call->batch->logits + at->first * at->n_out, call->scratch,
                                  at->n_rows * at->n_out * sizeof(float));
  return CKPT_OK;
}

static void make_loss(const ckpt_tape_call *call, const chunk *at, bool has_gradient) {
  ckpt_loss_args args = {.logits = call->scratch,
                         .log_probability = row_of(call, call->out[0], at->first, 1),
                         .targets = (const int32_t *)call->in[1] + at->first,
                         .n_columns = at->n_out,
                         .scale = call->scale,
                         .smoothing = call->batch->label_smoothing,
                         .has_gradient = has_gradient};
  ckpt_tape_over_rows(call, CKPT_KERNEL_loss, &args, at->n_rows, at->n_out);
}

static ckpt_status make_gradients(const ckpt_tape_call *call, const chunk *at, ckpt_error *err) {
  if (call->d_in[0] != NULL) {
    ckpt_gemm to_x = {.m = at->n_rows, .n = at->n_in, .k = at->n_out, .alpha = 1, .beta = call->adds[0] ? 1 : 0};
    to_x.a = call->scratch, to_x.lda = at->n_out, to_x.is_a_scratch = true;
    to_x.b = call->parameters[0], to_x.b_dtype = call->dtypes[0], to_x.ldb = at->n_in;
    to_x.c = row_of(call, call->d_in[0], at->first, at->n_in), to_x.ldc = at->n_in;
    CKPT_TRY(multiply(call, &to_x, err));
  }
  if (call->d_parameters[0] == NULL) return CKPT_OK;
  ckpt_gemm to_weight = {.is_a_transposed = true, .m = at->n_out, .n = at->n_in, .k = at->n_rows, .alpha = 1};
  to_weight.beta = call->sets && at->first == 0 ? 0 : 1;
  to_weight.a = call->scratch, to_weight.lda = at->n_out, to_weight.is_a_scratch = true;
  to_weight.is_a_rounded = call->d_in[0] != NULL, to_weight.is_b_rounded = call->x_is_scratch; /* with the logits */
  to_weight.b = row_of(call, call->in[0], at->first, at->n_in), to_weight.ldb = at->n_in;
  to_weight.c = call->d_parameters[0], to_weight.ldc = at->n_in;
  return multiply(call, &to_weight, err);
}

/* Whether nobody asks for the logits of a chunk: no token of it has a target. */
static bool is_unwanted(const ckpt_tape_call *call, const chunk *at) {
  for (size_t i = 0; i < at->n_rows; i++)
    if (call->batch->targets == NULL || call->batch->targets[at->first + i] >= 0) return false;
  return call->batch->logits == NULL && !call->keeps_logits;
}

static ckpt_status run_chunks(const ckpt_tape_call *call, bool is_training, ckpt_error *err) {
  chunk at = {.first = call->head_first,
              .n_in = ckpt_tape_columns(call->tape, call->entry->in[0]),
              .n_out = n_out_of(call->tape, call->entry)};
  const size_t end = call->head_first + call->head_rows;
  const bool has_targets = call->in[1] != NULL;
  if (!has_targets && call->batch->logits == NULL && !call->keeps_logits) return CKPT_OK;
  for (; at.first < end; at.first += at.n_rows) {
    const size_t n_left = end - at.first;
    at.n_rows = n_left < call->loss_rows ? n_left : call->loss_rows;
    if (!is_training && is_unwanted(call, &at)) {
      call->device->table->fill_zero(call->device, row_of(call, call->out[0], at.first, 1),
                                     at.n_rows * real_bytes(call));
      continue;
    }
    CKPT_TRY(make_logits(call, &at, err));
    if (has_targets) make_loss(call, &at, is_training);
    if (is_training) CKPT_TRY(make_gradients(call, &at, err));
  }
  return CKPT_OK;
}

static ckpt_status loss_forward(const ckpt_tape_call *call, ckpt_error *err) { return run_chunks(call, false, err); }
static ckpt_status loss_backward(const ckpt_tape_call *call, ckpt_error *err) { return run_chunks(call, true, err); }

const ckpt_tape_op ckpt_tape_op_linear_loss = {.name = "linear_loss",
                                               .is_costly = true,
                                               .min_in = 2,
                                               .max_in = 2,
                                               .min_parameters = 1,
                                               .max_parameters = 1,
                                               .sets_weight = true,
                                               .stored_parameters = 1,
                                               .shapes = loss_shapes,
                                               .keeps = loss_keeps,
                                               .forward = loss_forward,
                                               .backward = loss_backward,
                                               .shard = loss_shard,
                                               .is_forward_in_backward = true,
                                               .scratch = loss_scratch,
                                               .linears = loss_linears};
