// The oracle: see fake_array.h.
#include "tests/libckpt/fake/fake_array.h"

#include <openssl/evp.h>

#include <cstring>

extern "C" {
#include "libckpt/base/backend.h"
}

namespace fake {

uint64_t product(const Shape &shape) {
  uint64_t n = 1;
  for (uint64_t extent : shape) n *= extent;
  return n;
}

uint64_t Array::n_elements() const { return product(shape); }

Shape Array::units() const {
  uint64_t block = ckpt_dtype_get(dtype)->block_elements;
  if (shape.empty() || shape.back() % block != 0) return {n_elements() / block};
  Shape units = shape;
  units.back() /= block;
  return units;
}

Array zeros(ckpt_dtype dtype, const Shape &shape) {
  Array a{dtype, shape, {}};
  a.bytes.resize(product(a.units()) * a.unit_bytes());
  return a;
}

Array random_array(Random *random, ckpt_dtype dtype, const Shape &shape) {
  Array a = zeros(dtype, shape);
  if (dtype == CKPT_F32) {
    for (size_t i = 0; i + 4 <= a.bytes.size(); i += 4) {
      float value = static_cast<float>(static_cast<int>(random->below(2001)) - 1000) / 8;
      memcpy(&a.bytes[i], &value, sizeof value);
    }
    return a;
  }
  for (auto &byte : a.bytes) byte = static_cast<uint8_t>(dtype == CKPT_BOOL ? random->below(2) : random->bits());
  return a;
}

Shape random_shape(Random *random, ckpt_dtype dtype, uint32_t max_rank, uint64_t max_elements) {
  uint64_t block = ckpt_dtype_get(dtype)->block_elements;
  Shape shape(random->between(block > 1 ? 1 : 0, max_rank));
  uint64_t n_left = max_elements / block;
  for (auto &extent : shape) {
    extent = random->chance(4) ? 0 : random->chance(15) ? 1 : random->between(1, n_left < 60 ? n_left : 60);
    if (shape.size() < 3 && random->chance(30)) extent = random->between(1, n_left);
    if (extent != 0) n_left /= extent;
    if (n_left == 0) n_left = 1;
  }
  if (!shape.empty()) shape.back() *= block;
  return shape;
}

std::vector<uint8_t> take(const Array &a, const Shape &start, const Shape &count, const std::vector<uint32_t> &order) {
  Shape units = a.units(), strides(units.size());
  uint64_t stride = a.unit_bytes();
  for (size_t axis = units.size(); axis-- > 0;) strides[axis] = stride, stride *= units[axis];
  std::vector<uint8_t> out(product(count) * a.unit_bytes());
  Shape at(units.size());
  for (size_t to = 0; to < out.size(); to += a.unit_bytes()) {
    uint64_t from = 0;
    for (size_t axis = 0; axis < units.size(); axis++) from += (start[axis] + at[axis]) * strides[axis];
    memcpy(&out[to], &a.bytes[from], a.unit_bytes());
    for (size_t i = units.size(); i-- > 0;) {
      if (++at[order[i]] < count[order[i]]) break;
      at[order[i]] = 0;
    }
  }
  return out;
}

static std::vector<uint32_t> identity(size_t n) {
  std::vector<uint32_t> order(n);
  for (size_t i = 0; i < n; i++) order[i] = static_cast<uint32_t>(i);
  return order;
}

Array slice(const Array &x, uint32_t axis, uint64_t start, uint64_t count) {
  uint64_t block = axis + 1 == x.shape.size() ? ckpt_dtype_get(x.dtype)->block_elements : 1;
  Shape from(x.shape.size()), box = x.units();
  from[axis] = start / block;
  box[axis] = count / block;
  Array out{x.dtype, x.shape, take(x, from, box, identity(x.shape.size()))};
  out.shape[axis] = count;
  return out;
}

Array permute(const Array &x, const std::vector<uint32_t> &order) {
  Array out{x.dtype, {}, x.shape.empty() ? x.bytes : take(x, Shape(x.shape.size()), x.units(), order)};
  for (uint32_t axis : order) out.shape.push_back(x.shape[axis]);
  return out;
}

Array reshape(const Array &x, const Shape &shape) { return Array{x.dtype, shape, x.bytes}; }

Array concat(const std::vector<Array> &xs, uint32_t axis) {
  Array out{xs[0].dtype, xs[0].shape, {}};
  out.shape[axis] = 0;
  for (const Array &x : xs) out.shape[axis] += x.shape[axis];
  uint64_t n_outer = product(Shape(out.shape.begin(), out.shape.begin() + axis));
  for (uint64_t outer = 0; outer < n_outer; outer++)
    for (const Array &x : xs) {
      size_t n = x.bytes.size() / n_outer;
      out.bytes.insert(out.bytes.end(), x.bytes.begin() + static_cast<ptrdiff_t>(outer * n),
                       x.bytes.begin() + static_cast<ptrdiff_t>((outer + 1) * n));
    }
  return out;
}

Array cast(const Array &x, ckpt_dtype dtype) {
  Array out = zeros(dtype, x.shape);
  ckpt_cast_stats stats = {};
  if (x.dtype == dtype) return x;
  if (!x.bytes.empty())
    ckpt_backend_reference.cast(dtype, out.bytes.data(), x.dtype, x.bytes.data(), x.n_elements(), &stats);
  return out;
}

static std::string sha256(const std::string &text) {
  unsigned char hash[32];
  unsigned n = sizeof hash;
  EVP_Digest(text.data(), text.size(), hash, &n, EVP_sha256(), nullptr);
  return std::string(reinterpret_cast<char *>(hash), sizeof hash);
}

static std::string u64(uint64_t value) {
  std::string text(8, '\0');
  for (int i = 0; i < 8; i++) text[static_cast<size_t>(i)] = static_cast<char>(value >> 8 * i);
  return text;
}

ckpt_digest digest_of(const Array &a) {
  std::string bytes(a.bytes.begin(), a.bytes.end());
  std::string text = std::string("ckpt1 tensor\n") + ckpt_dtype_name(a.dtype) + "\n" + u64(a.shape.size());
  for (uint64_t extent : a.shape) text += u64(extent);
  text += u64(bytes.size());
  for (size_t at = 0; at < bytes.size(); at += 1 << 20) text += sha256(bytes.substr(at, 1 << 20));
  ckpt_digest digest;
  memcpy(digest.bytes, sha256(text).data(), sizeof digest.bytes);
  return digest;
}

}  // namespace fake
