// Low-rank updates: every level gives the bits of the reference, and the reference what sums in f64 give.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

extern "C" {
#include "kernels/cpu/lora/lora.h"
}

namespace {

struct Problem {
  std::vector<float> base;
  std::vector<std::vector<float>> outputs, inputs;
  std::vector<ckpt_lora_update> updates;
  size_t n_rows, width;

  Problem(size_t rows, size_t columns, const std::vector<size_t> &ranks) : n_rows(rows), width(columns) {
    std::mt19937 generator(static_cast<unsigned>(rows * 1000 + columns));
    std::normal_distribution<float> normal;
    auto fill = [&](size_t n) {
      std::vector<float> values(n);
      for (float &value : values) value = normal(generator);
      return values;
    };
    base = fill(rows * columns);
    for (size_t rank : ranks) {
      outputs.push_back(fill(rows * rank));
      inputs.push_back(fill(rank * columns));
      updates.push_back({outputs.back().data(), inputs.back().data(), rank, 0.37F * static_cast<float>(ranks.size())});
    }
  }
  std::vector<float> run(void (*lora)(const ckpt_lora_rows *), std::vector<ckpt_lora_squares> *squares) const {
    std::vector<float> out(base.size(), -1);
    squares->assign(n_rows, {-1, -1});
    const ckpt_lora_rows rows = {
        base.data(), out.data(), n_rows, width, updates.data(), static_cast<uint32_t>(updates.size()), squares->data()};
    lora(&rows);
    return out;
  }
};

TEST(LoraKernels, TheReferenceIsWhatSumsInF64Give) {
  const Problem p(7, 131, {5, 3});
  std::vector<ckpt_lora_squares> squares;
  const std::vector<float> out = p.run(ckpt_lora, &squares);
  for (size_t i = 0; i < p.n_rows; i++) {
    double added_squares = 0, base_squares = 0;
    for (size_t j = 0; j < p.width; j++) {
      double added = 0;
      for (size_t u = 0; u < p.updates.size(); u++)
        for (size_t k = 0; k < p.updates[u].rank; k++)
          added += static_cast<double>(p.updates[u].scale) *
                   static_cast<double>(p.outputs[u][i * p.updates[u].rank + k]) *
                   static_cast<double>(p.inputs[u][k * p.width + j]);
      const double base = static_cast<double>(p.base[i * p.width + j]);
      EXPECT_NEAR(static_cast<double>(out[i * p.width + j]), base + added, 2e-6 * (1 + std::fabs(added)));
      added_squares += added * added;
      base_squares += base * base;
    }
    EXPECT_NEAR(squares[i].added, added_squares, 1e-6 * added_squares);
    EXPECT_NEAR(squares[i].base, base_squares, 1e-12 * base_squares);
  }
}

// Ranks past what is packed at once, rows past a block, columns that fill no vector, and no update at all.
TEST(LoraKernels, EveryLevelGivesTheSameBits) {
  const std::vector<std::vector<size_t>> ranks = {{}, {1}, {16}, {300, 2}, {0, 7}};
  for (size_t n_rows : {size_t{1}, size_t{6}, size_t{59}})
    for (size_t width : {size_t{1}, size_t{15}, size_t{64}, size_t{200}})
      for (const auto &each : ranks) {
        const Problem p(n_rows, width, each);
        std::vector<ckpt_lora_squares> wanted_squares, squares;
        const std::vector<float> wanted = p.run(ckpt_lora, &wanted_squares);
        const ckpt_lora_level *level;
        for (size_t i = 0; (level = ckpt_lora_level_at(i)) != nullptr; i++) {
          SCOPED_TRACE(level->name);
          const std::vector<float> out = p.run(level->run, &squares);
          EXPECT_EQ(memcmp(out.data(), wanted.data(), 4 * out.size()), 0) << n_rows << " x " << width;
          EXPECT_EQ(memcmp(squares.data(), wanted_squares.data(), squares.size() * sizeof squares[0]), 0)
              << n_rows << " x " << width;
        }
      }
}

}  // namespace
