// Several ranks write what one writes: the same bytes, digests, values and counts, for any number of them; and one that
// fails takes all with it.
extern "C" {
#include "libckpt/group.h"
#include "libckpt/error.h"
}

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/bytes/folder.h"
#include "tests/libckpt/fake_case.h"
#include "tests/libckpt/ranks.h"

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
        EXPECT_EQ(plan->rows[i].stats.n_overflow != 0, alone.plan()->rows[i].stats.n_overflow != 0);
        EXPECT_EQ(plan->rows[i].stats.largest, alone.plan()->rows[i].stats.largest);
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
    if (status == CKPT_OK) plan->outputs[0].options.external_data = true;
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

}  // namespace
