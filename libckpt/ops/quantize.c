/* quantize.c - rows of f32 to blocks of a quantized type, by the run's backend.
 *
 * Arguments: the rows, and optionally the importance of their channels (f32, whole): one row of it for each matrix of
 * the tensor, its experts. Only finite values have blocks: others end the run, and so does a scale that overflows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/dtype.h"
#include "libckpt/error.h"
#include "libckpt/op.h"

/* Below this magnitude no scale of any type leaves the range of binary16. */
#define SAFE_MAGNITUDE 0x46000000u /* 8192.0f */

static uint32_t magnitude_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits & 0x7fffffff;
}

static uint32_t greatest(const float *x, uint64_t n) {
  uint32_t greatest = 0;
  for (uint64_t i = 0; i < n; i++) {
    const uint32_t magnitude = magnitude_of(x[i]);
    greatest = magnitude > greatest ? magnitude : greatest;
  }
  return greatest;
}

static ckpt_status refuse_value(const ckpt_op_call *call, const float *x, ckpt_error *err) {
  uint64_t i = 0;
  while (isfinite(x[i])) i++;
  return ckpt_fail(err, CKPT_EVALUE, NULL, NULL, "element %llu is %f, which no block of %s holds",
                   (unsigned long long)(call->begin + i), (double)x[i], ckpt_dtype_name(call->node->dtype));
}

/* Whether what was written reads back as finite values. */
static ckpt_status check_blocks(const ckpt_op_call *call, const ckpt_backend *backend, ckpt_error *err) {
  enum { STEP = 256 };
  float values[STEP];
  const ckpt_dtype_row *row = ckpt_dtype_get(call->node->dtype);
  const uint8_t *blocks = call->out;
  for (uint64_t i = 0; i < call->n_elements; i += STEP) {
    const uint64_t n = call->n_elements - i < STEP ? call->n_elements - i : STEP;
    ckpt_cast_stats stats = {0};
    backend->cast(CKPT_F32, values, call->node->dtype, blocks + i / row->block_elements * row->block_bytes, (size_t)n,
                  &stats);
    if (greatest(values, n) >= 0x7f800000)
      return ckpt_fail(err, CKPT_EVALUE, NULL, NULL, "elements from %llu on are too large for a scale of %s",
                       (unsigned long long)(call->begin + i), row->name);
  }
  return CKPT_OK;
}

static ckpt_status run_quantize(const ckpt_op_call *call, ckpt_error *err) {
  const ckpt_expr *node = call->node;
  const ckpt_dtype_row *row = ckpt_dtype_get(node->dtype);
  const ckpt_backend *backend = call->backend->quantize == NULL ? &ckpt_backend_reference : call->backend;
  const uint64_t n_columns = node->shape[node->rank - 1];
  if (call->n_elements == 0) return CKPT_OK;
  const float *x = call->args[0], *importance = node->n_args > 1 ? call->args[1] : NULL;
  const uint64_t n_rows = call->n_elements / n_columns, first = call->begin / n_columns;
  const uint64_t n_matrices = importance == NULL ? 1 : call->n_elements_of[1] / n_columns;
  const uint64_t n_rows_each = node->n_elements / n_columns / n_matrices;
  const size_t row_bytes = (size_t)(n_columns / row->block_elements) * row->block_bytes;
  const uint32_t magnitude = greatest(x, call->n_elements);
  if (magnitude >= 0x7f800000) return refuse_value(call, x, err);
  for (uint64_t at = 0; at < n_rows;) {
    const uint64_t matrix = (first + at) / n_rows_each, end = (matrix + 1) * n_rows_each - first;
    const uint64_t n = (end < n_rows ? end : n_rows) - at;
    backend->quantize(node->dtype, (uint8_t *)call->out + at * row_bytes, x + at * n_columns, (size_t)n,
                      (size_t)n_columns, importance == NULL ? NULL : importance + matrix * n_columns);
    at += n;
  }
  return magnitude < SAFE_MAGNITUDE ? CKPT_OK : check_blocks(call, &ckpt_backend_reference, err);
}

const ckpt_op ckpt_op_quantize = {.name = "quantize", .rule = CKPT_RULE_ROW, .whole_args = 2, .run = run_quantize};
