// What `ckpt_diff` finds against a plain loop: counts, first places, sizes, for any tiles; ties; what is compared.
#include <cmath>

#include "tests/libckpt/recipe/prove_testing.h"

extern "C" {
#include "libckpt/recipe/compare/diff.h"
}

namespace {

using prove::Bytes;
using prove::Opened;
using prove::Stored;

struct Result {
  ckpt_diff *diff = nullptr;
  ~Result() { ckpt_diff_free(diff); }
  const ckpt_diff_pair *Find(const std::string &name) const {
    for (size_t i = 0; i < diff->n; i++)
      if (diff->pairs[i].name == name) return &diff->pairs[i];
    ADD_FAILURE() << name;
    return nullptr;
  }
  ckpt_diff_kind Kind(const std::string &name) const { return ckpt_diff_judge(Find(name)); }
};

void Diff(Result *result, const Opened &a, const Opened &b, ckpt_diff_options options = {}, uint32_t n_threads = 2,
          uint64_t memory = 16 << 20) {
  ckpt_error err = {};
  ASSERT_EQ(ckpt_diff_new(&result->diff, a.index, b.index, &options, &err), CKPT_OK) << err.message;
  prove::Run(ckpt_diff_proof(result->diff), n_threads, memory);
}

ckpt_diff_options Tolerance(double atol, double rtol) {
  ckpt_diff_options options = {};
  options.has_tolerance = true;
  options.tolerance = {atol, rtol};
  return options;
}

TEST(Diff, CountsAndPlacesAcrossPartialsAndTiles) {
  const size_t n = (1 << 16) * 40 + 513;
  std::mt19937_64 random(11);
  std::vector<float> a(n);
  for (auto &value : a) value = static_cast<float>(random() % 1000) - 500;
  for (int round = 0; round < 8; round++) {
    std::vector<float> b = a;
    uint64_t n_changed = 0, first = UINT64_MAX;
    double max_abs = 0, sum_sq = 0;
    for (uint64_t k = 0; k < (round == 0 ? 1u : 200u); k++) {
      uint64_t at = round == 0 ? n - 1 : random() % n;
      if (b[at] != a[at]) continue;
      b[at] += static_cast<float>(1 + random() % 7);
      n_changed++;
      if (at < first) first = at;
      max_abs = std::fmax(max_abs, b[at] - a[at]);
      sum_sq += (b[at] - a[at]) * (b[at] - a[at]);
    }
    Opened left({{"x", "F32", {n}, Bytes(a)}}), right({{"x", "F32", {n}, Bytes(b)}});
    for (uint32_t n_threads : {1u, 4u}) {
      Result result;
      Diff(&result, left, right, {}, n_threads, 8 << 20);
      const ckpt_diff_pair *pair = result.Find("x");
      uint64_t found;
      EXPECT_EQ(ckpt_diff_count(pair, &found), n_changed);
      EXPECT_EQ(found, first);
      EXPECT_EQ(pair->difference->n_different, n_changed);
      EXPECT_EQ(pair->difference->first, first);
      EXPECT_EQ(pair->difference->max_abs, max_abs);
      EXPECT_DOUBLE_EQ(pair->difference->sum_sq, sum_sq);
      EXPECT_EQ(ckpt_diff_judge(pair), CKPT_DIFF_VALUE);
    }
  }
}

TEST(Diff, AnyFlippedBitOfAnyDtypeIsFound) {
  const char *const dtypes[] = {"BOOL",    "F4",      "F6_E2M3", "F6_E3M2", "U8",  "I8",   "F8_E5M2",
                                "F8_E4M3", "F8_E8M0", "I16",     "U16",     "F16", "BF16", "I32",
                                "U32",     "F32",     "C64",     "F64",     "I64", "U64"};
  const size_t bits[] = {8, 4, 6, 6, 8, 8, 8, 8, 8, 16, 16, 16, 16, 32, 32, 32, 64, 64, 64, 64};
  std::mt19937_64 random(3);
  const size_t n = 4 * 700;
  for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
    std::string bytes(n * bits[d] / 8, '\0');
    for (auto &byte : bytes) byte = static_cast<char>(random());
    for (int round = 0; round < 20; round++) {
      std::string changed = bytes;
      size_t bit = random() % (8 * bytes.size());
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
      Opened left({{"x", dtypes[d], {4, 700}, bytes}}), right({{"x", dtypes[d], {4, 700}, changed}});
      Result result;
      Diff(&result, left, right);
      uint64_t first;
      EXPECT_EQ(ckpt_diff_count(result.Find("x"), &first), 1u) << dtypes[d];
      EXPECT_EQ(first, bit / bits[d]) << dtypes[d];
      EXPECT_EQ(result.Kind("x"), CKPT_DIFF_VALUE) << dtypes[d];
    }
  }
}

TEST(Diff, IntegersBeyondF64AreExact) {
  Opened left({{"i", "I64", {2}, Bytes<int64_t>({INT64_C(1) << 53, INT64_MIN})},
               {"u", "U64", {1}, Bytes<uint64_t>({UINT64_MAX})}});
  Opened right({{"i", "I64", {2}, Bytes<int64_t>({(INT64_C(1) << 53) + 1, INT64_MAX})},
                {"u", "U64", {1}, Bytes<uint64_t>({UINT64_MAX - 1})}});
  for (auto options : {ckpt_diff_options{}, Tolerance(10, 10)}) { /* a tolerance is for floats */
    Result result;
    Diff(&result, left, right, options);
    EXPECT_EQ(ckpt_diff_count(result.Find("i"), nullptr), 2u);
    EXPECT_EQ(result.Find("i")->difference->n_different, 2u);
    EXPECT_EQ(result.Find("u")->difference->max_abs, 1);
    EXPECT_EQ(result.Kind("u"), CKPT_DIFF_VALUE);
  }
}

TEST(Diff, BitsAndValues) {
  uint32_t bits_a = 0x7FC00001, bits_b = 0x7FC00002;
  float nan_a, nan_b;
  memcpy(&nan_a, &bits_a, 4);
  memcpy(&nan_b, &bits_b, 4);
  Opened left({{"nan", "F32", {2}, Bytes<float>({nan_a, 1})},
               {"zero", "F32", {1}, Bytes<float>({0.0f})},
               {"number", "F32", {1}, Bytes<float>({nan_a})},
               {"infinite", "F32", {1}, Bytes<float>({INFINITY})}});
  Opened right({{"nan", "F32", {2}, Bytes<float>({nan_b, 1})},
                {"zero", "F32", {1}, Bytes<float>({-0.0f})},
                {"number", "F32", {1}, Bytes<float>({7})},
                {"infinite", "F32", {1}, Bytes<float>({1})}});
  Result exact, tolerant;
  Diff(&exact, left, right);
  Diff(&tolerant, left, right, Tolerance(1e30, 0));
  for (const char *name : {"nan", "zero"}) {
    EXPECT_EQ(exact.Kind(name), CKPT_DIFF_VALUE) << name;
    EXPECT_EQ(exact.Find(name)->difference->n_different, 0u) << name;
    EXPECT_EQ(exact.Find(name)->difference->n_bits, 1u) << name;
    EXPECT_EQ(tolerant.Kind(name), CKPT_DIFF_EQUAL) << name;
  }
  EXPECT_EQ(tolerant.Kind("number"), CKPT_DIFF_VALUE);
  EXPECT_EQ(tolerant.Kind("infinite"), CKPT_DIFF_VALUE);
}

TEST(Diff, TolerancesAreThoseOfB) {
  Opened left({{"x", "F64", {2}, Bytes<double>({110, 1})}}), right({{"x", "F64", {2}, Bytes<double>({100, 1})}});
  for (auto [atol, rtol, kind] : {std::tuple(10.0, 0.0, CKPT_DIFF_EQUAL), std::tuple(9.99, 0.0, CKPT_DIFF_VALUE),
                                  std::tuple(0.0, 0.1, CKPT_DIFF_EQUAL), std::tuple(0.0, 0.0999, CKPT_DIFF_VALUE),
                                  std::tuple(5.0, 0.05, CKPT_DIFF_EQUAL)}) {
    Result result;
    Diff(&result, left, right, Tolerance(atol, rtol));
    EXPECT_EQ(result.Kind("x"), kind) << atol << " " << rtol;
  }
}

TEST(Diff, AGapThatHasNoDoubleIsADifference) {
  Opened left({{"x", "F64", {1}, Bytes<double>({1.5e308})}}), right({{"x", "F64", {1}, Bytes<double>({-1.5e308})}});
  Result result;
  Diff(&result, left, right, Tolerance(0, 1.5));
  EXPECT_EQ(result.Kind("x"), CKPT_DIFF_VALUE);
}

TEST(Diff, DtypesAndShapes) {
  Opened left({{"d", "F32", {2}, Bytes<float>({1, 2.5})},
               {"s", "F32", {2, 3}, std::string(24, 'x')},
               {"i", "I32", {1}, Bytes<int32_t>({7})},
               {"a", "F32", {1}, Bytes<float>({0})}});
  Opened right({{"d", "F64", {2}, Bytes<double>({1, 2.5})},
                {"s", "F32", {3, 2}, std::string(24, 'x')},
                {"i", "I64", {1}, Bytes<int64_t>({7})},
                {"b", "F32", {1}, Bytes<float>({0})}});
  Result exact, tolerant, cast;
  Diff(&exact, left, right);
  Diff(&tolerant, left, right, Tolerance(0, 0));
  ckpt_diff_options options = {};
  options.cast = CKPT_BF16;
  Diff(&cast, left, right, options);
  EXPECT_EQ(exact.Kind("d"), CKPT_DIFF_DTYPE);
  EXPECT_EQ(exact.Find("d")->difference, nullptr);
  EXPECT_EQ(tolerant.Kind("d"), CKPT_DIFF_DTYPE_ONLY);
  EXPECT_EQ(cast.Kind("d"), CKPT_DIFF_EQUAL);
  for (Result *result : {&exact, &tolerant, &cast}) {
    EXPECT_EQ(result->Kind("s"), CKPT_DIFF_SHAPE);
    EXPECT_EQ(result->Kind("i"), CKPT_DIFF_DTYPE);
    EXPECT_EQ(result->Kind("a"), CKPT_DIFF_ONLY_A);
    EXPECT_EQ(result->Kind("b"), CKPT_DIFF_ONLY_B);
    EXPECT_EQ(result->diff->n, 5u);
  }
}

TEST(Diff, RefusesToWidenWhatNeedsItsScales) {
  Opened left({{"w", "F8_E4M3", {4}, "abcd"}, {"w_scale_inv", "F32", {1}, Bytes<float>({1})}});
  Opened right({{"w", "F32", {4}, std::string(16, 'x')}, {"w_scale_inv", "F32", {1}, Bytes<float>({1})}});
  ckpt_diff_options options = Tolerance(1, 0);
  ckpt_diff *diff = nullptr;
  ckpt_error err = {};
  ASSERT_EQ(ckpt_diff_new(&diff, left.index, right.index, &options, &err), CKPT_OK);
  const ckpt_proof proof = ckpt_diff_proof(diff);
  EXPECT_EQ(ckpt_prove(&proof, nullptr, nullptr, nullptr, &err), CKPT_EUNSUPPORTED);
  EXPECT_STREQ(err.tensor, "w");
  ckpt_diff_free(diff);
}

TEST(Diff, ReadsEachSideOnce) {
  std::vector<float> values(300000, 2);
  Opened left({{"x", "F32", {300000}, Bytes(values)}}), right({{"x", "F32", {300000}, Bytes(values)}});
  uint64_t before = ckpt_source_bytes_read(left.index->source), other = ckpt_source_bytes_read(right.index->source);
  Result result;
  Diff(&result, left, right);
  EXPECT_EQ(ckpt_source_bytes_read(left.index->source) - before, values.size() * sizeof(float));
  EXPECT_EQ(ckpt_source_bytes_read(right.index->source) - other, values.size() * sizeof(float));
  EXPECT_EQ(result.Kind("x"), CKPT_DIFF_EQUAL);
}

}  // namespace
