/* attention.c - rope's table, rope, and attention.
 *
 * rope_table: in positions; out cosines and sines, once a batch for all layers. rope: in x, table. attention: in q, k,
 * v, documents, mask; out o and the log of each query's sum, which backward needs. q, k and v may be columns of one
 * value (GPT-2): attributes.columns says where each begins. */
#include <inttypes.h>

#include "libckpt/base/error.h"
#include "trainer/model/op.h"

/* ---- rope -----------------------------------------------------------------------------------------------------------
 */

static ckpt_status table_shapes(ckpt_tape *tape, ckpt_tape_entry *entry, ckpt_error *err) {
  return ckpt_tape_output(tape, entry, "rope", entry->attributes.head_width, err);
}

/* The same on every rank. */
static ckpt_status table_shard(ckpt_shard_rule *rule, const ckpt_tape *tape, ckpt_tape_entry *entry,
                               const ckpt_shard_query *query, ckpt_error *err) {
  (void)rule, (void)tape, (void)entry, (void)query, (void)err;
  return CKPT_OK;
}

/* Heads are cut where columns are. */
static ckpt_status cut_heads(uint32_t *n_heads, const ckpt_tape *tape, uint32_t value, const ckpt_shard_query *query,
                             ckpt_error *err) {
  uint64_t n = 0;
  CKPT_TRY(ckpt_shard_divide(&n, *n_heads, query->n_tp, "heads", tape->values[value].name, err));
  *n_heads = (uint32_t)n;
  return CKPT_OK;
}

static ckpt_status rope_shard(ckpt_shard_rule *rule, const ckpt_tape *tape, ckpt_tape_entry *entry,
                              const ckpt_shard_query *query, ckpt_error *err) {
  if (query->in[0] != CKPT_SHARD_CUT) return CKPT_OK;
  rule->in[0] = rule->out[0] = CKPT_SHARD_CUT;
  return cut_heads(&entry->attributes.n_heads, tape, entry->in[0], query, err);
}

static ckpt_tape_keeps nothing_kept(const ckpt_tape_entry *entry) {
  (void)entry;
  return (ckpt_tape_keeps){0};
}

static uint64_t table_state_bytes(const ckpt_tape_entry *entry) {
  return entry->attributes.head_width / 2 * sizeof(float);
}

/* As transformers' llama3: long waves are slowed by factor, short ones stay, those between are mixed. */
static float scaled_frequency(const ckpt_rope *rope, float frequency) {
  const float factor = (float)rope->factor;
  if (rope->kind == CKPT_ROPE_LINEAR) return frequency / factor;
  if (rope->kind != CKPT_ROPE_LLAMA3) return frequency;
  const float low = (float)rope->low_frequency_factor, high = (float)rope->high_frequency_factor;
  const float positions = (float)rope->original_positions, wave = (float)6.283185307179586477 / frequency;
  if (wave > positions / low) return frequency / factor;
  if (wave < positions / high) return frequency;
  const float mix = (positions / wave - low) / (high - low);
  return (1 - mix) * frequency / factor + mix * frequency;
}

static void table_state(const ckpt_tape_entry *entry, void *out) {
  const ckpt_rope *rope = &entry->attributes.rope;
  const uint32_t width = entry->attributes.head_width;
  for (uint32_t i = 0; i < width / 2; i++) {
    /* in f32 as transformers has them: 1 / theta^(2 i / width) */
    float power = (float)ckpt_tape_exp(ckpt_tape_log(rope->theta) * (double)((float)(2 * i) / (float)width));
    if (rope->kind == CKPT_ROPE_LONG) power *= rope->factors[i];
    ((float *)out)[i] = scaled_frequency(rope, 1 / power);
  }
}

static ckpt_status table_forward(const ckpt_tape_call *call, ckpt_error *err) {
  (void)err;
  ckpt_rope_table_args args = {.table = call->out[0],
                               .frequencies = call->state,
                               .positions = call->in[0],
                               .head_width = call->entry->attributes.head_width,
                               .length = call->batch->length};
  ckpt_tape_over_rows(call, CKPT_KERNEL_rope_table, &args, call->n_tokens, 16 * args.head_width);
  return CKPT_OK;
}

static ckpt_status no_backward(const ckpt_tape_call *call, ckpt_error *err) {
  (void)call, (void)err;
  return CKPT_OK;
}

const ckpt_tape_op ckpt_tape_op_rope_table = {.name = "rope_table",
                                              .min_in = 1,
                                              .max_in = 1,
                                              .shapes = table_shapes,
                                              .keeps = nothing_kept,
                                              .forward = table_forward,
                                              .backward = no_backward,
                                              .shard = table_shard,
                                              .state_bytes = table_state_bytes,
                                              .state = table_state};

static ckpt_status rope_shapes(ckpt_tape *tape, ckpt_tape_entry *entry, ckpt_error *err) {
  const ckpt_tape_attributes *a = &entry->attributes;
  CKPT_TRY(ckpt_tape_expect_columns(tape, entry, entry->in[0], (uint64_t)a->n_heads * a->head_width, err));
  CKPT_TRY(ckpt_tape_expect_columns(tape, entry, entry->in[1], a->head_width, err));
  return ckpt_tape_output(tape, entry, "rotated", (uint64_t)a->n_heads * a->head_width, err);
}

static ckpt_tape_keeps rope_keeps(const ckpt_tape_entry *entry) {
  (void)entry;
  return (ckpt_tape_keeps){.in = 2, .d_in = 1, .d_out = 1};
}

static ckpt_status rotate(const ckpt_tape_call *call, ckpt_rope_args *args) {
  args->table = call->in[1];
  args->n_heads = call->entry->attributes.n_heads;
  args->head_width = call->entry->attributes.head_width;
  ckpt_tape_over_rows(call, CKPT_KERNEL_rope, args, call->n_tokens, args->n_heads * args->head_width);
  return CKPT_OK;
}

static ckpt_status rope_forward(const ckpt_tape_call *call, ckpt_error *err) {
  (void)err;
  return rotate(call, &(ckpt_rope_args){.x = call->in[0], .y = call->out[0]});
}

static ckpt_status rope_backward(const ckpt_tape_call *call, ckpt_error *err) {
  (void)err;
  return rotate(call,
                &(ckpt_rope_args){.x = call->d_out[0], .y = call->d_in[0], .is_inverse = true, .adds = call->adds[0]});
}

const ckpt_tape_op ckpt_tape_op_rope = {.name = "rope",
                                        .min_in = 2,
                                        .max_in = 2,
                                        .shapes = rope_shapes,
                                        .keeps = rope_keeps,
                                        .forward = rope_forward,
                                        .backward = rope_backward,
                                        .shard = rope_shard};

/* ---- attention ------------------------------------------------------------------------------------------------------
 */

enum { IN_Q, IN_K, IN_V, IN_DOCUMENTS, IN_MASK };

static uint64_t columns_of(const ckpt_tape_attributes *a, uint32_t which) {
  return (uint64_t)(which == IN_Q ? a->n_heads : a->n_kv_heads) * a->head_width;
}

/* Each of q, k, v lies within its value; of one value they are disjoint and all of it, so that its gradient is whole.
 */
static ckpt_status attention_shapes(ckpt_tape *tape, ckpt_tape_entry *entry, ckpt_error *err) {
  const ckpt_tape_attributes *a = &entry->attributes;
  if (a->n_heads == 0 || a->n_kv_heads == 0 || a->n_heads % a->n_kv_heads != 0)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "operation 'attention': %u heads over %u key heads", a->n_heads,
                     a->n_kv_heads);
  if (a->head_width == 0 || a->head_width > CKPT_MAX_HEAD_WIDTH)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "operation 'attention': heads of width %u (1 to %d)",
                     a->head_width, CKPT_MAX_HEAD_WIDTH);
  bool is_packed = entry->in[IN_K] == entry->in[IN_V]; /* keys may be gathered from the same columns */
  if (!is_packed && (entry->in[IN_Q] == entry->in[IN_K] || entry->in[IN_Q] == entry->in[IN_V]))
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "operation 'attention': two of q, k and v in one value");
  uint64_t first = 0;
  for (uint32_t i = IN_Q; i <= IN_V; i++) {
    if (a->columns[i] != first)
      return ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                       "operation 'attention': input %u begins at column %u, not %" PRIu64, i, a->columns[i], first);
    first = is_packed ? first + columns_of(a, i) : 0;
    if (!is_packed) CKPT_TRY(ckpt_tape_expect_columns(tape, entry, entry->in[i], columns_of(a, i), err));
  }
  if (is_packed) CKPT_TRY(ckpt_tape_expect_columns(tape, entry, entry->in[IN_Q], first, err));
  CKPT_TRY(ckpt_tape_output(tape, entry, "attention", columns_of(a, IN_Q), err));
  return ckpt_tape_output(tape, entry, "attention.log_sum", a->n_heads, err);
}

/* Heads are cut; keys and values are needed from all tokens of a sequence. */
static ckpt_status attention_shard(ckpt_shard_rule *rule, const ckpt_tape *tape, ckpt_tape_entry *entry,
                                   const ckpt_shard_query *query, ckpt_error *err) {
  ckpt_tape_attributes *a = &entry->attributes;
  rule->gathers_tokens = 1U << IN_K | 1U << IN_V;
  if (query->in[IN_Q] != CKPT_SHARD_CUT) return CKPT_OK;
  for (uint32_t i = IN_Q; i <= IN_V; i++) rule->in[i] = CKPT_SHARD_CUT;
  rule->out[0] = rule->out[1] = CKPT_SHARD_CUT;
  CKPT_TRY(cut_heads(&a->n_heads, tape, entry->in[IN_Q], query, err));
  CKPT_TRY(cut_heads(&a->n_kv_heads, tape, entry->in[IN_K], query, err));
  for (uint32_t i = IN_Q; i <= IN_V; i++) a->columns[i] /= query->n_tp;
  return CKPT_OK;
}

static ckpt_tape_keeps attention_keeps(const ckpt_tape_entry *entry) {
  (void)entry;
  return (ckpt_tape_keeps){.in = 31, .out = 3, .d_in = 7, .d_out = 1};
}

static void *at_column(const ckpt_tape_call *call, void *matrix, uint32_t which) {
  if (matrix == NULL) return NULL;
  return (char *)matrix + call->entry->attributes.columns[which] * call->device->kernels->real_bytes;
}

static ckpt_attention_args attention_args(const ckpt_tape_call *call) {
  const ckpt_tape_entry *entry = call->entry;
  const ckpt_tape_attributes *a = &entry->attributes;
  return (ckpt_attention_args){.q = at_column(call, call->in[IN_Q], IN_Q),
                               .k = at_column(call, call->in[IN_K], IN_K),
                               .v = at_column(call, call->in[IN_V], IN_V),
                               .documents = call->in[IN_DOCUMENTS],
                               .mask = call->in[IN_MASK],
                               .o = call->out[0],
                               .log_sum = call->out[1],
                               .q_stride = ckpt_tape_columns(call->tape, entry->in[IN_Q]),
                               .k_stride = ckpt_tape_columns(call->tape, entry->in[IN_K]),
                               .v_stride = ckpt_tape_columns(call->tape, entry->in[IN_V]),
                               .o_stride = columns_of(a, IN_Q),
                               .n_rows = call->batch->n_rows,
                               .length = call->batch->length,
                               .n_heads = a->n_heads,
                               .n_kv_heads = a->n_kv_heads,
                               .head_width = a->head_width,
                               .window = a->window,
                               .scale = a->scale,
                               .dropout = ckpt_tape_dropout(call)};
}

/* What a device keeps of each query and head while it makes gradients. */
static uint64_t attention_scratch(const ckpt_tape *tape, const ckpt_tape_entry *entry, const ckpt_tape_limits *limits) {
  (void)tape;
  return limits->n_tokens * entry->attributes.n_heads * limits->real_bytes;
}

static ckpt_status attention_forward(const ckpt_tape_call *call, ckpt_error *err) {
  (void)err;
  ckpt_attention_args args = attention_args(call);
  size_t n_blocks = (args.length + CKPT_ATTENTION_BLOCK - 1) / CKPT_ATTENTION_BLOCK;
  call->device->table->launch(call->device, CKPT_KERNEL_attention, &args, args.n_rows * args.n_heads * n_blocks, 1);
  return CKPT_OK;
}

static ckpt_status attention_backward(const ckpt_tape_call *call, ckpt_error *err) {
  (void)err;
  ckpt_attention_args args = attention_args(call);
  args.d_o = call->d_out[0];
  args.deltas = call->scratch;
  args.d_q = at_column(call, call->d_in[IN_Q], IN_Q), args.adds_q = call->adds[IN_Q];
  args.d_k = at_column(call, call->d_in[IN_K], IN_K), args.adds_k = call->adds[IN_K];
  args.d_v = at_column(call, call->d_in[IN_V], IN_V), args.adds_v = call->adds[IN_V];
  call->device->table->launch(call->device, CKPT_KERNEL_attention_backward, &args, args.n_rows * args.n_kv_heads, 1);
  return CKPT_OK;
}

const ckpt_tape_op ckpt_tape_op_attention = {.name = "attention",
                                             .is_costly = true,
                                             .min_in = 5,
                                             .max_in = 5,
                                             .may_share_inputs = true,
                                             .shapes = attention_shapes,
                                             .keeps = attention_keeps,
                                             .forward = attention_forward,
                                             .backward = attention_backward,
                                             .shard = attention_shard,
                                             .has_backward_scratch = true,
                                             .scratch = attention_scratch};
