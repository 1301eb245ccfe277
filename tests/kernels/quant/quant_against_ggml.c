/* quant_against_ggml.c - our quantizers beside ggml's own C, type by type and input by input.
 *
 * Built by quant_against_ggml.sh together with ggml-quants.c. Prints `type importance sha256 sha256`, the golden lines
 * of tests/data/quant.tsv: hashes of all blocks and of all values read from them; differences go to stderr and make it
 * fail. With --values the scales' bytes are random, for what no quantizer would write. */
#include <openssl/sha.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "ggml-quants.h"
#include "kernels/ref/quant/quant.h"
#include "libckpt/base/dtype.h"
#include "tests/kernels/quant/quant_inputs.h"

/* What ggml-quants.c needs of the rest of ggml. */
size_t ggml_row_size(enum ggml_type type, int64_t n) {
  const ckpt_dtype_row *row = ckpt_dtype_get(ckpt_dtype_of_ggml(type));
  return (size_t)n / row->block_elements * row->block_bytes;
}

void ggml_abort(const char *file, int line, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "%s:%d: ", file, line);
  vfprintf(stderr, format, args);
  va_end(args);
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
    TYPE(Q1_0, q1_0),     TYPE(Q2_0, q2_0),   TYPE(Q4_0, q4_0),       TYPE(Q4_1, q4_1),   TYPE(Q5_0, q5_0),
    TYPE(Q5_1, q5_1),     TYPE(Q8_0, q8_0),   TYPE(Q2_K, q2_K),       TYPE(Q3_K, q3_K),   TYPE(Q4_K, q4_K),
    TYPE(Q5_K, q5_K),     TYPE(Q6_K, q6_K),   TYPE(IQ1_S, iq1_s),     TYPE(IQ1_M, iq1_m), TYPE(IQ2_XXS, iq2_xxs),
    TYPE(IQ2_XS, iq2_xs), TYPE(IQ2_S, iq2_s), TYPE(IQ3_XXS, iq3_xxs), TYPE(IQ3_S, iq3_s), TYPE(IQ4_NL, iq4_nl),
    TYPE(IQ4_XS, iq4_xs), TYPE(TQ1_0, tq1_0), TYPE(TQ2_0, tq2_0),     TYPE(MXFP4, mxfp4), TYPE(NVFP4, nvfp4),
};
enum { N_TYPES = sizeof types / sizeof *types };

static void print_hash(SHA256_CTX *hash) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256_Final(digest, hash);
  putchar('\t');
  for (size_t i = 0; i < sizeof digest; i++) printf("%02x", digest[i]);
}

static float x[QUANT_VALUES], importance[QUANT_ROW], y[QUANT_VALUES], z[QUANT_VALUES];
static uint8_t theirs[QUANT_VALUES * 2], ours[QUANT_VALUES * 2];

/* Compares and adds to the hashes; 1 where something differs. */
static int try_input(size_t type, int kind, bool has_importance, const char *name, SHA256_CTX *blocks,
                     SHA256_CTX *values) {
  const ckpt_quant *quant = ckpt_quant_get(types[type].dtype);
  size_t n_row = ggml_row_size((enum ggml_type)ckpt_dtype_get(types[type].dtype)->ggml, QUANT_ROW);
  size_t n_bytes = n_row * QUANT_ROWS, at = 0;
  const float *weights = has_importance ? importance : NULL;
  quant_fill(kind, x);
  memset(theirs, 0xee, sizeof theirs);
  memset(ours, 0xdd, sizeof ours);
  types[type].quantize(x, theirs, QUANT_ROWS, QUANT_ROW, weights);
  types[type].dequantize(theirs, y, QUANT_VALUES);
  for (size_t row = 0; row < QUANT_ROWS; row++)
    quant->quantize(ours + row * n_row, x + row * QUANT_ROW, QUANT_ROW, weights);
  quant->dequantize(z, theirs, QUANT_VALUES);
  SHA256_Update(blocks, ours, n_bytes);
  SHA256_Update(values, z, sizeof z);
  while (at < n_bytes && theirs[at] == ours[at]) at++;
  if (at < n_bytes)
    fprintf(stderr, "%s, %s, importance %s: byte %zu: theirs %02x, ours %02x\n", ckpt_dtype_name(types[type].dtype),
            quant_inputs[kind], name, at, theirs[at], ours[at]);
  if (memcmp(y, z, sizeof y) == 0) return at < n_bytes;
  for (at = 0; memcmp(y + at, z + at, sizeof *y) == 0;) at++;
  fprintf(stderr, "%s, %s, importance %s: value %zu: theirs %a, ours %a\n", ckpt_dtype_name(types[type].dtype),
          quant_inputs[kind], name, at, (double)y[at], (double)z[at]);
  return 1;
}

/* Values of random blocks: 1 where they differ. NaN may have any bits. */
static int try_random(size_t type) {
  size_t n_bytes = ggml_row_size((enum ggml_type)ckpt_dtype_get(types[type].dtype)->ggml, QUANT_VALUES);
  uint64_t state = 77 + type;
  for (int round = 0; round < 200; round++) {
    for (size_t i = 0; i < n_bytes; i++) theirs[i] = (uint8_t)(quant_bits(&state) >> 32);
    types[type].dequantize(theirs, y, QUANT_VALUES);
    ckpt_quant_get(types[type].dtype)->dequantize(z, theirs, QUANT_VALUES);
    for (size_t i = 0; i < QUANT_VALUES; i++)
      if (memcmp(&y[i], &z[i], sizeof *y) != 0 && !(isnan(y[i]) && isnan(z[i]))) {
        fprintf(stderr, "%s: value %zu of random blocks: theirs %a, ours %a\n", ckpt_dtype_name(types[type].dtype), i,
                (double)y[i], (double)z[i]);
        return 1;
      }
  }
  return 0;
}

int main(void) {
  static const enum ggml_type grids[] = {GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ2_XS, GGML_TYPE_IQ2_S, GGML_TYPE_IQ1_S};
  int n_different = 0, n_tried = 0;
  for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) iq2xs_init_impl(grids[i]);
  iq3xs_init_impl(256);
  iq3xs_init_impl(512);
  for (size_t type = 0; type < N_TYPES; type++) {
    ckpt_dtype dtype = types[type].dtype;
    if (ckpt_quant_get(dtype) == NULL) continue;
    for (int k = 0; k < QUANT_N_IMPORTANCES; k++) {
      bool has_importance = quant_importance(k, importance);
      if (!has_importance && (dtype == CKPT_IQ2_XXS || dtype == CKPT_IQ2_XS || dtype == CKPT_IQ1_S)) continue;
      SHA256_CTX blocks, values;
      SHA256_Init(&blocks);
      SHA256_Init(&values);
      for (int kind = 0; kind < QUANT_N_INPUTS; kind++, n_tried++)
        n_different += try_input(type, kind, has_importance, quant_importances[k], &blocks, &values);
      printf("%s\t%s", ckpt_dtype_name(dtype), quant_importances[k]);
      print_hash(&blocks);
      print_hash(&values);
      putchar('\n');
    }
    n_different += try_random(type);
  }
  fprintf(stderr, "%d of %d differ\n", n_different, n_tried);
  return n_different != 0;
}
