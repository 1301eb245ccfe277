// Results do not depend on the floating-point environment of the caller's thread, which stays as it is: rounding mode,
// flushing to zero (SSE), traps and raised flags.
#include <gtest/gtest.h>

#include <cfenv>
#include <cstring>
#include <functional>

#include "tests/libckpt/fake/fake_format.h"
#include "tests/libckpt/io/folder.h"
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace {

using namespace fake;

// Small numbers of either sign, subnormals among them, and ones that no f16 or f32 holds exactly.
template <typename T>
Array odd_values(ckpt_dtype dtype) {
  Array x = zeros(dtype, {64, 256});
  for (size_t i = 0; i < x.n_elements(); i++) {
    const T value = (i % 2 != 0 ? T{-1} : T{1}) * (i % 3 != 0 ? T(0.001) : T(1e-40)) * static_cast<T>(i % 1000 + 1);
    memcpy(&x.bytes[sizeof(T) * i], &value, sizeof value);
  }
  return x;
}

class FloatEnv : public testing::Test {
 protected:
  void SetUp() override {
    std::fesetenv(FE_DFL_ENV);
    store_.add("f32", x_), store_.add("f64", odd_values<double>(CKPT_F64));
    index_ = store_.build(&err_);
    ASSERT_TRUE(index_) << text_of(err_);
    const std::string header = R"({"w":{"dtype":"F32","shape":[64,256],"data_offsets":[0,65536]}})";
    const uint64_t n_header = header.size();
    folder_.write("w.safetensors", std::string(reinterpret_cast<const char *>(&n_header), 8) + header +
                                       std::string(x_.bytes.begin(), x_.bytes.end()));
  }
  void TearDown() override { std::fesetenv(FE_DFL_ENV); }

  std::vector<uint8_t> read(const char *name, ckpt_dtype as) {
    std::vector<uint8_t> out(x_.n_elements() * ckpt_dtype_get(as)->block_bytes);
    EXPECT_EQ(ckpt_read(index_.get(), ckpt_index_find(index_.get(), name), nullptr, as, out.data(), out.size(), &err_),
              CKPT_OK)
        << text_of(err_);
    return out;
  }

  std::string hash(ckpt_dtype cast) {
    ckpt_run_options run = {};
    run.struct_size = sizeof run;
    run.n_threads = 2;
    ckpt_hash_options options = {};
    options.struct_size = sizeof options;
    options.cast = cast;
    options.run = &run;
    ckpt_digest digest = {};
    char text[80];
    EXPECT_EQ(ckpt_hash(index_.get(), &options, &digest, &err_), CKPT_OK) << text_of(err_);
    return ckpt_digest_text(&digest, text);
  }

  std::map<std::string, std::string> quantized(ckpt_dtype dtype) {
    MemorySink sink;
    ckpt_plan *plan = nullptr;
    ckpt_expr *x = nullptr, *out = nullptr;
    EXPECT_EQ(ckpt_plan_new(&plan, nullptr), CKPT_OK);
    add_output(plan, &sink, &format, 1, 0);
    EXPECT_EQ(ckpt_expr_memory(&x, plan, CKPT_F32, 2, x_.shape.data(), x_.bytes.data(), &err_), CKPT_OK);
    EXPECT_EQ(ckpt_expr_quantize(&out, plan, x, dtype, nullptr, &err_), CKPT_OK) << text_of(err_);
    EXPECT_EQ(ckpt_plan_add(plan, 0, "w", out, &err_), CKPT_OK) << text_of(err_);
    EXPECT_EQ(ckpt_plan_run(plan, nullptr, &err_), CKPT_OK) << text_of(err_);
    ckpt_plan_free(plan);
    return sink.files;
  }

  std::string converted(ckpt_dtype dtype) {
    const std::string from = folder_ / "w.safetensors", to = folder_ / "out.safetensors";
    ckpt_cast_rule rule = {};
    rule.dtype = dtype;
    ckpt_convert_options options = {};
    ckpt_digest digest = {};
    options.struct_size = sizeof options;
    options.input = from.c_str(), options.output = to.c_str(), options.force = true;
    options.casts = &rule, options.n_casts = 1, options.digest = &digest;
    char text[80];
    EXPECT_EQ(ckpt_convert(&options, &err_), CKPT_OK) << text_of(err_);
    return ckpt_digest_text(&digest, text);
  }

  // Numbers of the metadata, which are printed where a file is opened.
  static std::string metadata() {
    ckpt_index *index = nullptr;
    ckpt_error err = {};
    EXPECT_EQ(ckpt_open(&index, CKPT_TESTS_DIR "/data/gguf/every-type.gguf", nullptr, &err), CKPT_OK) << text_of(err);
    std::string out;
    for (const char *key : {"value.f32", "value.f64", "array.f32"}) {
      const char *text = index == nullptr ? nullptr : ckpt_index_metadata(index, key);
      EXPECT_NE(text, nullptr) << key;
      out += std::string(text == nullptr ? "" : text) + " ";
    }
    ckpt_index_free(index);
    return out;
  }

  // What every computation gives, as one text.
  std::string results() {
    std::string out = metadata();
    for (ckpt_dtype dtype : {CKPT_F64, CKPT_F32, CKPT_F16, CKPT_BF16, CKPT_F8_E4M3}) {
      out += hash(dtype) + " " + converted(dtype) + " ";
      for (const char *name : {"f32", "f64"})
        for (uint8_t byte : read(name, dtype)) out += static_cast<char>(byte);
    }
    for (ckpt_dtype dtype : {CKPT_Q8_0, CKPT_Q4_K})
      for (const auto &[name, bytes] : quantized(dtype)) out += name + bytes;
    return out;
  }

  // Gets the results in the environment that `set` makes. That and a raised flag must be there afterwards.
  void check(const std::function<void()> &set) {
    const std::string expected = results();
    set();
    std::feclearexcept(FE_ALL_EXCEPT);
    std::feraiseexcept(FE_DIVBYZERO);
    const int rounding = std::fegetround();
#if defined(__SSE2__)
    const unsigned csr = _mm_getcsr();
#endif
    const std::string got = results();
    const int rounding_after = std::fegetround(), raised = std::fetestexcept(FE_ALL_EXCEPT);
#if defined(__SSE2__)
    EXPECT_EQ(_mm_getcsr(), csr);
#endif
    std::fesetenv(FE_DFL_ENV);
    EXPECT_EQ(rounding_after, rounding);
    EXPECT_EQ(raised, FE_DIVBYZERO);
    EXPECT_TRUE(got == expected);
  }

  Random random_{1};
  Store store_{&random_, 1};
  Array x_ = odd_values<float>(CKPT_F32);
  IndexPointer index_{nullptr, ckpt_index_free};
  Folder folder_;
  ckpt_error err_ = {};
};

TEST_F(FloatEnv, RoundingUpwards) {
  check([] { std::fesetround(FE_UPWARD); });
}
TEST_F(FloatEnv, RoundingToZero) {
  check([] { std::fesetround(FE_TOWARDZERO); });
}
#if defined(__SSE2__)
TEST_F(FloatEnv, FlushingToZero) {
  check([] { _mm_setcsr(_mm_getcsr() | 0x8040); });
}
#endif
#if defined(__GLIBC__)
TEST_F(FloatEnv, Traps) {
  const std::string expected = hash(CKPT_F16);
  feenableexcept(FE_ALL_EXCEPT);
  const int before = fegetexcept();
  const std::string got = hash(CKPT_F16);
  const int after = fegetexcept();
  std::fesetenv(FE_DFL_ENV);
  EXPECT_EQ(got, expected);
  EXPECT_EQ(after, before);
}
#endif

}  // namespace
