/* attention_backward.cu - gradients of attention: a block of threads for 64 queries of a head makes those of queries,
 * another for 64 keys those of keys and values, from all heads of the group. Tiles, and the order of sums:
 * attention_tile.cuh.
 *
 * What a query's gradients have in common, its delta, is made beforehand, once. */
#include "kernels/cuda/tape/attention_tile.cuh"

typedef struct backward_args {
  ckpt_attention_args a;
  float *deltas; /* as log_sum */
} backward_args;

/* n counts queries of all heads. */
static __global__ void deltas(backward_args b, size_t n) {
  const ckpt_attention_args *a = &b.a;
  for (size_t i = first_index(); i < n; i += index_step()) {
    const size_t token = i / a->n_heads, head = i % a->n_heads;
    b.deltas[i] = dot(row_at(a->d_o, token, a->o_stride, head, a->head_width),
                      row_at(a->o, token, a->o_stride, head, a->head_width), a->head_width);
  }
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

/* Log sums and deltas of a tile's queries. */
static __device__ inline void take_queries(const backward_args *b, const attention_at *at, size_t query,
                                           tile_shared *s) {
  const size_t i = query + threadIdx.x;
  if (threadIdx.x >= BLOCK || i >= b->a.length) return;
  s->log_sums[threadIdx.x] = ((const float *)b->a.log_sum)[(at->first + i) * b->a.n_heads + at->head];
  s->deltas[threadIdx.x] = b->deltas[(at->first + i) * b->a.n_heads + at->head];
}

/* Those that dropout leaves. */
static __device__ inline pair_bits kept_pairs(const ckpt_attention_args *a, const attention_at *at,
                                              const tile_pair *t) {
  pair_bits bits = 0;
  if (a->dropout.threshold == 0) return ~bits;
  CKPT_ROLL for (int i = 0; i < OWN_ROWS * OTHERS; i++) {
    size_t query, key;
    pair_at(t, i, &query, &key);
    if (pair_factor(a, at, query, key) != 0) bits |= (pair_bits)1 << i;
  }
  return bits;
}

/* Probabilities, before dropout, to shared memory. */
static __device__ CKPT_INLINE void put_probabilities(const ckpt_attention_args *a, const attention_at *at,
                                                     const tile_pair *t, tile_shared *s,
                                                     const float sums[OWN_ROWS][OTHERS]) {
  const pair_bits seen = seen_pairs(a, at, t);
  CKPT_UNROLL for (int i = 0; i < OWN_ROWS; i++) CKPT_UNROLL for (int j = 0; j < OTHERS; j++) {
    const float log_sum = s->log_sums[t->owns_keys ? other_of(j) : own_of(i)];
    const float p = real_exp(sums[i][j] * (float)a->scale - log_sum);
    s->pairs[own_of(i)][other_of(j)] = has_pair(seen, i, j) ? p : 0;
  }
}

/* Of probabilities, and the products of d_o and v in d_scores: what shared memory then has are probabilities after
 * dropout, what d_scores has are gradients of scores. */
static __device__ CKPT_INLINE void make_d_scores(const ckpt_attention_args *a, const attention_at *at,
                                                 const tile_pair *t, tile_shared *s, float d_scores[OWN_ROWS][OTHERS]) {
  const pair_bits kept = kept_pairs(a, at, t);
  const float scale = a->dropout.threshold == 0 ? 1 : (float)a->dropout.scale;
  CKPT_UNROLL for (int i = 0; i < OWN_ROWS; i++) CKPT_UNROLL for (int j = 0; j < OTHERS; j++) {
    const float factor = has_pair(kept, i, j) ? scale : 0, p = s->pairs[own_of(i)][other_of(j)];
    const float delta = s->deltas[t->owns_keys ? other_of(j) : own_of(i)];
    d_scores[i][j] = p * (d_scores[i][j] * factor - delta) * (float)a->scale;
    s->pairs[own_of(i)][other_of(j)] = p * factor;
  }
}

/* Gradients of scores to shared memory. */
static __device__ CKPT_INLINE void put_d_scores(tile_shared *s, const float d_scores[OWN_ROWS][OTHERS]) {
  CKPT_UNROLL for (int i = 0; i < OWN_ROWS; i++) CKPT_UNROLL for (int j = 0; j < OTHERS; j++)
      s->pairs[own_of(i)][other_of(j)] = d_scores[i][j];
}

/* ---- gradients of queries ---------------------------------------------------------------------------------------- */

template <int C>
static __device__ CKPT_INLINE void make_d_q(const backward_args *b, const tile_part *p, tile_shared *s) {
  const ckpt_attention_args *a = &b->a;
  const tile_rows q = rows_from(a, &p->at, a->q, a->q_stride, p->at.head, p->own);
  const tile_rows d_o = rows_from(a, &p->at, a->d_o, a->o_stride, p->at.head, p->own);
  const tile_rows d_q = rows_from(a, &p->at, a->d_q, a->q_stride, p->at.head, p->own);
  float columns[OWN_ROWS][4 * C];
  begin_columns<C>(columns, p, &d_q, a->head_width, a->adds_q);
  take_queries(b, &p->at, p->own, s);
  for (size_t key = first_block(a, p->own) * BLOCK; key <= p->own; key += BLOCK) {
    const tile_pair t = {p->own, key, false};
    const tile_rows k = rows_from(a, &p->at, a->k, a->k_stride, p->at.kv_head, key);
    const tile_rows v = rows_from(a, &p->at, a->v, a->v_stride, p->at.kv_head, key);
    float sums[OWN_ROWS][OTHERS];
    make_dots(s, sums, &q, &k, a->head_width);
    put_probabilities(a, &p->at, &t, s, sums);
    make_dots(s, sums, &d_o, &v, a->head_width);
    make_d_scores(a, &p->at, &t, s, sums);
    put_d_scores(s, sums);
    add_rows<C>(s, columns, &k, p->column, a->head_width);
  }
  end_columns<C>(columns, p, &d_q, a->head_width);
}

template <int C>
static __global__ void __launch_bounds__(THREADS, 5 - C) query_gradients(backward_args b, size_t n) {
  CKPT_SHARED(tile_shared, s);
  for (size_t part = blockIdx.x; part < n; part += gridDim.x) {
    const tile_part p = part_at(&b.a, part, b.a.n_heads, true);
    make_d_q<C>(&b, &p, s);
  }
}

/* ---- gradients of keys and values -------------------------------------------------------------------------------- */

/* Of one head and one tile of queries. */
template <int C>
static __device__ CKPT_INLINE void add_queries(const backward_args *b, const tile_part *p, size_t query, tile_shared *s,
                                               float d_k[OWN_ROWS][4 * C], float d_v[OWN_ROWS][4 * C]) {
  const ckpt_attention_args *a = &b->a;
  const tile_pair t = {query, p->own, true};
  const tile_rows k = rows_from(a, &p->at, a->k, a->k_stride, p->at.kv_head, p->own);
  const tile_rows v = rows_from(a, &p->at, a->v, a->v_stride, p->at.kv_head, p->own);
  const tile_rows q = rows_from(a, &p->at, a->q, a->q_stride, p->at.head, query);
  const tile_rows d_o = rows_from(a, &p->at, a->d_o, a->o_stride, p->at.head, query);
  float sums[OWN_ROWS][OTHERS];
  take_queries(b, &p->at, query, s);
  make_dots(s, sums, &k, &q, a->head_width);
  put_probabilities(a, &p->at, &t, s, sums);
  make_dots(s, sums, &v, &d_o, a->head_width);
  make_d_scores(a, &p->at, &t, s, sums);
  add_rows<C>(s, d_v, &d_o, p->column, a->head_width);
  put_d_scores(s, sums);
  add_rows<C>(s, d_k, &q, p->column, a->head_width);
}

template <int C>
static __device__ CKPT_INLINE void make_d_kv(const backward_args *b, tile_part p, tile_shared *s) {
  const ckpt_attention_args *a = &b->a;
  const size_t group = a->n_heads / a->n_kv_heads;
  const tile_rows to_k = rows_from(a, &p.at, a->d_k, a->k_stride, p.at.kv_head, p.own);
  const tile_rows to_v = rows_from(a, &p.at, a->d_v, a->v_stride, p.at.kv_head, p.own);
  float d_k[OWN_ROWS][4 * C], d_v[OWN_ROWS][4 * C];
  begin_columns<C>(d_k, &p, &to_k, a->head_width, a->adds_k);
  begin_columns<C>(d_v, &p, &to_v, a->head_width, a->adds_v);
  for (p.at.head = p.at.kv_head * group; p.at.head < (p.at.kv_head + 1) * group; p.at.head++)
    for (size_t query = p.own; query < a->length && first_block(a, query) * BLOCK <= p.own; query += BLOCK)
      add_queries<C>(b, &p, query, s, d_k, d_v);
  end_columns<C>(d_k, &p, &to_k, a->head_width);
  end_columns<C>(d_v, &p, &to_v, a->head_width);
}

template <int C>
static __global__ void __launch_bounds__(THREADS, 4 - C) key_gradients(backward_args b, size_t n) {
  CKPT_SHARED(tile_shared, s);
  for (size_t part = blockIdx.x; part < n; part += gridDim.x)
    make_d_kv<C>(&b, part_at(&b.a, part, b.a.n_kv_heads, false), s);
}

/* ---- the start --------------------------------------------------------------------------------------------------- */

template <int C>
static void start_backward(ckpt_cuda *c, const backward_args *b) {
  const size_t n = b->a.n_rows * n_tiles(&b->a) * n_halves(&b->a);
  ckpt_cuda_start(c, "attention_backward", query_gradients<C>, *b, n * b->a.n_heads, n * b->a.n_heads, THREADS,
                  sizeof(tile_shared));
  ckpt_cuda_start(c, "attention_backward", key_gradients<C>, *b, n * b->a.n_kv_heads, n * b->a.n_kv_heads, THREADS,
                  sizeof(tile_shared));
}

void ckpt_cuda_start_attention_backward(ckpt_cuda *c, const void *args, size_t n) {
  const ckpt_attention_args *a = (const ckpt_attention_args *)args;
  const size_t n_queries = n == 0 ? 0 : a->n_rows * a->length * a->n_heads;
  const backward_args b = {*a, (float *)a->deltas};
  if (n_queries == 0) return;
  ckpt_cuda_start_threads(c, "attention_backward", deltas, b, n_queries);
  if (a->head_width <= COLUMNS)
    start_backward<1>(c, &b);
  else
    start_backward<2>(c, &b);
}
