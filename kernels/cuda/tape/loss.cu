/* loss.cu - the loss of rows of logits: a block of threads for each row.
 *
 * A sum has the 16 lanes of kernels/ref/tape, and each of them its order. So all warps but the first make the numbers,
 * a part of the row at a time, and leave them in shared memory; there half of the first warp, a thread for each lane,
 * adds a part while the others make the next. */
#include "kernels/cuda/tape/tape.cuh"

enum { THREADS = 288, MAKERS = THREADS - 32, AHEAD = 8, PART = MAKERS * AHEAD };

typedef struct loss_shared {
  float parts[2][PART], greatest[THREADS / 32], sum;
} loss_shared;

/* The row at hand. */
typedef struct loss_row {
  float *x;
  size_t n;
} loss_row;

/* The greatest logit; a NaN is passed over. */
static __device__ float greatest_of(const loss_row *r, loss_shared *s) {
  float greatest = -REAL_INFINITY;
  for_each_ahead<AHEAD>(
      threadIdx.x, r->n, THREADS, [&](size_t i) { return r->x[i]; },
      [&](size_t, float x) { greatest = x > greatest ? x : greatest; });
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(0xffffffffU, greatest, distance, 32);
    greatest = other > greatest ? other : greatest;
  }
  if (threadIdx.x % 32 == 0) s->greatest[threadIdx.x / 32] = greatest;
  __syncthreads();
  for (int i = 0; i < THREADS / 32; i++) greatest = s->greatest[i] > greatest ? s->greatest[i] : greatest;
  return greatest;
}

/* A thread's lane of a part. */
static __device__ inline float add_part(const float *part, size_t n, float lane) {
  for_each_ahead<AHEAD>(
      threadIdx.x, n, 16, [&](size_t i) { return part[i]; }, [&](size_t, float x) { lane += x; });
  return lane;
}

/* The tree of 16 lanes. */
static __device__ inline float total_of(float lane) {
  for (int half = 8; half > 0; half /= 2) lane += __shfl_down_sync(0xffffU, lane, half, 16);
  return lane;
}

/* The sum over a row of what `make` gives for a column and what stands there; every thread gets it. */
template <class Make>
static __device__ CKPT_INLINE float sum_of(const loss_row *r, loss_shared *s, Make make) {
  float lane = 0;
  for (size_t first = 0, step = 0; first < r->n; first += PART, step++) {
    const size_t n = least(r->n - first, PART);
    const float *x = r->x + first;
    float *part = s->parts[step % 2];
    if (threadIdx.x >= 32)
      for_each_ahead<AHEAD>(
          threadIdx.x - 32, n, MAKERS, [&](size_t i) { return x[i]; },
          [&](size_t i, float value) { part[i] = make(first + i, value); });
    __syncthreads();
    if (threadIdx.x < 16) lane = add_part(part, n, lane);
  }
  if (threadIdx.x < 16) lane = total_of(lane);
  if (threadIdx.x == 0) s->sum = lane;
  __syncthreads();
  return s->sum;
}

/* A row without a target. */
static __device__ void pass_over(const ckpt_loss_args *a, const loss_row *r, float *log_probability) {
  if (threadIdx.x == 0) *log_probability = 0;
  for (size_t i = threadIdx.x; i < r->n && a->has_gradient; i += THREADS) r->x[i] = 0;
}

static __device__ void finish_row(const ckpt_loss_args *a, const loss_row *r, size_t target, float total) {
  const float factor = (float)a->scale / total, each = smoothed_share(a->scale, a->smoothing, r->n);
  const float rest = smoothed_rest(a->scale, a->smoothing);
  for_each_ahead<AHEAD>(
      threadIdx.x, r->n, THREADS, [&](size_t i) { return r->x[i]; },
      [&](size_t i, float x) { r->x[i] = target == i ? x * factor - each - rest : x * factor - each; });
}

static __device__ void make_loss(const ckpt_loss_args *a, const loss_row *r, size_t target, float *log_probability,
                                 loss_shared *s) {
  const float wanted = r->x[target], most = greatest_of(r, s);
  float mean = 0;
  if (a->smoothing != 0) mean = sum_of(r, s, [&](size_t, float x) { return x - most; }) / (float)r->n;
  const float total = sum_of(r, s, [&](size_t i, float x) {
    const float e = real_exp(x - most);
    if (a->has_gradient) r->x[i] = e;
    return e;
  });
  if (threadIdx.x == 0) *log_probability = smoothed_log(a->smoothing, wanted - most, mean, real_log(total));
  if (a->has_gradient) finish_row(a, r, target, total);
}

static __global__ void loss(ckpt_loss_args a, size_t n) {
  CKPT_SHARED(loss_shared, s);
  for (size_t row = blockIdx.x; row < n; row += gridDim.x) {
    const loss_row r = {(float *)a.logits + row * a.n_columns, a.n_columns};
    float *log_probability = (float *)a.log_probability + row;
    if (a.targets[row] < 0)
      pass_over(&a, &r, log_probability);
    else
      make_loss(&a, &r, (size_t)a.targets[row], log_probability, s);
  }
}

void ckpt_cuda_start_loss(ckpt_cuda *c, const void *args, size_t n) {
  ckpt_cuda_start(c, "loss", loss, *(const ckpt_loss_args *)args, n, n, THREADS, sizeof(loss_shared));
}
