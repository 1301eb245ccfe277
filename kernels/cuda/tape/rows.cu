/* rows.cu - kernels that sum along a row: norms, the loss, sums of squares.
 *
 * A row belongs to 16 threads, half a warp: thread i has the elements of lane i of kernels/ref/tape, and shuffles make
 * the tree. Both halves of a warp take every step together, so a row past the end has no columns. */
#include "kernels/cuda/tape/tape.cuh"

#define WARP 0xffffffffU

enum { ROWS = CKPT_CUDA_THREADS / 16 };

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
#define FOR_COLUMNS(i, r) for (size_t i = (r).lane; i < (r).n; i += 16)

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
  FOR_COLUMNS(i, *r) sum[i] = x[i] + residual[i];
  return sum;
}

static __global__ void rmsnorm(ckpt_norm_args a, size_t n) {
  FOR_ROWS(first, n) {
    const row_at_hand r = take_row(first, n, a.n_columns);
    const float *x = row_to_normalize(&a, &r);
    float squares = 0;
    FOR_COLUMNS(i, r) squares += x[i] * x[i];
    const float inverse = norm_inverse(total_of(squares), (float)a.n_columns, (float)a.epsilon);
    if (r.lane == 0 && r.row < n) ((float *)a.inverse)[r.row] = inverse;
    FOR_COLUMNS(i, r)
    ((float *)a.y)[r.row * a.n_columns + i] = rmsnorm_of(x[i], inverse, ((const float *)a.weight)[i]);
  }
}

/* Squares of what is left of the mean; where lanes are not whole, the rest of them counts as the mean itself. */
static __device__ float deviations_of(const float *x, const row_at_hand *r, float mean) {
  float sum = 0;
  for (size_t i = r->lane; i < (r->n + 15) / 16 * 16; i += 16) {
    const float deviation = (i < r->n ? x[i] : mean) - mean;
    sum += deviation * deviation;
  }
  return sum;
}

static __global__ void layernorm(ckpt_norm_args a, size_t n) {
  const float *weight = (const float *)a.weight, *shift = (const float *)a.bias;
  FOR_ROWS(first, n) {
    const row_at_hand r = take_row(first, n, a.n_columns);
    const float *x = row_to_normalize(&a, &r);
    float sum = 0;
    FOR_COLUMNS(i, r) sum += x[i];
    const float mean = total_of(sum) / (float)a.n_columns, squares = total_of(deviations_of(x, &r, mean));
    const float inverse = norm_inverse(squares, (float)a.n_columns, (float)a.epsilon);
    if (r.lane == 0 && r.row < n) ((float *)a.mean)[r.row] = mean;
    if (r.lane == 0 && r.row < n) ((float *)a.inverse)[r.row] = inverse;
    FOR_COLUMNS(i, r)
    ((float *)a.y)[r.row * a.n_columns + i] = layernorm_of(x[i], mean, inverse, weight[i], shift[i]);
  }
}

void ckpt_cuda_start_rmsnorm(ckpt_cuda *c, const void *args, size_t n) { start_rows(c, "rmsnorm", rmsnorm, args, n); }

void ckpt_cuda_start_layernorm(ckpt_cuda *c, const void *args, size_t n) {
  start_rows(c, "layernorm", layernorm, args, n);
}

/* Both norms: rmsnorm's mean and shift are 0. */
static __global__ void norm_backward(ckpt_norm_backward_args a, size_t n) {
  const float *weight = (const float *)a.weight, *means = (const float *)a.mean;
  FOR_ROWS(first, n) {
    const row_at_hand r = take_row(first, n, a.n_columns);
    const size_t start = r.row * a.n_columns;
    const float *x = (const float *)a.x + start, *d_y = (const float *)a.d_y + start;
    const float inverse = r.n == 0 ? 0 : ((const float *)a.inverse)[r.row];
    const float mean = r.n == 0 || means == NULL ? 0 : means[r.row];
    float sum = 0, slope = 0;
    FOR_COLUMNS(i, r) {
      const float g = d_y[i] * weight[i];
      sum += g;
      slope += g * ((x[i] - mean) * inverse);
    }
    const float tilt = total_of(slope) / (float)a.n_columns, all = total_of(sum) / (float)a.n_columns;
    const float shift = means == NULL ? 0 : all;
    FOR_COLUMNS(i, r) {
      float value = norm_gradient(x[i], mean, inverse, d_y[i] * weight[i], shift, tilt);
      if (a.d_sum != NULL) value += ((const float *)a.d_sum)[start + i];
      deliver(a.d_x, start + i, a.adds_x, value);
      deliver(a.d_residual, start + i, a.adds_residual, value);
    }
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

/* ---- the loss ---------------------------------------------------------------------------------------------------- */

/* The greatest of 16 lanes, in their order; a NaN is passed over. */
static __device__ float greatest_of(float lane) {
  float greatest = __shfl_sync(WARP, lane, 0, 16);
  for (int i = 1; i < 16; i++) {
    const float other = __shfl_sync(WARP, lane, i, 16);
    greatest = other > greatest ? other : greatest;
  }
  return greatest;
}

/* A row without a target. */
static __device__ void pass_over(const ckpt_loss_args *a, const row_at_hand *r) {
  if (r->lane == 0) ((float *)a->log_probability)[r->row] = 0;
  for (size_t i = r->lane; i < a->n_columns && a->has_gradient; i += 16)
    ((float *)a->logits)[r->row * a->n_columns + i] = 0;
}

static __global__ void loss(ckpt_loss_args a, size_t n) {
  FOR_ROWS(first, n) {
    row_at_hand r = take_row(first, n, a.n_columns);
    const int32_t target = r.row < n ? a.targets[r.row] : -1;
    if (r.row < n && target < 0) pass_over(&a, &r);
    if (target < 0) r.n = 0;
    float *x = (float *)a.logits + r.row * a.n_columns, lane = -REAL_INFINITY, sum = 0, distances = 0;
    const float wanted = r.n == 0 ? 0 : x[target];
    FOR_COLUMNS(i, r) lane = x[i] > lane ? x[i] : lane;
    const float most = greatest_of(lane);
    __syncwarp(WARP); /* all have read the target */
    FOR_COLUMNS(i, r) {
      const float e = real_exp(x[i] - most);
      distances += x[i] - most;
      if (a.has_gradient) x[i] = e;
      sum += e;
    }
    const float total = total_of(sum), factor = (float)a.scale / total;
    const float mean = a.smoothing == 0 ? 0 : total_of(distances) / (float)a.n_columns;
    const float each = smoothed_share(a.scale, a.smoothing, a.n_columns), rest = smoothed_rest(a.scale, a.smoothing);
    if (r.n != 0 && r.lane == 0)
      ((float *)a.log_probability)[r.row] = smoothed_log(a.smoothing, wanted - most, mean, real_log(total));
    for (size_t i = r.lane; i < r.n && a.has_gradient; i += 16)
      x[i] = (size_t)target == i ? x[i] * factor - each - rest : x[i] * factor - each;
  }
}

void ckpt_cuda_start_loss(ckpt_cuda *c, const void *args, size_t n) {
  start_rows<ckpt_loss_args>(c, "loss", loss, args, n);
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
