/* rows.cu - kernels that sum along a row: norms, sums of squares; the loss: loss.cu.
 *
 * A row belongs to 16 threads, half a warp: thread i has the elements of lane i of kernels/ref/tape, and shuffles make
 * the tree. Both halves of a warp take every step together, so a row past the end has no columns. */
#include "kernels/cuda/tape/tape.cuh"

#define WARP 0xffffffffU

enum { ROWS = CKPT_CUDA_THREADS / 16, AHEAD = 8 };

/* The tree of 16 lanes; every thread gets the total. */
static __device__ float total_of(float lane) {
  for (int half = 8; half > 0; half /= 2) lane += __shfl_down_sync(WARP, lane, half, 16);
  return __shfl_sync(WARP, lane, 0, 16);
}

/* The row of a thread in this step, and how many columns it has. */
typedef struct row_at_hand {
  size_t row, n;
  unsigned lane;
} row_at_hand;

static __device__ row_at_hand take_row(size_t first, size_t n_rows, size_t n_columns) {
  row_at_hand r;
  r.row = first + threadIdx.x / 16;
  r.n = r.row < n_rows ? n_columns : 0;
  r.lane = threadIdx.x % 16;
  return r;
}

#define FOR_ROWS(first, n) for (size_t first = (size_t)blockIdx.x * ROWS; first < n; first += (size_t)gridDim.x * ROWS)

/* use(i, read(i)) for the columns of a thread. */
template <class Read, class Use>
static __device__ CKPT_INLINE void for_columns(const row_at_hand *r, Read read, Use use) {
  for_each_ahead<AHEAD>(r->lane, r->n, 16, read, use);
}

template <class Args>
static void start_rows(ckpt_cuda *c, const char *name, void (*kernel)(Args, size_t), const void *args, size_t n) {
  ckpt_cuda_start(c, name, kernel, *(const Args *)args, n, (n + ROWS - 1) / ROWS, CKPT_CUDA_THREADS, 0);
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

/* x, or x + residual, which is then kept; each thread reads back what it wrote. */
static __device__ const float *row_to_normalize(const ckpt_norm_args *a, const row_at_hand *r) {
  const float *x = (const float *)a->x + r->row * a->n_columns;
  if (a->residual == NULL) return x;
  const float *residual = (const float *)a->residual + r->row * a->n_columns;
  float *sum = (float *)a->sum + r->row * a->n_columns;
  for_columns(
      r, [&](size_t i) { return x[i] + residual[i]; }, [&](size_t i, float x_and_more) { sum[i] = x_and_more; });
  return sum;
}

static __global__ void rmsnorm(ckpt_norm_args a, size_t n) {
  const float *weight = (const float *)a.weight;
  FOR_ROWS(first, n) {
    const row_at_hand r = take_row(first, n, a.n_columns);
    const float *x = row_to_normalize(&a, &r);
    float squares = 0;
    for_columns(
        &r, [&](size_t i) { return x[i]; }, [&](size_t, float value) { squares += value * value; });
    const float inverse = norm_inverse(total_of(squares), (float)a.n_columns, (float)a.epsilon);
    if (r.lane == 0 && r.row < n) ((float *)a.inverse)[r.row] = inverse;
    float *y = (float *)a.y + r.row * a.n_columns;
    for_columns(
        &r, [&](size_t i) { return rmsnorm_of(x[i], inverse, weight[i]); },
        [&](size_t i, float value) { y[i] = value; });
  }
}

/* Squares of what is left of the mean; where lanes are not whole, the rest of them counts as the mean itself. */
static __device__ float deviations_of(const float *x, const row_at_hand *r, float mean) {
  float sum = 0;
  for_each_ahead<AHEAD>(
      r->lane, (r->n + 15) / 16 * 16, 16, [&](size_t i) { return (i < r->n ? x[i] : mean) - mean; },
      [&](size_t, float deviation) { sum += deviation * deviation; });
  return sum;
}

static __global__ void layernorm(ckpt_norm_args a, size_t n) {
  const float *weight = (const float *)a.weight, *shift = (const float *)a.bias;
  FOR_ROWS(first, n) {
    const row_at_hand r = take_row(first, n, a.n_columns);
    const float *x = row_to_normalize(&a, &r);
    float sum = 0;
    for_columns(
        &r, [&](size_t i) { return x[i]; }, [&](size_t, float value) { sum += value; });
    const float mean = total_of(sum) / (float)a.n_columns, squares = total_of(deviations_of(x, &r, mean));
    const float inverse = norm_inverse(squares, (float)a.n_columns, (float)a.epsilon);
    if (r.lane == 0 && r.row < n) ((float *)a.mean)[r.row] = mean;
    if (r.lane == 0 && r.row < n) ((float *)a.inverse)[r.row] = inverse;
    float *y = (float *)a.y + r.row * a.n_columns;
    for_columns(
        &r, [&](size_t i) { return layernorm_of(x[i], mean, inverse, weight[i], shift[i]); },
        [&](size_t i, float value) { y[i] = value; });
  }
}

void ckpt_cuda_start_rmsnorm(ckpt_cuda *c, const void *args, size_t n) { start_rows(c, "rmsnorm", rmsnorm, args, n); }

void ckpt_cuda_start_layernorm(ckpt_cuda *c, const void *args, size_t n) {
  start_rows(c, "layernorm", layernorm, args, n);
}

/* A row of either norm: rmsnorm's mean and shift are 0. */
typedef struct norm_row {
  row_at_hand r;
  const float *x, *d_y, *weight;
  float mean, inverse, shift, tilt;
} norm_row;

/* What an element brings to both sums. */
typedef struct norm_share {
  float slope, sum;
} norm_share;

static __device__ norm_row take_norm(const ckpt_norm_backward_args *a, const row_at_hand *r) {
  const float *means = (const float *)a->mean;
  norm_row n = {};
  n.r = *r;
  n.x = (const float *)a->x + r->row * a->n_columns;
  n.d_y = (const float *)a->d_y + r->row * a->n_columns;
  n.weight = (const float *)a->weight;
  n.inverse = r->n == 0 ? 0 : ((const float *)a->inverse)[r->row];
  n.mean = r->n == 0 || means == NULL ? 0 : means[r->row];
  return n;
}

static __device__ void sum_norm(const ckpt_norm_backward_args *a, norm_row *n) {
  float sum = 0, slope = 0;
  for_columns(
      &n->r,
      [&](size_t i) {
        const float g = n->d_y[i] * n->weight[i];
        const norm_share share = {g * ((n->x[i] - n->mean) * n->inverse), g};
        return share;
      },
      [&](size_t, const norm_share &share) {
        sum += share.sum;
        slope += share.slope;
      });
  n->tilt = total_of(slope) / (float)a->n_columns;
  const float all = total_of(sum) / (float)a->n_columns;
  n->shift = a->mean == NULL ? 0 : all;
}

static __global__ void norm_backward(ckpt_norm_backward_args a, size_t n_rows) {
  FOR_ROWS(first, n_rows) {
    const row_at_hand r = take_row(first, n_rows, a.n_columns);
    const size_t start = r.row * a.n_columns;
    const float *d_sum = a.d_sum == NULL ? NULL : (const float *)a.d_sum + start;
    norm_row n = take_norm(&a, &r);
    sum_norm(&a, &n);
    for_columns(
        &r,
        [&](size_t i) {
          const float value = norm_gradient(n.x[i], n.mean, n.inverse, n.d_y[i] * n.weight[i], n.shift, n.tilt);
          return d_sum == NULL ? value : value + d_sum[i];
        },
        [&](size_t i, float value) {
          deliver(a.d_x, start + i, a.adds_x, value);
          deliver(a.d_residual, start + i, a.adds_residual, value);
        });
  }
}

void ckpt_cuda_start_rmsnorm_backward(ckpt_cuda *c, const void *args, size_t n) {
  ckpt_norm_backward_args a = *(const ckpt_norm_backward_args *)args;
  a.mean = NULL;
  start_rows(c, "rmsnorm_backward", norm_backward, &a, n);
}

void ckpt_cuda_start_layernorm_backward(ckpt_cuda *c, const void *args, size_t n) {
  start_rows(c, "layernorm_backward", norm_backward, args, n);
}

/* ---- sums of squares --------------------------------------------------------------------------------------------- */

/* Eight threads for each block of elements. */
static __global__ void square_sum(ckpt_square_sum_args a, size_t n) {
  const size_t rows = CKPT_CUDA_THREADS / 8;
  for (size_t first = (size_t)blockIdx.x * rows; first < n; first += (size_t)gridDim.x * rows) {
    const size_t block = first + threadIdx.x / 8, begin = block * CKPT_SQUARE_BLOCK;
    const size_t left = block < n ? a.n - begin : 0, count = least(left, CKPT_SQUARE_BLOCK);
    double lane = 0;
    for (size_t i = threadIdx.x % 8; i < count; i += 8) {
      const double x = (double)((const float *)a.x)[begin + i];
      lane += x * x;
    }
    for (int half = 4; half > 0; half /= 2) lane += __shfl_down_sync(WARP, lane, half, 8);
    if (threadIdx.x % 8 == 0 && block < n) a.sums[block] = lane;
  }
}

void ckpt_cuda_start_square_sum(ckpt_cuda *c, const void *args, size_t n) {
  const size_t rows = CKPT_CUDA_THREADS / 8;
  ckpt_cuda_start(c, "square_sum", square_sum, *(const ckpt_square_sum_args *)args, n, (n + rows - 1) / rows,
                  CKPT_CUDA_THREADS, 0);
}
