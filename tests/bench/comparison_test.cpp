// Error rates of `diff`, simulated: files whose processes differ by a known deviation.
#include "bench/reports/comparison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>

#include "conv/error.h"

namespace convlab {
namespace {

constexpr std::size_t file_rows = 33;

struct Simulated {
  std::size_t processes = 5;  // per run; 0: samples of one process whose values are not stored
  double offset = 0.01;       // standard deviation between processes
  double drift = 1;           // on all rows of the run
  double slowdown = 1;        // of the first row
  double run_offset = 0;      // standard deviation that all processes of a row in a run share
};

class Simulation {
 public:
  ResultFile file(const Simulated& s) {
    ResultFile file;
    file.path = "file";
    file.family = "layers";
    for (std::size_t i = 0; i < file_rows; ++i) {
      ResultRow row;
      row.key = row.name = "row" + std::to_string(i);
      row.algo = row.choice = "direct";
      const double ms = (1 + double(i)) * s.drift * (i == 0 ? s.slowdown : 1) *
                        std::exp(s.run_offset * normal_(random_));
      const auto process = [&] { return ms * std::exp(s.offset * normal_(random_)); };
      RowTimes& times = row.times.emplace();
      times.ms = process();
      for (std::size_t p = 0; p < s.processes; ++p) times.process_ms.push_back(process());
      if (s.processes == 0)
        for (int sample = 0; sample < 24; ++sample)
          times.samples_ms.push_back(times.ms * std::exp(0.005 * normal_(random_)));
      file.rows.push_back(std::move(row));
    }
    return file;
  }
  std::vector<ResultFile> side(std::size_t runs, Simulated s) {
    std::vector<ResultFile> files;
    for (std::size_t run = 0; run < runs; ++run) {
      s.drift = std::exp(0.05 * normal_(random_));
      files.push_back(file(s));
    }
    return files;
  }

 private:
  std::mt19937_64 random_{1};
  std::normal_distribution<double> normal_;
};

// The share of many pairs of sides for which `is` is true.
double share(std::size_t runs, const Simulated& before, const Simulated& after,
             const std::function<bool(const Comparison&)>& is) {
  const int pairs = std::getenv("CONVLAB_TEST_REDUCED") ? 200 : 1000;
  Simulation simulation;
  int count = 0;
  for (int i = 0; i < pairs; ++i) {
    const std::vector<ResultFile> a = simulation.side(runs, before),
                                  b = simulation.side(runs, after);
    count += is(compare(a, b, {}));
  }
  return double(count) / pairs;
}

bool fails(const Comparison& all) { return all.fails(); }
bool first_is_slower(const Comparison& all) { return all.rows[0].change == Change::slower; }

// One file per side: its processes are the samples; with too few, the spread is assumed.
TEST(ComparisonTest, EqualCodePassesWhateverTheProcesses) {
  for (const std::size_t processes : {0, 2, 3, 5})
    for (const double offset : {0.01, 0.05}) {
      const Simulated s{.processes = processes, .offset = offset};
      EXPECT_LT(share(1, s, s, fails), 0.01) << processes << " processes, " << offset;
    }
}

// Runs may differ by more than their processes do: from three runs on, the runs are the samples.
TEST(ComparisonTest, EqualCodePassesInSeveralRuns) {
  for (const std::size_t runs : {2, 3, 5}) {
    const Simulated s{.processes = 3, .offset = 0.01, .run_offset = runs < least_values ? 0 : 0.03};
    EXPECT_LT(share(runs, s, s, fails), 0.01) << runs << " runs";
  }
}

TEST(ComparisonTest, ASlowdownOfOneRowIsFound) {
  const Simulated before{.processes = 5, .offset = 0.01}, after{5, 0.01, 1, 1.1};
  EXPECT_GT(share(1, before, after, first_is_slower), 0.9);
  const Simulated bare{.processes = 0, .offset = 0.01}, much{0, 0.01, 1, 1.5};
  EXPECT_GT(share(5, {0, 0.01, 1, 1}, {0, 0.01, 1, 1.1}, first_is_slower), 0.9);
  EXPECT_GT(share(1, bare, much, first_is_slower), 0.9);
}

TEST(ComparisonTest, DriftIsDividedOutAndKnown) {
  Simulation simulation;
  const std::vector<ResultFile> a{simulation.file({})},
      b{simulation.file({.drift = 1.2, .slowdown = 1.2})};
  const Comparison all = compare(a, b, {});
  EXPECT_TRUE(all.drift.removed);
  EXPECT_NEAR(all.drift.ratio, 1.2, 0.01);
  EXPECT_NEAR(all.rows[0].ratio[1], 1.2, 0.03);
  EXPECT_NEAR(all.rows[1].ratio[1], 1, 0.03);
  // All rows became slower, the control did not: the machine is the same.
  std::vector<ResultFile> with_a = a, with_b = b;
  for (std::vector<ResultFile>* side : {&with_a, &with_b})
    for (ResultRow& row : side->front().rows)
      row.rivals = {{"onednn.gemm", "onednn.gemm", {7, {}, {}}}};
  const Comparison controlled = compare(with_a, with_b, {.control = "onednn"});
  EXPECT_TRUE(controlled.drift.removed);
  EXPECT_EQ(controlled.drift.ratio, 1);
  EXPECT_NEAR(controlled.rows[1].ratio[1], 1.2, 0.03);
  EXPECT_THROW(compare(with_a, with_b, {.control = "one"}), InputError);
}

TEST(ComparisonTest, FewRowsKeepTheirDrift) {
  Simulation simulation;
  std::vector<ResultFile> a{simulation.file({})}, b{simulation.file({.drift = 1.2})};
  a[0].rows.resize(4);
  b[0].rows.resize(4);
  const Comparison all = compare(a, b, {});
  EXPECT_FALSE(all.drift.removed);
  EXPECT_EQ(all.drift.rows, 4U);
  EXPECT_NEAR(all.rows[1].ratio[1], 1.2, 0.03);
}

}  // namespace
}  // namespace convlab
