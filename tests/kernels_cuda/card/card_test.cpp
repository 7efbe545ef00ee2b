// Memory, streams, timing and failures of a real card.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <thread>

#include "conv/error.h"
#include "kernels_cuda/device/cuda_device.h"
#include "kernels_cuda/device/runtime.h"
#include "tests/kernels_cuda/card/card_device.h"
#include "tests/kernels_cuda/card/card_kernels.h"

namespace convlab::cuda {
namespace {

class Card : public CardTest {};

TEST_F(Card, IsDescribed) {
  const DeviceInfo& info = device_->info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_EQ(info.isa.substr(0, 3), "sm_");
  EXPECT_GT(info.threads, 0);
  EXPECT_GE(info.block_shared_bytes, 48 << 10);
  EXPECT_LE(info.block_shared_bytes, info.l1_bytes);
  EXPECT_GT(info.l2_bytes, 0);
  EXPECT_GT(info.memory_bytes, std::int64_t(1) << 30);
  for (const char* library : {"cuda", "driver", "cublas", "cufft"})
    EXPECT_TRUE(info.libraries.contains(library)) << library;
}

// What tiles are sized for, and no algorithm asks about.
TEST_F(Card, HasTheRegistersAndThreadsOfEveryCard) {
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, device_index(*device_)), "cudaDeviceGetAttribute");
    return value;
  };
  EXPECT_EQ(attribute(cudaDevAttrMaxRegistersPerBlock), 65536);
  EXPECT_EQ(attribute(cudaDevAttrMaxRegistersPerMultiprocessor), 65536);
  EXPECT_EQ(attribute(cudaDevAttrMaxThreadsPerBlock), 1024);
  EXPECT_GE(attribute(cudaDevAttrMaxThreadsPerMultiProcessor), 1536);
  EXPECT_EQ(attribute(cudaDevAttrWarpSize), 32);
}

TEST_F(Card, ThatDoesNotExistIsNamed) {
  EXPECT_THROW(make_cuda_device(-1), InputError);
  EXPECT_THROW(make_cuda_device(cuda_device_count()), InputError);
}

TEST_F(Card, CopiesThereAndBackFromPlainAndPinnedMemory) {
  std::vector<int> numbers(1'000'003);
  std::iota(numbers.begin(), numbers.end(), 0);
  const ConstSpan bytes = std::as_bytes(std::span(numbers));
  const Buffer there = device_->allocate(bytes.size()),
               pinned = device_->allocate_pinned(bytes.size());
  device_->copy_to_device(there.data(), bytes, *stream_);
  device_->copy_to_host(pinned.span(), there.data(), *stream_);
  EXPECT_TRUE(std::equal(numbers.begin(), numbers.end(), pinned.as<int>()));

  std::fill(numbers.begin(), numbers.end(), 0);
  device_->copy_to_device(there.data(), pinned.span(), *stream_);
  device_->copy_to_host(std::as_writable_bytes(std::span(numbers)), there.data(), *stream_);
  EXPECT_TRUE(std::equal(numbers.begin(), numbers.end(), pinned.as<int>()));
}

TEST_F(Card, BuffersOfAnySizeAreAligned) {
  for (const std::size_t bytes : {std::size_t(0), std::size_t(1), std::size_t(1) << 30}) {
    const Buffer buffer = device_->allocate(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_NE(buffer.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0u);
  }
}

TEST_F(Card, OutOfMemoryIsSaidAndPasses) {
  EXPECT_THROW(device_->allocate(std::size_t(1) << 44), OutOfMemory);
  // Freed memory can be allocated again in other sizes.
  const auto most = std::size_t(device_->info().memory_bytes) / 2;
  for (const std::size_t bytes : {most, most / 3, most}) device_->allocate(bytes);
  const Buffer values = device_->allocate(4);
  queue_increment(values.as<std::int32_t>(), 1, 1, *stream_);
  stream_->synchronize();
}

// As on a virtual card.
TEST_F(Card, AllocatesWithoutMemoryPools) {
  const int device = device_index(*device_);
  const Buffer values = allocate_on(device, 400, false);
  queue_increment(values.as<std::int32_t>(), 100, 1, *stream_);
  stream_->synchronize();
  EXPECT_THROW(allocate_on(device, std::size_t(1) << 44, false), OutOfMemory);
}

// winograd's 3xTF32 passes the lower 13 bits as they are (winograd/fused.cu).
TEST_F(Card, TensorCoresIgnoreTheLowBitsOfTf32) {
  std::vector<std::uint32_t> operands(32 * 6);  // of each lane: four registers of a, two of b
  for (std::size_t i = 0; i < operands.size(); ++i)
    operands[i] = 0x3f800000u + std::uint32_t(i) * 0x12345u;  // 1 to 2.8
  std::vector<std::uint32_t> truncated = operands;
  for (std::uint32_t& each : truncated) each &= 0xffffe000u;
  const auto product = [&](const std::vector<std::uint32_t>& of) {
    const Buffer there = upload(of), sums = device_->allocate(32 * 4 * sizeof(float));
    queue_tf32_product(there.as<std::uint32_t>(), sums.as<float>(), *stream_);
    return download<float>(sums);
  };
  EXPECT_NE(operands, truncated);
  EXPECT_EQ(product(operands), product(truncated));
}

// As many blocks as resident_blocks() promises, and far more.
TEST_F(Card, BlocksThatAreResidentWaitForEachOther) {
  constexpr int rounds = 20;
  const auto blocks = unsigned(device_->info().threads);
  std::vector<unsigned> values((rounds + 1) * blocks, 0), expected = values;
  for (unsigned round = 1; round <= rounds; ++round) {
    unsigned sum = 0;
    for (unsigned i = 0; i < blocks; ++i) sum += expected[(round - 1) * blocks + i];
    for (unsigned i = 0; i < blocks; ++i) expected[round * blocks + i] = sum + i;
  }
  const Buffer there = upload(values), arrived = upload(std::vector<unsigned>(1, 0));
  queue_sums_of_all(there.as<unsigned>(), arrived.as<unsigned>(), rounds, blocks, *stream_);
  EXPECT_EQ(download<unsigned>(there), expected);
  EXPECT_THROW(queue_sums_of_all(there.as<unsigned>(), arrived.as<unsigned>(), rounds, 100 * blocks,
                                 *stream_),
               CudaError);
}

TEST_F(Card, AStreamKeepsOrderOnAnyThread) {
  const std::vector<std::int32_t> zeros(100'000);
  const Buffer values = device_->allocate(zeros.size() * 4);
  std::vector<std::int32_t> seen(zeros.size());
  std::thread other([&] {
    device_->copy_to_device(values.data(), std::as_bytes(std::span(zeros)), *stream_);
    for (int i = 0; i < 100; ++i) queue_increment(values.as<std::int32_t>(), 100'000, 3, *stream_);
    device_->copy_to_host(std::as_writable_bytes(std::span(seen)), values.data(), *stream_);
  });
  other.join();
  EXPECT_EQ(seen, std::vector<std::int32_t>(zeros.size(), 300));
}

// Replayed as a graph: each timed run executes, and no others.
TEST_F(Card, TimesWhatItRuns) {
  const std::vector<std::int32_t> zero(1);
  const Buffer value = device_->allocate(4);
  device_->copy_to_device(value.data(), std::as_bytes(std::span(zero)), *stream_);
  const auto work = [&] { queue_increment(value.as<std::int32_t>(), 1, 1, *stream_); };
  EXPECT_GT(stream_->time(work, 1), 0);
  EXPECT_GT(stream_->time(work, 128), 0);
  std::vector<std::int32_t> runs(1);
  device_->copy_to_host(std::as_writable_bytes(std::span(runs)), value.data(), *stream_);
  EXPECT_EQ(runs[0], 129);
}

// Work that a graph cannot capture is timed without one, once per run.
TEST_F(Card, TimesWorkThatWaits) {
  const std::vector<std::int32_t> zero(1);
  const Buffer value = device_->allocate(4);
  device_->copy_to_device(value.data(), std::as_bytes(std::span(zero)), *stream_);
  const auto work = [&] {
    queue_increment(value.as<std::int32_t>(), 1, 1, *stream_);
    stream_->synchronize();
  };
  EXPECT_GT(stream_->time(work, 3), 0);
  std::vector<std::int32_t> runs(1);
  device_->copy_to_host(std::as_writable_bytes(std::span(runs)), value.data(), *stream_);
  EXPECT_EQ(runs[0], 3);
}

TEST_F(Card, EvictionLeavesTheDataAlone) {
  const std::vector<std::int32_t> numbers(1000, 42);
  const Buffer values = device_->allocate(4000);
  device_->copy_to_device(values.data(), std::as_bytes(std::span(numbers)), *stream_);
  const ConstSpan spans[] = {values.span()};
  device_->evict_from_caches(spans, *stream_);
  std::vector<std::int32_t> seen(1000);
  device_->copy_to_host(std::as_writable_bytes(std::span(seen)), values.data(), *stream_);
  EXPECT_EQ(seen, numbers);
}

TEST_F(Card, AnImpossibleLaunchIsNoEnd) {
  EXPECT_THROW(queue_increment(nullptr, std::int64_t(1) << 40, 1, *stream_), CudaError);
  const Buffer value = device_->allocate(4);
  queue_increment(value.as<std::int32_t>(), 1, 1, *stream_);
  stream_->synchronize();
}

// In its own process, whose device is lost.
TEST_F(Card, AnIllegalStoreLosesTheDevice) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        const auto lost = [](auto call) {
          try {
            call();
          } catch (const DeviceLost&) {
            return true;
          }
          return false;
        };
        queue_illegal_store(*stream_);
        const bool told = lost([&] { stream_->synchronize(); });
        const bool stays = lost([&] { device_->allocate(64); });
        std::_Exit(told && stays ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace convlab::cuda
