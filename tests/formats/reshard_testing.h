// What the tests of resharding share: writing a checkpoint as that of another run, and digests.
#pragma once

#include "tests/formats/formats_testing.h"

extern "C" {
#include "libckpt/recipe/convert/convert.h"
}

namespace formats_testing {

// Receipts list what a description has: a reader of the output finds all of it.
inline void expect_all_found(const ckpt_index *described, const std::string &output) {
  ckpt_error err = {};
  IndexPointer index = open(output, &err, false);
  ASSERT_NE(index, nullptr) << text_of(err);
  for (uint32_t i = 0; i < described->n_tensors; i++)
    EXPECT_NE(ckpt_index_find(index.get(), described->tensors[i].name), nullptr) << described->tensors[i].name;
}

struct Target {
  const char *format;
  uint32_t stage, world;
};

// Every row of the input that --include says, written as a run of other ranks.
inline ckpt_status write(const std::string &input, const std::string &output, const Target &target, ckpt_error *err,
                         const char *include = "all", uint64_t memory = 16 << 20, const char *weights = nullptr,
                         std::vector<std::string> *losses = nullptr, bool force = false, const char *verb = "reshard") {
  ckpt_run_options run = {};
  run.struct_size = sizeof run;
  run.memory = memory;
  run.n_threads = 2;
  ckpt_convert_options options = {};
  options.struct_size = sizeof options;
  options.input = input.c_str();
  options.include = include;
  options.force = force;
  ckpt_convert_target to = {};
  to.path = output.c_str();
  to.to = target.format;
  const ckpt_format_value stage = {"stage", target.stage, nullptr, nullptr};
  if (std::string(target.format) == "zero" && target.stage != 0) to.values = {&stage, 1};
  to.world = target.world;
  ckpt_open_options opening = {};
  opening.struct_size = sizeof opening;
  opening.weights = weights;
  ckpt_index *opened = nullptr;
  ckpt_status status = ckpt_open(&opened, input.c_str(), &opening, err);
  if (status != CKPT_OK) return status;
  IndexPointer index(opened, ckpt_index_free);
  ckpt_plan *plan = nullptr;
  ckpt_convert_request request = {};
  request.verb = verb;
  request.from = index.get();
  request.targets = &to;
  request.n_targets = 1;
  request.options = &options;
  status = ckpt_plan_new(&plan, err);
  if (status == CKPT_OK) status = ckpt_convert_plan(plan, &request, err);
  if (status == CKPT_OK) status = ckpt_convert_run(plan, &request, &run, nullptr, err);
  if (status == CKPT_OK) expect_all_found(plan->outputs[0].described, output);
  if (status == CKPT_OK && losses != nullptr)
    losses->assign(plan->outputs[0].losses.texts, plan->outputs[0].losses.texts + plan->outputs[0].losses.n);
  ckpt_plan_free(plan);
  return status;
}

inline std::string digest_of(const std::string &path, const char *include = "all") {
  ckpt_error err = {};
  IndexPointer index = open(path, &err, false);
  if (index == nullptr) return text_of(err);
  ckpt_hash_options options = {};
  options.struct_size = sizeof options;
  options.include = include;
  ckpt_digest digest;
  char text[80];
  if (ckpt_hash(index.get(), &options, &digest, &err) != CKPT_OK) return text_of(err);
  return ckpt_digest_text(&digest, text);
}

}  // namespace formats_testing
