/* attention_tile.cuh - products of tiles, of which attention and its backward are made.
 *
 * A block of 128 threads has a tile of 64 rows of its own (queries, or keys where gradients of keys are made) and walks
 * through tiles of 64 others. Of each pair of rows it makes a number: the tile of pairs, which stays in shared memory.
 * It then adds the others' rows, times those numbers, to columns of its own rows, which stay in registers.
 *
 * Thread (x, y) of 16 x 8 has rows y, y + 8, ... of its own tile, rows x, x + 16, ... of the others, and of each 64
 * columns the four from 4 x on: 8 x 4 pairs, 8 x 4 or 8 x 8 columns. Rows come into shared memory a part at a time, by
 * all threads. Each number is still a chain of fma of one thread in the order of kernels/ref/tape/attention.h: only
 * what has no part in a chain's order is cut. A block makes at most 128 columns; a wider head has two, and each makes
 * the pairs again. */
#ifndef CKPT_KERNELS_CUDA_TAPE_ATTENTION_TILE_CUH
#define CKPT_KERNELS_CUDA_TAPE_ATTENTION_TILE_CUH

#include "kernels/cuda/tape/tape.cuh"

enum {
  THREADS = 128,
  ACROSS = 16,              /* threads along the others' rows, and along columns */
  DOWN = THREADS / ACROSS,  /* along a block's own */
  OWN_ROWS = BLOCK / DOWN,  /* of a thread */
  OTHERS = BLOCK / ACROSS,  /* of a thread */
  CHUNK = 32,               /* columns that dot products take at a time */
  MORE = 4,                 /* past a row's end, so that rows begin in other banks */
  COLUMNS = 4 * ACROSS,     /* that threads have four each of */
  MAX_COLUMNS = 2 * COLUMNS /* of a block */
};

typedef struct tile_shared {
  union {
    struct {
      float own[BLOCK * (CHUNK + MORE)], others[BLOCK * (CHUNK + MORE)];
    } dots;
    float rows[BLOCK * COLUMNS];
  } loaded;
  float pairs[BLOCK][BLOCK + MORE];                    /* own row, other's */
  float scales[BLOCK], log_sums[BLOCK], deltas[BLOCK]; /* of queries */
} tile_shared;

/* A head's part of up to 64 tokens' rows. */
typedef struct tile_rows {
  const float *at;
  size_t stride;
  unsigned n;
  bool is_aligned; /* to sixteen bytes, each */
} tile_rows;

/* Of the tokens of a sequence from `first` on. */
static __device__ inline tile_rows rows_from(const ckpt_attention_args *a, const attention_at *at, const void *matrix,
                                             size_t stride, size_t head, size_t first) {
  tile_rows r;
  r.at = row_at(matrix, at->first + first, stride, head, a->head_width);
  r.stride = stride;
  r.n = (unsigned)least(a->length - first, BLOCK);
  r.is_aligned = (uintptr_t)r.at % 16 == 0 && stride % 4 == 0;
  return r;
}

/* Where a thread is. */
static __device__ inline unsigned thread_x(void) { return threadIdx.x / 32 % 2 * 8 + threadIdx.x % 8; }
/* As above: a warp is 8 x 4 of them, so that it reads few different rows. */
static __device__ inline unsigned thread_y(void) { return threadIdx.x / 64 * 4 + threadIdx.x % 32 / 8; }

static __device__ inline void read_four(float to[4], const float *from) {
  const float4 four = *(const float4 *)from;
  to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}

/* ---- loads ------------------------------------------------------------------------------------------------------- */

/* N rows of WIDTH columns of a matrix; what is past the ends is not there. */
template <int N, int WIDTH>
struct tile_source {
  const float *at;
  size_t stride;
  unsigned n_rows, n_columns;
  bool is_aligned;
};

/* Rows from `first` on, columns from `column` on. */
template <int N, int WIDTH>
static __device__ CKPT_INLINE tile_source<N, WIDTH> source_of(const tile_rows *rows, unsigned first, size_t column,
                                                              size_t width) {
  tile_source<N, WIDTH> from;
  from.at = rows->at + first * rows->stride + column;
  from.stride = rows->stride;
  from.n_rows = rows->n - first;
  from.n_columns = (unsigned)least(width - column, WIDTH);
  from.is_aligned = rows->is_aligned && from.n_columns % 4 == 0;
  return from;
}

/* Sixteen bytes at a time on their way to a thread, before one of them is waited for. */
template <int N, int WIDTH>
struct tile_freight {
  enum { EACH = N * WIDTH / 4 / THREADS };
  float4 fours[EACH];
  static __device__ CKPT_INLINE unsigned row(unsigned i) { return (i * THREADS + threadIdx.x) / (WIDTH / 4); }
  static __device__ CKPT_INLINE unsigned column(unsigned i) { return (i * THREADS + threadIdx.x) % (WIDTH / 4) * 4; }
  __device__ CKPT_INLINE void fetch(const tile_source<N, WIDTH> &from) {
    CKPT_UNROLL for (unsigned i = 0; i < EACH; i++) if (row(i) < from.n_rows && column(i) < from.n_columns) fours[i] =
        *(const float4 *)(from.at + row(i) * from.stride + column(i));
  }
  /* What is past the ends stays as it is; nobody keeps what is made of it. */
  template <int STRIDE>
  __device__ CKPT_INLINE void put(float *to, const tile_source<N, WIDTH> &from) const {
    CKPT_UNROLL for (unsigned i = 0; i < EACH; i++) if (row(i) < from.n_rows && column(i) < from.n_columns) *
        (float4 *)(to + row(i) * STRIDE + column(i)) = fours[i];
  }
};

/* The same an element at a time, where rows are not aligned. */
template <int N, int WIDTH, int STRIDE>
static __device__ CKPT_INLINE void load_elements(float *to, const tile_source<N, WIDTH> &from) {
  for (unsigned i = threadIdx.x; i < N * WIDTH; i += THREADS)
    if (i / WIDTH < from.n_rows && i % WIDTH < from.n_columns)
      to[i / WIDTH * STRIDE + i % WIDTH] = from.at[i / WIDTH * from.stride + i % WIDTH];
}

/* Columns of both tiles for dot products. */
static __device__ CKPT_INLINE void load_columns(tile_shared *s, const tile_rows *own, const tile_rows *others,
                                                size_t column, size_t width) {
  const tile_source<BLOCK, CHUNK> a = source_of<BLOCK, CHUNK>(own, 0, column, width);
  const tile_source<BLOCK, CHUNK> b = source_of<BLOCK, CHUNK>(others, 0, column, width);
  if (!a.is_aligned || !b.is_aligned) {
    load_elements<BLOCK, CHUNK, CHUNK + MORE>(s->loaded.dots.own, a);
    load_elements<BLOCK, CHUNK, CHUNK + MORE>(s->loaded.dots.others, b);
    return;
  }
  tile_freight<BLOCK, CHUNK> first, second;
  first.fetch(a);
  second.fetch(b);
  first.template put<CHUNK + MORE>(s->loaded.dots.own, a);
  second.template put<CHUNK + MORE>(s->loaded.dots.others, b);
}

/* Rows for sums: BLOCK / C of them, from `row` on. */
template <int C>
static __device__ CKPT_INLINE void load_rows(tile_shared *s, const tile_rows *rows, unsigned row, size_t column,
                                             size_t width) {
  const tile_source<BLOCK / C, C *COLUMNS> from = source_of<BLOCK / C, C * COLUMNS>(rows, row, column, width);
  if (!from.is_aligned) {
    load_elements<BLOCK / C, C * COLUMNS, C * COLUMNS>(s->loaded.rows, from);
    return;
  }
  tile_freight<BLOCK / C, C * COLUMNS> freight;
  freight.fetch(from);
  freight.template put<C * COLUMNS>(s->loaded.rows, from);
}

/* ---- dot products ------------------------------------------------------------------------------------------------ */

/* Column d of a chunk, or four from it on. */
template <int N>
static __device__ CKPT_INLINE void add_dots_of_columns(const tile_shared *s, float sums[OWN_ROWS][OTHERS], unsigned d) {
  float own[OWN_ROWS][4], others[OTHERS][4];
  const float *own_at = s->loaded.dots.own + thread_y() * (CHUNK + MORE) + d;
  const float *others_at = s->loaded.dots.others + thread_x() * (CHUNK + MORE) + d;
  CKPT_UNROLL for (int i = 0; i < OWN_ROWS; i++) {
    if (N == 4) read_four(own[i], own_at + i * DOWN * (CHUNK + MORE));
    if (N == 1) own[i][0] = own_at[i * DOWN * (CHUNK + MORE)];
  }
  CKPT_UNROLL for (int j = 0; j < OTHERS; j++) {
    if (N == 4) read_four(others[j], others_at + j * ACROSS * (CHUNK + MORE));
    if (N == 1) others[j][0] = others_at[j * ACROSS * (CHUNK + MORE)];
  }
  CKPT_UNROLL for (int e = 0; e < N; e++) CKPT_UNROLL for (int i = 0; i < OWN_ROWS; i++)
      CKPT_UNROLL for (int j = 0; j < OTHERS; j++) sums[i][j] = REAL_FMA(own[i][e], others[j][e], sums[i][j]);
}

/* The dot product of each pair of rows. */
static __device__ CKPT_INLINE void make_dots(tile_shared *s, float sums[OWN_ROWS][OTHERS], const tile_rows *own,
                                             const tile_rows *others, size_t width) {
  CKPT_UNROLL for (int i = 0; i < OWN_ROWS; i++) CKPT_UNROLL for (int j = 0; j < OTHERS; j++) sums[i][j] = 0;
  for (size_t column = 0; column < width; column += CHUNK) {
    const unsigned n = (unsigned)least(width - column, CHUNK);
    load_columns(s, own, others, column, width);
    __syncthreads();
    unsigned d = 0;
    for (; d + 4 <= n; d += 4) add_dots_of_columns<4>(s, sums, d);
    for (; d < n; d++) add_dots_of_columns<1>(s, sums, d);
    __syncthreads();
  }
}

/* ---- sums of rows ------------------------------------------------------------------------------------------------ */

/* Row `at` of those loaded, or four from it on, whose numbers of pairs begin at `pair`. */
template <int N, int C>
static __device__ CKPT_INLINE void add_some_rows(const tile_shared *s, float columns[OWN_ROWS][4 * C], unsigned pair,
                                                 unsigned at) {
  float weights[OWN_ROWS][4];
  CKPT_UNROLL for (int i = 0; i < OWN_ROWS; i++) {
    if (N == 4) read_four(weights[i], &s->pairs[thread_y() + i * DOWN][pair]);
    if (N == 1) weights[i][0] = s->pairs[thread_y() + i * DOWN][pair];
  }
  CKPT_UNROLL for (int e = 0; e < N; e++) {
    float row[4 * C];
    CKPT_UNROLL for (int c = 0; c < C; c++)
        read_four(row + 4 * c, s->loaded.rows + (at + e) * C * COLUMNS + c * COLUMNS + 4 * thread_x());
    CKPT_UNROLL for (int i = 0; i < OWN_ROWS; i++) CKPT_UNROLL for (int d = 0; d < 4 * C; d++) columns[i][d] =
        REAL_FMA(weights[i][e], row[d], columns[i][d]);
  }
}

/* Adds the others' rows times the numbers of their pairs, in order; of columns from `first` on. */
template <int C>
static __device__ CKPT_INLINE void add_rows(tile_shared *s, float columns[OWN_ROWS][4 * C], const tile_rows *others,
                                            size_t first, size_t width) {
  for (unsigned row = 0; row < others->n; row += BLOCK / C) {
    const unsigned n = (unsigned)least(others->n - row, BLOCK / C);
    load_rows<C>(s, others, row, first, width);
    __syncthreads();
    unsigned i = 0;
    for (; i + 4 <= n; i += 4) add_some_rows<4, C>(s, columns, row + i, i);
    for (; i < n; i++) add_some_rows<1, C>(s, columns, row + i, i);
    __syncthreads();
  }
}

/* ---- what a block has to do -------------------------------------------------------------------------------------- */

/* Where a block is: its own rows are those of tokens from `own` on. */
typedef struct tile_part {
  attention_at at;
  size_t own, column; /* column: the first that it makes */
} tile_part;

static __host__ __device__ inline size_t n_tiles(const ckpt_attention_args *a) {
  return (a->length + BLOCK - 1) / BLOCK;
}

/* Blocks beside each other for the columns of a head. */
static __host__ __device__ inline size_t n_halves(const ckpt_attention_args *a) {
  return (a->head_width + MAX_COLUMNS - 1) / MAX_COLUMNS;
}

/* Parts in the order of their tiles, which the last block begins with where `from_last`. */
static __device__ inline tile_part part_at(const ckpt_attention_args *a, size_t part, size_t n_heads, bool from_last) {
  const size_t each = a->n_rows * n_heads * n_halves(a), tile = part / each, rest = part % each / n_halves(a);
  tile_part p;
  p.column = part % n_halves(a) * MAX_COLUMNS;
  p.own = (from_last ? n_tiles(a) - 1 - tile : tile) * BLOCK;
  p.at.row = rest / n_heads;
  p.at.head = rest % n_heads;
  p.at.kv_head = n_heads == a->n_kv_heads ? p.at.head : p.at.head / (a->n_heads / a->n_kv_heads);
  p.at.first = p.at.row * a->length;
  return p;
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

/* A tile of queries and one of keys, of a head; a block's own are the keys, or the queries. */
typedef struct tile_pair {
  size_t query, key;
  bool owns_keys;
} tile_pair;

/* A bit for each pair of a thread. */
typedef uint32_t pair_bits;

static __device__ inline unsigned own_of(int i) { return thread_y() + (unsigned)i * DOWN; }
static __device__ inline unsigned other_of(int j) { return thread_x() + (unsigned)j * ACROSS; }
static __device__ CKPT_INLINE bool has_pair(pair_bits bits, int i, int j) {
  return (bits >> (i * OTHERS + j) & 1) != 0;
}

/* Query and key of pair `i` of a thread, bit i. */
static __device__ inline void pair_at(const tile_pair *t, int i, size_t *query, size_t *key) {
  const unsigned own = own_of(i / OTHERS), other = other_of(i % OTHERS);
  *query = t->query + (t->owns_keys ? other : own);
  *key = t->key + (t->owns_keys ? own : other);
}

/* Whether every query of a tile, which is whole, sees every key of another. */
static __device__ inline bool sees_all(const ckpt_attention_args *a, const tile_pair *t) {
  return t->key + BLOCK <= t->query && t->query + BLOCK <= a->length && a->documents == NULL && a->mask == NULL &&
         (a->window == 0 || t->query + BLOCK - 1 - t->key < a->window);
}

/* Those whose query sees the key; not what is past the end. */
static __device__ inline pair_bits seen_pairs(const ckpt_attention_args *a, const attention_at *at,
                                              const tile_pair *t) {
  pair_bits bits = 0;
  if (sees_all(a, t)) return ~bits;
  CKPT_ROLL for (int i = 0; i < OWN_ROWS * OTHERS; i++) {
    size_t query, key;
    pair_at(t, i, &query, &key);
    if (query < a->length && is_visible(a, at, query, key)) bits |= (pair_bits)1 << i;
  }
  return bits;
}

/* ---- columns of own rows ----------------------------------------------------------------------------------------- */

/* The place of a thread's element `d` of its row `i`; NULL where rows or columns have ended. */
static __device__ inline float *own_column(const tile_part *p, const tile_rows *rows, size_t width, int i, int d) {
  const unsigned row = thread_y() + (unsigned)i * DOWN;
  const size_t column = p->column + (unsigned)(d / 4 * COLUMNS + d % 4) + 4 * thread_x();
  return row < rows->n && column < width ? (float *)rows->at + row * rows->stride + column : NULL;
}

/* What gradients are added to, or zeros. */
template <int C>
static __device__ CKPT_INLINE void begin_columns(float columns[OWN_ROWS][4 * C], const tile_part *p,
                                                 const tile_rows *rows, size_t width, bool adds) {
  CKPT_UNROLL for (int i = 0; i < OWN_ROWS; i++) CKPT_UNROLL for (int d = 0; d < 4 * C; d++) {
    const float *from = adds ? own_column(p, rows, width, i, d) : NULL;
    columns[i][d] = from == NULL ? 0 : *from;
  }
}

template <int C>
static __device__ CKPT_INLINE void end_columns(const float columns[OWN_ROWS][4 * C], const tile_part *p,
                                               const tile_rows *rows, size_t width) {
  CKPT_UNROLL for (int i = 0; i < OWN_ROWS; i++) CKPT_UNROLL for (int d = 0; d < 4 * C; d++) {
    float *to = own_column(p, rows, width, i, d);
    if (to != NULL) *to = columns[i][d];
  }
}

#endif
