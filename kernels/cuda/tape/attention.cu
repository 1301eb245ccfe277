/* attention.cu - attention: a block of threads for 64 queries of a head, the softmax corrected as keys come. No scores
 * leave shared memory. Tiles, and the order of sums: attention_tile.cuh. */
#include "kernels/cuda/tape/attention_tile.cuh"

/* Scores to shared memory; -infinity where a query does not see a key, or one of them is past the end. */
static __device__ CKPT_INLINE void put_scores(const ckpt_attention_args *a, const tile_part *p, size_t key,
                                              tile_shared *s, const float sums[OWN_ROWS][OTHERS]) {
  const tile_pair t = {p->own, key, false};
  const pair_bits seen = seen_pairs(a, &p->at, &t);
  CKPT_UNROLL for (int i = 0; i < OWN_ROWS; i++) CKPT_UNROLL for (int j = 0; j < OTHERS; j++)
      s->pairs[own_of(i)][other_of(j)] = has_pair(seen, i, j) ? sums[i][j] * (float)a->scale : -REAL_INFINITY;
}

/* ---- the softmax ------------------------------------------------------------------------------------------------- */

/* Two threads have a query, and every other four of its keys each. */
enum { FOURS = BLOCK / 8 };

/* What a thread knows of its query; the total is the first one's. */
typedef struct softmax_state {
  float most, total;
} softmax_state;

static __device__ inline unsigned softmax_query(void) { return threadIdx.x / 2; }
static __device__ inline unsigned softmax_key(int i) { return ((unsigned)i * 2 + threadIdx.x % 2) * 4; }

/* The greatest of a query's scores and of `most`; a NaN is passed over. */
static __device__ CKPT_INLINE float greatest_of(const float scores[FOURS][4], float most) {
  CKPT_UNROLL for (int i = 0; i < FOURS; i++) CKPT_UNROLL for (int e = 0; e < 4; e++) most =
      scores[i][e] > most ? scores[i][e] : most;
  const float other = __shfl_xor_sync(0xffffffffU, most, 1, 32);
  return other > most ? other : most;
}

/* Adds up the exponentials of a query in order; keys past the end are zeros. */
static __device__ CKPT_INLINE float total_of(const tile_shared *s, float total) {
  float four[4];
  for (unsigned key = 0; key < BLOCK; key += 4) {
    read_four(four, &s->pairs[softmax_query()][key]);
    CKPT_UNROLL for (int e = 0; e < 4; e++) total += four[e];
  }
  return total;
}

static __device__ CKPT_INLINE void drop(const ckpt_attention_args *a, const tile_part *p, size_t key, tile_shared *s) {
  float factors[4];
  CKPT_ROLL for (int i = 0; i < FOURS; i++) {
    dropout_factors(&a->dropout, p->at.row, p->own + softmax_query(), (key + softmax_key(i)) / 4,
                    a->dropout.site + (uint32_t)p->at.head, factors);
    for (unsigned e = 0; e < 4; e++) s->pairs[softmax_query()][softmax_key(i) + e] *= factors[e];
  }
}

/* Scores to weights of values; what earlier sums are corrected by goes into scales. */
static __device__ CKPT_INLINE void weigh(const ckpt_attention_args *a, const tile_part *p, size_t key, tile_shared *s,
                                         softmax_state *state) {
  float scores[FOURS][4];
  CKPT_UNROLL for (int i = 0; i < FOURS; i++) read_four(scores[i], &s->pairs[softmax_query()][softmax_key(i)]);
  const float greatest = greatest_of(scores, state->most), base = greatest == -REAL_INFINITY ? 0 : greatest;
  const float correction = real_exp(state->most - base);
  state->most = greatest;
  CKPT_UNROLL for (int i = 0; i < FOURS; i++) CKPT_UNROLL for (int e = 0; e < 4; e++)
      s->pairs[softmax_query()][softmax_key(i) + (unsigned)e] = real_exp(scores[i][e] - base);
  __syncwarp();
  if (threadIdx.x % 2 == 0) {
    s->scales[softmax_query()] = correction;
    state->total = total_of(s, state->total * correction);
  }
  if (a->dropout.threshold == 0) return;
  __syncwarp();
  drop(a, p, key, s);
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

template <int C>
static __device__ CKPT_INLINE void scale_columns(const tile_shared *s, float columns[OWN_ROWS][4 * C]) {
  CKPT_UNROLL for (int i = 0; i < OWN_ROWS; i++) {
    const float correction = s->scales[own_of(i)];
    CKPT_UNROLL for (int d = 0; d < 4 * C; d++) columns[i][d] *= correction;
  }
}

/* Divides by the totals. */
template <int C>
static __device__ CKPT_INLINE void finish(const ckpt_attention_args *a, const tile_part *p, tile_shared *s,
                                          float columns[OWN_ROWS][4 * C], const softmax_state *state) {
  const tile_rows o = rows_from(a, &p->at, a->o, a->o_stride, p->at.head, p->own);
  if (threadIdx.x % 2 == 0) s->scales[softmax_query()] = state->total;
  __syncthreads();
  if (threadIdx.x % 2 == 0 && softmax_query() < o.n && p->column == 0)
    ((float *)a->log_sum)[(p->at.first + p->own + softmax_query()) * a->n_heads + p->at.head] =
        state->total == 0 ? -REAL_INFINITY : state->most + real_log(state->total);
  CKPT_UNROLL for (int i = 0; i < OWN_ROWS; i++) {
    const float total = s->scales[own_of(i)];
    CKPT_UNROLL for (int d = 0; d < 4 * C; d++) columns[i][d] = total == 0 ? 0 : columns[i][d] / total;
  }
  end_columns<C>(columns, p, &o, a->head_width);
}

template <int C>
static __device__ CKPT_INLINE void attend(const ckpt_attention_args *a, const tile_part *p, tile_shared *s) {
  const tile_rows q = rows_from(a, &p->at, a->q, a->q_stride, p->at.head, p->own);
  float columns[OWN_ROWS][4 * C];
  softmax_state state = {-REAL_INFINITY, 0};
  begin_columns<C>(columns, p, &q, a->head_width, false);
  for (size_t key = first_block(a, p->own) * BLOCK; key <= p->own; key += BLOCK) {
    const tile_rows k = rows_from(a, &p->at, a->k, a->k_stride, p->at.kv_head, key);
    const tile_rows v = rows_from(a, &p->at, a->v, a->v_stride, p->at.kv_head, key);
    float sums[OWN_ROWS][OTHERS];
    make_dots(s, sums, &q, &k, a->head_width);
    put_scores(a, p, key, s, sums);
    __syncthreads();
    weigh(a, p, key, s, &state);
    __syncthreads();
    scale_columns<C>(s, columns);
    add_rows<C>(s, columns, &v, p->column, a->head_width);
  }
  finish<C>(a, p, s, columns, &state);
}

template <int C>
static __global__ void __launch_bounds__(THREADS, 5 - C) attention(ckpt_attention_args a, size_t n) {
  CKPT_SHARED(tile_shared, s);
  for (size_t part = blockIdx.x; part < n; part += gridDim.x) {
    const tile_part p = part_at(&a, part, a.n_heads, true);
    attend<C>(&a, &p, s);
  }
}

/* n counts blocks of queries; a wide head has each of them twice. */
void ckpt_cuda_start_attention(ckpt_cuda *c, const void *args, size_t n) {
  const ckpt_attention_args *a = (const ckpt_attention_args *)args;
  const size_t n_parts = n * n_halves(a);
  ckpt_cuda_start(c, "attention", a->head_width <= COLUMNS ? attention<1> : attention<2>, *a, n_parts, n_parts, THREADS,
                  sizeof(tile_shared));
}
