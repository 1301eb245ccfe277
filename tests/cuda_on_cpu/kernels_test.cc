// Every kernel of CUDA equals the CPU's definition bit for bit, whatever the order of blocks and threads; every barrier
// is needed. On a real device (tests/cuda) the same cases run, but for what the emulator alone can show.
#include "cases.h"
#include "tests/build.h"

#ifdef CKPT_ON_REAL_CUDA
#define SEEDS \
  { 1 }
#else
#include "emulator.h"
#define SEEDS \
  { 1, 2 }
#endif

namespace {

using cuda_cases::Case;
using cuda_cases::Floats;
using cuda_cases::Machine;

class CudaKernels : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    ckpt_error err = {};
    ASSERT_EQ(ckpt_device_cpu_new(&cpu, 1, &ckpt_tape_kernels_ref_f32, &err), CKPT_OK);
    if (ckpt_device_choose(&cuda, "cuda", 1, &err) != CKPT_OK) GTEST_SKIP() << err.message;
  }
  void TearDown() override {
    ckpt_device_free(cuda);
    ckpt_device_free(cpu);
  }
  ckpt_device *cpu = nullptr, *cuda = nullptr;
};

TEST_P(CudaKernels, EqualTheReference) {
  Machine reference(cpu);
  const Floats expected = GetParam().run(reference);
  ASSERT_EQ(reference.Finish(), "");
  for (uint64_t seed : SEEDS) {
#ifndef CKPT_ON_REAL_CUDA
    cuda_on_cpu::control.seed = seed * 1000003;
#endif
    Machine machine(cuda);
    const Floats actual = GetParam().run(machine);
    ASSERT_EQ(machine.Finish(), "");
    EXPECT_EQ(cuda_cases::FirstDifference(expected, actual), "") << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaKernels, testing::ValuesIn(cuda_cases::All()),
                         [](const auto &which) { return which.param.name; });

#ifndef CKPT_ON_REAL_CUDA
// Each barrier that the cases meet is left out in turn: some case then differs, or waits for ever.
TEST(CudaBarriers, EachIsNeeded) {
  ckpt_error err = {};
  ckpt_device *cpu, *cuda;
  ASSERT_EQ(ckpt_device_cpu_new(&cpu, 1, &ckpt_tape_kernels_ref_f32, &err), CKPT_OK);
  ASSERT_EQ(ckpt_device_choose(&cuda, "cuda", 1, &err), CKPT_OK) << err.message;
  std::vector<Case> cases;
  for (const Case &c : cuda_cases::All())
    if (c.has_barriers) cases.push_back(c);
  std::vector<Floats> expected;
  cuda_on_cpu::control.barriers.clear();
  for (const Case &c : cases) {
    Machine machine(cuda);
    expected.push_back(c.run(machine));
    ASSERT_EQ(machine.Finish(), "");
  }
  const std::set<std::string> barriers = cuda_on_cpu::control.barriers;
  EXPECT_GE(barriers.size(), 7U);
  size_t number = 0;
  for (const std::string &barrier : barriers) {
    bool is_caught = false;
    if (number++ % 4 != 0 && !is_thorough()) continue;
    cuda_on_cpu::control.skipped = barrier;
    for (uint64_t seed = 1; seed <= 20 && !is_caught; seed++)
      for (size_t i = 0; i < cases.size() && !is_caught; i++) {
        cuda_on_cpu::control.seed = seed * 7919;
        Machine machine(cuda);
        const Floats actual = cases[i].run(machine);
        is_caught = !machine.Finish().empty() || !cuda_cases::FirstDifference(expected[i], actual).empty();
      }
    EXPECT_TRUE(is_caught) << "nothing shows that " << barrier << " is needed";
  }
  cuda_on_cpu::control.skipped.clear();
  ckpt_device_free(cuda);
  ckpt_device_free(cpu);
}
#endif

}  // namespace
