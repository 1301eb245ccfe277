// adapter_testing.h - adapters that a test writes, over a base of tests/data/adapters, and what a merge makes of them.
#ifndef CKPT_TESTS_LIBCKPT_RECIPE_ADAPTER_TESTING_H
#define CKPT_TESTS_LIBCKPT_RECIPE_ADAPTER_TESTING_H

#include "tests/libckpt/io/folder.h"
#include "tests/libckpt/run/run_testing.h"

extern "C" {
#include "libckpt/index/index.h"
#include "libckpt/recipe/adapter/adapter.h"
}

namespace {

const std::string kData = CKPT_TESTS_DIR "/data/adapters/";

struct FreeAdapters {
  void operator()(ckpt_adapters *adapters) const { ckpt_adapters_free(adapters); }
};
using Adapters = std::unique_ptr<ckpt_adapters, FreeAdapters>;

IndexPointer Open(const std::string &path) {
  ckpt_index *index = nullptr;
  ckpt_error err = {};
  EXPECT_EQ(ckpt_open(&index, path.c_str(), nullptr, &err), CKPT_OK) << text_of(err);
  return IndexPointer(index, ckpt_index_free);
}

std::vector<float> Values(const ckpt_index *index, const ckpt_tensor *tensor) {
  std::vector<float> values(tensor->n_elements);
  ckpt_error err = {};
  EXPECT_EQ(ckpt_read(index, tensor, nullptr, CKPT_F32, values.data(), 4 * values.size(), &err), CKPT_OK)
      << text_of(err);
  return values;
}

class Merge : public Run {
 protected:
  ckpt_status open_adapters(const ckpt_index *base, const std::vector<ckpt_adapter_request> &requests) {
    ckpt_adapters *opened = nullptr;
    err_ = {};
    ckpt_status status =
        ckpt_adapters_open(&opened, base, requests.data(), static_cast<uint32_t>(requests.size()), &options_, &err_);
    adapters_.reset(opened);
    return status;
  }
  // Every tensor of the merged model.
  std::map<std::string, std::vector<float>> merge() {
    ckpt_index *merged = nullptr;
    EXPECT_EQ(ckpt_adapters_merge(&merged, adapters_.get(), &err_), CKPT_OK) << text_of(err_);
    IndexPointer index(merged, ckpt_index_free);
    std::map<std::string, std::vector<float>> out;
    for (size_t i = 0; merged != nullptr && i < ckpt_index_count(merged); i++)
      out[ckpt_index_at(merged, i)->name] = Values(merged, ckpt_index_at(merged, i));
    return out;
  }
  // config.json of the merged model, and whether its first note is a warning.
  std::string merged_config(bool *is_warning = nullptr) {
    ckpt_index *merged = nullptr;
    EXPECT_EQ(ckpt_adapters_merge(&merged, adapters_.get(), &err_), CKPT_OK) << text_of(err_);
    IndexPointer index(merged, ckpt_index_free);
    if (is_warning != nullptr) *is_warning = merged->n_notes != 0 && ckpt_note_is_warning(&merged->notes[0]);
    const ckpt_side_file *side = ckpt_index_side_file(merged, "config.json");
    return side == nullptr || side->text == nullptr ? "" : side->text;
  }
  // Writes a folder's model as another, cast.
  ckpt_status copy(const std::string &from, const std::string &to, const ckpt_cast_rule &cast) {
    ckpt_convert_options options = {};
    options.struct_size = sizeof options;
    options.input = from.c_str();
    options.output = to.c_str();
    options.to = "hf";
    options.casts = &cast;
    options.n_casts = 1;
    err_ = {};
    return ckpt_convert(&options, &err_);
  }
  // Writes an index as safetensors, cast.
  ckpt_status write_as(const ckpt_index *index, const std::string &path, ckpt_dtype dtype) {
    ckpt_plan *plan = nullptr;
    uint32_t sink = 0;
    EXPECT_EQ(ckpt_plan_new(&plan, &err_), CKPT_OK);
    EXPECT_EQ(ckpt_plan_output(plan, path.c_str(), "safetensors", true, &sink, &err_), CKPT_OK) << text_of(err_);
    for (size_t i = 0; i < ckpt_index_count(index); i++) {
      const ckpt_tensor *tensor = ckpt_index_at(index, i);
      ckpt_expr *expr = nullptr;
      EXPECT_EQ(ckpt_expr_read(&expr, plan, index, tensor, &err_), CKPT_OK);
      EXPECT_EQ(ckpt_expr_cast(&expr, plan, expr, dtype, &err_), CKPT_OK) << text_of(err_);
      EXPECT_EQ(ckpt_plan_add(plan, sink, tensor->name, expr, &err_), CKPT_OK);
    }
    const ckpt_status status = ckpt_plan_run(plan, nullptr, &err_);
    ckpt_plan_free(plan);
    return status;
  }
  Adapters adapters_;
  ckpt_adapter_options options_ = {};
};

std::string Header(const std::string &tensors) {
  std::string header = "{" + tensors + "}", bytes(8, '\0');
  while (header.size() % 8 != 0) header += ' ';
  for (size_t i = 0; i < 8; i++) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  return bytes + header;
}

// An adapter of tensors of shape {rows, columns}, all 1.
std::string Saved(const std::vector<std::tuple<std::string, size_t, size_t>> &tensors, float value = 1) {
  std::string header, data;
  for (const auto &[name, rows, columns] : tensors) {
    size_t begin = data.size();
    for (size_t i = 0; i < rows * columns; i++) data.append(reinterpret_cast<const char *>(&value), 4);
    header += (header.empty() ? "" : ",") + ("\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[" + std::to_string(rows) +
                                             "," + std::to_string(columns) + "],\"data_offsets\":[" +
                                             std::to_string(begin) + "," + std::to_string(data.size()) + "]}");
  }
  return Header(header) + data;
}

class Refused : public Merge {
 protected:
  void write(const std::string &config, const std::string &model) {
    folder_.write("adapter/adapter_config.json", config);
    folder_.write("adapter/adapter_model.safetensors", model);
  }
  ckpt_status open_written() {
    const std::string path = folder_ / "adapter";
    return open_adapters(base_.get(), {{path.c_str(), 1}});
  }
  void expect(const std::string &config, const std::string &model, const std::string &message) {
    write(config, model);
    EXPECT_NE(open_written(), CKPT_OK) << message;
    EXPECT_NE(text_of(err_).find(message), std::string::npos) << text_of(err_);
  }
  const std::string q_ = "base_model.model.model.layers.0.self_attn.q_proj.";
  const std::string config_ = R"({"peft_type":"LORA","r":4,"lora_alpha":8})";
  const std::string good_ = Saved({{q_ + "lora_A.weight", 4, 16}, {q_ + "lora_B.weight", 16, 4}});
  IndexPointer base_ = Open(kData + "linear/base");
  Folder folder_;
};

}  // namespace

#endif
