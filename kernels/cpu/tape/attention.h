/* attention.h - attention by blocks of queries and keys: equal bit for bit to kernels/ref/tape/attention.h.
 *
 * A block's scores lie key by key, 64 queries beside each other, so that the softmax works on whole rows of queries.
 * Products are small_multiply, whose chains have the reference's order. Static, for the file that includes it. */
#ifndef CKPT_KERNELS_CPU_TAPE_ATTENTION_H
#define CKPT_KERNELS_CPU_TAPE_ATTENTION_H

#include "kernels/cpu/tape/lanes.h"
#include "kernels/ref/tape/attention.h"

/* A block of queries: where it is, and what all its keys need. Absent queries are zeros. */
typedef struct query_block {
  attention_at at;
  size_t begin, n;                            /* queries */
  float queries[CKPT_MAX_HEAD_WIDTH * BLOCK]; /* transposed: width x BLOCK */
  float scores[BLOCK * BLOCK];                /* keys x queries: scores, then probabilities */
} query_block;

/* x, n rows of a head, transposed to width x BLOCK, zeros behind them. */
static inline void transpose(float *restrict out, const float *restrict x, size_t stride, size_t n, size_t width) {
  size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    size_t d = 0;
    for (; d + 4 <= width; d += 4) lanes_turn(out + d * BLOCK + i, BLOCK, x + i * stride + d, (long)stride);
    for (; d < width; d++)
      for (size_t j = i; j < i + 4; j++) out[d * BLOCK + j] = x[j * stride + d];
  }
  for (; i < BLOCK; i++)
    for (size_t d = 0; d < width; d++) out[d * BLOCK + i] = i < n ? x[i * stride + d] : 0;
}

/* Scores of the block and n keys, scaled, keys by queries; of keys that come after a query, anything. */
static inline void score(const ckpt_attention_args *a, query_block *q, size_t key, size_t n) {
  small_multiply(&(small_product){.a = row_at(a->k, q->at.first + key, a->k_stride, q->at.kv_head, a->head_width),
                                  .a_row = (long)a->k_stride,
                                  .a_step = 1,
                                  .b = q->queries,
                                  .ldb = BLOCK,
                                  .c = q->scores,
                                  .ldc = BLOCK,
                                  .n_rows = (long)n,
                                  .n_columns = BLOCK,
                                  .n_steps = (long)a->head_width,
                                  .scale = (float)a->scale,
                                  .is_upper = key == q->begin});
}

/* The smaller one. */
static inline size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Puts `hidden` where a query does not see a key: causality and window show it queries [first, end), of which documents
 * and mask may hide some. */
static inline void hide(const ckpt_attention_args *a, query_block *q, size_t key, size_t n, float hidden) {
  const size_t window = a->window == 0 ? a->length : least(a->window, a->length);
  for (size_t j = key; j < key + n; j++) {
    float *restrict s = q->scores + (j - key) * BLOCK;
    const size_t first = j > q->begin ? least(j - q->begin, q->n) : 0;
    const size_t end = j + window > q->begin ? least(j + window - q->begin, q->n) : 0;
    for (size_t i = 0; i < first; i++) s[i] = hidden;
    for (size_t i = end; i < q->n; i++) s[i] = hidden;
    if (a->documents == NULL && a->mask == NULL) continue;
    for (size_t i = first; i < end; i++)
      if (!is_visible(a, &q->at, q->begin + i, j)) s[i] = hidden;
  }
}

/* Multiplies values of n keys by what dropout makes of each pair, in four keys' words of all queries at once. */
static inline void drop(const ckpt_attention_args *a, const query_block *q, float *values, size_t key, size_t n) {
  const ckpt_dropout *d = &a->dropout;
  const float scale = (float)d->scale;
  if (d->threshold == 0) return;
  for (size_t j = 0; j < n; j += 4) {
    uint32_t words[4 * BLOCK];
    for (size_t i = 0; i < BLOCK; i++) {
      words[i] = (uint32_t)((key + j) / 4);
      words[BLOCK + i] = (uint32_t)(q->begin + i);
      words[2 * BLOCK + i] = d->first_row + (uint32_t)q->at.row;
      words[3 * BLOCK + i] = d->site + (uint32_t)q->at.head;
    }
    philox(words, BLOCK, d->key);
    for (size_t w = 0; w < 4 && j + w < n; w++) {
      float *restrict x = values + (j + w) * BLOCK;
      const uint32_t *restrict word = words + w * BLOCK;
      for (size_t i = 0; i < BLOCK; i++) x[i] *= word[i] < d->threshold ? 0 : scale;
    }
  }
}

/* The softmax so far, a query a lane. */
typedef struct running {
  float most[BLOCK], total[BLOCK], correction[BLOCK];
} running;

/* Scores of n keys become probabilities of what the softmax so far makes of them. */
static inline void soften(query_block *q, running *r, size_t n) {
  float greatest[BLOCK], base[BLOCK];
  memcpy(greatest, r->most, sizeof greatest);
  for (size_t j = 0; j < n; j++) {
    const float *restrict s = q->scores + j * BLOCK;
    for (size_t i = 0; i < BLOCK; i++) greatest[i] = s[i] > greatest[i] ? s[i] : greatest[i];
  }
  for (size_t i = 0; i < BLOCK; i++) {
    base[i] = greatest[i] == -REAL_INFINITY ? 0 : greatest[i];
    r->correction[i] = real_exp(r->most[i] - base[i]);
    r->total[i] *= r->correction[i];
    r->most[i] = greatest[i];
  }
  for (size_t j = 0; j < n; j++) {
    float *restrict s = q->scores + j * BLOCK;
    for (size_t i = 0; i < BLOCK; i++) {
      s[i] = real_exp(s[i] - base[i]);
      r->total[i] += s[i];
    }
  }
}

/* Corrects what was summed before, and adds the values of n keys. */
static inline void weigh(const ckpt_attention_args *a, query_block *q, const running *r, size_t key, size_t n) {
  float *o = (float *)row_at(a->o, q->at.first + q->begin, a->o_stride, q->at.head, a->head_width);
  small_multiply(&(small_product){.a = q->scores,
                                  .a_row = 1,
                                  .a_step = BLOCK,
                                  .b = row_at(a->v, q->at.first + key, a->v_stride, q->at.kv_head, a->head_width),
                                  .ldb = (long)a->v_stride,
                                  .c = o,
                                  .ldc = (long)a->o_stride,
                                  .adds = true,
                                  .keep = r->correction,
                                  .n_rows = (long)q->n,
                                  .n_columns = (long)a->head_width,
                                  .n_steps = (long)n});
}

/* Divides by the totals, and keeps their logarithms. */
static inline void finish(const ckpt_attention_args *a, const query_block *q, const running *r) {
  const size_t first = q->at.first + q->begin;
  for (size_t i = 0; i < q->n; i++) {
    float *o = (float *)row_at(a->o, first + i, a->o_stride, q->at.head, a->head_width);
    const float total = r->total[i];
    for (size_t d = 0; d < a->head_width; d++) o[d] = total == 0 ? 0 : o[d] / total;
    ((float *)a->log_sum)[(first + i) * a->n_heads + q->at.head] =
        total == 0 ? -REAL_INFINITY : r->most[i] + real_log(total);
  }
}

/* attention of tape_kernels.h. */
static void attention_blocks(const void *args, size_t begin, size_t end) {
  const ckpt_attention_args *a = args;
  query_block q;
  for (size_t part = begin; part < end; part++) {
    running r;
    q.at = attention_part(a, part, &q.begin);
    q.n = a->length - q.begin < BLOCK ? a->length - q.begin : BLOCK;
    transpose(q.queries, row_at(a->q, q.at.first + q.begin, a->q_stride, q.at.head, a->head_width), a->q_stride, q.n,
              a->head_width);
    for (size_t i = 0; i < BLOCK; i++) r.most[i] = -REAL_INFINITY, r.total[i] = 0;
    for (size_t i = 0; i < q.n; i++)
      memset((float *)row_at(a->o, q.at.first + q.begin + i, a->o_stride, q.at.head, a->head_width), 0,
             a->head_width * sizeof(float));
    for (size_t key = first_block(a, q.begin) * BLOCK; key <= q.begin; key += BLOCK) {
      const size_t n = a->length - key < BLOCK ? a->length - key : BLOCK;
      score(a, &q, key, n);
      hide(a, &q, key, n, -REAL_INFINITY);
      soften(&q, &r, n);
      drop(a, &q, q.scores, key, n);
      weigh(a, &q, &r, key, n);
    }
    finish(a, &q, &r);
  }
}

/* ---- backward -------------------------------------------------------------------------------------------------------
 */

typedef struct backward_block {
  query_block q;
  float d_out[CKPT_MAX_HEAD_WIDTH * BLOCK]; /* transposed: width x BLOCK */
  float d_scores[BLOCK * BLOCK];            /* keys x queries: of probabilities, then of scores times the scale */
  float delta[BLOCK], log_sum[BLOCK];
} backward_block;

/* What all keys of a block of queries need. */
static inline void take_queries(const ckpt_attention_args *a, backward_block *b) {
  const size_t first = b->q.at.first + b->q.begin, head = b->q.at.head, width = a->head_width;
  transpose(b->q.queries, row_at(a->q, first, a->q_stride, head, width), a->q_stride, b->q.n, width);
  transpose(b->d_out, row_at(a->d_o, first, a->o_stride, head, width), a->o_stride, b->q.n, width);
  for (size_t i = 0; i < BLOCK; i++) {
    const size_t at = (first + i) * a->n_heads + head;
    b->delta[i] = i < b->q.n ? ((const float *)a->deltas)[at] : 0;
    b->log_sum[i] = i < b->q.n ? ((const float *)a->log_sum)[at] : 0;
  }
}

/* Each query's product of d_o and o, for the heads that share a sequence's keys: once for all blocks of keys. */
static inline void make_deltas(const ckpt_attention_args *a, const attention_at *at, size_t group) {
  for (size_t i = at->first; i < at->first + a->length; i++)
    for (size_t head = at->kv_head * group; head < (at->kv_head + 1) * group; head++)
      ((float *)a->deltas)[i * a->n_heads + head] =
          dot(row_at(a->d_o, i, a->o_stride, head, a->head_width), row_at(a->o, i, a->o_stride, head, a->head_width),
              a->head_width);
}

/* Probabilities, and gradients of scores times the scale. */
static inline void score_backward(const ckpt_attention_args *a, backward_block *b, size_t key, size_t n) {
  const float scale = (float)a->scale;
  score(a, &b->q, key, n);
  for (size_t j = 0; j < n; j++) {
    float *restrict s = b->q.scores + j * BLOCK;
    for (size_t i = 0; i < BLOCK; i++) s[i] = real_exp(s[i] - b->log_sum[i]);
  }
  hide(a, &b->q, key, n, 0);
  small_multiply(&(small_product){.a = row_at(a->v, b->q.at.first + key, a->v_stride, b->q.at.kv_head, a->head_width),
                                  .a_row = (long)a->v_stride,
                                  .a_step = 1,
                                  .b = b->d_out,
                                  .ldb = BLOCK,
                                  .c = b->d_scores,
                                  .ldc = BLOCK,
                                  .n_rows = (long)n,
                                  .n_columns = BLOCK,
                                  .n_steps = (long)a->head_width,
                                  .scale = 1});
  drop(a, &b->q, b->d_scores, key, n);
  for (size_t j = 0; j < n; j++)
    for (size_t i = 0; i < BLOCK; i++) {
      const size_t at = j * BLOCK + i;
      b->d_scores[at] = b->q.scores[at] * (b->d_scores[at] - b->delta[i]) * scale;
    }
  drop(a, &b->q, b->q.scores, key, n);
}

/* Gradients of keys, values and queries from a block of each. */
static inline void give_gradients(const ckpt_attention_args *a, backward_block *b, size_t key, size_t n) {
  const size_t keys = b->q.at.first + key, queries = b->q.at.first + b->q.begin, width = a->head_width;
  const size_t head = b->q.at.head, kv_head = b->q.at.kv_head;
  small_product p = {.adds = true, .a_row = BLOCK, .a_step = 1, .n_columns = (long)width};
  p.n_rows = (long)n, p.n_steps = (long)b->q.n;
  p.a = b->q.scores, p.b = row_at(a->d_o, queries, a->o_stride, head, width), p.ldb = (long)a->o_stride;
  p.c = (float *)row_at(a->d_v, keys, a->v_stride, kv_head, width), p.ldc = (long)a->v_stride;
  small_multiply(&p);
  p.a = b->d_scores, p.b = row_at(a->q, queries, a->q_stride, head, width), p.ldb = (long)a->q_stride;
  p.c = (float *)row_at(a->d_k, keys, a->k_stride, kv_head, width), p.ldc = (long)a->k_stride;
  small_multiply(&p);
  p.a_row = 1, p.a_step = BLOCK, p.n_rows = (long)b->q.n, p.n_steps = (long)n;
  p.b = row_at(a->k, keys, a->k_stride, kv_head, width), p.ldb = (long)a->k_stride;
  p.c = (float *)row_at(a->d_q, queries, a->q_stride, head, width), p.ldc = (long)a->q_stride;
  small_multiply(&p);
}

/* Zeros where gradients are not added to. */
static inline void clear_gradients(const ckpt_attention_args *a, const attention_at *at, size_t group) {
  if (!a->adds_k) clear_rows(a, a->d_k, a->k_stride, at->first, at->kv_head);
  if (!a->adds_v) clear_rows(a, a->d_v, a->v_stride, at->first, at->kv_head);
  for (size_t head = at->kv_head * group; head < (at->kv_head + 1) * group && !a->adds_q; head++)
    clear_rows(a, a->d_q, a->q_stride, at->first, head);
}

/* attention_backward of tape_kernels.h. For any key the gradients of queries add up as in the reference, and for any
 * query those of keys. */
static void attention_blocks_backward(const void *args, size_t begin, size_t end) {
  const ckpt_attention_args *a = args;
  const size_t group = a->n_heads / a->n_kv_heads;
  backward_block b;
  for (size_t part = begin; part < end; part++) {
    attention_at *at = &b.q.at;
    *at = (attention_at){.row = part / a->n_kv_heads, .kv_head = part % a->n_kv_heads};
    at->first = at->row * a->length;
    clear_gradients(a, at, group);
    make_deltas(a, at, group);
    for (at->head = at->kv_head * group; at->head < (at->kv_head + 1) * group; at->head++)
      for (b.q.begin = 0; b.q.begin < a->length; b.q.begin += BLOCK) {
        b.q.n = least(a->length - b.q.begin, BLOCK);
        take_queries(a, &b);
        for (size_t key = first_block(a, b.q.begin) * BLOCK; key <= b.q.begin; key += BLOCK) {
          const size_t n = least(a->length - key, BLOCK);
          score_backward(a, &b, key, n);
          give_gradients(a, &b, key, n);
        }
      }
  }
}

#endif
