/* lora.c - see lora.h. Products go through the device's GEMM, which cuts rows and columns by shape: the same bits for
 * any number of threads. */
#include "trainer/lora/lora.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "trainer/optimizer/random.h"

static void fill_uniform(float *out, uint64_t seed, const char *name, uint64_t n, double bound) {
  const uint64_t stream = ckpt_name_key(name);
  uint32_t words[4];
  for (uint64_t i = 0; i < n; i++) {
    if (i % 4 == 0) ckpt_philox(words, seed, i / 4, stream);
    out[i] = (float)(((double)words[i % 4] + 0.5) * 0x1p-31 * bound - bound);
  }
}

/* The norm of one row of a layer's weights: a column where they are stored [in, out]. */
static float row_norm(const ckpt_lora_target *t, const float *w, uint64_t row) {
  const uint64_t step = t->is_transposed ? t->n_out : 1, first = t->is_transposed ? row : row * t->n_in;
  double sum = 0;
  for (uint64_t i = 0; i < t->n_in; i++) sum += (double)w[first + i * step] * (double)w[first + i * step];
  return (float)sqrt(sum);
}

/* The same of W + scale * B A, for which neither is changed. */
static float updated_row_norm(const ckpt_lora *l, const ckpt_lora_target *t, const float *w, const float *flat,
                              uint64_t row) {
  const uint64_t step = t->is_transposed ? t->n_out : 1, first = t->is_transposed ? row : row * t->n_in;
  const float *a = flat + l->table.parameters[t->a].offset, *b = flat + l->table.parameters[t->b].offset;
  double sum = 0;
  for (uint64_t i = 0; i < t->n_in; i++) {
    double product = 0;
    for (uint64_t k = 0; k < t->rank; k++) product += (double)b[row * t->rank + k] * (double)a[k * t->n_in + i];
    const double value = (double)w[first + i * step] + t->scale * product;
    sum += value * value;
  }
  return (float)sqrt(sum);
}

static void scale_row(const ckpt_lora_target *t, float *w, uint64_t row, float by) {
  const uint64_t step = t->is_transposed ? t->n_out : 1, first = t->is_transposed ? row : row * t->n_in;
  for (uint64_t i = 0; i < t->n_in; i++) w[first + i * step] *= by;
}

void ckpt_lora_initialize(const ckpt_lora *l, float *flat, const float *base, uint64_t seed) {
  for (uint32_t i = 0; i < l->n_targets; i++) {
    const ckpt_lora_target *t = &l->targets[i];
    const ckpt_parameter *a = &l->table.parameters[t->a], *b = &l->table.parameters[t->b];
    if (l->is_gaussian)
      ckpt_normal_fill(flat + a->offset, seed, a->name, 0, a->n_elements, 1.0 / (double)t->rank);
    else
      fill_uniform(flat + a->offset, seed, a->name, a->n_elements, 1.0 / sqrt((double)t->n_in));
    if (l->is_zero)
      memset(flat + b->offset, 0, b->n_elements * sizeof *flat);
    else
      fill_uniform(flat + b->offset, seed, b->name, b->n_elements, 1.0 / sqrt((double)t->rank));
    const float *w = base + l->base->parameters[t->base].offset;
    for (uint64_t row = 0; t->magnitude != UINT32_MAX && row < t->n_out; row++) /* it begins as LoRA without DoRA */
      flat[l->table.parameters[t->magnitude].offset + row] =
          l->is_zero ? row_norm(t, w, row) : updated_row_norm(l, t, w, flat, row);
  }
  for (uint32_t i = 0; i < l->n_copies; i++) {
    const ckpt_parameter *from = &l->base->parameters[l->copies[i].base];
    memcpy(flat + l->table.parameters[l->copies[i].own].offset, base + from->offset, from->n_elements * sizeof *flat);
  }
}

/* A name without one of its components, ".base_layer." with both dots; false: it does not have it. */
static bool without(char out[512], const char *name, const char *component) {
  const char *at = strstr(name, component);
  return at != NULL && ckpt_c_snprintf(out, 512, "%.*s.%s", (int)(at - name), name, at + strlen(component)) < 512;
}

/* Returns the parameter of the base that a tensor copies: `base_model.model.MODULE.base_layer.REST`, or with bias "all"
 * `base_model.model.MODULE.original_module.REST`. NULL: it copies none. */
static const ckpt_parameter *copied(const ckpt_lora *l, const char *name) {
  static const char before[] = "base_model.model.";
  char plain[512];
  if (!without(plain, name, ".base_layer.") && !without(plain, name, ".original_module.")) return NULL;
  if (strncmp(plain, before, sizeof before - 1) != 0) return NULL;
  return ckpt_model_find(l->base, plain + sizeof before - 1);
}

/* Whether a tensor is written a second time, as PEFT does with a bias of modules_to_save and bias "all". */
static bool is_again(const ckpt_lora *l, const char *name) {
  char plain[512];
  return without(plain, name, ".modules_to_save.") && ckpt_model_find(&l->table, plain) != NULL;
}

static ckpt_status check_copy(bool *is_equal, const ckpt_index *index, const ckpt_tensor *tensor,
                              const ckpt_parameter *p, const float *base, ckpt_error *err) {
  *is_equal = false;
  if (tensor->n_elements != p->n_elements) return CKPT_OK;
  float *values = reallocarray(NULL, (size_t)p->n_elements + 1, sizeof *values);
  CKPT_TRY_ALLOC(values, err);
  const size_t n_bytes = (size_t)p->n_elements * sizeof *values;
  const ckpt_status status = ckpt_read(index, tensor, NULL, CKPT_F32, values, n_bytes, err);
  *is_equal = status == CKPT_OK && memcmp(values, base + p->offset, n_bytes) == 0;
  free(values);
  return status;
}

static ckpt_status check_others(const ckpt_lora *l, const ckpt_index *index, const float *base, ckpt_error *err) {
  for (size_t i = 0; i < ckpt_index_count(index); i++) {
    const ckpt_tensor *tensor = ckpt_index_at(index, i);
    if (ckpt_model_find(&l->table, tensor->name) != NULL || is_again(l, tensor->name)) continue;
    const ckpt_parameter *of = copied(l, tensor->name);
    bool is_equal;
    if (of == NULL)
      return ckpt_fail(err, CKPT_EFORMAT, l->folder, tensor->name, "is no part of what its adapter_config.json trains");
    CKPT_TRY(check_copy(&is_equal, index, tensor, of, base, err));
    if (!is_equal)
      return ckpt_fail(err, CKPT_EFORMAT, l->folder, tensor->name, "is not the %s of the model that is trained",
                       of->name);
  }
  return CKPT_OK;
}

ckpt_status ckpt_lora_load(const ckpt_lora *l, float *flat, const float *base, ckpt_error *err) {
  ckpt_index *index = NULL;
  CKPT_TRY(ckpt_open(&index, l->folder, NULL, err));
  ckpt_status status = check_others(l, index, base, err);
  if (status == CKPT_OK) status = ckpt_model_load(flat, &l->table, index, NULL, NULL, err);
  ckpt_index_free(index);
  return status;
}

/* W + scale * B A, in place of W. */
static ckpt_status add_product(const ckpt_lora *l, const ckpt_lora_target *t, ckpt_device *device, float *w,
                               const float *flat, ckpt_error *err) {
  const float *a = flat + l->table.parameters[t->a].offset, *b = flat + l->table.parameters[t->b].offset;
  ckpt_gemm gemm = {.m = t->n_out, .n = t->n_in, .k = t->rank, .a = b, .lda = t->rank, .b = a, .ldb = t->n_in};
  if (t->is_transposed)
    gemm = (ckpt_gemm){.m = t->n_in,
                       .n = t->n_out,
                       .k = t->rank,
                       .a = a,
                       .lda = t->n_in,
                       .is_a_transposed = true,
                       .b = b,
                       .ldb = t->rank,
                       .is_b_transposed = true};
  gemm.c = w;
  gemm.ldc = gemm.n;
  gemm.alpha = t->scale;
  gemm.beta = 1;
  return device->table->gemm(device, &gemm, err);
}

ckpt_status ckpt_lora_merge(const ckpt_lora *l, ckpt_device *device, float *merged, float *norms, const float *base,
                            const float *flat, ckpt_error *err) {
  for (uint32_t i = 0; i < l->n_targets; i++) {
    const ckpt_lora_target *t = &l->targets[i];
    const ckpt_parameter *w = &l->base->parameters[t->base];
    if (!t->is_merged) continue;
    memcpy(merged + w->offset, base + w->offset, w->n_elements * sizeof *merged);
    CKPT_TRY(add_product(l, t, device, merged + w->offset, flat, err));
    for (uint64_t row = 0; t->magnitude != UINT32_MAX && row < t->n_out; row++) {
      const float norm = norms[t->norms + row] = row_norm(t, merged + w->offset, row);
      scale_row(t, merged + w->offset, row, flat[l->table.parameters[t->magnitude].offset + row] / norm);
    }
  }
  return CKPT_OK;
}

/* Of a row W' = m / c * V: dm = dW' V / c, and dW' becomes dV = m / c * dW'. */
static void project_magnitude(const ckpt_lora *l, const ckpt_lora_target *t, float *gradients, float *of_w,
                              const float *w, const float *norms, const float *flat) {
  const uint64_t offset = l->table.parameters[t->magnitude].offset;
  for (uint64_t row = 0; row < t->n_out; row++) {
    const uint64_t step = t->is_transposed ? t->n_out : 1, first = t->is_transposed ? row : row * t->n_in;
    const float magnitude = flat[offset + row];
    double sum = 0;
    for (uint64_t i = 0; i < t->n_in; i++) sum += (double)of_w[first + i * step] * (double)w[first + i * step];
    if (magnitude != 0) gradients[offset + row] += (float)(sum / (double)magnitude);
    scale_row(t, of_w, row, magnitude / norms[t->norms + row]);
  }
}

/* dA += scale * B^T dW, dB += scale * dW A^T. */
static ckpt_status project_one(const ckpt_lora *l, const ckpt_lora_target *t, ckpt_device *device, float *gradients,
                               const float *of_w, const float *flat, ckpt_error *err) {
  const ckpt_parameter *a = &l->table.parameters[t->a], *b = &l->table.parameters[t->b];
  const size_t width = t->is_transposed ? t->n_out : t->n_in;
  const ckpt_gemm to_a = {.m = t->rank,
                          .n = t->n_in,
                          .k = t->n_out,
                          .a = flat + b->offset,
                          .lda = t->rank,
                          .is_a_transposed = true,
                          .b = of_w,
                          .ldb = width,
                          .is_b_transposed = t->is_transposed,
                          .c = gradients + a->offset,
                          .ldc = t->n_in,
                          .alpha = t->scale,
                          .beta = 1};
  const ckpt_gemm to_b = {.m = t->n_out,
                          .n = t->rank,
                          .k = t->n_in,
                          .a = of_w,
                          .lda = width,
                          .is_a_transposed = t->is_transposed,
                          .b = flat + a->offset,
                          .ldb = t->n_in,
                          .is_b_transposed = true,
                          .c = gradients + b->offset,
                          .ldc = t->rank,
                          .alpha = t->scale,
                          .beta = 1};
  CKPT_TRY(device->table->gemm(device, &to_a, err));
  return device->table->gemm(device, &to_b, err);
}

ckpt_status ckpt_lora_project(const ckpt_lora *l, ckpt_device *device, float *gradients, float *of_merged,
                              const float *merged, const float *norms, const float *flat, ckpt_error *err) {
  for (uint32_t i = 0; i < l->n_targets; i++) {
    const ckpt_lora_target *t = &l->targets[i];
    const uint64_t offset = l->base->parameters[t->base].offset;
    if (!t->is_merged) continue;
    if (t->magnitude != UINT32_MAX)
      project_magnitude(l, t, gradients, of_merged + offset, merged + offset, norms, flat);
    CKPT_TRY(project_one(l, t, device, gradients, of_merged + offset, flat, err));
  }
  return CKPT_OK;
}
