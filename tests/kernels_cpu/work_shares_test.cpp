#include "kernels_cpu/device/work_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace convlab::cpu {
namespace {

TEST(WorkShares, AThreadTakesItsOwnFromTheFrontThenHalvesOfOthersFromTheBack) {
  WorkShares shares(20, 2);
  const auto expect = [&](std::int64_t thread, Range want) {
    const Range got = shares.take(thread, 4);
    EXPECT_EQ(got.begin, want.begin);
    EXPECT_EQ(got.end, want.end);
  };
  expect(1, {10, 14});
  expect(0, {0, 4});
  expect(1, {14, 18});
  expect(1, {18, 20});
  expect(1, {7, 10});
  expect(0, {4, 7});
  EXPECT_EQ(shares.take(0, 4).size(), 0);
  EXPECT_EQ(shares.take(1, 4).size(), 0);
}

TEST(WorkShares, EveryItemIsTakenOnce) {
  for (std::int64_t count : {0, 1, 5, 10007}) {
    constexpr int kThreads = 4;
    WorkShares shares(count, kThreads);
    std::vector<int> taken(count);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads - 1; ++t)  // the last one never arrives
      threads.emplace_back([&, t] {
        for (Range r = shares.take(t, 3); r.size() > 0; r = shares.take(t, 3)) {
          EXPECT_LE(r.size(), 3);
          for (std::int64_t i = r.begin; i < r.end; ++i) ++taken[i];
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(std::count(taken.begin(), taken.end(), 1), count);
  }
}

}  // namespace
}  // namespace convlab::cpu
