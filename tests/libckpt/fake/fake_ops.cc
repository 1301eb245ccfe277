// Operations of the tests: see fake_ops.h.
#include "tests/libckpt/fake/fake_ops.h"

#include <cmath>
#include <cstring>

namespace fake {

// One NaN for all: which operand's payload survives is the compiler's choice.
static float tidy(double value) { return std::isnan(value) ? std::nanf("") : static_cast<float>(value); }

static const float *arg(const ckpt_op_call *call, int i) { return static_cast<const float *>(call->args[i]); }

static ckpt_status run_add(const ckpt_op_call *call, ckpt_error *) {
  float *out = static_cast<float *>(call->out);
  for (uint64_t i = 0; i < call->n_elements; i++)
    out[i] = tidy(static_cast<double>(arg(call, 0)[i]) + static_cast<double>(arg(call, 1)[i]));
  return CKPT_OK;
}

static ckpt_status run_row_sum(const ckpt_op_call *call, ckpt_error *) {
  float *out = static_cast<float *>(call->out);
  uint64_t n_row = call->node->rank == 0 ? 1 : call->node->shape[call->node->rank - 1];
  for (uint64_t row = 0; row < call->n_elements; row += n_row) {
    double sum = 0;
    for (uint64_t i = row; i < row + n_row; i++) sum += static_cast<double>(arg(call, 0)[i]);
    for (uint64_t i = row; i < row + n_row; i++) out[i] = tidy(sum);
  }
  return CKPT_OK;
}

static ckpt_status run_reverse(const ckpt_op_call *call, ckpt_error *) {
  float *out = static_cast<float *>(call->out);
  for (uint64_t i = 0; i < call->n_elements; i++) out[i] = arg(call, 0)[call->n_elements - 1 - i];
  return CKPT_OK;
}

static ckpt_status run_bias(const ckpt_op_call *call, ckpt_error *) {
  float *out = static_cast<float *>(call->out);
  uint64_t n = call->n_elements_of[1];
  for (uint64_t i = 0; i < call->n_elements; i++)
    out[i] = tidy(static_cast<double>(arg(call, 0)[i]) + static_cast<double>(arg(call, 1)[(call->begin + i) % n]));
  return CKPT_OK;
}

static ckpt_status run_divide(const ckpt_op_call *call, ckpt_error *) {
  float *out = static_cast<float *>(call->out);
  double norm = std::sqrt(*static_cast<const double *>(call->values[0]));
  for (uint64_t i = 0; i < call->n_elements; i++)
    out[i] = norm == 0 ? arg(call, 0)[i] : tidy(static_cast<double>(arg(call, 0)[i]) / norm);
  return CKPT_OK;
}

static void partial_sum_sq(const ckpt_op_call *call, void *partial) {
  double sum = 0;
  for (uint64_t i = 0; i < call->n_elements; i++) {
    double x = static_cast<double>(arg(call, 0)[i]);
    if (std::isfinite(x)) sum += x * x * 0.1;  // 0.1: sums that round, so that their order shows
  }
  memcpy(partial, &sum, sizeof sum);
}

static void combine_sum_sq(void *value, const void *partial) {
  double total, sum;
  memcpy(&total, value, sizeof total);
  memcpy(&sum, partial, sizeof sum);
  total += sum;
  memcpy(value, &total, sizeof total);
}

static ckpt_op row(const char *name, ckpt_rule rule, ckpt_status (*run)(const ckpt_op_call *, ckpt_error *),
                   uint32_t whole_args = 0) {
  ckpt_op op = {};
  op.name = name;
  op.rule = rule;
  op.run = run;
  op.whole_args = whole_args;
  return op;
}

static ckpt_op reduction() {
  ckpt_op op = {};
  op.name = "sum_sq";
  op.rule = CKPT_RULE_REDUCE;
  op.value_bytes = sizeof(double);
  op.partial = partial_sum_sq;
  op.combine = combine_sum_sq;
  return op;
}

static ckpt_op pointwise(ckpt_op op) {
  op.is_pointwise = true;
  return op;
}

const ckpt_op add = pointwise(row("add", CKPT_RULE_FLAT, run_add));
const ckpt_op row_sum = row("row_sum", CKPT_RULE_ROW, run_row_sum);
const ckpt_op reverse = row("reverse", CKPT_RULE_WHOLE, run_reverse);
const ckpt_op bias = row("bias", CKPT_RULE_FLAT, run_bias, 2);
const ckpt_op divide = row("divide", CKPT_RULE_FLAT, run_divide);
const ckpt_op sum_sq = reduction();

Array apply(const ckpt_op &op, const std::vector<const Array *> &args, const double *value) {
  Array out = zeros(CKPT_F32, args[0]->shape);
  ckpt_expr node = {};
  node.rank = static_cast<uint8_t>(out.shape.size());
  node.shape = out.shape.data();
  node.n_elements = out.n_elements();
  std::vector<const void *> buffers;
  std::vector<uint64_t> counts;
  for (const Array *a : args) buffers.push_back(a->bytes.data()), counts.push_back(a->n_elements());
  const void *values[] = {value};
  ckpt_op_call call = {};
  call.node = &node;
  call.args = buffers.data();
  call.n_elements_of = counts.data();
  call.values = values;
  call.out = out.bytes.data();
  call.n_elements = out.n_elements();
  if (call.n_elements != 0) op.run(&call, nullptr);
  return out;
}

double reduce_sum_sq(const Array &x) {
  double total = 0;
  for (uint64_t at = 0; at < x.n_elements(); at += CKPT_REDUCE_ELEMENTS) {
    const void *args[] = {x.bytes.data() + 4 * at};
    ckpt_op_call call = {};
    call.args = args;
    call.n_elements = std::min<uint64_t>(CKPT_REDUCE_ELEMENTS, x.n_elements() - at);
    double sum = 0;
    partial_sum_sq(&call, &sum);
    combine_sum_sq(&total, &sum);
  }
  return total;
}

}  // namespace fake
