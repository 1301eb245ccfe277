// Truncated decompositions against matrices whose singular values are known, and adapters that are extracted and merged
// again.
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "tests/libckpt/io/folder.h"
#include "tests/libckpt/run/run_testing.h"

extern "C" {
#include "libckpt/index/index.h"
#include "libckpt/recipe/adapter/adapter.h"
#include "libckpt/recipe/extract/extract.h"
#include "libckpt/recipe/extract/jacobi.h"
#include "libckpt/recipe/extract/svd.h"
}

namespace {

ckpt_extract_options Wanted(uint32_t rank, double energy) {
  ckpt_extract_options options = {};
  options.rank = rank;
  options.energy = energy;
  return options;
}

const std::string kData = CKPT_TESTS_DIR "/data/adapters/";

// ---- the decomposition ----------------------------------------------------------------------------------------------

// n random vectors of `length`, made orthonormal.
std::vector<std::vector<double>> Orthonormal(size_t n, size_t length, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<std::vector<double>> rows(n, std::vector<double>(length));
  for (size_t i = 0; i < n; i++) {
    for (double &x : rows[i]) x = normal(generator);
    for (int pass = 0; pass < 3; pass++)
      for (size_t k = 0; k < i; k++) {
        long double dot = 0;
        for (size_t j = 0; j < length; j++) dot += static_cast<long double>(rows[i][j]) * rows[k][j];
        for (size_t j = 0; j < length; j++) rows[i][j] -= static_cast<double>(dot) * rows[k][j];
      }
    long double square = 0;
    for (double x : rows[i]) square += static_cast<long double>(x) * x;
    for (double &x : rows[i]) x /= std::sqrt(static_cast<double>(square));
  }
  return rows;
}

struct Known {
  size_t n_rows, n_columns;
  std::vector<double> values, matrix;
  double squares = 0;
  Known(size_t rows, size_t columns, const std::vector<double> &singular)
      : n_rows(rows), n_columns(columns), values(singular), matrix(rows * columns) {
    const auto left = Orthonormal(values.size(), rows, 1), right = Orthonormal(values.size(), columns, 2);
    for (size_t v = 0; v < values.size(); v++)
      for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) matrix[i * columns + j] += values[v] * left[v][i] * right[v][j];
    for (double x : matrix) squares += x * x;
  }
  double best_error(size_t rank) const {
    double sum = 0;
    for (size_t i = rank; i < values.size(); i++) sum += values[i] * values[i];
    return std::sqrt(sum);
  }
  double error_of(const ckpt_svd &svd) const {
    double sum = 0;
    for (size_t i = 0; i < n_rows; i++)
      for (size_t j = 0; j < n_columns; j++) {
        double x = matrix[i * n_columns + j];
        for (size_t k = 0; k < svd.rank; k++) x -= svd.left[k * n_rows + i] * svd.right[k * n_columns + j];
        sum += x * x;
      }
    return std::sqrt(sum);
  }
  ckpt_svd_request request(size_t rank, double energy = 0, size_t max_rank = 0) const {
    ckpt_svd_request r = {};
    r.matrix = matrix.data();
    r.n_rows = n_rows;
    r.n_columns = n_columns;
    r.squares = squares;
    r.rank = rank;
    r.energy = energy;
    r.max_rank = max_rank;
    return r;
  }
};

std::vector<double> Spectrum(size_t n, const std::function<double(size_t)> &value) {
  std::vector<double> values(n);
  for (size_t i = 0; i < n; i++) values[i] = value(i);
  return values;
}

TEST(Svd, IsWithinAThousandthOfTheBestThereIs) {
  const std::map<std::string, std::function<double(size_t)>> spectra = {
      {"flat", [](size_t) { return 1.0; }},
      {"linear", [](size_t i) { return 1.0 - static_cast<double>(i) / 64; }},
      {"power", [](size_t i) { return 1 / std::sqrt(static_cast<double>(i) + 1); }},
      {"steep", [](size_t i) { return std::pow(0.5, static_cast<double>(i)); }},
      {"step", [](size_t i) { return i < 5 ? 1.0 : 1e-6; }}};
  for (const auto &[name, value] : spectra)
    for (const auto &[rows, columns] : std::vector<std::pair<size_t, size_t>>{{48, 66}, {66, 48}}) {
      const Known known(rows, columns, Spectrum(48, value));
      for (size_t rank : {1, 5, 24, 48}) {
        ckpt_svd svd = {};
        ckpt_error err = {};
        const ckpt_svd_request request = known.request(rank);
        ASSERT_EQ(ckpt_svd_truncate(&svd, &request, &err), CKPT_OK) << text_of(err);
        EXPECT_LE(known.error_of(svd), 1.001 * known.best_error(rank) + 1e-12 * std::sqrt(known.squares))
            << name << " " << rank;
        EXPECT_LE(svd.rank, rank);
        ckpt_svd_free(&svd);
      }
    }
}

TEST(Svd, FindsTheLeastRankThatHasAnEnergy) {
  const Known known(90, 80, Spectrum(60, [](size_t i) { return i < 7 ? 3 - 0.1 * static_cast<double>(i) : 1e-5; }));
  for (const auto &[energy, rank] : std::map<double, size_t>{{0.99999, 7}, {0.5, 4}, {0.1, 1}}) {
    ckpt_svd svd = {};
    ckpt_error err = {};
    const ckpt_svd_request request = known.request(0, energy, 42);
    ASSERT_EQ(ckpt_svd_truncate(&svd, &request, &err), CKPT_OK) << text_of(err);
    EXPECT_EQ(svd.rank, rank) << energy;
    ckpt_svd_free(&svd);
  }
}

TEST(Svd, RefusesAnEnergyThatSavesNothing) {
  const Known known(75, 60, Spectrum(60, [](size_t) { return 1.0; }));
  for (const auto &[energy, is_found] : std::map<double, bool>{{0.4, true}, {0.54, true}, {0.6, false}}) {
    ckpt_svd svd = {};
    ckpt_error err = {};
    const ckpt_svd_request request = known.request(0, energy, 33);
    EXPECT_EQ(ckpt_svd_truncate(&svd, &request, &err), is_found ? CKPT_OK : CKPT_ELIMIT) << energy << text_of(err);
    EXPECT_EQ(svd.rank, is_found ? static_cast<size_t>(std::ceil(60 * energy)) : 0);
    EXPECT_EQ(text_of(err).find("rank 33, the largest that saves space, holds less than") != std::string::npos,
              !is_found)
        << text_of(err);
    ckpt_svd_free(&svd);
  }
}

// A kernel that multiplies in another order would give other bits; threads share out rows and nothing else.
TEST(Svd, HasTheSameBitsWithAnyThreadsAndBackend) {
  const Known known(400, 300, Spectrum(40, [](size_t i) { return 1 / (static_cast<double>(i) + 1); }));
  std::vector<std::vector<double>> all;
  for (const auto &[n_threads, backend] : std::vector<std::pair<uint32_t, const ckpt_backend *>>{
           {1, &ckpt_backend_reference}, {1, &ckpt_backend_cpu}, {7, &ckpt_backend_cpu}}) {
    ckpt_run_options run = {};
    run.struct_size = sizeof run;
    run.n_threads = n_threads;
    run.backend = backend;
    ckpt_svd svd = {};
    ckpt_error err = {};
    ckpt_svd_request request = known.request(20);
    request.run = &run;
    ASSERT_EQ(ckpt_svd_truncate(&svd, &request, &err), CKPT_OK) << text_of(err);
    all.emplace_back(svd.left, svd.left + svd.rank * known.n_rows);
    all.back().insert(all.back().end(), svd.right, svd.right + svd.rank * known.n_columns);
    ckpt_svd_free(&svd);
  }
  for (const auto &one : all) EXPECT_EQ(one, all[0]);
}

// ---- adapters -------------------------------------------------------------------------------------------------------

class Extract : public Run {
 protected:
  IndexPointer open(const std::string &path) {
    ckpt_index *index = nullptr;
    EXPECT_EQ(ckpt_open(&index, path.c_str(), nullptr, &err_), CKPT_OK) << text_of(err_);
    return IndexPointer(index, ckpt_index_free);
  }
  std::vector<double> values(const ckpt_index *index, const ckpt_tensor *tensor) {
    std::vector<double> out(tensor->n_elements);
    EXPECT_EQ(ckpt_read(index, tensor, nullptr, CKPT_F64, out.data(), 8 * out.size(), &err_), CKPT_OK);
    return out;
  }
  ckpt_status extract(const ckpt_index *base, const ckpt_index *tuned, ckpt_extract_options options) {
    ckpt_extract_free(extraction_);
    extraction_ = nullptr;
    err_ = {};
    ckpt_status status = ckpt_extract_open(&extraction_, base, tuned, &options, &err_);
    return status == CKPT_OK ? ckpt_extract_run(extraction_, folder_.path().c_str(), nullptr, &err_) : status;
  }
  void TearDown() override { ckpt_extract_free(extraction_); }
  // What base + adapter is off from the tuned model, for each tensor; the adapter is merged in f32.
  std::map<std::string, double> gaps(const ckpt_index *base, const ckpt_index *tuned) {
    std::map<std::string, double> out;
    ckpt_index *adapter = nullptr, *merged = nullptr;
    ckpt_adapters *opened = nullptr;
    EXPECT_EQ(ckpt_extract_adapter(&adapter, extraction_, &err_), CKPT_OK) << text_of(err_);
    const ckpt_adapter_request request = {"extracted", 1};
    ckpt_adapter_options options = {};
    options.first = adapter;
    EXPECT_EQ(ckpt_adapters_open(&opened, base, &request, 1, &options, &err_), CKPT_OK) << text_of(err_);
    if (opened != nullptr) {
      EXPECT_EQ(ckpt_adapters_merge(&merged, opened, &err_), CKPT_OK) << text_of(err_);
    }
    for (size_t i = 0; merged != nullptr && i < ckpt_index_count(tuned); i++) {
      const ckpt_tensor *tensor = ckpt_index_at(tuned, i), *other = ckpt_index_find(merged, tensor->name);
      if (other == nullptr) continue; /* a buffer that only the tuned model has */
      const auto a = values(tuned, tensor), b = values(merged, other);
      for (size_t k = 0; k < a.size(); k++) out[tensor->name] += (a[k] - b[k]) * (a[k] - b[k]);
      out[tensor->name] = std::sqrt(out[tensor->name]);
    }
    ckpt_index_free(merged);
    ckpt_adapters_free(opened);
    ckpt_index_free(adapter);
    return out;
  }
  // The model that an adapter makes of its base, as a folder.
  std::string merged(const std::string &kind) {
    const std::string base = kData + kind + "/base", adapter = kData + kind + "/adapter", out = folder_ / kind;
    IndexPointer model = open(base);
    const ckpt_adapter_request request = {adapter.c_str(), 1};
    ckpt_adapters *opened = nullptr;
    ckpt_index *index = nullptr;
    ckpt_plan *plan = nullptr;
    ckpt_adapter_options options = {};
    options.tied = "untie";
    uint32_t sink = 0;
    EXPECT_EQ(ckpt_adapters_open(&opened, model.get(), &request, 1, &options, &err_), CKPT_OK) << text_of(err_);
    EXPECT_EQ(ckpt_adapters_merge(&index, opened, &err_), CKPT_OK) << text_of(err_);
    EXPECT_EQ(ckpt_plan_new(&plan, &err_), CKPT_OK);
    EXPECT_EQ(ckpt_plan_output(plan, out.c_str(), "hf", false, &sink, &err_), CKPT_OK) << text_of(err_);
    EXPECT_EQ(ckpt_plan_carry(plan, sink, index, &err_), CKPT_OK);
    for (size_t i = 0; i < ckpt_index_count(index); i++) {
      const ckpt_tensor *tensor = ckpt_index_at(index, i);
      ckpt_expr *expr = nullptr;
      EXPECT_EQ(ckpt_expr_read(&expr, plan, index, tensor, &err_), CKPT_OK);
      EXPECT_EQ(ckpt_plan_add(plan, sink, tensor->name, expr, &err_), CKPT_OK);
    }
    EXPECT_EQ(ckpt_plan_run(plan, nullptr, &err_), CKPT_OK) << text_of(err_);
    ckpt_plan_free(plan);
    ckpt_index_free(index);
    ckpt_adapters_free(opened);
    return out;
  }
  ckpt_extraction *extraction_ = nullptr;
  Folder folder_;
};

class OfAKind : public Extract, public testing::WithParamInterface<const char *> {};

TEST_P(OfAKind, FindsTheRankThatWasMergedAndIsTheSameModelAgain) {
  const std::string folder = kData + GetParam();
  IndexPointer base = open(folder + "/base"), tuned = open(merged(GetParam()));
  ASSERT_EQ(extract(base.get(), tuned.get(), Wanted(0, 0.9999999)), CKPT_OK) << text_of(err_);
  IndexPointer adapter = open(folder + "/adapter");
  ckpt_extracted one;
  size_t n_found = 0, n_merged = 0;
  for (size_t i = 0; i < ckpt_index_count(adapter.get()); i++) {
    const std::string name = ckpt_index_at(adapter.get(), i)->name;
    n_merged += name.find(".lora_A.") != std::string::npos && name.find("lm_head") == std::string::npos;
  }
  for (size_t i = 0; ckpt_extract_at(extraction_, i, &one); i++) {
    n_found += one.rank != 0;
    const bool is_two =
        std::string(GetParam()) == "patterns" && std::string(one.name).find("q_proj") != std::string::npos;
    const bool is_three =
        std::string(GetParam()) == "patterns" && std::string(one.name).find("1.mlp") != std::string::npos;
    EXPECT_EQ(one.rank, one.rank == 0 ? 0u : is_two ? 2u : is_three ? 3u : 4u) << one.name;
  }
  EXPECT_EQ(n_found, n_merged);
  const auto off = gaps(base.get(), tuned.get());
  ASSERT_FALSE(off.empty());
  for (const auto &[name, gap] : off) EXPECT_LE(gap, 2e-6) << name;
}

INSTANTIATE_TEST_SUITE_P(Merged, OfAKind, testing::Values("linear", "patterns", "gpt2", "saved", "bias", "embedding"),
                         [](const auto &tested) { return tested.param; });

// The printed error is that of the model: base + adapter is off by it, and by f32's rounding.
TEST_F(Extract, IsOffByTheErrorThatItSays) {
  for (const char *kind : {"linear", "gpt2"}) {
    IndexPointer base = open(kData + kind + "/base"), tuned = open(merged(kind));
    ASSERT_EQ(extract(base.get(), tuned.get(), Wanted(2, 0)), CKPT_OK) << text_of(err_);
    const auto off = gaps(base.get(), tuned.get());
    ckpt_extracted one;
    size_t n = 0;
    for (size_t i = 0; ckpt_extract_at(extraction_, i, &one); i++) {
      if (one.rank == 0) continue;
      n++;
      EXPECT_EQ(one.rank, 2u);
      EXPECT_GT(one.error, 0.01 * one.norm);
      EXPECT_LT(one.error, one.norm);
      EXPECT_NEAR(off.at(one.name), one.error, 1e-6) << one.name;
    }
    EXPECT_GT(n, 7u);
  }
}

// Models of a few tensors, in safetensors: name, shape, value of all elements or of the first.
std::string Model(const std::vector<std::tuple<std::string, std::vector<size_t>, float>> &tensors) {
  std::string header, data;
  for (const auto &[name, shape, value] : tensors) {
    const size_t begin = data.size();
    size_t n = 1;
    std::string axes;
    for (size_t axis : shape) n *= axis, axes += (axes.empty() ? "" : ",") + std::to_string(axis);
    for (size_t i = 0; i < n; i++) {
      const float own = i == 0 ? value : 1.0F;
      data.append(reinterpret_cast<const char *>(&own), 4);
    }
    header += (header.empty() ? "" : ",") +
              ("\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[" + axes + "],\"data_offsets\":[" +
               std::to_string(begin) + "," + std::to_string(data.size()) + "]}");
  }
  header = "{" + header + "}";
  std::string bytes(8, '\0');
  while (header.size() % 8 != 0) header += ' ';
  for (size_t i = 0; i < 8; i++) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  return bytes + header + data;
}

class Pairs : public Extract {
 protected:
  void refuse(const std::string &base, const std::string &tuned, const std::string &message,
              ckpt_extract_options options = Wanted(1, 0)) {
    folder_.write("base.safetensors", base);
    folder_.write("tuned.safetensors", tuned);
    IndexPointer a = open(folder_ / "base.safetensors"), b = open(folder_ / "tuned.safetensors");
    EXPECT_NE(extract(a.get(), b.get(), options), CKPT_OK) << message;
    EXPECT_NE(text_of(err_).find(message), std::string::npos) << text_of(err_);
  }
};

TEST_F(Pairs, ThatAreNoTwoOfOneModelAreRefused) {
  const std::string w = "layers.0.w.weight", one = Model({{w, {4, 6}, 1}});
  refuse(one, one, "does not differ from");
  refuse(one, Model({{w, {6, 4}, 2}}), "is [6,4], and [4,6] in");
  refuse(one, Model({{"layers.0.v.weight", {4, 6}, 2}}), "tensor 'layers.0.v.weight': is missing in");
  refuse(Model({{w, {4, 6}, 1}, {"b", {3}, 1}}), Model({{w, {4, 6}, 2}}), "tensor 'b': is missing in");
  refuse(one, Model({{w, {4, 6}, NAN}}), "tensor 'layers.0.w.weight': differs by values that are not finite");
  refuse(one, Model({{w, {4, 6}, INFINITY}}), "not finite");
  refuse(one, Model({{w, {4, 6}, 2}}), "has more than rank 4", Wanted(5, 0));
  refuse(one, Model({{w, {4, 6}, 2}}), "1 is no share", Wanted(0, 1));
  refuse(one, Model({{w, {4, 6}, 2}}), "nan is no share", Wanted(0, NAN));
  std::string ints = one;
  ints.replace(ints.find("F32"), 3, "I32");
  refuse(ints, one, "is i32, of which no difference is taken");
}

TEST_F(Pairs, OfWhichOnlyAVectorDiffersGiveWhatIsSavedWhole) {
  folder_.write("base.safetensors", Model({{"layers.0.w.weight", {4, 6}, 1}, {"layers.0.norm.weight", {6}, 1}}));
  folder_.write("tuned.safetensors", Model({{"layers.0.w.weight", {4, 6}, 1}, {"layers.0.norm.weight", {6}, 3}}));
  IndexPointer base = open(folder_ / "base.safetensors"), tuned = open(folder_ / "tuned.safetensors");
  ASSERT_EQ(extract(base.get(), tuned.get(), Wanted(1, 0)), CKPT_OK) << text_of(err_);
  ckpt_index *adapter = nullptr;
  ASSERT_EQ(ckpt_extract_adapter(&adapter, extraction_, &err_), CKPT_OK) << text_of(err_);
  ASSERT_EQ(ckpt_index_count(adapter), 1u);
  EXPECT_STREQ(ckpt_index_at(adapter, 0)->name, "base_model.model.layers.0.norm.weight");
  const std::string config = adapter->side_files[0].text;
  EXPECT_NE(config.find("\"layers.0.norm\""), std::string::npos) << config;
  EXPECT_NE(config.find("\"target_modules\": \"dummy-target-modules\""), std::string::npos) << config;
  ckpt_index_free(adapter);
}

// What is left out may differ, be missing in one of the two, or have another shape.
TEST_F(Pairs, LeaveOutWhatIsExcluded) {
  const std::string w = "layers.0.w.weight", v = "layers.1.w.weight";
  const std::string base = Model({{w, {4, 6}, 1}, {v, {4, 6}, 1}, {"old.weight", {2, 2}, 1}});
  const std::string tuned = Model({{w, {4, 6}, 2}, {v, {6, 4}, 1}, {"new.weight", {2, 2}, 1}});
  const char *both[] = {"*.1.*", "*.weight", nullptr}, *some[] = {v.c_str(), "old.*", "new.*", nullptr};
  const char *none[] = {"nothing", nullptr}, *one[] = {v.c_str(), nullptr};
  ckpt_extract_options options = {};
  options.rank = 1;
  options.exclude = none;
  refuse(base, base, "exclude 'nothing' matches no tensor", options);
  options.exclude = one;
  refuse(base, tuned, "is missing in", options);
  options.exclude = both;
  refuse(base, tuned, "does not differ", options);
  options.exclude = some;
  folder_.write("base.safetensors", base);
  folder_.write("tuned.safetensors", tuned);
  IndexPointer a = open(folder_ / "base.safetensors"), b = open(folder_ / "tuned.safetensors");
  ASSERT_EQ(extract(a.get(), b.get(), options), CKPT_OK) << text_of(err_);
  ckpt_extracted found;
  ASSERT_TRUE(ckpt_extract_at(extraction_, 0, &found));
  EXPECT_EQ(found.name, w);
  EXPECT_FALSE(ckpt_extract_at(extraction_, 1, &found));
}

// Buffers are the base's, whichever of the two models has them.
TEST_F(Pairs, LeaveBuffersOut) {
  const std::string w = "model.layers.0.self_attn.q_proj.weight", layer = "model.layers.0.self_attn.rotary_emb.";
  const auto model = [&](const std::string &name, float value, const std::vector<float> &buffers) {
    std::vector<std::tuple<std::string, std::vector<size_t>, float>> tensors = {{w, {4, 6}, value}};
    for (float buffer : buffers) tensors.push_back({layer + "inv_freq", {2}, buffer});
    folder_.write(name + "/config.json", R"({"model_type":"llama","architectures":["LlamaForCausalLM"]})");
    folder_.write(name + "/model.safetensors", Model(tensors));
    return open(folder_ / name);
  };
  const std::vector<std::pair<std::vector<float>, std::vector<float>>> both = {{{1}, {}}, {{}, {1}}, {{1}, {2}}};
  for (size_t i = 0; i < both.size(); i++) {
    IndexPointer base = model("base" + std::to_string(i), 1, both[i].first);
    IndexPointer tuned = model("tuned" + std::to_string(i), 2, both[i].second);
    ASSERT_EQ(ckpt_index_count(base.get()), 1 + both[i].first.size());
    ASSERT_EQ(ckpt_index_count(tuned.get()), 1 + both[i].second.size());
    ASSERT_EQ(extract(base.get(), tuned.get(), Wanted(1, 0)), CKPT_OK) << text_of(err_);
    ckpt_extracted one;
    ASSERT_TRUE(ckpt_extract_at(extraction_, 0, &one));
    EXPECT_EQ(one.name, w);
    EXPECT_FALSE(ckpt_extract_at(extraction_, 1, &one));
    const auto off = gaps(base.get(), tuned.get());
    EXPECT_LE(off.at(w), 1e-6);
  }
}

// What PEFT finds in the model: whole modules, under the names of the model, and none with factors below it.
class Modules : public Pairs {
 protected:
  using Tensors = std::vector<std::tuple<std::string, std::vector<size_t>, float>>;
  // The names of the adapter's tensors without PEFT's prefix, where the tensors of `changed` differ.
  std::set<std::string> extracted(const std::string &config, const Tensors &tensors,
                                  const std::set<std::string> &changed) {
    Tensors tuned = tensors;
    for (auto &[name, shape, value] : tuned) value += changed.count(name) != 0 ? 2.0F : 0.0F;
    const std::string number = std::to_string(n_++);
    for (const bool is_tuned : {false, true}) {
      const std::string name = (is_tuned ? "tuned" : "base") + number;
      folder_.write(name + "/config.json", config);
      folder_.write(name + "/model.safetensors", Model(is_tuned ? tuned : tensors));
    }
    base_ = open(folder_ / ("base" + number));
    tuned_ = open(folder_ / ("tuned" + number));
    std::set<std::string> names;
    ckpt_index *adapter = nullptr;
    status_ = extract(base_.get(), tuned_.get(), Wanted(1, 0));
    if (status_ == CKPT_OK) status_ = ckpt_extract_adapter(&adapter, extraction_, &err_);
    if (status_ != CKPT_OK) return names;
    for (size_t i = 0; i < ckpt_index_count(adapter); i++)
      names.insert(std::string(ckpt_index_at(adapter, i)->name).substr(strlen("base_model.model.")));
    config_ = adapter->side_files[0].text;
    ckpt_index_free(adapter);
    for (const auto &[name, gap] : gaps(base_.get(), tuned_.get())) EXPECT_LE(gap, 1e-6) << name;
    return names;
  }
  std::set<std::string> saved() const {
    const size_t first = config_.find("modules_to_save"), end = config_.find("peft_type");
    std::set<std::string> names;
    for (size_t at = config_.find('[', first); at < end;) {
      const size_t quote = config_.find('"', at + 1), close = config_.find('"', quote + 1);
      if (close >= end) break;
      names.insert(config_.substr(quote + 1, close - quote - 1));
      at = close;
    }
    return names;
  }
  IndexPointer base_{nullptr, ckpt_index_free}, tuned_{nullptr, ckpt_index_free};
  ckpt_status status_ = CKPT_OK;
  std::string config_;
  int n_ = 0;
};

using Names = std::set<std::string>;

TEST_F(Modules, HaveAllTheirParametersOnceOneDiffers) {
  const Tensors tensors = {{"h.0.ln.weight", {4}, 1}, {"h.0.ln.bias", {4}, 1}, {"h.0.q.weight", {4, 4}, 1}};
  EXPECT_EQ(extracted("{}", tensors, {"h.0.ln.bias"}), (Names{"h.0.ln.weight", "h.0.ln.bias"}));
  EXPECT_EQ(saved(), Names{"h.0.ln"});
  const Tensors head = {{"cls.predictions.bias", {4}, 1},
                        {"cls.predictions.transform.dense.weight", {4, 4}, 1},
                        {"cls.predictions.transform.dense.bias", {4}, 1},
                        {"layer.0.dense.weight", {4, 4}, 1}};
  EXPECT_EQ(
      extracted(R"({"model_type":"bert","architectures":["BertForMaskedLM"]})", head,
                {"cls.predictions.bias", "cls.predictions.transform.dense.weight", "layer.0.dense.weight"}),
      (Names{"cls.predictions.bias", "cls.predictions.decoder.bias", "cls.predictions.transform.dense.weight",
             "cls.predictions.transform.dense.bias", "layer.0.dense.lora_A.weight", "layer.0.dense.lora_B.weight"}));
  EXPECT_EQ(saved(), Names{"cls.predictions"});
  const Tensors sinks = {{"l.0.attn.sinks", {4}, 1}, {"l.0.attn.q.weight", {4, 4}, 1}, {"l.0.attn.q.bias", {4}, 1}};
  EXPECT_EQ(extracted("{}", sinks, {"l.0.attn.sinks", "l.0.attn.q.weight"}),
            (Names{"l.0.attn.sinks", "l.0.attn.q.weight", "l.0.attn.q.bias"}));
  const Tensors ends = {{"norm.weight", {4}, 1}, {"h.0.input_norm.weight", {4}, 1}, {"h.0.q.weight", {4, 4}, 1}};
  EXPECT_EQ(extracted("{}", ends, {"norm.weight"}), (Names{"norm.weight", "h.0.input_norm.weight"}));
  EXPECT_EQ(extracted("{}", {{"logit_scale", {1}, 1}, {"h.0.q.weight", {4, 4}, 1}}, {"logit_scale"}), Names{});
  EXPECT_EQ(status_, CKPT_EUNSUPPORTED);
  EXPECT_NE(text_of(err_).find("'logit_scale': differs, and is of no module that PEFT could save"), std::string::npos);
}

TEST_F(Modules, AreThoseOfTheModelUnderEveryNameOfATie) {
  const Tensors t5 = {{"shared.weight", {8, 4}, 1},
                      {"encoder.block.0.layer.0.SelfAttention.q.weight", {4, 4}, 1},
                      {"decoder.block.0.layer.0.SelfAttention.q.weight", {4, 4}, 1}};
  EXPECT_EQ(extracted(R"({"model_type":"t5","architectures":["T5ForConditionalGeneration"]})", t5, {"shared.weight"}),
            (Names{"shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"}));
  const Tensors roberta = {{"roberta.embeddings.word_embeddings.weight", {8, 4}, 1},
                           {"lm_head.bias", {8}, 1},
                           {"lm_head.dense.weight", {4, 4}, 1}};
  EXPECT_EQ(extracted(R"({"model_type":"roberta","architectures":["RobertaForMaskedLM"]})", roberta,
                      {"roberta.embeddings.word_embeddings.weight"}),
            (Names{"roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight", "lm_head.decoder.bias"}));
  EXPECT_EQ(saved(), (Names{"roberta.embeddings.word_embeddings", "lm_head.decoder"}));
  const Tensors distilbert = {{"distilbert.embeddings.word_embeddings.weight", {8, 4}, 1},
                              {"vocab_projector.bias", {8}, 1},
                              {"distilbert.transformer.layer.0.attention.q_lin.weight", {4, 4}, 1}};
  EXPECT_EQ(extracted(R"({"model_type":"distilbert","architectures":["DistilBertForMaskedLM"]})", distilbert,
                      {"distilbert.embeddings.word_embeddings.weight"}),
            (Names{"distilbert.embeddings.word_embeddings.weight", "vocab_projector.weight", "vocab_projector.bias"}));
  Tensors apart = distilbert; /* a file with both matrices */
  apart.push_back({"vocab_projector.weight", {8, 4}, 1});
  EXPECT_EQ(extracted(R"({"model_type":"distilbert","architectures":["DistilBertForMaskedLM"]})", apart,
                      {"distilbert.embeddings.word_embeddings.weight"}),
            Names{"distilbert.embeddings.word_embeddings.weight"});
  const Tensors neox = {{"gpt_neox.embed_in.weight", {8, 4}, 1}, {"embed_out.weight", {8, 4}, 1}};
  EXPECT_EQ(
      extracted(R"({"model_type":"gpt_neox","architectures":["GPTNeoXForCausalLM"]})", neox, {"embed_out.weight"}),
      Names{"lm_head.weight"});
  EXPECT_EQ(saved(), Names{"lm_head"});
}

// PEFT stacks experts, and has a router as a module of its own.
TEST_F(Modules, OfExpertsHaveOneRankAndTheirRouterIsWhole) {
  const std::string moe = "model.layers.0.block_sparse_moe.";
  Tensors tensors = {{moe + "gate.weight", {2, 4}, 1}, {"model.layers.0.self_attn.w1.weight", {4, 4}, 1}};
  for (const char *part : {"experts.0.w1", "experts.1.w1", "experts.0.w3", "experts.1.w3"})
    tensors.push_back({moe + part + ".weight", {4, 4}, 1});
  Names wanted = {"model.layers.0.mlp.gate.weight", "model.layers.0.self_attn.w1.weight"};
  for (const char *part : {"experts.0.w1", "experts.1.w1", "experts.0.w3", "experts.1.w3"})
    for (const char *factor : {".lora_A.weight", ".lora_B.weight"}) wanted.insert(moe + part + factor);
  EXPECT_EQ(extracted("{}", tensors,
                      {moe + "gate.weight", moe + "experts.1.w1.weight", "model.layers.0.self_attn.w1.weight"}),
            wanted);
  EXPECT_EQ(saved(), (Names{"model.layers.0.mlp.gate", "model.layers.0.self_attn.w1"}));
}

TEST_F(Modules, OfConv1DHaveTheirFactorsTransposed) {
  const Tensors tensors = {{"transformer.h.0.attn.c_attn.weight", {4, 12}, 1}};
  extracted(R"({"model_type":"openai-gpt","architectures":["OpenAIGPTLMHeadModel"]})", tensors,
            {"transformer.h.0.attn.c_attn.weight"});
  ckpt_index *adapter = nullptr;
  ASSERT_EQ(ckpt_extract_adapter(&adapter, extraction_, &err_), CKPT_OK) << text_of(err_);
  const ckpt_tensor *a = ckpt_index_at(adapter, 0);
  EXPECT_EQ(a->shape[0], 1u);
  EXPECT_EQ(a->shape[1], 4u) << a->name;
  EXPECT_NE(config_.find("\"fan_in_fan_out\": true"), std::string::npos) << config_;
  EXPECT_NE(config_.find("\"c_attn\""), std::string::npos) << config_;
  ckpt_index_free(adapter);
}

// A count of batches is a buffer, and goes along as the base's where its module is saved.
TEST_F(Modules, KeepTheIntegersOfTheBase) {
  const auto model = [](float weight, char count, const char *counter) {
    std::string bytes = Model({{"norm.weight", {2}, weight}, {counter, {2}, 0}, {"x.q.weight", {4, 4}, 1}});
    const std::string name = "\"" + std::string(counter) + "\":{\"dtype\":\"";
    bytes.replace(bytes.find(name) + name.size(), 3, "I32");
    bytes[bytes.size() - 64 - 8] = count;
    return bytes;
  };
  folder_.write("base.safetensors", model(1, 3, "norm.num_batches_tracked"));
  folder_.write("tuned.safetensors", model(2, 5, "norm.num_batches_tracked"));
  IndexPointer base = open(folder_ / "base.safetensors"), tuned = open(folder_ / "tuned.safetensors");
  ASSERT_EQ(extract(base.get(), tuned.get(), Wanted(1, 0)), CKPT_OK) << text_of(err_);
  ckpt_index *adapter = nullptr;
  ASSERT_EQ(ckpt_extract_adapter(&adapter, extraction_, &err_), CKPT_OK) << text_of(err_);
  ASSERT_EQ(ckpt_index_count(adapter), 2u);
  uint32_t count[2];
  ASSERT_EQ(ckpt_read(adapter, ckpt_index_at(adapter, 0), nullptr, CKPT_I32, count, sizeof count, &err_), CKPT_OK);
  EXPECT_EQ(count[0] & 0xff, 3u);
  ckpt_index_free(adapter);
  refuse(model(1, 3, "norm.position_ids"), model(2, 5, "norm.position_ids"), "differs, and is i32");
  folder_.write("base.safetensors", model(1, 3, "norm.position_ids"));
  folder_.write("tuned.safetensors", model(2, 3, "norm.position_ids"));
  base = open(folder_ / "base.safetensors");
  tuned = open(folder_ / "tuned.safetensors");
  EXPECT_EQ(extract(base.get(), tuned.get(), Wanted(1, 0)), CKPT_OK) << text_of(err_);
}

TEST_F(Pairs, OfABaseThatNoConfigCanNameAreRefusedBeforeTheWork) {
  const std::string w = "layers.0.w.weight", path = folder_ / "base\xff.safetensors";
  folder_.write("base\xff.safetensors", Model({{w, {4, 6}, 1}}));
  folder_.write("tuned.safetensors", Model({{w, {4, 6}, 2}}));
  IndexPointer base = open(path), tuned = open(folder_ / "tuned.safetensors");
  const ckpt_extract_options options = Wanted(1, 0);
  EXPECT_EQ(ckpt_extract_open(&extraction_, base.get(), tuned.get(), &options, &err_), CKPT_EINVAL);
  EXPECT_EQ(err_.file, path);
  EXPECT_NE(text_of(err_).find("is no UTF-8 text, and adapter_config.json cannot name it"), std::string::npos);
}

// Memory is that of the largest matrix: the plan says no less than it and a few long vectors, whatever else is there.
TEST_F(Pairs, TakeTheMemoryOfTheLargestMatrix) {
  folder_.write("base.safetensors",
                Model({{"layers.0.w.weight", {400, 600}, 1}, {"layers.1.w.weight", {400, 600}, 1}}));
  IndexPointer base = open(folder_ / "base.safetensors");
  const ckpt_extract_options options = Wanted(4, 0);
  ASSERT_EQ(ckpt_extract_open(&extraction_, base.get(), base.get(), &options, &err_), CKPT_OK);
  ckpt_extract_plan plan;
  ckpt_extract_describe(&plan, extraction_);
  EXPECT_EQ(plan.n_linear, 2u);
  EXPECT_EQ(plan.n_bytes_read, 4u * 400 * 600 * 4);
  EXPECT_STREQ(plan.largest->name, "layers.0.w.weight");
  EXPECT_GT(plan.memory, 8u * 400 * 600);
  EXPECT_LT(plan.memory, 5 * 8u * 400 * 600);
}

}  // namespace
