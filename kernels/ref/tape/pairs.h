/* pairs.h - what attention computes of a query and a key: the parts that every backend's loops are made of.
 *
 * Included by a file that has defined CKPT_REAL_BITS. */
#ifndef CKPT_KERNELS_REF_TAPE_PAIRS_H
#define CKPT_KERNELS_REF_TAPE_PAIRS_H

#include "kernels/ref/tape/dropout.h"
#include "kernels/ref/tape/formulas.h"
#include "kernels/ref/tape/tape_kernels.h"

/* Queries and keys of a block. */
enum { BLOCK = CKPT_ATTENTION_BLOCK };

/* One sequence and head of a call. */
typedef struct attention_at {
  size_t row, head, kv_head, first; /* first: token at which the sequence begins */
} attention_at;

/* Whether a query sees a key. */
static inline CKPT_DEVICE bool is_visible(const ckpt_attention_args *a, const attention_at *at, size_t query,
                                          size_t key) {
  if (key > query || (a->window != 0 && query - key >= a->window)) return false;
  if (a->documents != NULL && a->documents[at->first + query] != a->documents[at->first + key]) return false;
  return a->mask == NULL || a->mask[at->first + key] != 0;
}

/* The first block of keys that the block of queries beginning at `query` goes through. */
static inline CKPT_DEVICE size_t first_block(const ckpt_attention_args *a, size_t query) {
  return a->window == 0 || query < a->window ? 0 : (query - a->window + 1) / BLOCK;
}

/* A head's part of a token's row. */
static inline CKPT_DEVICE const real *row_at(const void *matrix, size_t token, size_t stride, size_t head,
                                             size_t width) {
  return (const real *)matrix + token * stride + head * width;
}

/* A chain of fma, in order. */
static inline CKPT_DEVICE real dot(const real *x, const real *y, size_t n) {
  real sum = 0;
  for (size_t i = 0; i < n; i++) sum = REAL_FMA(x[i], y[i], sum);
  return sum;
}

/* What dropout multiplies the probability of a pair by. */
static inline CKPT_DEVICE real pair_factor(const ckpt_attention_args *a, const attention_at *at, size_t query,
                                           size_t key) {
  real factors[4];
  dropout_factors(&a->dropout, at->row, query, key / 4, a->dropout.site + (uint32_t)at->head, factors);
  return factors[key % 4];
}

/* For one query and key: the probability, after dropout, and the gradient of the score times the scale. */
static inline CKPT_DEVICE void pair_of(const ckpt_attention_args *a, const attention_at *at, size_t query, size_t key,
                                       real *p, real *d_score) {
  const size_t width = a->head_width, i = at->first + query, j = at->first + key;
  const real *q = row_at(a->q, i, a->q_stride, at->head, width), *k = row_at(a->k, j, a->k_stride, at->kv_head, width);
  const real *d_o = row_at(a->d_o, i, a->o_stride, at->head, width);
  const real log_sum = ((const real *)a->log_sum)[i * a->n_heads + at->head];
  const real delta = dot(d_o, row_at(a->o, i, a->o_stride, at->head, width), width);
  const real factor = a->dropout.threshold == 0 ? 1 : pair_factor(a, at, query, key);
  const real d_p = dot(d_o, row_at(a->v, j, a->v_stride, at->kv_head, width), width) * factor;
  *p = is_visible(a, at, query, key) ? real_exp(dot(q, k, width) * (real)a->scale - log_sum) : 0;
  *d_score = *p * (d_p - delta) * (real)a->scale;
  *p *= factor;
}

#endif
