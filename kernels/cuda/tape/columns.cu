/* columns.cu - kernels that sum over rows, with a thread for each column: rows are added in their order. */
#include "kernels/cuda/tape/tape.cuh"

static __global__ void embedding_backward(ckpt_embedding_args a, size_t n) {
  for (size_t i = first_index(); i < n; i += index_step())
    for (size_t t = 0; t < a.n_tokens; t++) {
      const size_t place = a.positions != NULL ? (size_t)a.positions[t] : t % a.length;
      const size_t row = a.ids != NULL ? (size_t)a.ids[t] : place;
      ((float *)a.table)[row * a.n_columns + i] += ((const float *)a.out)[t * a.n_columns + i];
    }
}

void ckpt_cuda_start_embedding_backward(ckpt_cuda *c, const void *args, size_t n) {
  ckpt_cuda_start_threads(c, "embedding_backward", embedding_backward, *(const ckpt_embedding_args *)args, n);
}

static __global__ void bias_backward(ckpt_bias_args a, size_t n) {
  for (size_t i = first_index(); i < n; i += index_step()) {
    float sum = 0;
    for (size_t r = 0; r < a.n_rows; r++) sum += ((const float *)a.y)[r * a.stride + i];
    ((float *)a.bias)[i] += sum;
  }
}

void ckpt_cuda_start_bias_backward(ckpt_cuda *c, const void *args, size_t n) {
  ckpt_cuda_start_threads(c, "bias_backward", bias_backward, *(const ckpt_bias_args *)args, n);
}

static __global__ void norm_weights(ckpt_norm_backward_args a, size_t n) {
  const float *means = (const float *)a.mean, *inverses = (const float *)a.inverse;
  for (size_t i = first_index(); i < n; i += index_step()) {
    float weight = 0, shift = 0;
    for (size_t r = 0; r < a.n_tokens; r++) {
      const float x = ((const float *)a.x)[r * a.n_columns + i], d_y = ((const float *)a.d_y)[r * a.n_columns + i];
      weight += d_y * ((x - (means == NULL ? 0 : means[r])) * inverses[r]);
      shift += d_y;
    }
    if (a.d_weight != NULL) ((float *)a.d_weight)[i] += weight;
    if (a.d_bias != NULL) ((float *)a.d_bias)[i] += shift;
  }
}

void ckpt_cuda_start_layernorm_weights(ckpt_cuda *c, const void *args, size_t n) {
  ckpt_cuda_start_threads(c, "layernorm_weights", norm_weights, *(const ckpt_norm_backward_args *)args, n);
}

void ckpt_cuda_start_rmsnorm_weights(ckpt_cuda *c, const void *args, size_t n) {
  ckpt_cuda_start_threads(c, "rmsnorm_weights", norm_weights, *(const ckpt_norm_backward_args *)args, n);
}
