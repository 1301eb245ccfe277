/* attention.cu - attention in a first form: a block of threads for each query, and for each key where gradients of keys
 * and values are made. No scores leave shared memory.
 *
 * A thread computes the pair of its query and key, then adds up the head's columns that are its own. Sums keep the
 * order of kernels/ref/tape/attention.h: keys of a query, and queries of a key, as they follow each other. */
#include "kernels/cuda/tape/tape.cuh"

enum { THREADS = BLOCK, COLUMNS = CKPT_MAX_HEAD_WIDTH / THREADS /* of a thread */ };

typedef struct query_shared {
  float q[CKPT_MAX_HEAD_WIDTH];
  float scores[BLOCK], weights[BLOCK], greatest[THREADS / 32]; /* weights: scores after dropout */
} query_shared;

/* Query, or key, `part % length` of a head, `part / length`. */
static __device__ attention_at at_part(const ckpt_attention_args *a, size_t part, size_t n_heads) {
  attention_at at;
  at.row = part / a->length / n_heads;
  at.head = part / a->length % n_heads;
  at.kv_head = n_heads == a->n_kv_heads ? at.head : at.head / (a->n_heads / a->n_kv_heads);
  at.first = at.row * a->length;
  return at;
}

/* The greatest of all threads' scores; a NaN is passed over. */
static __device__ float greatest_of(query_shared *s, float score) {
  float greatest = score > -REAL_INFINITY ? score : -REAL_INFINITY;
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(0xffffffffU, greatest, distance, 32);
    greatest = other > greatest ? other : greatest;
  }
  if (threadIdx.x % 32 == 0) s->greatest[threadIdx.x / 32] = greatest;
  __syncthreads();
  return s->greatest[0] > s->greatest[1] ? s->greatest[0] : s->greatest[1];
}

/* Weighs the values of n keys from `key` on into the thread's columns. */
static __device__ void weigh(const ckpt_attention_args *a, const attention_at *at, const float *scores, size_t key,
                             size_t n, float correction, float *o) {
  const float *v = row_at(a->v, at->first + key, a->v_stride, at->kv_head, a->head_width);
  for (size_t c = 0, d = threadIdx.x; d < a->head_width; c++, d += THREADS) {
    float sum = o[c] * correction;
    for (size_t j = 0; j < n; j++) sum = REAL_FMA(scores[j], v[j * a->v_stride + d], sum);
    o[c] = sum;
  }
}

static __device__ void attend(const ckpt_attention_args *a, const attention_at *at, size_t query, query_shared *s) {
  const float *q = row_at(a->q, at->first + query, a->q_stride, at->head, a->head_width);
  float o[COLUMNS] = {0}, most = -REAL_INFINITY, total = 0;
  for (size_t d = threadIdx.x; d < a->head_width; d += THREADS) s->q[d] = q[d];
  __syncthreads();
  for (size_t key = first_block(a, query / BLOCK * BLOCK) * BLOCK; key <= query; key += BLOCK) {
    const size_t n = least(a->length - key, BLOCK), mine = key + threadIdx.x;
    float score = -REAL_INFINITY;
    if (threadIdx.x < n && is_visible(a, at, query, mine))
      score = dot(s->q, row_at(a->k, at->first + mine, a->k_stride, at->kv_head, a->head_width), a->head_width) *
              (float)a->scale;
    const float found = greatest_of(s, score), greatest = found > most ? found : most;
    const float base = greatest == -REAL_INFINITY ? 0 : greatest, correction = real_exp(most - base);
    most = greatest;
    const bool drops = a->dropout.threshold != 0 && threadIdx.x < n;
    s->scores[threadIdx.x] = real_exp(score - base);
    s->weights[threadIdx.x] = s->scores[threadIdx.x] * (drops ? pair_factor(a, at, query, mine) : 1);
    __syncthreads();
    total *= correction;
    for (size_t j = 0; j < n; j++) total += s->scores[j];
    weigh(a, at, s->weights, key, n, correction, o);
  }
  float *to = (float *)row_at(a->o, at->first + query, a->o_stride, at->head, a->head_width);
  for (size_t c = 0, d = threadIdx.x; d < a->head_width; c++, d += THREADS) to[d] = total == 0 ? 0 : o[c] / total;
  if (threadIdx.x == 0)
    ((float *)a->log_sum)[(at->first + query) * a->n_heads + at->head] =
        total == 0 ? -REAL_INFINITY : most + real_log(total);
}

static __global__ void attention(ckpt_attention_args a, size_t n) {
  CKPT_SHARED(query_shared, s);
  for (size_t part = blockIdx.x; part < n; part += gridDim.x) {
    const attention_at at = at_part(&a, part, a.n_heads);
    attend(&a, &at, part % a.length, s);
  }
}

/* n counts blocks of queries; here queries are what is counted. */
void ckpt_cuda_start_attention(ckpt_cuda *c, const void *args, size_t n) {
  const ckpt_attention_args *a = (const ckpt_attention_args *)args;
  const size_t n_queries = n == 0 ? 0 : a->n_rows * a->n_heads * a->length;
  ckpt_cuda_start(c, "attention", attention, *a, n_queries, n_queries, THREADS, sizeof(query_shared));
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

typedef struct pair_shared {
  float p[BLOCK], d_score[BLOCK];
} pair_shared;

/* A gradient's columns of this thread: what stands there, or zeros. */
static __device__ void begin_columns(float *columns, const float *from, bool adds, size_t width) {
  for (size_t c = 0, d = threadIdx.x; d < width; c++, d += THREADS) columns[c] = adds ? from[d] : 0;
}

static __device__ void end_columns(const float *columns, float *to, size_t width) {
  for (size_t c = 0, d = threadIdx.x; d < width; c++, d += THREADS) to[d] = columns[c];
}

/* columns += factors of n rows from `rows` on. */
static __device__ void add_rows(float *columns, const float *factors, const float *rows, size_t stride, size_t n,
                                size_t width) {
  for (size_t c = 0, d = threadIdx.x; d < width; c++, d += THREADS)
    for (size_t j = 0; j < n; j++) columns[c] = REAL_FMA(factors[j], rows[j * stride + d], columns[c]);
}

static __global__ void query_gradients(ckpt_attention_args a, size_t n) {
  CKPT_SHARED(pair_shared, s);
  for (size_t part = blockIdx.x; part < n; part += gridDim.x) {
    const attention_at at = at_part(&a, part, a.n_heads);
    const size_t query = part % a.length, block = query / BLOCK * BLOCK;
    float *to = (float *)row_at(a.d_q, at.first + query, a.q_stride, at.head, a.head_width), d_q[COLUMNS];
    begin_columns(d_q, to, a.adds_q, a.head_width);
    for (size_t key = first_block(&a, block) * BLOCK; key <= block; key += BLOCK) {
      const size_t count = least(a.length - key, BLOCK);
      if (threadIdx.x < count) pair_of(&a, &at, query, key + threadIdx.x, &s->p[threadIdx.x], &s->d_score[threadIdx.x]);
      __syncthreads();
      add_rows(d_q, s->d_score, row_at(a.k, at.first + key, a.k_stride, at.kv_head, a.head_width), a.k_stride, count,
               a.head_width);
      __syncthreads();
    }
    end_columns(d_q, to, a.head_width);
  }
}

/* Of one key all queries of one head. */
static __device__ void add_queries(const ckpt_attention_args *a, const attention_at *at, size_t key, pair_shared *s,
                                   float *d_k, float *d_v) {
  const size_t own = key / BLOCK * BLOCK, width = a->head_width;
  for (size_t query = own; query < a->length && first_block(a, query) * BLOCK <= own; query += BLOCK) {
    const size_t count = least(a->length - query, BLOCK);
    if (threadIdx.x < count) pair_of(a, at, query + threadIdx.x, key, &s->p[threadIdx.x], &s->d_score[threadIdx.x]);
    __syncthreads();
    add_rows(d_v, s->p, row_at(a->d_o, at->first + query, a->o_stride, at->head, width), a->o_stride, count, width);
    add_rows(d_k, s->d_score, row_at(a->q, at->first + query, a->q_stride, at->head, width), a->q_stride, count, width);
    __syncthreads();
  }
}

static __global__ void key_gradients(ckpt_attention_args a, size_t n) {
  CKPT_SHARED(pair_shared, s);
  const size_t group = a.n_heads / a.n_kv_heads;
  for (size_t part = blockIdx.x; part < n; part += gridDim.x) {
    attention_at at = at_part(&a, part, a.n_kv_heads);
    const size_t key = part % a.length, token = at.first + key;
    float *to_k = (float *)row_at(a.d_k, token, a.k_stride, at.kv_head, a.head_width), d_k[COLUMNS];
    float *to_v = (float *)row_at(a.d_v, token, a.v_stride, at.kv_head, a.head_width), d_v[COLUMNS];
    begin_columns(d_k, to_k, a.adds_k, a.head_width);
    begin_columns(d_v, to_v, a.adds_v, a.head_width);
    for (at.head = at.kv_head * group; at.head < (at.kv_head + 1) * group; at.head++)
      add_queries(&a, &at, key, s, d_k, d_v);
    end_columns(d_k, to_k, a.head_width);
    end_columns(d_v, to_v, a.head_width);
  }
}

void ckpt_cuda_start_attention_backward(ckpt_cuda *c, const void *args, size_t n) {
  const ckpt_attention_args *a = (const ckpt_attention_args *)args;
  const size_t n_queries = a->n_rows * a->n_heads * a->length, n_keys = n * a->length;
  ckpt_cuda_start(c, "attention_backward", query_gradients, *a, n_queries, n_queries, THREADS, sizeof(pair_shared));
  ckpt_cuda_start(c, "attention_backward", key_gradients, *a, n_keys, n_keys, THREADS, sizeof(pair_shared));
}
