// Blocks that wait for each other, executed on the CPU, and persistent's refusals on several cards.
#include "kernels_cuda/together.h"

#include <gtest/gtest.h>

#include "conv/error.h"
#include "kernels_cuda/cuda.h"
#include "kernels_cuda/on_cpu/device.h"
#include "tests/recurrent/recurrent_case.h"

namespace convlab::cuda {
namespace {

// Each block adds up what all blocks wrote in the round before.
__global__ void add_all(unsigned* values, unsigned* arrived, int rounds) {
  for (int round = 1; round <= rounds; ++round) {
    unsigned sum = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) sum += values[(round - 1) * gridDim.x + i];
    __syncthreads();
    if (threadIdx.x == 33) values[round * gridDim.x + blockIdx.x] = sum + blockIdx.x;
    wait_for_grid(arrived, unsigned(round));
  }
}

DeviceInfo card_with(int multiprocessors) {
  DeviceInfo info = on_cpu::default_card();
  info.threads = multiprocessors;
  return info;
}

TEST(Together, BlocksSeeWhatAllHaveWritten) {
  constexpr unsigned blocks = 5, rounds = 4;
  const auto device = on_cpu::make_card(card_with(5));
  const auto stream = device->make_stream();
  std::vector<unsigned> values((rounds + 1) * blocks, 0), expected = values;
  for (unsigned round = 1; round <= rounds; ++round)
    for (unsigned block = 0; block < blocks; ++block) {
      expected[round * blocks + block] = block;
      for (unsigned i = 0; i < blocks; ++i)
        expected[round * blocks + block] += expected[(round - 1) * blocks + i];
    }
  unsigned arrived = 0;
  launch_together(add_all, blocks, 64, 0, *stream, values.data(), &arrived, int(rounds));
  EXPECT_EQ(values, expected);
}

TEST(Together, MoreBlocksThanTheCardHoldsAreNoLaunch) {
  const auto device = on_cpu::make_card(card_with(2));
  const auto stream = device->make_stream();
  std::vector<unsigned> values(100, 0);
  unsigned arrived = 0;
  EXPECT_NO_THROW(launch_together(add_all, 2, 512, 0, *stream, values.data(), &arrived, 1));
  arrived = 0;
  EXPECT_THROW(launch_together(add_all, 3, 512, 0, *stream, values.data(), &arrived, 1), CudaError);
}

TEST(Together, APlainLaunchMayNotWait) {
  const auto device = on_cpu::make_card(card_with(2));
  const auto stream = device->make_stream();
  std::vector<unsigned> values(100, 0);
  unsigned arrived = 0;
  EXPECT_DEATH(launch(add_all, 2, 64, 0, *stream, values.data(), &arrived, 1),
               "only the blocks of launch_together");
}

TEST(Together, RegistersAndSharedMemoryLimitResidentBlocks) {
  const DeviceInfo card = card_with(10);  // with 227 KB of shared memory
  EXPECT_EQ(resident_blocks(512, 0, card), 10);
  EXPECT_EQ(resident_blocks(128, 0, card), 40);
  EXPECT_EQ(resident_blocks(128, 75 << 10, card), 30);
  EXPECT_EQ(resident_blocks(32, 114 << 10, card), 10);
  EXPECT_EQ(resident_blocks(32, 228 << 10, card), 0);
}

std::optional<Refusal> persistent_refusal(const char* text, Pass pass, const DeviceInfo& card) {
  RecurrentRegistry registry;
  append_cuda_recurrent_algos(registry);
  RecurrentProblem p = parse_recurrent_problem(text).problem;
  p.pass = pass;
  return registry.get(DeviceKind::cuda, "persistent").refuse(p, *on_cpu::make_card(card));
}

TEST(Persistent, RefusesWhatACardDoesNotHold) {
  EXPECT_FALSE(persistent_refusal("lstm:l1t4mb4dhc512", Pass::forward, card_with(32)));
  const auto refusal = persistent_refusal("lstm:l1t4mb4dhc512", Pass::forward, card_with(31));
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason(),
            "needs 32 blocks resident at once, with 512 threads and 1024 bytes of shared memory "
            "each, has room for 31");
  // 132 multiprocessors of an H100.
  EXPECT_FALSE(persistent_refusal("rnn:l1t4mb4dhc2560", Pass::forward, card_with(132)));
  EXPECT_FALSE(persistent_refusal("lstm:l1t4mb4dhc1024", Pass::backward_data, card_with(132)));
  EXPECT_TRUE(persistent_refusal("lstm:l1t4mb4dhc4096", Pass::forward, card_with(132)));
  EXPECT_TRUE(persistent_refusal("rnn:l1t4mb4dhc16", Pass::backward_filter, card_with(132)));
}

// sm_86 and 89 have 99 KB of shared memory for a block.
TEST(RecurrentOnSmallCards, EveryConfigRuns) {
  DeviceInfo info = card_with(16);
  info.block_shared_bytes = 99 << 10;
  const auto card = on_cpu::make_card(info);
  RecurrentRegistry registry;
  append_cuda_recurrent_algos(registry);
  RecurrentProblem problem = parse_recurrent_problem("gru:l1t2mb3slc9dhc20").problem;
  problem.dtype = DType::f64;
  RecurrentCase reference(problem, 14);
  int ran = 0;
  for (const RecurrentAlgo* algo : registry.for_device(DeviceKind::cuda))
    for (const Pass pass : all_passes) {
      const RecurrentProblem p = reference.with_pass(pass);
      if (algo->refuse(p, *card)) continue;
      for (const Config& config : algo->configs(p, *card)) {
        EXPECT_LE(reference.check(*algo, p, config, *card).error, 1e-13) << config.text();
        ++ran;
      }
    }
  EXPECT_GE(ran, 20);
}

TEST(Persistent, TakesOnlyUnitsThatFit) {
  RecurrentRegistry registry;
  append_cuda_recurrent_algos(registry);
  const RecurrentAlgo& algo = registry.get(DeviceKind::cuda, "persistent");
  const RecurrentProblem p = parse_recurrent_problem("gru:l1t4mb4dhc100").problem;
  const auto card = on_cpu::make_card(card_with(8));
  const auto plan = [&](std::int64_t units) {
    return algo.plan(p, Config{{"product", "own"}, {"units", units}}, *card);
  };
  EXPECT_NO_THROW(plan(16));
  EXPECT_THROW(plan(4), InputError);   // 25 blocks
  EXPECT_THROW(plan(32), InputError);  // 96 rows
  EXPECT_THROW(plan(5), InputError);
}

}  // namespace
}  // namespace convlab::cuda
