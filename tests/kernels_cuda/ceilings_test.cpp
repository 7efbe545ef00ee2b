// The loops behind a card's ceilings do all the work they claim, as every thread's result shows. On
// a card if there is one, else executed on the CPU.
#include "kernels_cuda/device/ceilings.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "autotune/measure/ceilings.h"
#include "conv/error.h"
#include "tests/kernels_cuda/card/card_device.h"

namespace convlab::cuda {
namespace {

class CardCeilings : public CardTest {
 protected:
  // Each thread's sum after queue(run); `work_` is the work that the loop claims.
  template <class T, class Queue>
  std::vector<T> sums(int blocks, int rounds, const Queue& queue) {
    const Buffer there = upload(std::vector<T>(std::size_t(blocks * ceiling_threads), T(-1)));
    work_ = queue(CeilingRun{blocks, rounds, there.data()});
    return download<T>(there);
  }

  // Each chain starts at its own number plus the thread's, and adds 1 with each multiply-add.
  template <class T>
  void expect_multiply_adds(DType dtype, int rounds) {
    const auto left = sums<T>(2, rounds, [&](const CeilingRun& run) {
      return queue_multiply_adds(dtype, run, *stream_);
    });
    double done = 0;
    for (std::size_t i = 0; i < left.size(); ++i)
      done += double(left[i]) - 8 * double(i % ceiling_threads) - 28;
    EXPECT_EQ(2 * done, work_) << to_string(dtype);
    EXPECT_GT(work_, 0);
  }

  double work_ = 0;
};

template <class T>
T total(const std::vector<T>& sums) {
  return std::accumulate(sums.begin(), sums.end(), T(0));
}

TEST_F(CardCeilings, MultiplyAddsAreAllDone) {
  for (const int rounds : {1, 3}) {
    expect_multiply_adds<float>(DType::f32, rounds);
    expect_multiply_adds<double>(DType::f64, rounds);
  }
  EXPECT_THROW(expect_multiply_adds<float>(DType::f16, 1), Error);
}

// With operands of ones, every element of the product is the number of products summed in it.
TEST_F(CardCeilings, TensorCoresMultiplyAddAll) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const auto left = sums<float>(1, 2, [&](const CeilingRun& run) {
      return queue_tensor_multiply_adds(dtype, run, *stream_);
    });
    for (const float sum : left) EXPECT_EQ(sum, left[0]) << to_string(dtype);
    EXPECT_EQ(2 * double(left[0]) * ceiling_threads, work_) << to_string(dtype);
    EXPECT_GT(work_, 0);
  }
}

TEST_F(CardCeilings, SharedMemoryIsReadAsOftenAsClaimed) {
  constexpr int blocks = 2, rounds = 7;
  const auto left = sums<unsigned>(
      blocks, rounds, [&](const CeilingRun& run) { return queue_shared_reads(run, *stream_); });
  constexpr unsigned words = unsigned(ceiling_tile_bytes / 4);
  EXPECT_EQ(total(left), blocks * rounds * (words * (words - 1) / 2));
  EXPECT_EQ(work_, 4.0 * words * blocks * rounds);
}

// Five tiles and a part, read by fewer and by more blocks than tiles.
constexpr std::size_t in_tiles = 5 * ceiling_tile_bytes / 4, in_all = in_tiles + 100;

TEST_F(CardCeilings, ReadsReachEveryTile) {
  std::vector<std::uint32_t> data(in_all);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = std::uint32_t(i * 2654435761u);
  const unsigned once = std::accumulate(data.begin(), data.begin() + in_tiles, 0u);
  const Buffer there = upload(data);
  for (const int blocks : {2, 8})
    for (const unsigned rounds : {1u, 3u}) {
      const auto left = sums<unsigned>(blocks, int(rounds), [&](const CeilingRun& run) {
        return queue_reads(there.span(), run, *stream_);
      });
      EXPECT_EQ(total(left), rounds * once) << blocks;
      EXPECT_EQ(work_, 4.0 * in_tiles * rounds);
    }
}

TEST_F(CardCeilings, WritesReachEveryTileAndNothingElse) {
  for (const int blocks : {2, 8}) {
    const Buffer there = upload(std::vector<std::uint32_t>(in_all, ~0u));
    EXPECT_EQ(queue_writes(there.span(), 42, {.blocks = blocks, .rounds = 2}, *stream_),
              2 * 4.0 * in_tiles);
    const auto data = download<std::uint32_t>(there);
    for (std::size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], i < in_tiles ? 43 : ~0u) << i;
  }
}

TEST_F(CardCeilings, MemoryThatIsNoWholeTileIsRefused) {
  const Buffer little = device_->allocate(ceiling_tile_bytes - 1);
  EXPECT_THROW(queue_writes(little.span(), 42, {}, *stream_), Error);
}

TEST_F(CardCeilings, BecomeRoofs) {
  std::vector<std::string> names;
  for (const Roof& roof : measure_loops(*device_, device_->info().threads)) {
    names.push_back(roof.level + " " + roof.what);
    EXPECT_TRUE(roof.measured);
    EXPECT_EQ(roof.threads, device_->info().threads);
    EXPECT_GT(roof.per_second, 1e4) << names.back();
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"registers f32", "registers f64", "registers tf32 mma",
                                      "registers f16 mma", "registers bf16 mma", "shared read",
                                      "L2 read", "L2 write", "memory read", "memory write"}));
}

}  // namespace
}  // namespace convlab::cuda
