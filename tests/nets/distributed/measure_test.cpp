// The link between ranks, from times of averages.
#include "nets/distributed/measure.h"

#include <gtest/gtest.h>

#include <array>

#include "conv/error.h"
#include "tests/nets/distributed/ranks_lab.h"

namespace convlab::nets {
namespace {

using Times = std::array<TimedAverage, 3>;

Times times_of(const Link& link, int ranks) {
  Times times{{{1 << 10}, {1 << 20}, {4 << 20}}};
  for (TimedAverage& time : times) time.seconds = all_reduce_s({.link = link}, ranks, time.bytes);
  return times;
}

void expect_link(const Link& link, const Link& expected) {
  EXPECT_NEAR(link.latency_s, expected.latency_s, 1e-6 * expected.latency_s + 1e-15);
  EXPECT_NEAR(link.bytes_per_s, expected.bytes_per_s, 1e-6 * expected.bytes_per_s);
}

TEST(MeasuredLink, IsTheOneThatTheModelWouldHave) {
  for (const int ranks : {2, 3, 8})
    for (const Link link : {Link{25e-6, 1.25e9}, Link{1e-3, 1.25e7}, Link{0, 1e10}})
      expect_link(link_from(ranks, times_of(link, ranks)), link);
}

// A shaped link lets the first bytes pass at once.
TEST(MeasuredLink, DoesNotSeeABurst) {
  const Link link{25e-6, 1.25e7};
  Times times = times_of(link, 2);
  for (std::size_t i : {1, 2}) times[i].seconds -= 2e-3;
  expect_link(link_from(2, times), link);
}

TEST(MeasuredLink, HasNoNegativeLatency) {
  const Link link = link_from(2, {{{1000, 1e-7}, {2000, 2e-6}, {3000, 3e-6}}});
  EXPECT_EQ(link.latency_s, 0);
  EXPECT_DOUBLE_EQ(link.bytes_per_s, 1e9);
}

TEST(MeasuredLink, RefusesTimesThatSayNothing) {
  EXPECT_THROW(link_from(1, times_of({}, 2)), InputError);
  EXPECT_THROW(link_from(2, {{{1000, 1e-6}, {2000, 2e-6}, {3000, 2e-6}}}), EnvironmentError);
}

TEST(MeasuredLink, IsTheSameOnAllRanks) {
  on_ranks(3, [](Communicator& c) {
    const Link link = measured_link(c);
    EXPECT_GE(link.latency_s, 0);
    EXPECT_GT(link.bytes_per_s, 0);
    EXPECT_EQ(c.all_gather(link.bytes_per_s).front(), link.bytes_per_s);
    EXPECT_EQ(c.all_gather(link.latency_s).front(), link.latency_s);
  });
}

// All end after the same one; other collectives go on meanwhile.
TEST(SteadyAverages, GoOnUntilAllRanksStop) {
  on_ranks(3, [](Communicator& c) {
    SteadyAverages averages(c);
    for (int i = 0; i < 10; ++i) c.barrier();
    EXPECT_GT(averages.stop(), 0);
    c.barrier();
  });
}

TEST(SteadyAverages, AreGivenUpByAnException) {
  on_ranks(2, [](Communicator& c) { const SteadyAverages averages(c); });
}

}  // namespace
}  // namespace convlab::nets
