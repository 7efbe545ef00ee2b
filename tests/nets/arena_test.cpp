#include "nets/run/arena.h"

#include <gtest/gtest.h>

#include <random>

namespace convlab::nets {
namespace {

// No two buffers that are live at the same time share a byte.
void expect_disjoint(const std::vector<Lifetime>& buffers, const Arena& arena) {
  ASSERT_EQ(arena.offsets.size(), buffers.size());
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(arena.offsets[i] % 64, 0u);
    EXPECT_LE(arena.offsets[i] + buffers[i].bytes, arena.bytes);
    for (std::size_t j = 0; j < i; ++j) {
      const bool meet = buffers[i].first <= buffers[j].last && buffers[j].first <= buffers[i].last;
      if (!meet) continue;
      EXPECT_TRUE(arena.offsets[i] + buffers[i].bytes <= arena.offsets[j] ||
                  arena.offsets[j] + buffers[j].bytes <= arena.offsets[i])
          << "buffers " << j << " and " << i << " overlap";
    }
  }
}

TEST(Arena, NothingNeedsNothing) {
  EXPECT_EQ(plan_arena({}).bytes, 0u);
  EXPECT_EQ(peak_bytes({}), 0u);
}

TEST(Arena, BuffersOfDifferentMomentsShareBytes) {
  const std::vector<Lifetime> buffers{{1000, 0, 1}, {640, 2, 2}, {64, 3, 5}};
  const Arena arena = plan_arena(buffers);
  EXPECT_EQ(arena.bytes, 1024u);
  EXPECT_EQ(peak_bytes(buffers), 1000u);
}

// In a net without branches each buffer overlaps only its neighbours, so two regions alternate.
TEST(Arena, AChainNeedsItsTwoLargestNeighbours) {
  std::vector<Lifetime> buffers;
  for (std::size_t i = 0; i < 20; ++i) buffers.push_back({64 * (100 - i), i, i + 1});
  const Arena arena = plan_arena(buffers);
  expect_disjoint(buffers, arena);
  EXPECT_EQ(arena.bytes, peak_bytes(buffers));
}

// Forward keeps everything, backward frees it in reverse.
TEST(Arena, NestedLifetimesNeedTheirSum) {
  std::vector<Lifetime> buffers;
  for (std::size_t i = 0; i < 20; ++i) buffers.push_back({64 * (1 + i * 7 % 5), i, 40 - i});
  const Arena arena = plan_arena(buffers);
  expect_disjoint(buffers, arena);
  EXPECT_EQ(arena.bytes, peak_bytes(buffers));
}

TEST(Arena, RandomLifetimesNeverOverlap) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    std::vector<Lifetime> buffers(1 + random() % 60);
    for (Lifetime& b : buffers) {
      b.bytes = random() % 5 == 0 ? 0 : random() % 5000;
      b.first = random() % 40;
      b.last = b.first + random() % 10;
    }
    const Arena arena = plan_arena(buffers);
    expect_disjoint(buffers, arena);
    EXPECT_GE(arena.bytes, peak_bytes(buffers));
    std::size_t sum = 0;
    for (const Lifetime& b : buffers) sum += (b.bytes + 63) / 64 * 64;
    EXPECT_LE(arena.bytes, sum);
  }
}

}  // namespace
}  // namespace convlab::nets
