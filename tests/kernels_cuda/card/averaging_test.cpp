// Averages over the cards of this machine, each a rank on a thread of its own; over one card where
// there is one.
#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "conv/error.h"
#include "conv/optional/averaging_device.h"
#include "tests/kernels_cuda/card/card_device.h"

namespace convlab::cuda {
namespace {

class Averaging : public CardTest {
 protected:
  void SetUp() override {
    CardTest::SetUp();
    if (IsSkipped()) return;
    averaging_ = dynamic_cast<AveragingDevice*>(device_.get());
    ASSERT_NE(averaging_, nullptr);
    try {
      averaging_->averaging_library();
    } catch (const EnvironmentError& error) {
      GTEST_SKIP() << error.what();
    }
  }
  AveragingDevice* averaging_ = nullptr;
};

void complete(DeviceAverage& average) {
  while (!average.is_complete()) std::this_thread::yield();
}

// Rank r has r + i at place i, filled in by the net's stream just before.
TEST_F(Averaging, OverAllCards) {
  constexpr std::size_t count = 1 << 20;
  const int cards = std::min(cuda_device_count(), 8);
  const std::string id = averaging_->make_group_id();
  std::vector<std::string> failed(static_cast<std::size_t>(cards));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < cards; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const std::unique_ptr<Device> device = make_cuda_device(rank);
        const std::unique_ptr<Stream> stream = device->make_stream();
        const auto group = dynamic_cast<AveragingDevice&>(*device).join_group(id, rank, cards);
        std::vector<float> host(count);
        for (std::size_t i = 0; i < count; ++i) host[i] = float(rank) + float(i % 1000);
        const Buffer values = device->allocate(count * sizeof(float));
        for (int repeat = 0; repeat < 3; ++repeat) {
          device->copy_to_device(values.data(), std::as_bytes(std::span(host)), *stream);
          const auto average = group->start_average(DType::f32, values.span(), *stream);
          complete(*average);
          EXPECT_GT(average->seconds(), 0);
          std::vector<float> got(count);
          device->copy_to_host(std::as_writable_bytes(std::span(got)), values.data(), *stream);
          for (std::size_t i = 0; i < count; ++i)
            ASSERT_NEAR(got[i], float(cards - 1) / 2 + float(i % 1000), 1e-3) << rank << " " << i;
        }
      } catch (const std::exception& error) {
        failed[std::size_t(rank)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& what : failed) EXPECT_EQ(what, "");
}

TEST_F(Averaging, InDouble) {
  const auto group = averaging_->join_group(averaging_->make_group_id(), 0, 1);
  const Buffer values = upload(std::vector<double>{1, 2, 3});
  complete(*group->start_average(DType::f64, values.span(), *stream_));
  EXPECT_EQ(download<double>(values), (std::vector<double>{1, 2, 3}));
}

}  // namespace
}  // namespace convlab::cuda
