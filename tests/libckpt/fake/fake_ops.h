// Operations that exist only in tests: one for each tile rule that the first formats do not use yet, a position
// dependent one with a whole argument, and one behind a prologue. All on f32.
#pragma once

#include "tests/libckpt/fake/fake_array.h"

namespace fake {

extern const ckpt_op add;      // FLAT: a + b
extern const ckpt_op row_sum;  // ROW: every element becomes the sum of its row, in order, in f64
extern const ckpt_op reverse;  // WHOLE: flat order turned around
extern const ckpt_op bias;     // FLAT, argument 1 whole: x[i] + w[i % n_w], i being the flat index in the output
extern const ckpt_op divide;   // FLAT with the prologue sum_sq: x / sqrt(value), x where the value is zero
extern const ckpt_op sum_sq;   // REDUCE: double

// What an operation makes of whole arrays, by one call of its own `run`; `value` for `divide`.
Array apply(const ckpt_op &op, const std::vector<const Array *> &args, const double *value = nullptr);
double reduce_sum_sq(const Array &x);

}  // namespace fake
