// The sharding pass, without running anything: on every factoring of 1, 2, 4 and 8 over dp_replicate x dp_shard x cp x
// tp shapes meet, collectives have their duals, parts add up to the whole, and what cannot be is refused with its
// numbers. Then a model in parts on threads equals the whole in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

extern "C" {
#include "trainer/model/op.h"
#include "trainer/model/shard.h"
#include "trainer/parallel/axis_threads.h"
}

namespace {

const char kLlama[] =
    R"({"model_type":"llama","vocab_size":37,"hidden_size":32,"intermediate_size":48,"num_hidden_layers":2,
    "num_attention_heads":8,"num_key_value_heads":8,"max_position_embeddings":32,"attention_bias":true})";
const char kGrouped[] =
    R"({"model_type":"llama","vocab_size":37,"hidden_size":24,"intermediate_size":40,"num_hidden_layers":2,
    "num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":32,"tie_word_embeddings":true})";
const char kGpt2[] = R"({"model_type":"gpt2","vocab_size":37,"n_embd":32,"n_layer":2,"n_head":8,"n_positions":32})";

struct Whole {
  explicit Whole(const char *config) {
    ckpt_model_options options = {};
    options.struct_size = sizeof options, options.needs_backward = true;
    EXPECT_EQ(ckpt_model_new(&model, config, strlen(config), "config.json", &options, &err), CKPT_OK) << err.message;
  }
  ~Whole() { ckpt_model_free(model); }
  Whole(const Whole &) = delete;
  ckpt_model *model = nullptr;
  ckpt_error err = {};
};

struct Part {
  Part(const ckpt_model *whole, const ckpt_mesh &mesh, uint32_t rank) {
    const ckpt_mesh place = ckpt_mesh_place(&mesh, rank);
    status = ckpt_sharded_model_new(&sharded, whole, &mesh, &place, &err);
  }
  ~Part() { ckpt_sharded_model_free(sharded); }
  Part(const Part &) = delete;
  ckpt_sharded_model *sharded = nullptr;
  ckpt_error err = {};
  ckpt_status status;
};

std::vector<ckpt_mesh> Factorings() {
  std::vector<ckpt_mesh> all;
  for (uint32_t n : {1U, 2U, 4U, 8U})
    for (uint32_t replicate = 1; replicate <= n; replicate *= 2)
      for (uint32_t shard = 1; replicate * shard <= n; shard *= 2)
        for (uint32_t cp = 1; replicate * shard * cp <= n; cp *= 2)
          all.push_back({{replicate, shard, cp, n / replicate / shard / cp}});
  return all;
}

std::string Name(const ckpt_mesh &m) {
  std::string name;
  for (int i = 0; i < CKPT_N_MESH_AXES; i++)
    name += std::string(ckpt_mesh_names[i]) + " " + std::to_string(m.at[i]) + " ";
  return name;
}

// Each collective has its dual, and is undone once in the backward.
void ExpectDuals(const ckpt_tape &tape) {
  for (uint32_t i = 0; i < tape.n_entries; i++) {
    const ckpt_tape_op *op = ckpt_tape_ops[tape.entries[i].op];
    if (!op->is_collective) continue;
    ASSERT_NE(op->backward, nullptr) << op->name;
    EXPECT_TRUE(ckpt_tape_ops[op->dual]->is_collective) << op->name;
    EXPECT_EQ(ckpt_tape_ops[op->dual]->dual, tape.entries[i].op) << op->name;
    EXPECT_GT(tape.entries[i].attributes.axis_size, 1U) << op->name;
  }
}

// Columns of values add up, tokens are gathered over cp alone.
void ExpectValuesAddUp(const ckpt_sharded_model *s) {
  const ckpt_tape &tape = s->model->tape, &whole = s->whole->tape;
  for (uint32_t v = 0; v < tape.n_values; v++) {
    if (tape.values[v].residency != CKPT_RESIDES_ACTIVATION || s->values[v] == CKPT_NO_VALUE) continue;
    const uint64_t n = s->layouts[v] == CKPT_SHARD_CUT ? s->mesh.at[CKPT_MESH_TP] : 1;
    EXPECT_EQ(ckpt_tape_columns(&tape, v) * n, ckpt_tape_columns(&whole, s->values[v])) << tape.values[v].name;
    EXPECT_TRUE(tape.values[v].shape.times <= 1 || tape.values[v].shape.times == s->mesh.at[CKPT_MESH_CP]);
  }
}

// Every element of the whole is on as many ranks as hold it: dp_replicate, cp, and tp where it is not cut.
void ExpectParametersAddUp(const ckpt_model *whole, const ckpt_mesh &mesh) {
  std::vector<double> numbers(whole->n_flat), seen(whole->n_flat, 0);
  std::vector<bool> is_cut(whole->n_parameters, false);
  for (size_t i = 0; i < numbers.size(); i++) numbers[i] = (double)i;
  uint64_t n_elements = 0;
  for (uint32_t rank = 0; rank < ckpt_mesh_size(&mesh); rank++) {
    Part part(whole, mesh, rank);
    ASSERT_EQ(part.status, CKPT_OK) << part.err.message;
    std::vector<double> local(part.sharded->model->n_flat + 1, -1), back(whole->n_flat, -1);
    ckpt_sharded_model_take(part.sharded, local.data(), numbers.data(), sizeof(double));
    ckpt_sharded_model_give(part.sharded, local.data(), back.data(), sizeof(double));
    for (size_t i = 0; i < back.size(); i++)
      if (back[i] >= 0) {
        EXPECT_EQ(back[i], numbers[i]);
        seen[i]++;
      }
    for (uint32_t i = 0; i < part.sharded->model->n_parameters; i++)
      if (part.sharded->origins[i].tp_axis >= 0) is_cut[part.sharded->origins[i].parameter] = true;
    n_elements += part.sharded->model->n_elements;
  }
  uint64_t expected = 0;
  for (uint32_t i = 0; i < whole->n_parameters; i++) {
    const ckpt_parameter &p = whole->parameters[i];
    const uint64_t n =
        mesh.at[CKPT_MESH_DP_REPLICATE] * mesh.at[CKPT_MESH_CP] * (is_cut[i] ? 1 : mesh.at[CKPT_MESH_TP]);
    for (uint64_t k = 0; k < p.n_elements; k++) ASSERT_EQ(seen[p.offset + k], n) << p.name;
    EXPECT_EQ(is_cut[i], mesh.at[CKPT_MESH_TP] > 1 && p.split_axis >= 0 && p.rank >= 1 && p.layer >= 0) << p.name;
    expected += n * p.n_elements;
  }
  EXPECT_EQ(n_elements, expected);
}

TEST(Shard, EveryFactoring) {
  for (const char *config : {kLlama, kGpt2}) {
    Whole whole(config);
    for (const ckpt_mesh &mesh : Factorings()) {
      SCOPED_TRACE(std::string(whole.model->family) + ": " + Name(mesh));
      for (uint32_t rank = 0; rank < ckpt_mesh_size(&mesh); rank++) {
        Part part(whole.model, mesh, rank);
        ASSERT_EQ(part.status, CKPT_OK) << part.err.message;
        ExpectDuals(part.sharded->model->tape);
        ExpectValuesAddUp(part.sharded);
        for (uint32_t i = 0; i < part.sharded->model->n_parameters; i++)
          EXPECT_EQ(part.sharded->origins[i].sum_axes,
                    (mesh.at[CKPT_MESH_CP] > 1 ? 1U << CKPT_MESH_CP : 0) |
                        (mesh.at[CKPT_MESH_DP_REPLICATE] > 1 ? 1U << CKPT_MESH_DP_REPLICATE : 0));
      }
      ExpectParametersAddUp(whole.model, mesh);
    }
  }
}

uint32_t CountOf(const ckpt_tape &tape, ckpt_tape_op_id op, ckpt_mesh_axis axis) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < tape.n_entries; i++)
    n += tape.entries[i].op == op && tape.entries[i].attributes.axis == (uint32_t)axis;
  return n;
}

// What a layer costs: over tp two copies in and two sums, over cp its keys and values, over dp_shard each parameter
// once.
TEST(Shard, CollectivesAreAsFewAsCanBe) {
  Whole whole(kLlama);
  const ckpt_mesh mesh = {{1, 2, 2, 2}};
  Part part(whole.model, mesh, 3);
  ASSERT_EQ(part.status, CKPT_OK) << part.err.message;
  const ckpt_tape &tape = part.sharded->model->tape;
  EXPECT_EQ(CountOf(tape, CKPT_OP_copy_to, CKPT_MESH_TP), 4U);
  EXPECT_EQ(CountOf(tape, CKPT_OP_reduce_from, CKPT_MESH_TP), 4U);
  EXPECT_EQ(CountOf(tape, CKPT_OP_gather, CKPT_MESH_CP), 4U);
  EXPECT_EQ(CountOf(tape, CKPT_OP_gather, CKPT_MESH_DP_SHARD), whole.model->n_parameters);
  Part one(whole.model, {{1, 1, 1, 1}}, 0);
  ASSERT_EQ(one.status, CKPT_OK);
  EXPECT_EQ(one.sharded->model->tape.n_entries, whole.model->tape.n_entries);
}

TEST(Shard, WhatCannotBeCutIsRefusedWithItsNumbers) {
  Whole grouped(kGrouped);
  const struct {
    ckpt_mesh mesh;
    const char *expected;
  } rows[] = {{{{1, 1, 1, 4}}, "model.layers.0.self_attn.k_proj: 2 heads cannot be cut over tp 4 (2 are left over)"},
              {{{1, 1, 1, 3}}, "q_proj: 4 heads cannot be cut over tp 3 (1 are left over)"},
              {{{1, 1, 1, 5}}, "cannot be cut over tp 5 (4 are left over)"}};
  for (const auto &row : rows) {
    Part part(grouped.model, row.mesh, 0);
    EXPECT_EQ(part.status, CKPT_EUNSUPPORTED);
    const std::string all = std::string(part.err.tensor) + ": " + part.err.message;
    EXPECT_NE(all.find(row.expected), std::string::npos) << all;
  }
}

// ---- parts on threads equal the whole -------------------------------------------------------------------------------

constexpr uint32_t kRows = 2, kLength = 12;

struct Batch {
  Batch() {
    std::mt19937 engine(5);
    for (uint32_t i = 0; i < kRows * kLength; i++) {
      ids.push_back((int32_t)(engine() % 37));
      targets.push_back(i % 7 == 3 ? -100 : (int32_t)(engine() % 37));
    }
  }
  ckpt_token_batch Rows(uint32_t first, uint32_t n) const {
    ckpt_token_batch batch = {};
    batch.n_rows = n, batch.length = kLength, batch.first_row = first, batch.dropout_key = 77;
    batch.ids = ids.data() + first * kLength, batch.targets = targets.data() + first * kLength;
    return batch;
  }
  std::vector<int32_t> ids, targets;
};

struct Outcome {
  ckpt_status status = CKPT_OK;
  ckpt_error err = {};
  double loss = 0;
  bool is_exact = false; /* the arena is used to the byte */
};

// One executor in double over `local`, which has weights and gets gradients.
void Train(Outcome *run, const ckpt_model *model, ckpt_axis_group *const *axes, const ckpt_token_batch &batch,
           const std::vector<double> &weights, std::vector<double> *gradients) {
  ckpt_device *device = nullptr;
  ckpt_executor *x = nullptr;
  ckpt_executor_options options = {};
  options.struct_size = sizeof options, options.max_rows = batch.n_rows, options.max_length = kLength;
  options.has_backward = true, options.loss_rows = 5;
  for (int i = 0; axes != nullptr && i < CKPT_N_MESH_AXES; i++) options.axes[i] = axes[i];
  run->status = ckpt_device_cpu_new(&device, 1, &ckpt_tape_kernels_ref_f64, &run->err);
  options.device = device;
  if (run->status == CKPT_OK) run->status = ckpt_executor_new(&x, model, &options, &run->err);
  if (run->status == CKPT_OK) {
    memcpy(ckpt_executor_parameters(x), weights.data(), model->n_flat * sizeof(double));
    ckpt_forward_result result;
    run->status = ckpt_executor_train(x, &batch, 0.1, &result, &run->err);
    run->loss = result.loss_sum;
    gradients->resize(model->n_flat);
    memcpy(gradients->data(), ckpt_executor_gradients(x), model->n_flat * sizeof(double));
    run->is_exact = ckpt_executor_high_water(x) == ckpt_executor_memory_of(x)->arena;
  }
  for (int i = 0; run->status != CKPT_OK && axes != nullptr && i < CKPT_N_MESH_AXES; i++) ckpt_axis_abort(axes[i]);
  ckpt_executor_free(x);
  ckpt_device_free(device);
}

// The greatest distance of loss and gradients from those of one rank, over the largest of each parameter.
void ExpectEqualsOneRank(const char *config, const ckpt_mesh &mesh) {
  SCOPED_TRACE(Name(mesh));
  Whole whole(config);
  const Batch batch;
  std::mt19937 engine(3);
  std::normal_distribution<double> normal(0, 0.3);
  std::vector<double> weights(whole.model->n_flat), expected, actual(whole.model->n_flat, NAN);
  for (double &w : weights) w = normal(engine);
  Outcome one;
  Train(&one, whole.model, nullptr, batch.Rows(0, kRows), weights, &expected);
  ASSERT_EQ(one.status, CKPT_OK) << one.err.message;

  const uint32_t n = ckpt_mesh_size(&mesh), rows = kRows / mesh.at[CKPT_MESH_DP_SHARD];
  ckpt_axis_threads *threads = nullptr;
  ckpt_axis_set sets[CKPT_N_MESH_AXES];
  for (uint32_t i = 0; i < CKPT_N_MESH_AXES; i++) sets[i] = {ckpt_mesh_names[i], 1U << i};
  ASSERT_EQ(ckpt_axis_threads_new(&threads, &mesh, sets, CKPT_N_MESH_AXES, 60, nullptr), CKPT_OK);
  std::vector<std::unique_ptr<Part>> parts;
  std::vector<Outcome> runs(n);
  std::vector<std::vector<double>> local(n), gradients(n);
  for (uint32_t r = 0; r < n; r++) {
    parts.push_back(std::make_unique<Part>(whole.model, mesh, r));
    ASSERT_EQ(parts[r]->status, CKPT_OK) << parts[r]->err.message;
    local[r].assign(parts[r]->sharded->model->n_flat, 0);
    ckpt_sharded_model_take(parts[r]->sharded, local[r].data(), weights.data(), sizeof(double));
  }
  std::vector<std::thread> pool;
  for (uint32_t r = 0; r < n; r++)
    pool.emplace_back([&, r] {
      ckpt_axis_group *axes[CKPT_N_MESH_AXES];
      for (uint32_t i = 0; i < CKPT_N_MESH_AXES; i++) axes[i] = ckpt_axis_threads_group(threads, r, i);
      const uint32_t first = parts[r]->sharded->place.at[CKPT_MESH_DP_SHARD] * rows;
      Train(&runs[r], parts[r]->sharded->model, axes, batch.Rows(first, rows), local[r], &gradients[r]);
    });
  for (std::thread &thread : pool) thread.join();
  double loss = 0;
  for (uint32_t r = 0; r < n; r++) {
    ASSERT_EQ(runs[r].status, CKPT_OK) << runs[r].err.message;
    EXPECT_TRUE(runs[r].is_exact);
    if (parts[r]->sharded->place.at[CKPT_MESH_TP] == 0) loss += runs[r].loss;
    std::vector<double> before = actual;
    ckpt_sharded_model_give(parts[r]->sharded, gradients[r].data(), actual.data(), sizeof(double));
    // what several ranks of tp hold is the same on all
    for (size_t i = 0; i < actual.size(); i++)
      if (!std::isnan(before[i])) {
        EXPECT_NEAR(before[i], actual[i], 1e-12);
      }
  }
  ckpt_axis_threads_free(threads);
  EXPECT_NEAR(loss, one.loss, 1e-10 * one.loss);
  for (uint32_t i = 0; i < whole.model->n_parameters; i++) {
    const ckpt_parameter &p = whole.model->parameters[i];
    double largest = 0, distance = 0;
    for (uint64_t k = p.offset; k < p.offset + p.n_elements; k++) {
      largest = std::max(largest, std::fabs(expected[k]));
      ASSERT_FALSE(std::isnan(actual[k])) << p.name;
      distance = std::max(distance, std::fabs(actual[k] - expected[k]));
    }
    EXPECT_GT(largest, 0) << p.name;
    EXPECT_LT(distance, 1e-10 * std::max(largest, 1e-3)) << p.name;
  }
}

TEST(ShardRun, LlamaInPartsEqualsOneRank) {
  for (const ckpt_mesh &mesh : {ckpt_mesh{{1, 1, 1, 2}}, ckpt_mesh{{1, 2, 1, 1}}, ckpt_mesh{{1, 2, 1, 2}}})
    for (const char *config : {kLlama, kGrouped}) ExpectEqualsOneRank(config, mesh);
}

TEST(ShardRun, Gpt2InPartsEqualsOneRank) {
  for (const ckpt_mesh &mesh : {ckpt_mesh{{1, 1, 1, 4}}, ckpt_mesh{{1, 2, 1, 2}}}) ExpectEqualsOneRank(kGpt2, mesh);
}

TEST(ShardRun, WhatLacksAGroupOrAKernelIsRefused) {
  Whole whole(kLlama);
  const Batch batch;
  Part cut(whole.model, {{1, 1, 1, 2}}, 0), split(whole.model, {{1, 1, 2, 1}}, 0);
  Outcome run;
  std::vector<double> gradients, weights(whole.model->n_flat, 0);
  Train(&run, cut.sharded->model, nullptr, batch.Rows(0, 1), weights, &gradients);
  EXPECT_EQ(run.status, CKPT_EINVAL);
  EXPECT_NE(std::string(run.err.message).find("a group of 2 ranks is needed for axis tp"), std::string::npos);
  ckpt_axis_group self, *axes[CKPT_N_MESH_AXES] = {&self, &self, &self, &self};
  ckpt_axis_self(&self, "cp");
  self.size = 2;
  run = Outcome();
  Train(&run, split.sharded->model, axes, batch.Rows(0, 1), weights, &gradients);
  EXPECT_EQ(run.status, CKPT_EUNSUPPORTED);
  EXPECT_NE(std::string(run.err.message).find("cp 2 cannot be run yet"), std::string::npos) << run.err.message;
}

}  // namespace
