// The oracle of the tests of the center: whole arrays in memory and what each operation makes of them, written as
// plainly as can be. Arrays are packed and row-major, like everything that libckpt hands over.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

extern "C" {
#include "libckpt/base/dtype.h"
#include "libckpt/plan/blocks.h"
#include "libckpt/plan/plan.h"
}

namespace fake {

// A seeded stream of choices; every test prints its seed through SCOPED_TRACE.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t below(uint64_t n) { return n < 2 ? 0 : engine_() % n; }
  uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  bool chance(unsigned percent) { return below(100) < percent; }
  uint64_t bits() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

using Shape = std::vector<uint64_t>;

struct Array {
  ckpt_dtype dtype = CKPT_U8;
  Shape shape;
  std::vector<uint8_t> bytes;

  uint64_t n_elements() const;
  uint32_t unit_bytes() const { return ckpt_dtype_get(dtype)->block_bytes; }
  Shape units() const;  // unit shape: ckpt_unit_shape
};

uint64_t product(const Shape &shape);

// Zeros; random bits (f32: small multiples of 1/8, so that sums are exact); a shape of at most max_rank axes.
Array zeros(ckpt_dtype dtype, const Shape &shape);
Array random_array(Random *random, ckpt_dtype dtype, const Shape &shape);
Shape random_shape(Random *random, ckpt_dtype dtype, uint32_t max_rank, uint64_t max_elements);

// The units that a box of `a` holds, with its axes in another order, packed.
std::vector<uint8_t> take(const Array &a, const Shape &start, const Shape &count, const std::vector<uint32_t> &order);

Array slice(const Array &x, uint32_t axis, uint64_t start, uint64_t count);
Array permute(const Array &x, const std::vector<uint32_t> &order);
Array reshape(const Array &x, const Shape &shape);
Array concat(const std::vector<Array> &xs, uint32_t axis);
Array cast(const Array &x, ckpt_dtype dtype);

// The content digest, by the words of docs/digest.md.
ckpt_digest digest_of(const Array &a);

}  // namespace fake
