// Every call that the library makes fails in turn, in every whole operation: it fails as what it is, with a message,
// leaves outputs whole or as they were, no descriptor, and (under AddressSanitizer) no memory; or it ends as without
// the fault.
#include <dirent.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <sstream>

#include "tests/faults/wrapped.h"
#include "tests/libckpt/io/folder.h"

extern "C" {
#include "libckpt/ckpt.h"
#include "libckpt/plan/plan.h"
#include "libckpt/recipe/compare/diff.h"
#include "libckpt/recipe/convert/convert.h"
#include "libckpt/recipe/convert/receipt.h"
#include "libckpt/recipe/records/manifest.h"
#include "libckpt/recipe/verify/verify.h"
}

namespace {

namespace fs = std::filesystem;
using wrapped::Fault;
using wrapped::Kind;
using Files = std::map<std::string, std::string>;

const std::string kInput = CKPT_TESTS_DIR "/data/llama-tiny";
const bool kIsFull = getenv("CKPT_TEST_FULL") != nullptr;

ckpt_run_options RunOptions() {
  ckpt_run_options run = {};
  run.struct_size = sizeof run;
  run.memory = 16 << 20;
  run.n_threads = 2;
  return run;
}

std::string Slurp(const fs::path &path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

int CountDescriptors() {
  int n = 0;
  for (const auto &entry : fs::directory_iterator("/proc/self/fd")) n += !entry.path().empty();
  return n;
}

class Library : public testing::Test {
 protected:
  // What an operation found out: the same each time it succeeds.
  using Operation = std::function<ckpt_status(std::string *result, ckpt_error *err)>;

  // The work folder is empty but for the files of before_.
  void Reset() {
    fs::remove_all(work_);
    fs::create_directories(work_);
    for (const auto &[name, text] : before_) {
      fs::create_directories((work_ / name).parent_path());
      std::ofstream(work_ / name, std::ios::binary) << text;
    }
  }

  // Files in the work folder, by the output that they belong to.
  std::map<std::string, Files> Outputs() {
    std::map<std::string, Files> outputs;
    for (const auto &entry : fs::recursive_directory_iterator(work_)) {
      fs::path name = fs::relative(entry.path(), work_);
      outputs[name.begin()->string()][name.string()] = entry.is_directory() ? "/" : Slurp(entry.path());
    }
    return outputs;
  }

  // One run with a fault; whether it was hit.
  bool RunOnce(const Operation &operation, Kind kind, long n) {
    Reset();
    auto before = Outputs();
    std::string result;
    ckpt_error err = {};
    int n_descriptors = CountDescriptors();
    ckpt_status status;
    bool is_hit;
    {
      Fault fault(kind, n);
      status = operation(&result, &err);
      is_hit = fault.is_hit();
    }
    EXPECT_EQ(CountDescriptors(), n_descriptors) << "descriptors leak";
    EXPECT_EQ(status, err.status) << err.message;
    if (status == CKPT_OK) {
      EXPECT_EQ(result, good_result_);
      EXPECT_EQ(Outputs(), good_outputs_);
      return is_hit;
    }
    n_failed_++;
    EXPECT_TRUE(is_hit) << "failed without a fault: " << err.file << ": " << err.message;
    EXPECT_STRNE(err.message, "");
    EXPECT_EQ(status, kind == wrapped::kMemory ? CKPT_ENOMEM : status) << err.message;
    bool is_kept = kind == wrapped::kLook && status == CKPT_EEXIST;  // what cannot be looked at is never replaced
    EXPECT_TRUE(status == CKPT_ENOMEM || status == CKPT_EIO || is_kept)
        << status << ": " << err.file << ": " << err.message;
    auto after = Outputs();
    for (auto all : {before, after, good_outputs_})
      for (const auto &[name, files] : all)
        EXPECT_TRUE(after[name] == before[name] || after[name] == good_outputs_[name])
            << name << " is neither old nor new after: " << err.message;
    return is_hit;
  }

  void Loop(const Operation &operation) {
    Reset();
    ckpt_error err = {};
    ASSERT_EQ(operation(&good_result_, &err), CKPT_OK) << err.file << ": " << err.message;
    good_outputs_ = Outputs();
    std::string line;
    for (int kind = wrapped::kMemory; kind < wrapped::kShort; kind++) {
      bool is_hit = true;
      long n = 1;
      for (; is_hit; n += Step(n)) {
        ASSERT_LT(n, 20000);
        SCOPED_TRACE(std::string(wrapped::NameOf(static_cast<Kind>(kind))) + " " + std::to_string(n));
        is_hit = RunOnce(operation, static_cast<Kind>(kind), n);
        if (HasFailure()) return;
      }
      line += std::string(" ") + wrapped::NameOf(static_cast<Kind>(kind)) + " " + std::to_string(n - 1);
    }
    SCOPED_TRACE("short");
    n_failed_ = 0;
    EXPECT_TRUE(RunOnce(operation, wrapped::kShort, 0));
    EXPECT_EQ(n_failed_, 0) << "short transfers were noticed";
    printf("up to%s\n", line.c_str());
  }

  // Past the first calls normal runs leave some out.
  long Step(long n) { return kIsFull || n < n_all_ ? 1 : 1 + static_cast<long>(random_() % (n < 100 ? 4 : 24)); }

  Folder own_;
  fs::path root_ = own_.path(), work_ = root_ / "work";
  Files before_;
  long n_all_ = 24;
  std::string good_result_;
  std::map<std::string, Files> good_outputs_;
  std::minstd_rand random_{std::random_device{}()};
  int n_failed_ = 0;
};

std::string Text(const ckpt_digest &digest) {
  char text[80];
  return ckpt_digest_text(&digest, text);
}

ckpt_status Hash(const std::string &path, std::string *result, ckpt_error *err) {
  ckpt_index *index = nullptr;
  ckpt_run_options run = RunOptions();
  ckpt_hash_options options = {};
  options.struct_size = sizeof options;
  options.run = &run;
  ckpt_digest digest;
  ckpt_status status = ckpt_open(&index, path.c_str(), nullptr, err);
  if (status == CKPT_OK) status = ckpt_hash(index, &options, &digest, err);
  if (status == CKPT_OK) *result = Text(digest);
  ckpt_index_free(index);
  return status;
}

TEST_F(Library, Hash) {
  Loop([](std::string *result, ckpt_error *err) { return Hash(kInput, result, err); });
}

TEST_F(Library, HashOfPyTorchFiles) {
  for (const char *name : {"training", "legacy", "deflated", "sparse", "dtensor"})
    Loop([&](std::string *result, ckpt_error *err) {
      return Hash(std::string(CKPT_TESTS_DIR "/data/torch/") + name + ".pt", result, err);
    });
}

// Opening takes memory through protobuf-c too, whose failure is no defect of the file.
TEST_F(Library, HashOfOnnxModels) {
  n_all_ = 300;
  Loop([](std::string *result, ckpt_error *err) { return Hash(CKPT_TESTS_DIR "/data/onnx/nested.onnx", result, err); });
}

TEST_F(Library, ReadsTensors) {
  Loop([](std::string *result, ckpt_error *err) {
    ckpt_index *index = nullptr;
    ckpt_status status = ckpt_open(&index, kInput.c_str(), nullptr, err);
    std::string bytes;
    for (const char *name : {"model.norm.weight", "model.layers.3.mlp.up_proj.weight"}) {
      if (status != CKPT_OK) break;
      const ckpt_tensor *tensor = ckpt_index_find(index, name);
      bytes.resize(tensor->n_elements * 4);
      status = ckpt_read(index, tensor, nullptr, CKPT_F32, bytes.data(), bytes.size(), err);
      *result += bytes;
    }
    ckpt_index_free(index);
    return status;
  });
}

class Conversion : public Library {
 protected:
  std::string input_ = kInput;

  // A conversion through the public interface; the digest is its result.
  void LoopConvert(const std::string &output, ckpt_convert_options options = {}) {
    ckpt_run_options run = RunOptions();
    ckpt_digest digest;
    std::string path = work_ / output;
    options.struct_size = sizeof options;
    options.input = input_.c_str();
    options.output = path.c_str();
    options.run = &run;
    options.digest = &digest;
    options.force = !before_.empty();
    Loop([&](std::string *result, ckpt_error *err) {
      ckpt_status status = ckpt_convert(&options, err);
      if (status == CKPT_OK) *result = Text(digest);
      return status;
    });
  }
};

TEST_F(Conversion, ToAFile) { LoopConvert("o.safetensors"); }

TEST_F(Conversion, OverAFile) {
  before_["o.safetensors"] = "old";
  LoopConvert("o.safetensors");
}

// The calls that find out what a reader would call the tensors are among the first.
TEST_F(Conversion, OfPyTorchFiles) {
  n_all_ = 200;
  for (const char *name : {"torch/training.pt", "dcp/fsdp4"}) {
    input_ = std::string(CKPT_TESTS_DIR "/data/") + name;
    LoopConvert("o.pt");
    if (HasFailure()) return;
  }
}

TEST_F(Conversion, OfTrainingStateToDeepSpeed) {
  input_ = std::string(CKPT_TESTS_DIR "/data/zero/stage2-fp16");
  for (const char *format : {"zero", "universal"}) {
    ckpt_convert_options options = {};
    options.to = format;
    options.include = "all";
    options.world = 2;
    LoopConvert("o", options);
    if (HasFailure()) return;
  }
}

TEST_F(Conversion, ToShards) {
  ckpt_convert_options options = {};
  options.shard_size = 100000;
  LoopConvert("o", options);
}

TEST_F(Conversion, OverAFolder) {
  before_["o/model.safetensors"] = "old";
  before_["o/config.json"] = "{}";
  LoopConvert("o");
}

TEST_F(Conversion, CastAndSelection) {
  const ckpt_cast_rule casts[] = {{"*norm*", CKPT_F32}, {nullptr, CKPT_F16}};
  const char *const match[] = {"model.layers.*", nullptr}, *const rename[] = {"s/layers/h/", nullptr};
  ckpt_convert_options options = {};
  options.casts = casts;
  options.n_casts = 2;
  options.match = match;
  options.rename = rename;
  LoopConvert("o.safetensors", options);
}

TEST_F(Library, Manifests) {
  std::string path = work_ / "m.json";
  Loop([&](std::string *result, ckpt_error *err) {
    ckpt_index *index = nullptr;
    ckpt_hashing hashing = {};
    ckpt_manifest *manifest = nullptr, *again = nullptr;
    ckpt_run_options run = RunOptions();
    ckpt_hash_options options = {};
    ckpt_status status = ckpt_open(&index, kInput.c_str(), nullptr, err);
    if (status == CKPT_OK) status = ckpt_hashing_start(&hashing, index, &options, err);
    if (status == CKPT_OK) {
      const ckpt_proof proof = ckpt_hashing_proof(&hashing);
      status = ckpt_prove(&proof, &run, nullptr, nullptr, err);
    }
    if (status == CKPT_OK) status = ckpt_manifest_new(&manifest, &hashing, nullptr, err);
    if (status == CKPT_OK) status = ckpt_manifest_write(manifest, path.c_str(), false, err);
    if (status == CKPT_OK) status = ckpt_manifest_read(&again, path.c_str(), err);
    if (status == CKPT_OK) *result = Text(again->digest) + " " + std::to_string(again->n);
    ckpt_manifest_free(again);
    ckpt_manifest_free(manifest);
    ckpt_hashing_end(&hashing);
    ckpt_index_free(index);
    return status;
  });
}

// Two outputs and a receipt in one commit.
ckpt_status ConvertWithReceipt(const fs::path &folder, ckpt_error *err) {
  std::string file = folder / "o.safetensors", other = folder / "o", receipt_path = folder / "r.json";
  ckpt_index *index = nullptr;
  ckpt_plan *plan = nullptr;
  ckpt_sink *receipt = nullptr;
  ckpt_run_options run = RunOptions();
  ckpt_convert_options options = {};
  options.struct_size = sizeof options;
  options.input = kInput.c_str();
  const ckpt_convert_target targets[] = {{file.c_str(), nullptr, 0, 0, 0, nullptr, 0},
                                         {other.c_str(), nullptr, 0, 0, 0, nullptr, 0}};
  ckpt_convert_request request = {};
  request.verb = "convert";
  request.targets = targets;
  request.n_targets = 2;
  request.options = &options;
  ckpt_status status = ckpt_open(&index, kInput.c_str(), nullptr, err);
  request.from = index;
  if (status == CKPT_OK) status = ckpt_plan_new(&plan, err);
  if (status == CKPT_OK) status = ckpt_convert_plan(plan, &request, err);
  if (status == CKPT_OK) status = ckpt_plan_sink(plan, receipt_path.c_str(), false, false, &receipt, err);
  if (status == CKPT_OK) status = ckpt_receipt_plan(plan, &request, err);
  if (status == CKPT_OK) status = ckpt_convert_run(plan, &request, &run, receipt, err);
  ckpt_sink_free(receipt);
  ckpt_plan_free(plan);
  ckpt_index_free(index);
  return status;
}

TEST_F(Library, SeveralOutputsAndAReceipt) {
  Loop([&](std::string *, ckpt_error *err) { return ConvertWithReceipt(work_, err); });
}

TEST_F(Library, ReplayOfAReceipt) {
  fs::create_directories(root_ / "made");
  ASSERT_EQ(ConvertWithReceipt(root_ / "made", nullptr), CKPT_OK);
  std::string receipt = root_ / "made/r.json", output = root_ / "made/o.safetensors";
  Loop([&](std::string *result, ckpt_error *err) {
    ckpt_run_options run = RunOptions();
    auto report = [](void *arg, const ckpt_error *problem) { *static_cast<std::string *>(arg) += problem->message; };
    return ckpt_receipt_replay(receipt.c_str(), output.c_str(), nullptr, &run, report, result, nullptr, err);
  });
}

TEST_F(Library, Diff) {
  ckpt_run_options run = RunOptions();
  ckpt_convert_options convert = {};
  std::string cast = root_ / "cast.safetensors";
  const ckpt_cast_rule rule = {nullptr, CKPT_F16};
  convert.struct_size = sizeof convert;
  convert.input = kInput.c_str();
  convert.output = cast.c_str();
  convert.casts = &rule;
  convert.n_casts = 1;
  ASSERT_EQ(ckpt_convert(&convert, nullptr), CKPT_OK);
  Loop([&](std::string *result, ckpt_error *err) {
    ckpt_index *a = nullptr, *b = nullptr;
    ckpt_diff *diff = nullptr;
    ckpt_diff_options options = {};
    options.cast = CKPT_F32;
    ckpt_status status = ckpt_open(&a, kInput.c_str(), nullptr, err);
    if (status == CKPT_OK) status = ckpt_open(&b, cast.c_str(), nullptr, err);
    if (status == CKPT_OK) status = ckpt_diff_new(&diff, a, b, &options, err);
    if (status == CKPT_OK) {
      const ckpt_proof proof = ckpt_diff_proof(diff);
      status = ckpt_prove(&proof, &run, nullptr, nullptr, err);
    }
    for (size_t i = 0; status == CKPT_OK && i < diff->n; i++)
      *result += std::to_string(ckpt_diff_judge(&diff->pairs[i]));
    ckpt_diff_free(diff);
    ckpt_index_free(a);
    ckpt_index_free(b);
    return status;
  });
}

TEST_F(Library, Verify) {
  Loop([](std::string *result, ckpt_error *err) {
    ckpt_index *index = nullptr;
    ckpt_plan *plan = nullptr;
    ckpt_value_checks checks = {};
    ckpt_findings findings = {};
    ckpt_manifest *manifest = nullptr;
    ckpt_hashing hashing = {};
    ckpt_error tie = {};
    ckpt_run_options run = RunOptions();
    ckpt_status status = ckpt_open(&index, kInput.c_str(), nullptr, err);
    if (status == CKPT_OK) status = ckpt_verify_structure(&findings, index, err);
    if (status == CKPT_OK) status = ckpt_verify_config(&findings, index, nullptr, err);
    if (status == CKPT_OK) status = ckpt_plan_new(&plan, err);
    if (status == CKPT_OK) status = ckpt_hashing_start(&hashing, index, nullptr, err);
    size_t n = index == nullptr ? 0 : index->n_tensors;
    if (status == CKPT_OK) status = ckpt_hashing_add(&hashing, plan, 0, n, err);
    if (status == CKPT_OK) status = ckpt_verify_plan(&checks, plan, index, 0, n, err);
    if (status == CKPT_OK) status = ckpt_plan_run(plan, &run, err);
    if (status == CKPT_OK) ckpt_hashing_take(&hashing, plan);
    if (status == CKPT_OK) status = ckpt_verify_values(&findings, &checks, index, 0, n, err);
    if (status == CKPT_OK) status = ckpt_manifest_new(&manifest, &hashing, &tie, err);
    if (status == CKPT_OK) status = ckpt_verify_manifest(&findings, index, manifest, manifest, "m.json", err);
    for (size_t i = 0; status == CKPT_OK && i < findings.n; i++) *result += findings.items[i].message;
    ckpt_manifest_free(manifest);
    ckpt_findings_free(&findings);
    ckpt_value_checks_free(&checks);
    ckpt_hashing_end(&hashing);
    ckpt_plan_free(plan);
    ckpt_index_free(index);
    return status;
  });
}

// A cast into a file and a reduction, each cut into so many tiles; how often the run allocated.
long AllocationsOfRun(const std::string &input, const std::string &output, uint64_t n_tiles) {
  ckpt_index *index = nullptr;
  ckpt_plan *plan = nullptr;
  ckpt_run_options run = RunOptions();
  uint32_t sink;
  ckpt_expr *x = nullptr, *y = nullptr, *stats = nullptr;
  const void *value;
  EXPECT_EQ(ckpt_open(&index, input.c_str(), nullptr, nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_plan_new(&plan, nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_plan_output(plan, output.c_str(), nullptr, false, &sink, nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_expr_read(&x, plan, index, ckpt_index_find(index, "x"), nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_expr_read(&y, plan, index, ckpt_index_find(index, "y"), nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_expr_cast(&x, plan, x, CKPT_F16, nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_plan_add(plan, sink, "x", x, nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_expr_apply(&stats, plan, &ckpt_op_stats, CKPT_F64, &y, 1, nullptr, nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_plan_reduce(plan, "y", stats, &value, nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_plan_check(plan, &run, nullptr, nullptr, nullptr), CKPT_OK);
  EXPECT_EQ(plan->n_batches, 2u);
  for (uint32_t b = 0; b < plan->n_batches; b++) {
    ckpt_batch *batch = &plan->batches[b];
    batch->n_tiles = batch->has_value ? std::min<uint64_t>(n_tiles, 100) : n_tiles;
    EXPECT_EQ(batch->n_rows % batch->n_tiles, 0u);
    batch->tile_rows = batch->n_rows / batch->n_tiles;
  }
  long n = 0;
  {
    Fault none(wrapped::kMemory, 1000000000);
    ckpt_error err = {};
    EXPECT_EQ(ckpt_plan_run(plan, &run, &err), CKPT_OK) << err.message;
    n = none.n_calls();
  }
  EXPECT_EQ(static_cast<const ckpt_stats *>(value)->n, 100u * CKPT_REDUCE_ELEMENTS);
  ckpt_plan_free(plan);
  ckpt_index_free(index);
  return n;
}

TEST_F(Library, NothingIsAllocatedPerTile) {
  Reset();
  const uint64_t n_x = 4 * 2000 * 100, n_y = 100 * CKPT_REDUCE_ELEMENTS;
  std::string header = R"({"x":{"dtype":"F32","shape":[200000],"data_offsets":[0,)" + std::to_string(n_x) +
                       R"(]},"y":{"dtype":"U8","shape":[)" + std::to_string(n_y) + R"(],"data_offsets":[)" +
                       std::to_string(n_x) + "," + std::to_string(n_x + n_y) + "]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string input = work_ / "in.safetensors";
  uint64_t n_header = header.size();
  std::ofstream(input, std::ios::binary).write(reinterpret_cast<const char *>(&n_header), 8) << header;
  fs::resize_file(input, 8 + n_header + n_x + n_y);
  long n = AllocationsOfRun(input, work_ / "10.safetensors", 10);
  EXPECT_GT(n, 10);
  EXPECT_EQ(n, AllocationsOfRun(input, work_ / "1000.safetensors", 1000));
}

}  // namespace
