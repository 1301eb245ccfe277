// onnx_testing.h - what tests of ONNX share: the models, conversions, and messages made by hand.
#ifndef CKPT_TESTS_FORMATS_ONNX_TESTING_H
#define CKPT_TESTS_FORMATS_ONNX_TESTING_H

#include <zlib.h>

#include "tests/formats/formats_testing.h"

extern "C" {
#include "formats/onnx/onnx.h"
#include "libckpt/plan/plan.h"
#include "libckpt/recipe/convert/convert.h"
#include "libckpt/recipe/verify/verify.h"
#include "libckpt/run/run.h"
}

namespace formats_testing {

// Asks for large data in a file beside the model.
inline void put_outside(ckpt_convert_options *options) {
  static const ckpt_format_value value = {"external_data", 1, nullptr, nullptr};
  options->values = &value;
  options->n_values = 1;
}

// Asks for the graph of another model; partial: what has no counterpart is a loss. Kept by the caller.
struct Graph {
  explicit Graph(const char *path, bool partial = false)
      : values_{{"graph", 0, path, nullptr}, {"partial", partial ? UINT64_C(1) : 0, nullptr, nullptr}} {}
  ckpt_convert_options options() const {
    ckpt_convert_options options = {};
    options.values = values_;
    options.n_values = 2;
    return options;
  }

 private:
  ckpt_format_value values_[2];
};

inline const std::string kData = std::string(CKPT_TESTS_DIR) + "/data/onnx/";
inline const std::vector<std::string> kModels = {"dynamo.onnx", "legacy.onnx",         "nested.onnx",     "types.onnx",
                                                 "qdq.onnx",    "external/model.onnx", "matmulnbits.onnx"};

inline IndexPointer must_open(const std::string &path) {
  ckpt_error err = {};
  IndexPointer index = open(path, &err);
  EXPECT_NE(index, nullptr) << text_of(err);
  return index;
}

// What a conversion says: "" where it is done.
inline std::string convert(const std::string &input, const std::string &output, ckpt_convert_options options = {}) {
  ckpt_error err = {};
  options.struct_size = sizeof options;
  options.input = input.c_str();
  options.output = output.c_str();
  return ckpt_convert(&options, &err) == CKPT_OK ? "" : text_of(err);
}

// Plans a model of nothing but an input's tensors, which no conversion writes.
inline ckpt_status plan_bare(ckpt_plan *plan, const ckpt_index *index, const std::string &output,
                             const ckpt_convert_options &options, ckpt_error *err) {
  uint32_t sink = 0;
  ckpt_status status = ckpt_plan_output(plan, output.c_str(), nullptr, false, &sink, err);
  if (status == CKPT_OK) status = ckpt_plan_carry(plan, sink, index, err);
  if (status == CKPT_OK) plan->outputs[sink].options.values = {options.values, options.n_values};
  for (uint32_t i = 0; i < index->n_tensors && status == CKPT_OK; i++) {
    ckpt_expr *expr = nullptr;
    status = ckpt_expr_read(&expr, plan, index, &index->tensors[i], err);
    if (status == CKPT_OK) status = ckpt_plan_add(plan, sink, index->tensors[i].name, expr, err);
  }
  return status;
}

// Writes it and says what convert does.
inline std::string convert_bare(const std::string &input, const std::string &output,
                                const ckpt_convert_options &options = {}) {
  ckpt_error err = {};
  ckpt_plan *plan = nullptr;
  IndexPointer index = must_open(input);
  EXPECT_EQ(ckpt_plan_new(&plan, &err), CKPT_OK);
  ckpt_status status = plan_bare(plan, index.get(), output, options, &err);
  if (status == CKPT_OK) status = ckpt_plan_run(plan, nullptr, &err);
  ckpt_plan_free(plan);
  return status == CKPT_OK ? "" : text_of(err);
}

// A tensor's elements, through its decoders.
inline std::string elements(const ckpt_index *index, const ckpt_tensor *tensor) {
  std::string bytes(tensor->n_bytes, '\0');
  ckpt_error err = {};
  EXPECT_EQ(ckpt_read(index, tensor, nullptr, CKPT_DTYPE_NONE, bytes.data(), bytes.size(), &err), CKPT_OK)
      << text_of(err);
  return bytes;
}

inline std::string shown(const std::string &bytes) {
  std::string text;
  char digits[32];
  if (bytes.size() > 64) {
    auto sum = crc32_z(0, reinterpret_cast<const Bytef *>(bytes.data()), bytes.size());
    snprintf(digits, sizeof digits, "crc32 %08lx", sum);
    return digits;
  }
  for (unsigned char byte : bytes) {
    snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

// Every tensor as a row of tensors.tsv.
inline std::string table_of(const ckpt_index *index) {
  std::string table;
  for (size_t i = 0; i < ckpt_index_count(index); i++) {
    const ckpt_tensor *tensor = ckpt_index_at(index, i);
    std::string shape;
    for (uint32_t axis = 0; axis < tensor->rank; axis++)
      shape += (axis == 0 ? "" : ",") + std::to_string(tensor->shape[axis]);
    table += std::string(tensor->name) + "\t" + ckpt_dtype_name(static_cast<ckpt_dtype>(tensor->dtype)) + "\t" + shape +
             "\t" + shown(elements(index, tensor)) + "\n";
  }
  return table;
}

// A field of bytes of a message made by hand.
inline std::string field(int number, const std::string &content) {
  std::string text(1, static_cast<char>(number << 3 | 2));
  size_t n = content.size();
  for (; n >= 128; n >>= 7) text += static_cast<char>(n | 128);
  return text + static_cast<char>(n) + content;
}

}  // namespace formats_testing

#endif
