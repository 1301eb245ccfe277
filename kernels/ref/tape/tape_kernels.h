/* tape_kernels.h - the kernels of the tape: their arguments, and the table that each level of a device fills.
 *
 * A kernel runs a part [begin, end) of one axis, named beside its arguments; parts are independent, so they may run on
 * any number of threads and give the same bits. No part cuts an axis that is summed over. kernels/ref/tape defines each
 * (f32 and f64 from one source); kernels/cpu/tape equals its f32 bit for bit. GEMM alone comes from a library.
 *
 * Pointers are to reals (f32 or f64, by the table) unless a type says otherwise; matrices are row-major; strides are in
 * elements. `adds`: a gradient is added to the old value, else it replaces it. */
#ifndef CKPT_KERNELS_REF_TAPE_KERNELS_H
#define CKPT_KERNELS_REF_TAPE_KERNELS_H

#include "libckpt/ckpt.h"

typedef enum ckpt_tape_kernel_id {
#define CKPT_TAPE_KERNEL(id) CKPT_KERNEL_##id,
#include "kernels/ref/tape/tape_kernels.def"
#undef CKPT_TAPE_KERNEL
  CKPT_N_TAPE_KERNELS
} ckpt_tape_kernel_id;

/* A kernel: its arguments, and the part of its axis. */
typedef void ckpt_tape_kernel(const void *args, size_t begin, size_t end);

/* c = alpha * op(a) * op(b) + beta * c (+ bias to each row); op(a) is m x k, op(b) k x n. beta is 0 (c is not read) or
 * 1. b may lie as a checkpoint stores it: it counts as its elements in f32, and the result has the bits of these. */
typedef struct ckpt_gemm {
  bool is_a_transposed, is_b_transposed;
  bool is_bf16;                    /* elements of a and b count rounded to bf16, to nearest even; sums are in f32 */
  bool is_a_scratch;               /* with it: the device may round a where it lies */
  bool is_a_rounded, is_b_rounded; /* that factor was such an a of a product before, whole */
  ckpt_dtype b_dtype;              /* bf16, f16 or a block type; NONE: reals. Its rows are ldb elements, whole blocks */
  size_t b_first;                  /* of a b_dtype: elements of each stored row before those of the product */
  bool is_b_turned; /* of a b_dtype: it lies as n rows of k, and is multiplied as the k x n that it stands for */
  size_t m, n, k;
  const void *a, *b, *bias; /* bias: n, or NULL */
  void *c;
  size_t lda, ldb, ldc;
  double alpha, beta;
} ckpt_gemm;

/* One product on the calling thread. ENOMEM, EINTERNAL; EUNSUPPORTED: a b_dtype that it does not take. */
typedef ckpt_status ckpt_gemm_function(const ckpt_gemm *gemm, ckpt_error *err);

typedef struct ckpt_tape_kernels {
  const char *name;  /* "ref", "avx512", ... */
  size_t real_bytes; /* 4 or 8 */
  ckpt_tape_kernel *run[CKPT_N_TAPE_KERNELS];
  ckpt_gemm_function *gemm;
  void (*round)(float *out, const float *x, size_t n); /* to bf16, in f32, as gemm does; NULL: gemm alone does */
  size_t slow_stride; /* gemm packs factors whose rows are summed over and lie a multiple of it apart; 0: none */
} ckpt_tape_kernels;

/* Elements between the rows of such a packed factor; rows or columns of the product that make packing pay. */
enum { CKPT_GEMM_SPREAD = 16, CKPT_GEMM_MIN_SPREAD = 64 };

/* Whether gemm packs a for its stride. */
static inline bool ckpt_gemm_spreads_a(const ckpt_gemm *g, size_t slow_stride) {
  return slow_stride != 0 && g->is_a_transposed && g->lda % slow_stride == 0 && g->n >= CKPT_GEMM_MIN_SPREAD;
}

/* Whether gemm packs b for its stride. */
static inline bool ckpt_gemm_spreads_b(const ckpt_gemm *g, size_t slow_stride) {
  const bool is_crossed = !g->is_b_transposed && !g->is_b_turned && g->b_dtype == CKPT_DTYPE_NONE;
  return slow_stride != 0 && is_crossed && g->ldb % slow_stride == 0 && g->m >= CKPT_GEMM_MIN_SPREAD;
}

extern const ckpt_tape_kernels ckpt_tape_kernels_ref_f32, ckpt_tape_kernels_ref_f64; /* the definition */

/* Levels of this processor, slowest first: the i-th, or NULL past the last, which is the one to use. */
const ckpt_tape_kernels *ckpt_tape_kernels_cpu(size_t i);

/* The one to use where nothing is multiplied in bf16. Choosing it does not load oneDNN. */
const ckpt_tape_kernels *ckpt_tape_kernels_cpu_f32(void);

/* The formulas that kernels are made of, for what is computed once (frequencies of rope) and for tests. */
double ckpt_tape_exp(double x);
double ckpt_tape_log(double x);                                     /* as above */
double ckpt_tape_erfc(double x);                                    /* as above */
void ckpt_tape_sine_cosine(double x, double *sine, double *cosine); /* as above */
float ckpt_tape_exp_f32(float x);                                   /* as above */
float ckpt_tape_log_f32(float x);                                   /* as above */
float ckpt_tape_erfc_f32(float x);                                  /* as above */

/* ---- arguments ------------------------------------------------------------------------------------------------------
 */

/* Which elements are dropped: those whose word of Philox4x32-10 under `key` is below `threshold` (the rate times 2^32);
 * the others are multiplied by scale. Element (row, position, column) has word column % 4 of the counter {column / 4,
 * position, first_row + row, site}: rows are counted over the whole epoch, so ranks and batches change nothing. */
typedef struct ckpt_dropout {
  uint64_t key;
  double scale;
  uint32_t threshold; /* 0: nothing is dropped */
  uint32_t first_row, site;
} ckpt_dropout;

/* dropout, over tokens: y = x times its factor; the backward is the same with gradients. */
typedef struct ckpt_dropout_args {
  const void *x;
  void *y; /* may be x where it is not added to */
  size_t n_columns, length;
  bool adds;
  ckpt_dropout dropout;
} ckpt_dropout_args;

/* embedding, over tokens: out[t] = table[ids[t]] (+ position_table[position of t]).
 * embedding_backward, over columns: table[ids[t]] += out[t], in order of t. With ids NULL the row is the position of t.
 * The row `padding`, where there is one, gets nothing (padding_idx of torch's Embedding). */
typedef struct ckpt_embedding_args {
  void *out; /* n_tokens x n_columns; backward: its gradient, read */
  void *table;
  const void *position_table; /* or NULL; forward only */
  const int32_t *ids, *positions;
  size_t n_tokens, n_columns, length;
  bool has_padding;
  int32_t padding; /* backward only */
} ckpt_embedding_args;

/* rmsnorm, layernorm, over tokens: sum = x (+ residual); y = norm(sum) * weight (+ bias). inverse (and mean, of
 * layernorm) are one a token, kept for backward. sum is NULL without a residual. */
typedef struct ckpt_norm_args {
  const void *x, *residual, *weight, *bias;
  void *sum, *y, *mean, *inverse;
  size_t n_columns;
  double epsilon;
} ckpt_norm_args;

/* rmsnorm_backward, layernorm_backward, over tokens: dx = d_sum (if any) + what comes through the norm of d_y; where
 * d_residual is not NULL it gets the same. rmsnorm_weights, layernorm_weights, over columns: d_weight and d_bias are
 * added to. x is what was normalized. */
typedef struct ckpt_norm_backward_args {
  const void *x, *weight, *mean, *inverse, *d_y, *d_sum;
  void *d_x, *d_residual, *d_weight, *d_bias;
  size_t n_tokens, n_columns;
  bool adds_x, adds_residual;
} ckpt_norm_backward_args;

/* bias, over rows: y[r] += bias. bias_backward, over columns: bias += sum of rows of y, in their order. */
typedef struct ckpt_bias_args {
  void *y, *bias;
  size_t n_rows, n_columns, stride;
} ckpt_bias_args;

/* rope_table, over tokens: for each token head_width / 2 cosines, then as many sines, of position * frequency, a
 * product of f32. */
typedef struct ckpt_rope_table_args {
  void *table;              /* n_tokens x head_width */
  const float *frequencies; /* head_width / 2 */
  const int32_t *positions; /* NULL: t % length */
  size_t head_width, length;
} ckpt_rope_table_args;

/* rope, over tokens: rotates pairs (i, i + head_width / 2) of each head; is_inverse: back, which is its backward. */
typedef struct ckpt_rope_args {
  const void *x, *table;
  void *y;
  size_t n_heads, head_width;
  bool is_inverse, adds;
} ckpt_rope_args;

/* attention, over (row, head, block of CKPT_ATTENTION_BLOCK queries): query i sees keys j of its row with j <= i,
 * i - j < window (0: any), documents equal, mask not 0. A query that sees none gives zeros and log_sum -infinity.
 * Head h uses key head h / (n_heads / n_kv_heads). Dropout of head h is at site + h: position is the query, column the
 * key; it is applied to probabilities, whose sum stays that of all. attention_backward, over (row, key head): d_q, d_k,
 * d_v are written, or added to. Values have n_rows * length rows of the given strides. */
typedef struct ckpt_attention_args {
  const void *q, *k, *v;
  void *o, *log_sum; /* log_sum: n_tokens x n_heads, log of the sum of exp of scores */
  const void *d_o;
  void *d_q, *d_k, *d_v;
  void *deltas; /* backward: scratch, as log_sum, for each query's product of d_o and o; the reference needs none */
  const int32_t *documents;
  const uint8_t *mask;
  size_t q_stride, k_stride, v_stride, o_stride; /* gradients have those of their values */
  size_t n_rows, length, n_heads, n_kv_heads, head_width, window;
  double scale;
  bool adds_q, adds_k, adds_v;
  ckpt_dropout dropout;
} ckpt_attention_args;

/* Queries, and keys, of a block; the widest head that runs. */
enum { CKPT_ATTENTION_BLOCK = 64, CKPT_MAX_HEAD_WIDTH = 256 };

/* silu_mul, gelu, gelu_exact and their backwards, over elements. a: gate, or the argument; b: up. */
typedef struct ckpt_activation_args {
  const void *a, *b, *d_out;
  void *out, *d_a, *d_b;
  bool adds_a, adds_b;
} ckpt_activation_args;

/* add, over elements: y += x. */
typedef struct ckpt_add_args {
  const void *x;
  void *y;
} ckpt_add_args;

/* loss, over rows: log_probability[r] = log softmax(logits[r])[targets[r]], 0 where the target is negative; of it and
 * of the mean over the vocabulary the share 1 - smoothing and smoothing. With has_gradient the logits become scale *
 * (softmax - one-hot, smoothed as well), or zeros where there is no target. */
typedef struct ckpt_loss_args {
  void *logits, *log_probability;
  const int32_t *targets;
  size_t n_columns;
  double scale;
  bool has_gradient;
  double smoothing; /* 0: none */
} ckpt_loss_args;

/* adamw, over elements: one step. keep: 1 - learning rate * decay; rate1, rate2: 1 - beta; size: learning rate / first
 * bias correction; root: square root of the second; scale: of every gradient, clipping's. */
typedef struct ckpt_adamw_args {
  void *weights, *exp_avg, *exp_avg_sq;
  const void *gradients;
  double keep, rate1, rate2, beta2, size, root, epsilon, scale;
} ckpt_adamw_args;

/* square_sum, over blocks of CKPT_SQUARE_BLOCK elements: the sum of the squares of each, in double. */
typedef struct ckpt_square_sum_args {
  const void *x;
  double *sums;
  size_t n;
} ckpt_square_sum_args;

/* As above. */
enum { CKPT_SQUARE_BLOCK = 4096 };

#endif
