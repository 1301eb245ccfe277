/* gemm.c - how much of a model's pass its matrix products alone would take.
 *
 *   gemm gpt2|llama ROWS LENGTH THREADS [PASSES|turns [f32|bf16]]
 *
 * Runs a forward and a training pass of GPT-2 124M, or of a Llama of 100M, with random weights, and then the products
 * of that pass alone: the same shapes, cut the same way, by the same library and threads; attention's products over the
 * causal half are among them, as products of heads. Prints tokens a second and the share, of time and of processor time
 * (which others on the machine disturb less), and the processor time of the products. Best of PASSES (3), after one to
 * warm up. With `turns`, each line of the input is a pass of each kind and its products, whose seconds are a line of
 * the output: forward, its products, its rounding and reading, and the same of forward and backward.
 *
 * Products of bf16 that oneDNN is given as rounded f32 are replayed as those of f32, without the rounding. What a pass
 * has to read besides is then measured by itself: each factor to be rounded once, written to the cache alone, and the
 * logits once, by the loss. No pass has a larger share than its products have of both, which is printed as `at most`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "trainer/model/executor.h"
#include "trainer/model/op.h"

static const char gpt2[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":50257,\"n_positions\":1024,\"n_embd\":768,\"n_layer\":12,\"n_head\":12,"
    "\"resid_pdrop\":0,\"embd_pdrop\":0,\"attn_pdrop\":0}";
static const char llama[] =
    "{\"model_type\":\"llama\",\"vocab_size\":32000,\"hidden_size\":768,\"intermediate_size\":2048,\"num_hidden_"
    "layers\":8,"
    "\"num_attention_heads\":12,\"num_key_value_heads\":12,\"max_position_embeddings\":2048}";

typedef struct moment {
  double time, processor;
} moment;

static double seconds(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static moment now(void) { return (moment){seconds(CLOCK_MONOTONIC), seconds(CLOCK_PROCESS_CPUTIME_ID)}; }

static moment since(moment begin) {
  const moment end = now();
  return (moment){end.time - begin.time, end.processor - begin.processor};
}

static moment least(moment a, moment b) {
  return (moment){a.time < b.time ? a.time : b.time, a.processor < b.processor ? a.processor : b.processor};
}

/* ---- a device that remembers its products ---------------------------------------------------------------------------
 */

enum { MAX_CALLS = 4096 };

static ckpt_gemm calls[MAX_CALLS];
static size_t n_calls;
static const ckpt_device_table *real_table;
static bool was_bf16[MAX_CALLS]; /* and oneDNN is given rounded f32 */
static bool has_bf16;            /* oneDNN is given bf16 */

static ckpt_status remember(ckpt_device *device, const ckpt_gemm *gemm, ckpt_error *err) {
  if (n_calls < MAX_CALLS) {
    was_bf16[n_calls] = gemm->is_bf16 && !has_bf16;
    calls[n_calls] = *gemm, calls[n_calls++].is_bf16 = gemm->is_bf16 && has_bf16;
  }
  return real_table->gemm(device, gemm, err);
}

/* Attention's products as those of its heads: scores and weighing forward, five backward, over the causal half. */
typedef struct heads {
  const float *memory;
  float *out;
  size_t length, width, n;
} heads;

static const ckpt_tape_kernels *kernels;

static void multiply_heads(const void *arg, size_t begin, size_t end) {
  const heads *h = arg;
  for (size_t i = begin; i < end; i++) {
    ckpt_gemm g = {.is_b_transposed = true, .m = h->length, .n = h->length / 2, .k = h->width, .alpha = 1};
    g.a = h->memory, g.lda = h->width, g.b = h->memory, g.ldb = h->width;
    g.c = h->out + (i % 2) * h->length * h->length, g.ldc = h->length;
    for (size_t j = 0; j < h->n; j++) (void)kernels->gemm(&g, NULL);
  }
}

static void replay(ckpt_device *device, const ckpt_model *model, const ckpt_token_batch *batch, bool is_training) {
  for (size_t i = 0; i < n_calls; i++) (void)real_table->gemm(device, &calls[i], NULL);
  for (uint32_t i = 0; i < model->tape.n_entries; i++) {
    const ckpt_tape_entry *entry = &model->tape.entries[i];
    if (entry->op != CKPT_OP_attention) continue;
    const size_t length = batch->length;
    static float *out, *memory;
    if (out == NULL) out = calloc(2 * length * length + 1, sizeof *out), memory = calloc(length * 512 + 1, sizeof *out);
    heads h = {.memory = memory, .out = out, .length = length, .width = entry->attributes.head_width};
    h.n = is_training ? 7 : 2;
    real_table->run_host(device, multiply_heads, &h, batch->n_rows * entry->attributes.n_heads, 1);
  }
}

/* ---- rounding, and reading, at least --------------------------------------------------------------------------------
 */

/* A factor of a product, or logits: rows of f32. */
typedef struct factor {
  const float *at;
  size_t n_rows, n_columns, stride;
} factor;

static factor factors[3 * MAX_CALLS];
static size_t n_factors;

static bool is_parameter(const ckpt_model *model, const float *parameters, const void *at) {
  return (const float *)at >= parameters && (const float *)at < parameters + model->n_flat;
}

/* Appends a factor, unless it is a weight that is there: that could be kept until it is needed again. */
static void add_factor(bool is_weight, const void *at, size_t stride, size_t n_rows, size_t n_columns) {
  for (size_t i = 0; is_weight && i < n_factors; i++)
    if (factors[i].at == at) return;
  factors[n_factors++] = (factor){at, n_rows, n_columns, stride};
}

/* What the products that were remembered read and found not rounded, and their logits. */
static void find_factors(const ckpt_model *model, const float *parameters) {
  n_factors = 0;
  for (size_t i = 0; i < n_calls; i++) {
    const ckpt_gemm *g = &calls[i];
    const bool is_new = i == 0 || g->a != calls[i - 1].a; /* query, key and value read one */
    if (g->n == model->vocabulary && !g->is_a_transposed) add_factor(false, g->c, g->ldc, g->m, g->n);
    if (!was_bf16[i]) continue;
    if (is_new && !g->is_a_rounded)
      add_factor(is_parameter(model, parameters, g->a), g->a, g->lda, g->is_a_transposed ? g->k : g->m,
                 g->is_a_transposed ? g->m : g->k);
    if (!g->is_b_rounded)
      add_factor(is_parameter(model, parameters, g->b), g->b, g->ldb, g->is_b_transposed ? g->n : g->k,
                 g->is_b_transposed ? g->k : g->n);
  }
}

static void round_rows(const void *arg, size_t begin, size_t end) {
  const factor *f = arg;
  float rounded[1024];
  for (size_t r = begin; r < end; r++)
    for (size_t i = 0; i < f->n_columns; i += 1024)
      kernels->round(rounded, f->at + r * f->stride + i, f->n_columns - i < 1024 ? f->n_columns - i : 1024);
}

static void round_once(ckpt_device *device) {
  for (size_t i = 0; i < n_factors; i++) real_table->run_host(device, round_rows, &factors[i], factors[i].n_rows, 32);
}

/* ---- the passes -----------------------------------------------------------------------------------------------------
 */

/* What a kind of pass, its products alone, and its rounding with its reading took at least, and last. */
typedef struct pass_kind {
  const char *name;
  bool is_training;
  moment pass, alone, rounding, last_pass, last_alone, last_rounding;
} pass_kind;

/* Measures a pass, its products and its rounding; false if it fails. */
static bool measure(pass_kind *kind, ckpt_executor *x, ckpt_device *device, const ckpt_model *model,
                    const ckpt_token_batch *batch) {
  const float *parameters = ckpt_executor_parameters(x);
  ckpt_forward_result result;
  n_calls = 0;
  moment begin = now();
  const ckpt_status status = kind->is_training ? ckpt_executor_train(x, batch, 1, &result, NULL)
                                               : ckpt_executor_forward(x, batch, &result, NULL);
  kind->last_pass = since(begin);
  begin = now();
  replay(device, model, batch, kind->is_training);
  kind->last_alone = since(begin);
  find_factors(model, parameters);
  begin = now();
  round_once(device);
  kind->last_rounding = since(begin);
  kind->rounding = least(kind->rounding, kind->last_rounding);
  kind->pass = least(kind->pass, kind->last_pass), kind->alone = least(kind->alone, kind->last_alone);
  return status == CKPT_OK;
}

static void print_last(const pass_kind *kind) {
  printf("%.6f %.6f %.6f ", kind->last_pass.time, kind->last_alone.time, kind->last_rounding.time);
}

static void print_least(const pass_kind *kind, double n_tokens) {
  printf("%-20s %8.1f tokens/s, products alone %8.1f, share %.3f (%.3f), at most %.3f, %.3f s of processors\n",
         kind->name, n_tokens / kind->pass.time, n_tokens / kind->alone.time, kind->alone.time / kind->pass.time,
         kind->alone.processor / kind->pass.processor, kind->alone.time / (kind->alone.time + kind->rounding.time),
         kind->alone.processor);
}

int main(int argc, char **argv) {
  if (argc < 5) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  const char *config = strcmp(argv[1], "gpt2") == 0 ? gpt2 : llama;
  const uint32_t rows = (uint32_t)strtoul(argv[2], NULL, 10), length = (uint32_t)strtoul(argv[3], NULL, 10);
  const bool is_in_turns = argc > 5 && strcmp(argv[5], "turns") == 0;
  const long n_passes = argc > 5 ? strtol(argv[5], NULL, 10) : 3;
  const ckpt_model_options model_options = {
      .struct_size = sizeof model_options, .needs_backward = true, .is_bf16 = argc > 6 && strcmp(argv[6], "bf16") == 0};
  ckpt_model *model;
  ckpt_device *device;
  ckpt_executor *x;
  if (ckpt_model_new(&model, config, strlen(config), NULL, &model_options, NULL) != CKPT_OK) return 1;
  if (ckpt_device_cpu_new(&device, (uint32_t)strtoul(argv[4], NULL, 10), NULL, NULL) != CKPT_OK) return 1;
  ckpt_device_table table = *device->table;
  real_table = device->table;
  table.gemm = remember;
  device->table = &table;
  kernels = device->kernels;
  has_bf16 = kernels->round == NULL;
  const ckpt_executor_options options = {
      .struct_size = sizeof options, .max_rows = rows, .max_length = length, .device = device, .has_backward = true};
  if (ckpt_executor_new(&x, model, &options, NULL) != CKPT_OK) return 1;
  float *parameters = ckpt_executor_parameters(x);
  uint32_t state = 1;
  for (uint64_t i = 0; i < model->n_flat; i++) {
    state = state * 1664525U + 1013904223U;
    parameters[i] = ((float)(state >> 8) / 8388608.0F - 1) * 0.03F;
  }
  int32_t *ids = calloc((size_t)rows * length + 1, sizeof *ids);
  for (size_t i = 0; i < (size_t)rows * length; i++) ids[i] = (int32_t)(i * 7919 % 30000);
  const ckpt_token_batch batch = {.n_rows = rows, .length = length, .ids = ids, .targets = ids};
  if (!is_in_turns)
    printf("%s B%uxT%u, %s threads, %s, %s\n", argv[1], rows, length, argv[4], kernels->name,
           model_options.is_bf16 ? "bf16" : "f32");
  pass_kind kinds[] = {{.name = "forward"}, {.name = "forward and backward", .is_training = true}};
  const size_t n_kinds = sizeof kinds / sizeof *kinds;
  for (long i = 0; is_in_turns ? getchar() == '\n' : i <= n_passes; i++) {
    for (size_t k = 0; k < n_kinds; k++) {
      if (i <= 1)
        kinds[k].pass = kinds[k].alone = kinds[k].rounding = (moment){1e30, 1e30}; /* the first pass warms up */
      if (!measure(&kinds[k], x, device, model, &batch)) return 1;
      if (is_in_turns) print_last(&kinds[k]);
    }
    if (is_in_turns) puts("");
  }
  for (size_t k = 0; k < n_kinds; k++) print_least(&kinds[k], (double)rows * length);
  device->table = real_table;
  ckpt_executor_free(x);
  ckpt_device_free(device);
  ckpt_model_free(model);
  free(ids);
  return 0;
}
