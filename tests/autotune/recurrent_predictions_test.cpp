// What is predicted of recurrent layers, on a machine that is the same everywhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/measure/ceilings.h"
#include "kernels_cpu/cpu.h"
#include "recurrent/algo.h"
#include "tests/cpu_backed_device.h"

namespace convlab {
namespace {

struct FixedCpu : CpuBackedDevice {
  explicit FixedCpu(int threads) : CpuBackedDevice({std::min(threads, 2), ""}) {
    info_.threads = threads;
    info_.l2_bytes = 2 << 20;
    info_.l3_bytes = 256 << 20;
  }
};

struct Predicted {
  std::string algo;
  double ms = 0;
};

// Of each algorithm's untuned default.
std::vector<Predicted> predictions(std::string_view text, Pass pass, int threads = 2) {
  Ceilings ceilings;
  ceilings.set_flops(DType::f32, 3.8e11);
  ceilings.l3_bandwidth = 5e10;
  ceilings.memory_bandwidth = 3e10;
  FixedCpu device(threads);
  RecurrentRegistry algos;
  append_cpu_recurrent_algos(algos);
  RecurrentProblem p = parse_recurrent_problem(text).problem;
  p.pass = pass;
  p.training = pass == Pass::forward;
  std::vector<Predicted> found;
  for (const RecurrentAlgo* algo : algos.for_device(DeviceKind::cpu)) {
    // A library's backward passes do other work than their names say.
    const bool peer = algo->info().origin == Origin::vendor;
    if ((peer && pass != Pass::forward) || algo->refuse(p, device)) continue;
    found.push_back({algo->info().id,
                     predict_ms(algo->work(p, algo->configs(p, device).front(), device), p.dtype,
                                double(p.step_bytes()), CacheMode::hot, device.info(), ceilings)});
  }
  return found;
}

double ms_of(std::string_view algo, std::string_view text, Pass pass, int threads = 2) {
  for (const Predicted& p : predictions(text, pass, threads))
    if (p.algo == algo) return p.ms;
  ADD_FAILURE() << algo << " is not predicted for " << text;
  return 0;
}

std::string fastest(std::string_view text, Pass pass) {
  const std::vector<Predicted> found = predictions(text, pass);
  return std::min_element(found.begin(), found.end(),
                          [](const auto& a, const auto& b) { return a.ms < b.ms; })
      ->algo;
}

TEST(RecurrentPredictions, RankPersistentFirstWhereUStaysInL2) {
  for (const char* text : {"rnn:t16mb1dhc64", "rnn:t64mb1dhc512", "rnn:t64mb4dhc768",
                           "lstm:t64mb4dhc64", "lstm:t16mb32dhc64", "gru:l2t16mb1dhc128:bi"})
    for (const Pass pass : {Pass::forward, Pass::backward_data})
      EXPECT_EQ(fastest(text, pass), "persistent") << text << " " << to_string(pass);
}

TEST(RecurrentPredictions, RankOneProductOverAllStepsAboveOneAStep) {
  // One row a step is a product of depth 1.
  EXPECT_GT(ms_of("stepwise", "rnn:t64mb1dhc64", Pass::backward_filter),
            3 * ms_of("batched_input", "rnn:t64mb1dhc64", Pass::backward_filter));
  for (const char* text : {"rnn:t64mb1dhc64", "rnn:t16mb4dhc512", "lstm:t64mb32dhc768"}) {
    EXPECT_EQ(fastest(text, Pass::backward_filter), "batched_input") << text;
    for (const Pass pass : {Pass::forward, Pass::backward_data})
      EXPECT_GT(ms_of("stepwise", text, pass), 1.2 * ms_of("batched_input", text, pass)) << text;
  }
}

// The less a step computes, the more of it is waiting.
TEST(RecurrentPredictions, CountWhatEachStepWaits) {
  const auto gain = [](std::string_view text, int threads) {
    return ms_of("batched_input", text, Pass::forward, threads) /
           ms_of("persistent", text, Pass::forward, threads);
  };
  EXPECT_GT(gain("rnn:t64mb1dhc64", 2), 1.5);
  EXPECT_LT(gain("rnn:t64mb128dhc64", 2), 1.15);
  EXPECT_LT(gain("rnn:t64mb128dhc512", 2), 1.02);
  EXPECT_LT(gain("rnn:t64mb1dhc512", 1), 1.1);  // nobody to wait for
}

TEST(RecurrentPredictions, ReadUOnceOrAtEachStep) {
  // Doubling H makes four times the work.
  const auto growth = [](std::string_view from, std::string_view to) {
    return ms_of("persistent", to, Pass::forward) / ms_of("persistent", from, Pass::forward);
  };
  EXPECT_LT(growth("rnn:t64mb1dhc256", "rnn:t64mb1dhc512"), 4);
  EXPECT_GT(growth("rnn:t64mb1dhc768", "rnn:t64mb1dhc1536"), 6);  // 9 MiB, beyond both L2s
  // A layer's U has L2 for itself during its steps.
  EXPECT_NEAR(growth("rnn:t64mb1dhc768", "rnn:l4t64mb1dhc768"), 4, 0.1);
  const double all_reads_ms = 1e3 * 64 * 4 * 2048 * 2048 / 5e10;
  EXPECT_GT(ms_of("persistent", "rnn:t64mb1dhc2048", Pass::forward), all_reads_ms);
}

// A step of few rows is bound by reading U.
TEST(RecurrentPredictions, ShareTheReadingOfUAmongRows) {
  const auto rate = [](int n) {
    return n / ms_of("persistent", "rnn:t64mb" + std::to_string(n) + "dhc512", Pass::forward);
  };
  EXPECT_GT(rate(2), 1.25 * rate(1));
  EXPECT_GT(rate(4), 1.15 * rate(2));
  EXPECT_LT(rate(128), 1.1 * rate(32));
}

}  // namespace
}  // namespace convlab
