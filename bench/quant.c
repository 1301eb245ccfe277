/* quant.c - weights per second of the quantizers on one core: ggml's own C, our reference, and each level.
 *
 * Built by bench/quant.sh together with ggml-quants.c. Each round measures all of them in turn; the ratios of a round
 * do not suffer from what else the machine does, and their median is printed. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ggml-quants.h"
#include "kernels/cpu/quant/quant.h"
#include "libckpt/base/dtype.h"
#include "tests/kernels/quant/quant_inputs.h"

size_t ggml_row_size(enum ggml_type type, int64_t n) {
  const ckpt_dtype_row *row = ckpt_dtype_get(ckpt_dtype_of_ggml(type));
  return (size_t)n / row->block_elements * row->block_bytes;
}

void ggml_abort(const char *file, int line, const char *format, ...) {
  fprintf(stderr, "%s:%d: %s\n", file, line, format);
  abort();
}

const char *ggml_type_name(enum ggml_type type) { return ckpt_dtype_name(ckpt_dtype_of_ggml(type)); }
size_t ggml_type_size(enum ggml_type type) { return ggml_row_size(type, 256); }

typedef size_t quantize_rows(const float *, void *, int64_t, int64_t, const float *);
typedef void dequantize_row(const void *, float *, int64_t);

#define TYPE(id, name) \
  { CKPT_##id, quantize_##name, (dequantize_row *)dequantize_row_##name }

static const struct {
  ckpt_dtype dtype;
  quantize_rows *quantize;
  dequantize_row *dequantize;
} types[] = {
    TYPE(Q4_0, q4_0),       TYPE(Q4_1, q4_1),   TYPE(Q5_0, q5_0),       TYPE(Q5_1, q5_1),     TYPE(Q8_0, q8_0),
    TYPE(Q2_K, q2_K),       TYPE(Q3_K, q3_K),   TYPE(Q4_K, q4_K),       TYPE(Q5_K, q5_K),     TYPE(Q6_K, q6_K),
    TYPE(IQ1_S, iq1_s),     TYPE(IQ1_M, iq1_m), TYPE(IQ2_XXS, iq2_xxs), TYPE(IQ2_XS, iq2_xs), TYPE(IQ2_S, iq2_s),
    TYPE(IQ3_XXS, iq3_xxs), TYPE(IQ3_S, iq3_s), TYPE(IQ4_NL, iq4_nl),   TYPE(IQ4_XS, iq4_xs), TYPE(TQ1_0, tq1_0),
    TYPE(TQ2_0, tq2_0),     TYPE(MXFP4, mxfp4), TYPE(NVFP4, nvfp4),     TYPE(Q1_0, q1_0),     TYPE(Q2_0, q2_0)};

enum { N_PER_ROW = 4096, MAX_ROWS = 64, MAX_VALUES = N_PER_ROW * MAX_ROWS, MAX_WHO = 4, N_ROUNDS = 7 };
static float x[MAX_VALUES], y[MAX_VALUES], importance[N_PER_ROW];
static uint8_t blocks[MAX_VALUES * 2];

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* who: 0 is ggml, others our levels. */
static void work(size_t type, size_t who, bool quantizes, size_t n_rows, const float *weights) {
  ckpt_dtype dtype = types[type].dtype;
  if (who == 0 && quantizes)
    types[type].quantize(x, blocks, (int64_t)n_rows, N_PER_ROW, weights);
  else if (who == 0)
    types[type].dequantize(blocks, y, (int64_t)n_rows * N_PER_ROW);
  else if (quantizes)
    ckpt_quant_at(ckpt_quant_level_at(who - 1), dtype, blocks, x, n_rows, N_PER_ROW, weights);
  else
    ckpt_dequant_at(ckpt_quant_level_at(who - 1), dtype, y, blocks, n_rows * N_PER_ROW);
}

static int by_value(const void *a, const void *b) {
  double difference = *(const double *)a - *(const double *)b;
  return (difference > 0) - (difference < 0);
}

static void measure(size_t type, bool quantizes, const float *weights) {
  double rates[MAX_WHO][N_ROUNDS], ratios[MAX_WHO][N_ROUNDS];
  size_t n_who = 1, n_rows = 1, n_times = 1;
  while (n_who < MAX_WHO && ckpt_quant_level_at(n_who - 1) != NULL) n_who++;
  work(type, 0, true, MAX_ROWS, importance); /* blocks to read */
  for (double begin = seconds(), took = 0; took < 0.02; took = seconds() - begin) {
    work(type, 0, quantizes, n_rows, weights);
    if (n_rows < MAX_ROWS)
      n_rows *= 2;
    else
      n_times++;
  }
  for (size_t round = 0; round < N_ROUNDS; round++)
    for (size_t who = 0; who < n_who; who++) {
      double begin = seconds();
      for (size_t i = 0; i < n_times; i++) work(type, who, quantizes, n_rows, weights);
      rates[who][round] = (double)(n_rows * n_times * N_PER_ROW) / (seconds() - begin) * 1e-6;
      ratios[who][round] = rates[who][round] / rates[0][round];
    }
  printf("| %s | %s |", ckpt_dtype_name(types[type].dtype),
         !quantizes ? "dequantize"
         : weights  ? "imatrix"
                    : "quantize");
  for (size_t who = 0; who < n_who; who++) {
    qsort(rates[who], N_ROUNDS, sizeof(double), by_value);
    qsort(ratios[who], N_ROUNDS, sizeof(double), by_value);
    printf(" %.1f |", rates[who][N_ROUNDS / 2]);
    if (who > 0) printf(" %.1f |", ratios[who][N_ROUNDS / 2]);
  }
  printf(" %.1f |\n", rates[n_who - 1][N_ROUNDS / 2] * 4e-3);
  fflush(stdout);
}

static bool is_asked(ckpt_dtype dtype, int n, char **names) {
  for (int i = 0; i < n; i++)
    if (ckpt_dtype_parse(names[i]) == dtype) return true;
  return n == 0;
}

int main(int argc, char **argv) {
  static const enum ggml_type grids[] = {GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ2_XS, GGML_TYPE_IQ2_S, GGML_TYPE_IQ1_S};
  uint64_t state = 1;
  bool has_grids = false; /* ggml's take ten seconds to make */
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    has_grids |= is_asked(types[i].dtype, argc - 1, argv + 1) && ckpt_dtype_name(types[i].dtype)[0] == 'I';
  for (size_t i = 0; has_grids && i < sizeof grids / sizeof *grids; i++) iq2xs_init_impl(grids[i]);
  if (has_grids) iq3xs_init_impl(256), iq3xs_init_impl(512);
  for (size_t i = 0; i < MAX_VALUES; i++)
    x[i] = quant_keep_bits(quant_gauss(&state) * (quant_bits(&state) % 500 == 0 ? 0.24f : 0.02f), 0xffff0000u);
  for (size_t i = 0; i < N_PER_ROW; i++) importance[i] = quant_unit(&state) + 0.01f;
  for (size_t type = 0; type < sizeof types / sizeof *types; type++) {
    ckpt_dtype dtype = types[type].dtype;
    if (!is_asked(dtype, argc - 1, argv + 1)) continue;
    if (ckpt_can_quantize(dtype, false)) measure(type, true, NULL);
    measure(type, true, importance);
    measure(type, false, NULL);
  }
  return 0;
}
