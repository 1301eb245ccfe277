/* gpu.c - rates of each operation on a device.
 *
 *   gpu [cpu|cuda]
 *
 * Prints, for each kernel, milliseconds and the rate of what it has to move at least, or of its operations. On CUDA
 * (the default) exit 77 says why there is no device to measure. Best of 5, after one run to warm up. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "trainer/model/device.h"

enum { TOKENS = 4096, WIDTH = 4096, VOCABULARY = 32000, HEADS = 32, HEAD_WIDTH = 128, LENGTH = 1024, RUNS = 5 };

static ckpt_device *device;

static float *memory(size_t n) {
  float *at = device->table->allocate(device, n * sizeof(float));
  if (at == NULL) {
    printf("no memory for %zu numbers\n", n);
    exit(1);
  }
  return at;
}

static void release(float *at, size_t n) { device->table->release(device, at, n * sizeof(float)); }

typedef struct work {
  const char *name;
  ckpt_tape_kernel_id kernel;
  const void *args;
  size_t n, grain;
  const ckpt_gemm *gemm;
  ckpt_dtype dtype; /* of blocks */
  float *from, *to;
  double bytes, operations;
} work;

static void run_once(const work *w) {
  if (w->gemm != NULL)
    (void)device->table->gemm(device, w->gemm, NULL);
  else if (w->from != NULL)
    (void)device->table->dequantize(device, w->dtype, w->to, w->from, w->n);
  else
    device->table->launch(device, w->kernel, w->args, w->n, w->grain);
}

static void measure(const work *w) {
  const ckpt_device_table *t = device->table;
  ckpt_device_event *from = t->event_new(device), *to = t->event_new(device);
  ckpt_error err = {0};
  double best = 1e30;
  for (int i = 0; i <= RUNS; i++) {
    t->event_record(device, from);
    run_once(w);
    t->event_record(device, to);
    if (t->synchronize(device, &err) != CKPT_OK) {
      printf("%-20s %s\n", w->name, err.message);
      exit(1);
    }
    const double seconds = t->event_seconds(device, from, to);
    if (i > 0 && seconds < best) best = seconds;
  }
  t->event_free(device, from);
  t->event_free(device, to);
  if (w->operations > 0)
    printf("%-20s %9.3f ms %9.3f TFLOP/s\n", w->name, best * 1e3, w->operations / best / 1e12);
  else
    printf("%-20s %9.3f ms %9.1f GB/s\n", w->name, best * 1e3, w->bytes / best / 1e9);
}

static void measure_elements(void) {
  const size_t n = (size_t)TOKENS * WIDTH;
  float *a = memory(n), *b = memory(n), *c = memory(n), *d = memory(n);
  const ckpt_add_args add = {a, b};
  const ckpt_activation_args silu = {.a = a, .b = b, .out = c, .d_out = c, .d_a = d, .d_b = b};
  const ckpt_adamw_args adamw = {a, b, c, d, 1, 0.1, 0.001, 0.999, 1e-3, 1, 1e-8, 1};
  const double each = (double)n * sizeof(float);
  const work all[] = {
      {.name = "add", .kernel = CKPT_KERNEL_add, .args = &add, .n = n, .grain = 16384, .bytes = 3 * each},
      {.name = "silu_mul", .kernel = CKPT_KERNEL_silu_mul, .args = &silu, .n = n, .grain = 16384, .bytes = 3 * each},
      {.name = "silu_mul_backward",
       .kernel = CKPT_KERNEL_silu_mul_backward,
       .args = &silu,
       .n = n,
       .grain = 16384,
       .bytes = 5 * each},
      {.name = "gelu", .kernel = CKPT_KERNEL_gelu, .args = &silu, .n = n, .grain = 16384, .bytes = 2 * each},
      {.name = "adamw", .kernel = CKPT_KERNEL_adamw, .args = &adamw, .n = n, .grain = 16384, .bytes = 7 * each}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) measure(&all[i]);
  release(a, n), release(b, n), release(c, n), release(d, n);
}

static void measure_rows(void) {
  const size_t n = (size_t)TOKENS * WIDTH, n_logits = (size_t)256 * VOCABULARY;
  float *x = memory(n), *y = memory(n), *weight = memory(WIDTH), *inverse = memory(TOKENS), *mean = memory(TOKENS);
  float *logits = memory(n_logits), *p = memory(TOKENS);
  const int32_t *targets = (const int32_t *)(const void *)mean;
  const ckpt_norm_args norm = {.x = x,
                               .weight = weight,
                               .bias = weight,
                               .y = y,
                               .mean = mean,
                               .inverse = inverse,
                               .n_columns = WIDTH,
                               .epsilon = 1e-5};
  const ckpt_loss_args loss = {logits, p, targets, VOCABULARY, 1, true, 0};
  const double each = (double)n * sizeof(float);
  const work all[] = {
      {.name = "rmsnorm", .kernel = CKPT_KERNEL_rmsnorm, .args = &norm, .n = TOKENS, .grain = 4, .bytes = 2 * each},
      {.name = "loss",
       .kernel = CKPT_KERNEL_loss,
       .args = &loss,
       .n = 256,
       .grain = 1,
       .bytes = 2.0 * (double)n_logits * sizeof(float)},
      {.name = "layernorm",
       .kernel = CKPT_KERNEL_layernorm,
       .args = &norm,
       .n = TOKENS,
       .grain = 4,
       .bytes = 2 * each}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) measure(&all[i]);
  release(x, n), release(y, n), release(weight, WIDTH), release(inverse, TOKENS), release(mean, TOKENS);
  release(logits, n_logits), release(p, TOKENS);
}

static void measure_products(void) {
  const size_t n = (size_t)WIDTH * WIDTH, n_values = (size_t)LENGTH * HEADS * HEAD_WIDTH;
  float *a = memory(n), *b = memory(n), *c = memory(n), *log_sum = memory((size_t)LENGTH * HEADS);
  float *deltas = memory((size_t)LENGTH * HEADS);
  const ckpt_gemm gemm = {.is_b_transposed = true,
                          .m = TOKENS,
                          .n = WIDTH,
                          .k = WIDTH,
                          .a = a,
                          .lda = WIDTH,
                          .b = b,
                          .ldb = WIDTH,
                          .c = c,
                          .ldc = WIDTH,
                          .alpha = 1};
  const ckpt_attention_args attention = {.q = a,
                                         .k = a + n_values,
                                         .v = b,
                                         .o = c,
                                         .log_sum = log_sum,
                                         .d_o = b,
                                         .d_q = b + n_values,
                                         .d_k = c + n_values,
                                         .d_v = b,
                                         .deltas = deltas,
                                         .q_stride = HEADS * HEAD_WIDTH,
                                         .k_stride = HEADS * HEAD_WIDTH,
                                         .v_stride = HEADS * HEAD_WIDTH,
                                         .o_stride = HEADS * HEAD_WIDTH,
                                         .n_rows = 1,
                                         .length = LENGTH,
                                         .n_heads = HEADS,
                                         .n_kv_heads = HEADS,
                                         .head_width = HEAD_WIDTH,
                                         .scale = 0.1};
  const double pairs = (double)LENGTH * LENGTH / 2 * HEADS * HEAD_WIDTH;
  const ckpt_dtype_row *row = ckpt_dtype_get(CKPT_Q4_K);
  const work all[] = {{.name = "gemm f32", .gemm = &gemm, .operations = 2.0 * TOKENS * WIDTH * WIDTH},
                      {.name = "attention",
                       .kernel = CKPT_KERNEL_attention,
                       .args = &attention,
                       .grain = 1,
                       .n = HEADS * (LENGTH / CKPT_ATTENTION_BLOCK),
                       .operations = 4 * pairs},
                      {.name = "attention_backward",
                       .kernel = CKPT_KERNEL_attention_backward,
                       .args = &attention,
                       .n = HEADS,
                       .grain = 1,
                       .operations = 10 * pairs},
                      {.name = "dequantize Q4_K",
                       .dtype = CKPT_Q4_K,
                       .from = a,
                       .to = b,
                       .n = n,
                       .bytes = (double)n * (4 + (double)row->block_bytes / row->block_elements)}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) measure(&all[i]);
  release(a, n), release(b, n), release(c, n), release(log_sum, (size_t)LENGTH * HEADS);
  release(deltas, (size_t)LENGTH * HEADS);
}

int main(int argc, char **argv) {
  ckpt_error err = {0};
  const char *name = argc > 1 ? argv[1] : "cuda";
  if (ckpt_device_choose(&device, name, 0, &err) != CKPT_OK) {
    printf("gpu: SKIPPED, rates of %s: %s\n", name, err.message);
    return 77;
  }
  printf("device %s, %d tokens of %d\n", device->table->name, TOKENS, WIDTH);
  measure_elements();
  measure_rows();
  measure_products();
  ckpt_device_free(device);
  return 0;
}
