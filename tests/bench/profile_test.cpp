#include "bench/reports/nets/profile.h"

#include <gtest/gtest.h>
#include <linux/perf_event.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "bench/reports/nets/cpu_counters.h"
#include "conv/error.h"
#include "tests/bench/program/run_program.h"

namespace convlab {
namespace {

using nlohmann::json;
class ProfileTest : public testing::Test {
 protected:
  Ran profile(const Words& more) {
    Words words{"time", "lenet", "--batch", "2", "--iterations", "2", "--profile"};
    words.insert(words.end(), more.begin(), more.end());
    return Program(directory_, words).wait();
  }
  TemporaryDirectory directory_;
};

double sum_of(const json& rows, const char* column) {
  double sum = 0;
  for (const json& row : rows) sum += row[column].get<double>();
  return sum;
}

TEST_F(ProfileTest, KernelsAndLayersAddUpToWhatWasObserved) {
  const Ran ran = profile({"--algos", "im2col", "--format", "json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json file = json::parse(ran.out), rows = file["profile"];
  double observed = 0;
  for (const json& step : file["steps"])
    for (const json& phase : step["phases"])
      for (const json& ms : phase["samples_ms"]) observed += ms.get<double>();
  EXPECT_NEAR(sum_of(rows["kernels"], "Time"), observed, 1e-9 * observed);
  EXPECT_NEAR(sum_of(rows["layers"], "Inclusive"), observed, 1e-9 * observed);
  EXPECT_NEAR(sum_of(rows["kernels"], "Time(%)"), 100, 1e-9);
  bool product = false;
  for (const json& kernel : rows["kernels"]) {
    EXPECT_LE(kernel["Min"], kernel["Avg"]) << kernel;
    EXPECT_LE(kernel["Avg"], kernel["Max"]) << kernel;
    // 2 iterations x 3 convolutions
    if (kernel["Name"] == "im2col fwd product") product = kernel["Calls"] == 6;
  }
  EXPECT_TRUE(product) << rows["kernels"];
  for (const json& layer : rows["layers"]) {
    EXPECT_LE(layer["Exclusive"], layer["Inclusive"]) << layer;
    // 0, but for rounding, where a layer ran no faster alone than in the net.
    EXPECT_GE(layer["Exclusive"], -1e-9) << layer;
  }
}

TEST(KernelRuns, AreSummedByNameDearestFirst) {
  const std::string longest(300, 'x');
  const Report table =
      kernel_run_table({{"copy", 1}, {longest, 4}, {"copy", 2}, {longest, 1}, {"fill", 2}});
  ASSERT_EQ(table.rows.size(), 3u);
  const json rows = json::parse(render(table, Format::json))["rows"];
  EXPECT_EQ(rows[0]["Name"], longest);
  EXPECT_EQ(rows[0]["Time(%)"], 50);
  EXPECT_EQ(rows[1]["Name"], "copy");
  EXPECT_EQ(rows[1]["Calls"], 2);
  EXPECT_EQ(rows[1]["Avg"], 1.5);
  EXPECT_EQ(rows[1]["Min"], 1);
  EXPECT_EQ(rows[1]["Max"], 2);
  const std::string shown = render(table, Format::table);
  EXPECT_NE(shown.find("xxx..."), std::string::npos) << shown;
  EXPECT_EQ(shown.find(longest), std::string::npos) << shown;
}

TEST_F(ProfileTest, WhatToTuneNextIsRankedByHeadroom) {
  const Ran ran = profile({"--forward-only", "--format", "json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json next = json::parse(ran.out)["profile"]["next"];
  ASSERT_FALSE(next.empty());
  double before = next[0]["Headroom"];
  for (const json& row : next) {
    EXPECT_LE(row["Headroom"].get<double>(), before) << row;
    before = row["Headroom"];
    EXPECT_NEAR(row["Time"].get<double>() - row["Attainable"].get<double>(), before, 1e-9) << row;
  }
}

TEST_F(ProfileTest, TheTableSaysWhetherThereAreCounters) {
  const Ran ran = profile({"--forward-only"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const auto has = [&](const char* text) { return ran.out.find(text) != std::string::npos; };
  EXPECT_TRUE(has("Time(%)")) << ran.out;
  EXPECT_TRUE(has("Exclusive")) << ran.out;
  EXPECT_TRUE(has("What to tune next, ms of one iteration\n\nHeadroom(%)")) << ran.out;
  EXPECT_TRUE(has("no hardware counters") || has(" instructions")) << ran.out;
}

TEST(CpuCounters, CountEveryThread) {
  // A software clock counts even without hardware counters.
  const CpuCounters::Event clock{"clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK};
  std::unique_ptr<CpuCounters> one, two;
  try {
    two = std::make_unique<CpuCounters>(std::vector{clock}, 2);
    one = std::make_unique<CpuCounters>(std::vector{clock}, 1);
  } catch (const EnvironmentError& error) {
    GTEST_SKIP() << error.what();
  }
  const auto work = [] {
    volatile double sum = 0;
    for (int i = 0; i < 3'000'000; ++i) sum = sum + i;
  };
#pragma omp parallel num_threads(2)
  work();
  const double both = two->read()[0], main = one->read()[0];
  EXPECT_GT(main, 1e5);
  EXPECT_GT(both, main + 1e5);
}

TEST(CpuCounters, WhatIsNotThereIsSaid) {
  const CpuCounters::Event none{"nonsense", PERF_TYPE_HARDWARE, 12345};
  EXPECT_THROW(CpuCounters({none}, 1), EnvironmentError);
}

}  // namespace
}  // namespace convlab
