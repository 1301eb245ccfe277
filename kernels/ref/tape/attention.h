/* attention.h - attention as it is defined: a query at a time, keys in blocks, a softmax that is corrected as it goes.
 *
 * Static, for the file that includes it. Products are chains of fma in order of the summed axis, which any blocking of
 * the other axes leaves as they are. Blocks of CKPT_ATTENTION_BLOCK keys begin at multiples of that; the blocks that a
 * block of queries goes through are those of which some query of it could see some key by causality and window. */
#ifndef CKPT_KERNELS_REF_TAPE_ATTENTION_H
#define CKPT_KERNELS_REF_TAPE_ATTENTION_H

#include "kernels/ref/tape/pairs.h"

/* Scores of one query and a block of n keys; -infinity where it does not see them. */
static inline void scores_of(const ckpt_attention_args *a, const attention_at *at, size_t query, size_t key, size_t n,
                             real *scores) {
  const size_t width = a->head_width;
  const real *q = row_at(a->q, at->first + query, a->q_stride, at->head, width);
  for (size_t j = 0; j < n; j++) {
    const real *k = row_at(a->k, at->first + key + j, a->k_stride, at->kv_head, width);
    scores[j] = is_visible(a, at, query, key + j) ? dot(q, k, width) * (real)a->scale : -REAL_INFINITY;
  }
}

/* One query against all keys that its block goes through. */
static void attend(const ckpt_attention_args *a, const attention_at *at, size_t query, size_t block) {
  const size_t width = a->head_width;
  real *o = (real *)row_at(a->o, at->first + query, a->o_stride, at->head, width);
  real most = -REAL_INFINITY, total = 0, scores[BLOCK];
  for (size_t d = 0; d < width; d++) o[d] = 0;
  for (size_t key = first_block(a, block) * BLOCK; key <= query; key += BLOCK) {
    const size_t n = a->length - key < BLOCK ? a->length - key : BLOCK;
    scores_of(a, at, query, key, n, scores);
    real greatest = most;
    for (size_t j = 0; j < n; j++) greatest = scores[j] > greatest ? scores[j] : greatest;
    const real base = greatest == -REAL_INFINITY ? 0 : greatest, correction = real_exp(most - base);
    most = greatest;
    total *= correction;
    for (size_t j = 0; j < n; j++) total += scores[j] = real_exp(scores[j] - base);
    for (size_t j = 0; j < n && a->dropout.threshold != 0; j++) scores[j] *= pair_factor(a, at, query, key + j);
    for (size_t d = 0; d < width; d++) {
      real sum = o[d] * correction;
      for (size_t j = 0; j < n; j++)
        sum = REAL_FMA(scores[j], row_at(a->v, at->first + key + j, a->v_stride, at->kv_head, width)[d], sum);
      o[d] = sum;
    }
  }
  for (size_t d = 0; d < width; d++) o[d] = total == 0 ? 0 : o[d] / total;
  ((real *)a->log_sum)[(at->first + query) * a->n_heads + at->head] =
      total == 0 ? -REAL_INFINITY : most + real_log(total);
}

/* Which sequence, head and block of queries a part is. */
static inline attention_at attention_part(const ckpt_attention_args *a, size_t part, size_t *block) {
  const size_t n_blocks = (a->length + BLOCK - 1) / BLOCK;
  attention_at at = {.row = part / n_blocks / a->n_heads, .head = part / n_blocks % a->n_heads};
  at.kv_head = at.head / (a->n_heads / a->n_kv_heads);
  at.first = at.row * a->length;
  *block = part % n_blocks * BLOCK;
  return at;
}

/* As tape_kernels.h has it. */
static inline void attention(const void *args, size_t begin, size_t end) {
  const ckpt_attention_args *a = args;
  for (size_t part = begin; part < end; part++) {
    size_t block;
    const attention_at at = attention_part(a, part, &block);
    for (size_t query = block; query < a->length && query < block + BLOCK; query++) attend(a, &at, query, block);
  }
}

/* ---- backward -------------------------------------------------------------------------------------------------------
 */

/* y += factor * x */
static inline void add_row(real *y, real factor, const real *x, size_t n) {
  for (size_t i = 0; i < n; i++) y[i] = REAL_FMA(factor, x[i], y[i]);
}

/* Zeros in a head of all tokens of a sequence. */
static inline void clear_rows(const ckpt_attention_args *a, void *matrix, size_t stride, size_t first, size_t head) {
  for (size_t t = first; t < first + a->length; t++)
    memset((real *)row_at(matrix, t, stride, head, a->head_width), 0, a->head_width * sizeof(real));
}

/* One query against a block of keys. */
static inline void attend_backward(const ckpt_attention_args *a, const attention_at *at, size_t query, size_t block) {
  const size_t width = a->head_width, i = at->first + query;
  const real *q = row_at(a->q, i, a->q_stride, at->head, width);
  const real *d_o = row_at(a->d_o, i, a->o_stride, at->head, width);
  for (size_t key = block; key < a->length && key < block + BLOCK; key++) {
    const size_t j = at->first + key;
    real p, d_score;
    pair_of(a, at, query, key, &p, &d_score);
    add_row((real *)row_at(a->d_v, j, a->v_stride, at->kv_head, width), p, d_o, width);
    add_row((real *)row_at(a->d_k, j, a->k_stride, at->kv_head, width), d_score, q, width);
    add_row((real *)row_at(a->d_q, i, a->q_stride, at->head, width), d_score,
            row_at(a->k, j, a->k_stride, at->kv_head, width), width);
  }
}

/* Blocks of keys outside, then heads of the group, then queries: the order in which gradients of keys add up. */
static inline void attention_backward(const void *args, size_t begin, size_t end) {
  const ckpt_attention_args *a = args;
  const size_t group = a->n_heads / a->n_kv_heads;
  for (size_t part = begin; part < end; part++) {
    attention_at at = {.row = part / a->n_kv_heads, .kv_head = part % a->n_kv_heads};
    at.first = at.row * a->length;
    if (!a->adds_k) clear_rows(a, a->d_k, a->k_stride, at.first, at.kv_head);
    if (!a->adds_v) clear_rows(a, a->d_v, a->v_stride, at.first, at.kv_head);
    for (at.head = at.kv_head * group; at.head < (at.kv_head + 1) * group && !a->adds_q; at.head++)
      clear_rows(a, a->d_q, a->q_stride, at.first, at.head);
    for (size_t block = 0; block < a->length; block += BLOCK)
      for (at.head = at.kv_head * group; at.head < (at.kv_head + 1) * group; at.head++)
        for (size_t query = block; query < a->length; query++)
          if (block >= first_block(a, query / BLOCK * BLOCK) * BLOCK) attend_backward(a, &at, query, block);
  }
}

#endif
