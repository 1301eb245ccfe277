/* elements.cu - kernels with a thread for each element: embedding, bias, activations, addition, rope, AdamW. */
#include "kernels/cuda/tape/tape.cuh"

static __device__ size_t position_of(const int32_t *positions, size_t token, size_t length) {
  return positions != NULL ? (size_t)positions[token] : token % length;
}

static __global__ void embedding(ckpt_embedding_args a, size_t n) {
  for (size_t i = first_index(); i < n; i += index_step()) {
    const size_t token = i / a.n_columns, column = i % a.n_columns;
    const float *table = (const float *)a.table, *places = (const float *)a.position_table;
    float value = table[(size_t)a.ids[token] * a.n_columns + column];
    if (places != NULL) value += places[position_of(a.positions, token, a.length) * a.n_columns + column];
    ((float *)a.out)[i] = value;
  }
}

void ckpt_cuda_start_embedding(ckpt_cuda *c, const void *args, size_t n) {
  const ckpt_embedding_args *a = (const ckpt_embedding_args *)args;
  ckpt_cuda_start_threads(c, "embedding", embedding, *a, n * a->n_columns);
}

static __global__ void bias(ckpt_bias_args a, size_t n) {
  for (size_t i = first_index(); i < n; i += index_step()) {
    const size_t column = i % a.n_columns;
    ((float *)a.y)[i / a.n_columns * a.stride + column] += ((const float *)a.bias)[column];
  }
}

void ckpt_cuda_start_bias(ckpt_cuda *c, const void *args, size_t n) {
  const ckpt_bias_args *a = (const ckpt_bias_args *)args;
  ckpt_cuda_start_threads(c, "bias", bias, *a, n * a->n_columns);
}

static __global__ void add(ckpt_add_args a, size_t n) {
  for (size_t i = first_index(); i < n; i += index_step()) ((float *)a.y)[i] += ((const float *)a.x)[i];
}

void ckpt_cuda_start_add(ckpt_cuda *c, const void *args, size_t n) {
  ckpt_cuda_start_threads(c, "add", add, *(const ckpt_add_args *)args, n);
}

static __global__ void dropout(ckpt_dropout_args a, size_t n) {
  for (size_t i = first_index(); i < n; i += index_step()) {
    const size_t token = i / a.n_columns, column = i % a.n_columns;
    float factors[4] = {1, 1, 1, 1};
    if (a.dropout.threshold != 0)
      dropout_factors(&a.dropout, token / a.length, token % a.length, column / 4, a.dropout.site, factors);
    deliver(a.y, i, a.adds, ((const float *)a.x)[i] * factors[column % 4]);
  }
}

void ckpt_cuda_start_dropout(ckpt_cuda *c, const void *args, size_t n) {
  const ckpt_dropout_args *a = (const ckpt_dropout_args *)args;
  ckpt_cuda_start_threads(c, "dropout", dropout, *a, n * a->n_columns);
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

static __global__ void silu_mul(ckpt_activation_args a, size_t n) {
  for (size_t i = first_index(); i < n; i += index_step())
    ((float *)a.out)[i] = silu_mul_of(((const float *)a.a)[i], ((const float *)a.b)[i]);
}

static __global__ void silu_mul_backward(ckpt_activation_args a, size_t n) {
  for (size_t i = first_index(); i < n; i += index_step()) {
    float d_gate, d_up;
    silu_mul_gradients(((const float *)a.a)[i], ((const float *)a.b)[i], ((const float *)a.d_out)[i], &d_gate, &d_up);
    deliver(a.d_a, i, a.adds_a, d_gate);
    deliver(a.d_b, i, a.adds_b, d_up);
  }
}

static __global__ void gelu(ckpt_activation_args a, size_t n) {
  for (size_t i = first_index(); i < n; i += index_step()) ((float *)a.out)[i] = gelu_of(((const float *)a.a)[i]);
}

static __global__ void gelu_backward(ckpt_activation_args a, size_t n) {
  for (size_t i = first_index(); i < n; i += index_step())
    deliver(a.d_a, i, a.adds_a, gelu_gradient(((const float *)a.a)[i], ((const float *)a.d_out)[i]));
}

static __global__ void gelu_exact(ckpt_activation_args a, size_t n) {
  for (size_t i = first_index(); i < n; i += index_step()) ((float *)a.out)[i] = gelu_exact_of(((const float *)a.a)[i]);
}

static __global__ void gelu_exact_backward(ckpt_activation_args a, size_t n) {
  for (size_t i = first_index(); i < n; i += index_step())
    deliver(a.d_a, i, a.adds_a, gelu_exact_gradient(((const float *)a.a)[i], ((const float *)a.d_out)[i]));
}

#define START_ACTIVATION(id)                                                     \
  void ckpt_cuda_start_##id(ckpt_cuda *c, const void *args, size_t n) {          \
    ckpt_cuda_start_threads(c, #id, id, *(const ckpt_activation_args *)args, n); \
  }
START_ACTIVATION(silu_mul)
START_ACTIVATION(silu_mul_backward)
START_ACTIVATION(gelu)
START_ACTIVATION(gelu_backward)
START_ACTIVATION(gelu_exact)
START_ACTIVATION(gelu_exact_backward)

/* ---- rope -------------------------------------------------------------------------------------------------------- */

static __global__ void rope_table(ckpt_rope_table_args a, size_t n) {
  const size_t half = a.head_width / 2;
  for (size_t i = first_index(); i < n; i += index_step()) {
    const size_t token = i / half, k = i % half;
    const float position = (float)position_of(a.positions, token, a.length), angle = position * a.frequencies[k];
    float *cosines = (float *)a.table + token * a.head_width;
    double sine, cosine;
    real_sine_cosine(angle, &sine, &cosine);
    cosines[k] = (float)cosine;
    cosines[k + half] = (float)sine;
  }
}

void ckpt_cuda_start_rope_table(ckpt_cuda *c, const void *args, size_t n) {
  const ckpt_rope_table_args *a = (const ckpt_rope_table_args *)args;
  ckpt_cuda_start_threads(c, "rope_table", rope_table, *a, n * (a->head_width / 2));
}

static __global__ void rope(ckpt_rope_args a, size_t n) {
  const size_t half = a.head_width / 2;
  const float sign = a.is_inverse ? -1.0F : 1.0F;
  for (size_t i = first_index(); i < n; i += index_step()) {
    const size_t k = i % half, head = i / half, at = head * a.head_width + k;
    const float *cosines = (const float *)a.table + head / a.n_heads * a.head_width;
    float first = ((const float *)a.x)[at], second = ((const float *)a.x)[at + half];
    rotate_pair(&first, &second, cosines[k], sign * cosines[k + half]);
    deliver(a.y, at, a.adds, first);
    deliver(a.y, at + half, a.adds, second);
  }
}

void ckpt_cuda_start_rope(ckpt_cuda *c, const void *args, size_t n) {
  const ckpt_rope_args *a = (const ckpt_rope_args *)args;
  ckpt_cuda_start_threads(c, "rope", rope, *a, n * a->n_heads * (a->head_width / 2));
}

/* ---- AdamW ------------------------------------------------------------------------------------------------------- */

static __global__ void adamw(ckpt_adamw_args a, size_t n) {
  const adamw_step step = adamw_step_of(&a);
  float *w = (float *)a.weights, *m = (float *)a.exp_avg, *v = (float *)a.exp_avg_sq;
  for (size_t i = first_index(); i < n; i += index_step())
    adamw_element(&step, &w[i], &m[i], &v[i], ((const float *)a.gradients)[i]);
}

void ckpt_cuda_start_adamw(ckpt_cuda *c, const void *args, size_t n) {
  ckpt_cuda_start_threads(c, "adamw", adamw, *(const ckpt_adamw_args *)args, n);
}
