/* columns.cu - kernels that sum over rows, in their order.
 *
 * A block has 32 columns. Eight warps make the numbers of many rows, a part at a time, and leave them in shared memory;
 * there a warp for each sum, a thread for each column, adds a part while the others make the next. */
#include "kernels/cuda/tape/tape.cuh"

/* ---- embeddings -------------------------------------------------------------------------------------------------- */

/* The row of the table that a token's gradient is added to. */
static __device__ inline uint32_t table_row(const ckpt_embedding_args *a, uint32_t token) {
  if (a->ids != NULL) return (uint32_t)a->ids[token];
  return a->positions != NULL ? (uint32_t)a->positions[token] : token % (uint32_t)a->length;
}

/* The tokens from `first` to first + 31, and below `end`, that have this row. */
static __device__ inline unsigned tokens_of(const ckpt_embedding_args *a, uint32_t row, uint32_t first, uint32_t end) {
  const uint32_t token = first + threadIdx.x % 32;
  return __ballot_sync(0xffffffffU, token < end && table_row(a, token) == row);
}

/* A block for each token: the first one of a row adds those of all others. n counts tokens. */
static __global__ void embedding_backward(ckpt_embedding_args a, size_t n) {
  for (size_t token = blockIdx.x; token < n; token += gridDim.x) {
    const uint32_t own = (uint32_t)token, end = (uint32_t)n, row = table_row(&a, own);
    if (a.ids != NULL && a.has_padding && row == (uint32_t)a.padding) continue;
    unsigned found = 0;
    for (uint32_t t = 0; t < own && found == 0; t += 32) found = tokens_of(&a, row, t, own);
    if (found != 0) continue;
    float *to = (float *)a.table + row * a.n_columns;
    for (uint32_t t = own; t < end; t += 32)
      for (found = tokens_of(&a, row, t, end); found != 0; found &= found - 1) {
        const float *from = (const float *)a.out + (t + (uint32_t)__ffs((int)found) - 1) * a.n_columns;
        for (size_t i = threadIdx.x; i < a.n_columns; i += blockDim.x) to[i] += from[i];
      }
  }
}

void ckpt_cuda_start_embedding_backward(ckpt_cuda *c, const void *args, size_t n) {
  const ckpt_embedding_args *a = (const ckpt_embedding_args *)args;
  const size_t n_tokens = n == 0 ? 0 : a->n_tokens;
  ckpt_cuda_start(c, "embedding_backward", embedding_backward, *a, n_tokens, n_tokens, CKPT_CUDA_THREADS, 0);
}

/* ---- biases and norms -------------------------------------------------------------------------------------------- */

enum { WIDTH = 32, MAKERS = 8, AHEAD = 8 };

/* Of N sums: threads, and rows of a part. */
template <int N>
struct column_sums {
  enum { THREADS = (N + MAKERS) * 32, PART = 128 / N };
  float parts[2][N][PART][WIDTH];
};

/* The sum of a column for the threads of warp `which`, below N: `make` gives the numbers of a row's element, which
 * `read` has read. step counts parts. */
template <int N, class Read, class Make>
static __device__ CKPT_INLINE float sum_columns(column_sums<N> *s, size_t n_rows, size_t *step, Read read, Make make) {
  enum { PART = column_sums<N>::PART };
  const unsigned warp = threadIdx.x / 32, column = threadIdx.x % 32;
  float sum = 0;
  for (size_t first = 0; first < n_rows; first += PART) {
    const size_t n = least(n_rows - first, PART), half = (*step)++ % 2;
    if (warp >= N)
      for_each_ahead<PART / MAKERS>(
          warp - N, n, MAKERS, [&](size_t r) { return read(first + r); },
          [&](size_t r, const decltype(read(first)) &element) {
            for (int which = 0; which < N; which++) s->parts[half][which][r][column] = make(element, which);
          });
    __syncthreads();
    if (warp < N)
      for_each_ahead<AHEAD>(
          0, n, 1, [&](size_t r) { return s->parts[half][warp][r][column]; }, [&](size_t, float x) { sum += x; });
  }
  return sum;
}

#define FOR_GROUPS(first, n) \
  for (size_t first = (size_t)blockIdx.x * WIDTH; first < n; first += (size_t)gridDim.x * WIDTH)

template <int N, class Args>
static void start_sums(ckpt_cuda *c, const char *name, void (*kernel)(Args, size_t), const void *args, size_t n) {
  ckpt_cuda_start(c, name, kernel, *(const Args *)args, n, (n + WIDTH - 1) / WIDTH, column_sums<N>::THREADS,
                  sizeof(column_sums<N>));
}

static __global__ void bias_backward(ckpt_bias_args a, size_t n) {
  CKPT_SHARED(column_sums<1>, s);
  size_t step = 0;
  FOR_GROUPS(first, n) {
    const size_t own = first + threadIdx.x % 32, column = least(own, n - 1); /* past the end: the last one */
    const float *from = (const float *)a.y + column;
    const float sum = sum_columns<1>(
        s, a.n_rows, &step, [&](size_t r) { return from[r * a.stride]; }, [](float y, int) { return y; });
    if (threadIdx.x < 32 && own < n) ((float *)a.bias)[own] += sum;
  }
}

void ckpt_cuda_start_bias_backward(ckpt_cuda *c, const void *args, size_t n) {
  start_sums<1, ckpt_bias_args>(c, "bias_backward", bias_backward, args, n);
}

typedef struct norm_element {
  float x, d_y, mean, inverse;
} norm_element;

/* What an element brings to the gradients of weight and bias. */
static __device__ inline float norm_share(const norm_element &e, int which) {
  return which == 0 ? e.d_y * ((e.x - e.mean) * e.inverse) : e.d_y;
}

static __global__ void norm_weights(ckpt_norm_backward_args a, size_t n) {
  CKPT_SHARED(column_sums<2>, s);
  const float *means = (const float *)a.mean, *inverses = (const float *)a.inverse;
  size_t step = 0;
  FOR_GROUPS(first, n) {
    const size_t own = first + threadIdx.x % 32, column = least(own, n - 1);
    const float *x = (const float *)a.x + column, *d_y = (const float *)a.d_y + column;
    const float sum = sum_columns<2>(
        s, a.n_tokens, &step,
        [&](size_t r) {
          const norm_element e = {x[r * a.n_columns], d_y[r * a.n_columns], means == NULL ? 0 : means[r], inverses[r]};
          return e;
        },
        norm_share);
    float *to = (float *)(threadIdx.x < 32 ? a.d_weight : a.d_bias);
    if (threadIdx.x < 64 && own < n && to != NULL) to[own] += sum;
  }
}

void ckpt_cuda_start_layernorm_weights(ckpt_cuda *c, const void *args, size_t n) {
  start_sums<2, ckpt_norm_backward_args>(c, "layernorm_weights", norm_weights, args, n);
}

void ckpt_cuda_start_rmsnorm_weights(ckpt_cuda *c, const void *args, size_t n) {
  start_sums<2, ckpt_norm_backward_args>(c, "rmsnorm_weights", norm_weights, args, n);
}
