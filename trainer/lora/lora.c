/* lora.c - see lora.h. Products go through the device's GEMM, which cuts rows and columns by shape: the same bits for
 * any number of threads. */
#include "trainer/lora/lora.h"

#include <math.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "trainer/optimizer/philox.h"

static void fill_uniform(float *out, uint64_t seed, const char *name, uint64_t n, double bound) {
  const uint64_t stream = ckpt_name_key(name);
  uint32_t words[4];
  for (uint64_t i = 0; i < n; i++) {
    if (i % 4 == 0) ckpt_philox(words, seed, i / 4, stream);
    out[i] = (float)(((double)words[i % 4] + 0.5) * 0x1p-31 * bound - bound);
  }
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
  }
  for (uint32_t i = 0; i < l->n_copies; i++) {
    const ckpt_parameter *from = &l->base->parameters[l->copies[i].base];
    memcpy(flat + l->table.parameters[l->copies[i].own].offset, base + from->offset, from->n_elements * sizeof *flat);
  }
}

ckpt_status ckpt_lora_load(const ckpt_lora *l, float *flat, ckpt_error *err) {
  ckpt_index *index = NULL;
  CKPT_TRY(ckpt_open(&index, l->folder, NULL, err));
  const ckpt_status status = ckpt_model_load(flat, &l->table, index, NULL, NULL, err);
  ckpt_index_free(index);
  return status;
}

static ckpt_status run(ckpt_device *device, const ckpt_gemm *gemm, ckpt_error *err) {
  return device->table->gemm(device, gemm, err);
}

ckpt_status ckpt_lora_merge(const ckpt_lora *l, ckpt_device *device, float *merged, const float *base,
                            const float *flat, ckpt_error *err) {
  for (uint32_t i = 0; i < l->n_targets; i++) {
    const ckpt_lora_target *t = &l->targets[i];
    const ckpt_parameter *w = &l->base->parameters[t->base];
    const float *a = flat + l->table.parameters[t->a].offset, *b = flat + l->table.parameters[t->b].offset;
    memcpy(merged + w->offset, base + w->offset, w->n_elements * sizeof *merged);
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
    gemm.c = merged + w->offset;
    gemm.ldc = gemm.n;
    gemm.alpha = t->scale;
    gemm.beta = 1;
    CKPT_TRY(run(device, &gemm, err));
  }
  for (uint32_t i = 0; i < l->n_copies; i++) {
    const ckpt_parameter *to = &l->base->parameters[l->copies[i].base];
    memcpy(merged + to->offset, flat + l->table.parameters[l->copies[i].own].offset, to->n_elements * sizeof *merged);
  }
  return CKPT_OK;
}

/* dA += scale * B^T dW, dB += scale * dW A^T. */
static ckpt_status project_one(const ckpt_lora *l, const ckpt_lora_target *t, ckpt_device *device, float *gradients,
                               const float *merged, const float *flat, ckpt_error *err) {
  const ckpt_parameter *a = &l->table.parameters[t->a], *b = &l->table.parameters[t->b];
  const float *of_w = merged + l->base->parameters[t->base].offset;
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
  CKPT_TRY(run(device, &to_a, err));
  return run(device, &to_b, err);
}

ckpt_status ckpt_lora_project(const ckpt_lora *l, ckpt_device *device, float *gradients, const float *merged,
                              const float *flat, ckpt_error *err) {
  for (uint32_t i = 0; i < l->n_targets; i++)
    CKPT_TRY(project_one(l, &l->targets[i], device, gradients, merged, flat, err));
  for (uint32_t i = 0; i < l->n_copies; i++) {
    const ckpt_parameter *from = &l->base->parameters[l->copies[i].base];
    float *to = gradients + l->table.parameters[l->copies[i].own].offset;
    for (uint64_t k = 0; k < from->n_elements; k++) to[k] += merged[from->offset + k];
  }
  return CKPT_OK;
}
