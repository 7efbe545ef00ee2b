#include "autotune/measure/measure.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "autotune/measure/disturbance.h"

namespace convlab {
namespace {

std::vector<double> noisy(double level, double spread, int count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(level, spread);
  std::vector<double> v;
  for (int i = 0; i < count; ++i) v.push_back(normal(random));
  return v;
}

TEST(Median, OfOddEvenAndNoCounts) {
  EXPECT_EQ(median(std::vector{3.0, 1.0, 2.0}), 2);
  EXPECT_EQ(median(std::vector{4.0, 1.0, 2.0, 3.0}), 2.5);
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median_abs_deviation(std::vector{1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0}), 1);
  EXPECT_EQ(median_abs_deviation({}), 0);
}

TEST(PairedRatio, FindsARealDifference) {
  const auto ratio = paired_ratio(noisy(1.10, 0.02, 24, 1), noisy(1.0, 0.02, 24, 2), 1);
  EXPECT_LT(ratio[0], ratio[1]);
  EXPECT_LT(ratio[1], ratio[2]);
  EXPECT_NEAR(ratio[1], 1.10, 0.02);
  EXPECT_GT(ratio[0], 1.01);
}

TEST(PairedRatio, OfEqualWorkHoldsOne) {
  int holds = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const auto ratio =
        paired_ratio(noisy(1, 0.03, 24, 2 * seed), noisy(1, 0.03, 24, 2 * seed + 1), 1);
    holds += ratio[0] <= 1.01 && ratio[2] >= 0.99;
  }
  EXPECT_GE(holds, 38);
}

TEST(PairedRatio, CancelsWhatSlowsAWholeRoundDown) {
  std::vector<double> a = noisy(1.05, 0.002, 24, 1), b = noisy(1, 0.002, 24, 2);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double drift = 1 + double(i) / 10;  // by 3.4x over the rounds
    a[i] *= drift;
    b[i] *= drift;
  }
  const auto ratio = paired_ratio(a, b, 1);
  EXPECT_GT(ratio[0], 1.04);
  EXPECT_LT(ratio[2], 1.06);
}

TEST(PairedRatio, IsNotMovedByALuckySample) {
  std::vector<double> a = noisy(1.2, 0.01, 12, 1);
  const std::vector<double> b = noisy(1, 0.01, 12, 2);
  a[5] = 0.1;
  EXPECT_GT(paired_ratio(a, b, 1)[0], 1.1);
}

TEST(PairedRatio, RepeatsWithItsSeed) {
  const auto a = noisy(1, 0.1, 9, 1), b = noisy(1, 0.1, 9, 2);
  EXPECT_EQ(paired_ratio(a, b, 7), paired_ratio(a, b, 7));
  EXPECT_EQ(paired_ratio({}, b, 7), (std::array<double, 3>{}));
}

TEST(Student, Quantiles) {
  EXPECT_NEAR(student_quantile(0.025, 1), 12.7062, 1e-3);
  EXPECT_NEAR(student_quantile(0.025, 2), 4.3027, 1e-3);
  EXPECT_NEAR(student_quantile(0.0005, 5), 6.8688, 1e-3);
  EXPECT_NEAR(student_quantile(0.025, 8), 2.3060, 1e-3);
  EXPECT_NEAR(student_quantile(0.005, 100), 2.6259, 1e-3);
  EXPECT_EQ(student_quantile(0.005, 1'000'000), student_quantile(0.005, 100));
}

TEST(Sampling, RepeatsShortRunsOnly) {
  EXPECT_EQ(runs_per_sample(2e-3, 1e-3), 1);
  EXPECT_EQ(runs_per_sample(0.3e-3, 1e-3), 4);
  EXPECT_EQ(runs_per_sample(1e-12, 1e-3), 10000);
  EXPECT_EQ(runs_per_sample(0, 1e-3), 10000);
  int calls = 0;
  EXPECT_GT(time_runs([&] { ++calls; }, 5), 0);
  EXPECT_EQ(calls, 5);
}

TEST(NoiseFloor, IsFiniteAndPositive) {
  volatile double x = 1;
  const NoiseFloor floor = measure_noise_floor(
      [&] {
        for (int i = 0; i < 10000; ++i) x = x * 0.5 + 1;
      },
      1e-4);
  EXPECT_GT(floor.clock_s, 0);
  EXPECT_LT(floor.clock_s, 1e-3);
  EXPECT_GE(floor.mad, 0);
  EXPECT_GE(floor.interval, 0);
}

// The thread's own counters show a stopped process as asleep.
TEST(Disturbance, AStoppedProcessLostItsTime) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::unsetenv("CONVLAB_IGNORE_DISTURBANCES");
    DeviceInfo device;
    device.kind = DeviceKind::cpu;
    device.threads = 1;
    DisturbanceMeter meter(device);
    meter.start();
    ::raise(SIGSTOP);
    ::_exit(meter.stop() > most_lost ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ::kill(child, SIGCONT);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace convlab
