// Several ranks write what one writes: the same bytes, digests, values and counts, for any number of them; and one that
// fails takes all with it.
extern "C" {
#include "libckpt/base/group.h"
#include "libckpt/base/error.h"
}

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/libckpt/fake/fake_case.h"
#include "tests/libckpt/io/folder.h"
#include "tests/libckpt/run/ranks.h"

namespace {

using namespace fake;

TEST(Group, OfOneAgreesWithItself) {
  ckpt_error err = {};
  EXPECT_EQ(ckpt_group_agree(&ckpt_group_self, CKPT_EIO, &err), CKPT_EIO);
  EXPECT_EQ(ckpt_group_agree(&ckpt_group_self, CKPT_OK, &err), CKPT_OK);
}

TEST(Group, AgreesOnTheFirstFailure) {
  for (uint32_t size : {2u, 3u, 7u}) {
    Ranks ranks(size);
    ranks.run([&](const ckpt_group *group) {
      ckpt_error err = {};
      EXPECT_EQ(ckpt_group_agree(group, CKPT_OK, &err), CKPT_OK);
      ckpt_status mine = group->rank == 0 ? CKPT_OK : CKPT_EIO;
      if (mine != CKPT_OK)
        (void)ckpt_fail(&err, mine, "a.bin", "w", "of rank %u: %s", group->rank, std::string(900, 'x').c_str());
      EXPECT_EQ(ckpt_group_agree(group, mine, &err), CKPT_EIO);
      EXPECT_EQ(std::string(err.message), "of rank 1: " + std::string(900, 'x'));
      EXPECT_STREQ(err.file, "a.bin");
      EXPECT_STREQ(err.tensor, "w");
      EXPECT_EQ(ckpt_group_agree(group, CKPT_EIO, nullptr), CKPT_EIO);
    });
  }
}

// Item i of rank r is 1000 r + i; rank r gives n[r] of them.
struct Numbers {
  uint64_t given = 0, wanted, rank;
  std::vector<std::vector<uint64_t>> taken;
};

bool give_number(void *arg, void *item) {
  Numbers *n = static_cast<Numbers *>(arg);
  if (n->given == n->wanted) return false;
  uint64_t value = 1000000 * n->rank + n->given++;
  memcpy(item, &value, sizeof value);
  return true;
}

ckpt_status take_number(void *arg, const void *item, ckpt_error *) {
  uint64_t value;
  memcpy(&value, item, sizeof value);
  static_cast<Numbers *>(arg)->taken[value / 1000000].push_back(value % 1000000);
  return CKPT_OK;
}

TEST(Group, ExchangesEverythingInOrder) {
  for (uint64_t most : {0u, 1u, 5u, 4096u, 4097u, 20000u}) {  // a block of two ranks holds 4,097
    Ranks ranks(2);
    ranks.run([&](const ckpt_group *group) {
      Numbers n;
      n.rank = group->rank;
      n.wanted = group->rank == 0 ? most : most / 3;
      n.taken.resize(2);
      ckpt_error err = {};
      EXPECT_EQ(ckpt_group_exchange(group, sizeof(uint64_t), give_number, take_number, &n, &err), CKPT_OK);
      for (uint64_t rank = 0; rank < 2; rank++) {
        ASSERT_EQ(n.taken[rank].size(), rank == 0 ? most : most / 3);
        for (uint64_t i = 0; i < n.taken[rank].size(); i++) ASSERT_EQ(n.taken[rank][i], i);
      }
    });
  }
}

// What one rank cannot take ends the exchange for all: none goes on to another call alone.
TEST(Group, OneThatCannotTakeFailsAll) {
  Ranks ranks(3);
  ranks.run([&](const ckpt_group *group) {
    Numbers n;
    n.rank = group->rank;
    n.wanted = 5;
    n.taken.resize(3);
    ckpt_error err = {};
    auto take = [](void *arg, const void *item, ckpt_error *why) {
      return static_cast<Numbers *>(arg)->rank == 1 ? ckpt_fail(why, CKPT_EINTERNAL, nullptr, nullptr, "no room")
                                                    : take_number(arg, item, why);
    };
    EXPECT_EQ(ckpt_group_exchange(group, sizeof(uint64_t), give_number, take, &n, &err), CKPT_EINTERNAL);
    EXPECT_STREQ(err.message, "no room");
  });
}

ckpt_run_options options_of(const ckpt_group *group, uint32_t n_threads) {
  ckpt_run_options options = {};
  options.struct_size = sizeof options;
  options.memory = UINT64_C(200) << 20;
  options.n_threads = n_threads;
  options.group = group;
  return options;
}

TEST(Group, AnyNumberOfRanksWritesTheSame) {
  uint64_t n_boxed = 0;
  for (uint64_t seed = first_seed(); seed < first_seed() + n_cases(30); seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed) + " (CKPT_TEST_SEED)");
    Case alone(seed);
    ASSERT_NO_FATAL_FAILURE(alone.build(seed));
    ckpt_error err = {};
    ckpt_run_options options = options_of(nullptr, 1);
    ASSERT_EQ(ckpt_plan_run(alone.plan(), &options, &err), CKPT_OK) << text_of(err);
    uint32_t size = static_cast<uint32_t>(seed % 4 + 2);
    std::vector<std::unique_ptr<Case>> cases;
    for (uint32_t rank = 0; rank < size; rank++) {
      cases.push_back(std::make_unique<Case>(seed));
      if (rank == 0)
        cases[0]->build(seed);
      else
        cases[rank]->build_like(*cases[0], seed);
    }
    Ranks(size).run([&](const ckpt_group *group) {
      ckpt_error error = {};
      ckpt_run_options of_rank = options_of(group, static_cast<uint32_t>(seed % 2 + 1));
      EXPECT_EQ(ckpt_plan_run(cases[group->rank]->plan(), &of_rank, &error), CKPT_OK) << text_of(error);
    });
    for (uint32_t rank = 0; rank < size && !HasFailure(); rank++) {
      SCOPED_TRACE("rank " + std::to_string(rank) + " of " + std::to_string(size));
      ASSERT_NO_FATAL_FAILURE(cases[rank]->check_results());
      const ckpt_plan *plan = cases[rank]->plan();
      for (uint32_t i = 0; i < plan->n_rows; i++) {
        n_boxed += ckpt_row_is_boxed(plan, &plan->rows[i]);
        EXPECT_EQ(ckpt_row_stats(&plan->rows[i]).n_overflow != 0,
                  ckpt_row_stats(&alone.plan()->rows[i]).n_overflow != 0);
        EXPECT_EQ(ckpt_row_stats(&plan->rows[i]).largest, ckpt_row_stats(&alone.plan()->rows[i]).largest);
      }
      for (int i = 0; i < 2; i++)
        EXPECT_EQ(memcmp(&plan->outputs[i].digest, &alone.plan()->outputs[i].digest, sizeof(ckpt_digest)), 0);
    }
    for (int i = 0; i < 2 && !HasFailure(); i++) {
      EXPECT_TRUE(cases[0]->sink(i)->files == alone.sink(i)->files) << "output " << i;
      EXPECT_EQ(cases[0]->sink(i)->n_joined, static_cast<int>(size) - 1);
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(n_boxed, 0u);
}

// Whatever call fails on whatever rank: all say the same, nothing is published, nobody waits.
TEST(Group, AFailureOfOneIsAFailureOfAll) {
  Case reference(first_seed() + 900);
  for (long n = 1;; n += 1 + n / 6) {
    Faults faults;
    faults.fail_at = n;
    std::vector<std::unique_ptr<Case>> cases;
    for (uint32_t rank = 0; rank < 3; rank++) cases.push_back(std::make_unique<Case>(first_seed() + 900));
    cases[0]->build(first_seed(), &faults);
    cases[1]->build_like(*cases[0], first_seed(), &faults);
    cases[2]->build_like(*cases[0], first_seed(), &faults);
    ckpt_status statuses[3];
    std::string messages[3];
    Ranks(3).run([&](const ckpt_group *group) {
      ckpt_error err = {};
      ckpt_run_options options = options_of(group, 2);
      statuses[group->rank] = ckpt_plan_run(cases[group->rank]->plan(), &options, &err);
      messages[group->rank] = text_of(err);
    });
    EXPECT_EQ(statuses[1], statuses[0]);
    EXPECT_EQ(statuses[2], statuses[0]);
    EXPECT_EQ(messages[1], messages[0]);
    EXPECT_EQ(messages[2], messages[0]);
    if (faults.n_calls < n) {
      EXPECT_EQ(statuses[0], CKPT_OK) << messages[0];
      break;
    }
    EXPECT_EQ(statuses[0], CKPT_EIO) << n;
    EXPECT_FALSE(cases[0]->sink(1)->is_published);
    EXPECT_TRUE(cases[0]->sink(0)->is_published || cases[0]->sink(0)->is_abandoned || cases[0]->sink(0)->names.empty());
    if (HasFailure()) return;
  }
}

// ---- through files
// --------------------------------------------------------------------------------------------------

class RanksFolder : public testing::Test {
 protected:
  void SetUp() override {
    Random random(5);
    Store store(&random);
    for (int i = 0; i < 9; i++)
      store.add_plain("w" + std::to_string(i), random_array(&random, CKPT_F32, {static_cast<uint64_t>(i) + 1, 500}));
    ckpt_error err = {};
    index_ = store.build(&err);
    ASSERT_TRUE(index_) << text_of(err);
  }

  // What one rank (or, with no group, one process) runs.
  ckpt_status convert(const std::string &output, const char *format, bool force, const ckpt_group *group,
                      const volatile int *cancel, ckpt_error *err) {
    ckpt_plan *plan = nullptr;
    uint32_t sink;
    EXPECT_EQ(ckpt_plan_new(&plan, err), CKPT_OK);
    ckpt_status status = ckpt_plan_output(plan, output.c_str(), format, force, &sink, err);
    if (status == CKPT_OK) plan->outputs[0].options.shard_size = 20000;
    static const ckpt_format_value outside = {"external_data", 1, nullptr, nullptr};
    if (status == CKPT_OK) plan->outputs[0].options.values = {&outside, 1};
    for (uint32_t i = 0; i < index_->n_tensors && status == CKPT_OK; i++) {
      ckpt_expr *expr = nullptr;
      EXPECT_EQ(ckpt_expr_read(&expr, plan, index_.get(), &index_->tensors[i], err), CKPT_OK);
      status = ckpt_plan_add(plan, sink, index_->tensors[i].name, expr, err);
    }
    ckpt_run_options options = options_of(group, 1);
    options.cancel = cancel;
    if (status == CKPT_OK) status = ckpt_plan_run(plan, &options, err);
    ckpt_plan_free(plan);
    return status;
  }

  // The same on three ranks; they must agree.
  ckpt_status convert_on_ranks(const std::string &output, const char *format, bool force, int canceled_rank = -1) {
    static const int set = 1;
    ckpt_status statuses[3];
    Ranks(3).run([&](const ckpt_group *group) {
      ckpt_error err = {};
      const volatile int *cancel = static_cast<int>(group->rank) == canceled_rank ? &set : nullptr;
      statuses[group->rank] = convert(output, format, force, group, cancel, &err);
      EXPECT_TRUE(statuses[group->rank] != CKPT_OK || err.message[0] == '\0') << text_of(err);
    });
    EXPECT_EQ(statuses[1], statuses[0]);
    EXPECT_EQ(statuses[2], statuses[0]);
    return statuses[0];
  }

  // Every file below a path, with its bytes.
  static std::map<std::string, std::string> tree(const std::string &root) {
    std::map<std::string, std::string> files;
    auto read = [](const std::filesystem::path &file) {
      std::ifstream in(file, std::ios::binary);
      return std::string(std::istreambuf_iterator<char>(in), {});
    };
    if (std::filesystem::is_regular_file(root)) files[""] = read(root);
    if (!std::filesystem::is_directory(root)) return files;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(root))
      files[entry.path().lexically_relative(root)] = entry.is_regular_file() ? read(entry.path()) : "a folder";
    return files;
  }

  Folder own_;
  std::string path_ = own_.path();
  IndexPointer index_{nullptr, ckpt_index_free};
};

TEST_F(RanksFolder, AModelAndItsDataBeside) {
  ckpt_error err = {};
  for (const char *name : {"/one", "/ranks"}) std::filesystem::create_directory(path_ + name);
  ASSERT_EQ(convert(path_ + "/one/m.onnx", nullptr, false, nullptr, nullptr, &err), CKPT_OK) << text_of(err);
  auto wanted = tree(path_ + "/one");
  ASSERT_EQ(wanted.count("m.onnx.data"), 1u);
  for (bool force : {false, true}) {
    ASSERT_EQ(convert_on_ranks(path_ + "/ranks/m.onnx", nullptr, force), CKPT_OK);
    EXPECT_TRUE(tree(path_ + "/ranks") == wanted);
  }
  EXPECT_EQ(convert_on_ranks(path_ + "/ranks/m.onnx", nullptr, false), CKPT_EEXIST);
}

TEST_F(RanksFolder, IsWrittenByRanksAsByOne) {
  ckpt_error err = {};
  ASSERT_EQ(convert(path_ + "/one", "hf", false, nullptr, nullptr, &err), CKPT_OK) << text_of(err);
  auto wanted = tree(path_ + "/one");
  ASSERT_GT(wanted.size(), 4u);
  ASSERT_EQ(convert_on_ranks(path_ + "/new", "hf", false), CKPT_OK);
  EXPECT_TRUE(tree(path_ + "/new") == wanted);
  std::filesystem::create_directory(path_ + "/empty");
  ASSERT_EQ(convert_on_ranks(path_ + "/empty", "hf", false), CKPT_OK);
  EXPECT_TRUE(tree(path_ + "/empty") == wanted);
  EXPECT_EQ(convert_on_ranks(path_ + "/new", "hf", false), CKPT_EEXIST);
  std::ofstream(path_ + "/new/model.safetensors.index.json") << "old";
  ASSERT_EQ(convert_on_ranks(path_ + "/new", "hf", true), CKPT_OK);
  EXPECT_TRUE(tree(path_ + "/new") == wanted);
  ASSERT_EQ(convert(path_ + "/one.safetensors", nullptr, false, nullptr, nullptr, &err), CKPT_OK) << text_of(err);
  ASSERT_EQ(convert_on_ranks(path_ + "/ranks.safetensors", nullptr, false), CKPT_OK);
  EXPECT_TRUE(tree(path_ + "/ranks.safetensors") == tree(path_ + "/one.safetensors"));
}

TEST_F(RanksFolder, IsLeftAsItWasWhenOneRankIsCancelled) {
  for (int rank = 0; rank < 3; rank++) EXPECT_EQ(convert_on_ranks(path_ + "/out", "hf", false, rank), CKPT_ECANCELED);
  EXPECT_TRUE(tree(path_).empty());
}

// ---- whole verbs
// --------------------------------------------------------------------------------------------------------

class RanksVerbs : public RanksFolder {
 protected:
  void SetUp() override {
    RanksFolder::SetUp();
    ckpt_error err = {};
    ASSERT_EQ(convert(input_, nullptr, false, nullptr, nullptr, &err), CKPT_OK) << text_of(err);
  }

  struct Result {
    ckpt_status status = CKPT_OK;
    std::string text;  // a message or a digest
    bool operator==(const Result &other) const { return status == other.status && text == other.text; }
  };

  // What ckpt_convert returns on each of three ranks, which must be the same; `change` differs a rank's options.
  using Change = std::function<void(uint32_t rank, ckpt_convert_options *, ckpt_run_options *)>;
  Result verb(const Change &change) {
    Result results[3];
    Ranks(3).run([&](const ckpt_group *group) { results[group->rank] = convert_as(group, change); });
    return same(results);
  }

  Result convert_as(const ckpt_group *group, const Change &change) {
    ckpt_error err = {};
    ckpt_digest digest;
    ckpt_run_options run = options_of(group, 1);
    ckpt_convert_options options = {};
    options.struct_size = sizeof options;
    options.input = input_.c_str();
    options.output = output_.c_str();
    options.run = &run;
    options.digest = &digest;
    change(group->rank, &options, &run);
    return result_of(ckpt_convert(&options, &err), digest, err);
  }

  static Result result_of(ckpt_status status, const ckpt_digest &digest, const ckpt_error &err) {
    char text[80];
    return {status, status == CKPT_OK ? ckpt_digest_text(&digest, text) : text_of(err)};
  }

  static Result same(const Result *results) {
    for (int rank = 1; rank < 3; rank++)
      EXPECT_TRUE(results[rank] == results[0]) << "rank " << rank << ": " << results[rank].status << " "
                                               << results[rank].text << ", not " << results[0].text;
    return results[0];
  }

  // The input and the output alone, or the input: no temporary file.
  void expect_files(bool has_output) {
    auto files = tree(path_);
    EXPECT_EQ(files.size(), has_output ? 2u : 1u);
    EXPECT_TRUE(!has_output || files["o.safetensors"] == files["i.safetensors"]);
  }

  std::string input_ = path_ + "/i.safetensors", output_ = path_ + "/o.safetensors";
};

TEST_F(RanksVerbs, ConvertOfOneWithoutItsInputFailsAll) {
  const std::string missing = path_ + "/missing.safetensors";
  for (uint32_t without = 0; without < 3; without++) {
    Result result = verb([&](uint32_t rank, ckpt_convert_options *options, ckpt_run_options *) {
      if (rank == without) options->input = missing.c_str();
    });
    EXPECT_EQ(result.status, CKPT_ENOTFOUND);
    EXPECT_NE(result.text.find(missing), std::string::npos) << result.text;
  }
  expect_files(false);
}

// Who gives no error to fill tells the others all the same.
TEST_F(RanksVerbs, ConvertTellsWhyWithoutAnErrorOfItsOwn) {
  Result results[3];
  Ranks(3).run([&](const ckpt_group *group) {
    ckpt_error err = {};
    ckpt_run_options run = options_of(group, 1);
    ckpt_convert_options options = {};
    options.struct_size = sizeof options;
    options.input = group->rank == 0 ? "missing.safetensors" : input_.c_str();
    options.output = output_.c_str();
    options.run = &run;
    results[group->rank].status = ckpt_convert(&options, group->rank == 0 ? nullptr : &err);
    results[group->rank].text = text_of(err);
  });
  EXPECT_EQ(results[0].status, CKPT_ENOTFOUND);
  EXPECT_TRUE(results[1] == results[2]);
  EXPECT_NE(results[1].text.find("missing.safetensors"), std::string::npos) << results[1].text;
}

// Rank 0 alone publishes, and cannot.
TEST_F(RanksVerbs, ConvertToWhatCameMeanwhileFailsAll) {
  auto come = [](void *arg, uint64_t, uint64_t) { std::ofstream(static_cast<const char *>(arg)) << "another's"; };
  Result result = verb([&](uint32_t, ckpt_convert_options *, ckpt_run_options *run) {
    run->progress = come;
    run->progress_arg = const_cast<char *>(output_.c_str());
  });
  EXPECT_EQ(result.status, CKPT_EEXIST);
  EXPECT_TRUE(tree(output_)[""] == "another's");
  std::filesystem::remove(output_);
  expect_files(false);
}

// A rank's gathers, and its flag that is set at one of them.
struct Counted {
  const ckpt_group *group;
  int n, at, cancel;
};

ckpt_status count_gather(void *ctx, const void *src, void *dst, size_t n_bytes, ckpt_error *err) {
  Counted *counted = static_cast<Counted *>(ctx);
  if (++counted->n == counted->at) __atomic_store_n(&counted->cancel, 1, __ATOMIC_RELAXED);
  return counted->group->all_gather(counted->group->ctx, src, dst, n_bytes, err);
}

// At whichever gather one rank is cancelled: all are, and nothing is there, or none is, and everything is.
TEST_F(RanksVerbs, ConvertIsCancelledOnAllRanksOrNone) {
  int n_cancelled = 0, n_done = 0;
  for (int at = 1, n_gathers = 1; at <= n_gathers && !HasFailure(); at++) {
    SCOPED_TRACE("gather " + std::to_string(at));
    Result results[3];
    Ranks(3).run([&](const ckpt_group *group) {
      const uint32_t canceled_rank = static_cast<uint32_t>(at) % 3;
      Counted counted = {group, 0, group->rank == canceled_rank ? at : 0, 0};
      const ckpt_group own = {&counted, group->rank, group->size, count_gather};
      results[group->rank] = convert_as(
          &own, [&](uint32_t, ckpt_convert_options *, ckpt_run_options *run) { run->cancel = &counted.cancel; });
      if (group->rank == canceled_rank && counted.n > n_gathers) n_gathers = counted.n;
    });
    const Result result = same(results);
    (result.status == CKPT_OK ? n_done : n_cancelled)++;
    EXPECT_TRUE(result.status == CKPT_OK || result.status == CKPT_ECANCELED) << result.text;
    expect_files(result.status == CKPT_OK);
    std::filesystem::remove(output_);
  }
  EXPECT_GT(n_cancelled, 5);
  EXPECT_EQ(n_done, 2);  // at the agreement before publishing, when all have looked, and at the one after
}

TEST_F(RanksVerbs, HashIsTheSameOnAllRanks) {
  auto hash = [&](const char *include_of_1) {
    Result results[3];
    Ranks(3).run([&](const ckpt_group *group) {
      ckpt_error err = {};
      ckpt_index *index = nullptr;
      ckpt_digest digest;
      EXPECT_EQ(ckpt_open(&index, input_.c_str(), nullptr, &err), CKPT_OK) << text_of(err);
      ckpt_run_options run = options_of(group, 1);
      ckpt_hash_options options = {};
      options.struct_size = sizeof options;
      options.include = group->rank == 1 ? include_of_1 : nullptr;
      options.run = &run;
      results[group->rank] = result_of(ckpt_hash(index, &options, &digest, &err), digest, err);
      ckpt_index_free(index);
    });
    return same(results);
  };
  ckpt_error err = {};
  ckpt_index *index = nullptr;
  ckpt_digest digest;
  ASSERT_EQ(ckpt_open(&index, input_.c_str(), nullptr, &err), CKPT_OK) << text_of(err);
  ckpt_status status = ckpt_hash(index, nullptr, &digest, &err);
  ckpt_index_free(index);
  EXPECT_TRUE(hash(nullptr) == result_of(status, digest, err));
  EXPECT_EQ(hash("nothing").status, CKPT_EINVAL);
}

}  // namespace
