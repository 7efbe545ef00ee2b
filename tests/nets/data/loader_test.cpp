// Batches: an order independent of the number of threads, bad images, and shutdown in the middle of
// work.
#include "nets/data/loader.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "conv/error.h"
#include "kernels_cpu/cpu.h"
#include "scratch.h"
#include "tests/nets/late_device.h"

namespace convlab::nets {
namespace {

// Image i has the label i, and i in every pixel. Some cannot be read. Reading is slow.
class Numbers final : public Dataset {
 public:
  explicit Numbers(std::int64_t size, std::vector<std::int64_t> bad = {},
                   std::chrono::microseconds pause = {})
      : size_(size), bad_(std::move(bad)), pause_(pause) {}
  std::int64_t size() const override { return size_; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::int32_t label(std::int64_t index) const override { return std::int32_t(index); }
  Image image(std::int64_t index) const override {
    std::this_thread::sleep_for(pause_);
    ++read;
    if (index == broken) throw std::bad_alloc();
    if (std::find(bad_.begin(), bad_.end(), index) != bad_.end())
      throw InputError(name(index) + ": is bad");
    return {1, 4, 4, Bytes(16, std::uint8_t(index))};
  }
  std::string name(std::int64_t index) const override { return "#" + std::to_string(index); }

  mutable std::atomic<int> read = 0;
  std::int64_t broken = -1;

 private:
  std::int64_t size_;
  std::vector<std::int64_t> bad_;
  std::chrono::microseconds pause_;
  std::vector<std::string> classes_;
};

const Transform plain{.channels = 1, .height = 4, .width = 4};
const Transform augmented{
    .channels = 1, .height = 4, .width = 4, .pad = 1, .random_crop = true, .random_flip = true};

struct Epoch {
  std::vector<std::vector<std::int32_t>> labels;
  std::vector<float> pixels;
  bool operator==(const Epoch&) const = default;
};

class Loader : public ::testing::Test {
 protected:
  Epoch run(DataLoader& loader, std::int64_t epoch, std::int64_t first = 0) {
    Epoch result;
    loader.start(epoch, first);
    while (const Batch* const batch = loader.next()) {
      result.labels.emplace_back(batch->labels.begin(), batch->labels.end());
      const auto* const pixels = reinterpret_cast<const float*>(batch->input.data());
      result.pixels.insert(result.pixels.end(), pixels, pixels + batch->input.size() / 4);
      EXPECT_EQ(batch->images, std::count_if(batch->labels.begin(), batch->labels.end(),
                                             [](std::int32_t label) { return label >= 0; }));
    }
    EXPECT_EQ(loader.next(), nullptr);
    return result;
  }

  std::unique_ptr<Device> device_ = make_cpu_device();
};

TEST_F(Loader, InOrderAndTheLastFilledUp) {
  const Numbers numbers(10);
  DataLoader loader(numbers, plain, {.batch = 4}, *device_);
  EXPECT_THROW(loader.next(), InputError);  // before start()
  EXPECT_EQ(loader.batches(), 3);
  const Epoch epoch = run(loader, 0);
  EXPECT_EQ(epoch.labels, (std::vector<std::vector<std::int32_t>>{
                              {0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, no_label, no_label}}));
  for (std::size_t i = 0; i < epoch.pixels.size(); ++i) {
    const std::size_t image = i / 16;
    ASSERT_FLOAT_EQ(epoch.pixels[i], image < 10 ? float(image) / 255 : 0.f);
  }
  DataLoader whole(numbers, plain, {.batch = 4, .drop_last = true, .dtype = DType::f64}, *device_);
  whole.start(0);
  EXPECT_EQ(whole.next()->input.size(), 4u * 16 * 8);
  EXPECT_EQ(whole.next()->labels.back(), 7);
  EXPECT_EQ(whole.next(), nullptr);
}

TEST_F(Loader, AnyNumberOfThreadsAndAnyRestartGiveTheSame) {
  const Numbers numbers(103);
  LoaderOptions options{.batch = 8, .shuffle = true, .seed = 5, .threads = 0};
  DataLoader alone(numbers, augmented, options, *device_);
  const Epoch second = run(alone, 2);
  std::vector<int> times(103);
  for (const auto& labels : second.labels)
    for (const std::int32_t label : labels)
      if (label >= 0) ++times[label];
  EXPECT_EQ(times, std::vector<int>(103, 1));

  for (const int threads : {1, 3}) {
    options.threads = threads;
    options.prefetch = threads - 1;
    DataLoader loader(numbers, augmented, options, *device_);
    EXPECT_FALSE(run(loader, 1) == second);
    EXPECT_TRUE(run(loader, 2) == second) << threads << " threads";
    const Epoch rest = run(loader, 2, 9);
    ASSERT_EQ(rest.labels.size(), second.labels.size() - 9);
    EXPECT_TRUE(std::equal(rest.labels.begin(), rest.labels.end(), second.labels.begin() + 9));
    EXPECT_TRUE(
        std::equal(rest.pixels.begin(), rest.pixels.end(), second.pixels.begin() + 9 * 8 * 16));
  }
  options.seed = 6;
  DataLoader other(numbers, augmented, options, *device_);
  EXPECT_FALSE(run(other, 2).labels == second.labels);
}

// The loader copies to the card's memory.
TEST_F(Loader, ACardsBatchesAreThereWhenTheyAreGiven) {
  const Numbers numbers(103);
  LateDevice card(DeviceKind::cuda);
  for (const int threads : {0, 3}) {
    const LoaderOptions options{.batch = 8, .shuffle = true, .threads = threads};
    DataLoader plain_loader(numbers, augmented, options, *device_),
        loader(numbers, augmented, options, card);
    EXPECT_TRUE(run(loader, 1) == run(plain_loader, 1)) << threads << " threads";
  }
}

// In another epoch the same image is cropped and mirrored differently.
TEST_F(Loader, EpochsDrawAnew) {
  const Numbers numbers(64);
  DataLoader loader(numbers, augmented, {.batch = 64}, *device_);
  const Epoch first = run(loader, 0), second = run(loader, 1);
  EXPECT_EQ(first.labels, second.labels);
  EXPECT_NE(first.pixels, second.pixels);
}

TEST_F(Loader, BadImagesAreNamedOnceAndFilledUp) {
  const Numbers numbers(20, {3, 17, 11});
  DataLoader loader(numbers, plain, {.batch = 5, .threads = 2, .bad_images = 3}, *device_);
  for (int epoch = 0; epoch < 2; ++epoch) {
    const Epoch result = run(loader, epoch);
    EXPECT_EQ(result.labels[0], (std::vector<std::int32_t>{0, 1, 2, no_label, 4}));
    for (int i = 0; i < 16; ++i) EXPECT_EQ(result.pixels[3 * 16 + i], 0);
  }
  EXPECT_EQ(loader.bad_images(),
            (std::vector<std::string>{"#3: is bad", "#11: is bad", "#17: is bad"}));
}

TEST_F(Loader, TooManyBadImagesEndIt) {
  const Numbers numbers(20, {3, 17, 11});
  DataLoader loader(numbers, plain, {.batch = 5, .threads = 2, .bad_images = 2}, *device_);
  expect_error([&] { run(loader, 0); }, {"#17: is bad", "after 2 other bad images"});
  EXPECT_EQ(loader.next(), nullptr);
}

TEST_F(Loader, WhatAThreadThrowsArrivesInItsBatch) {
  for (const int threads : {0, 2}) {
    Numbers numbers(40);
    numbers.broken = 23;
    DataLoader loader(numbers, plain, {.batch = 8, .threads = threads}, *device_);
    loader.start(0);
    EXPECT_EQ(loader.next()->labels[0], 0);
    EXPECT_EQ(loader.next()->labels[0], 8);
    EXPECT_THROW(loader.next(), std::bad_alloc);
    numbers.broken = -1;
    EXPECT_EQ(run(loader, 1).labels.size(), 5u);
  }
}

TEST_F(Loader, PrefetchIsBounded) {
  const Numbers numbers(100);
  DataLoader loader(numbers, plain, {.batch = 4, .threads = 2, .prefetch = 2}, *device_);
  loader.start(0);
  for (int i = 0; i < 60'000 && numbers.read < 12; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(numbers.read, 12);  // one batch to hand out, two prefetched
}

TEST_F(Loader, EndsAndStartsAnewWhileThreadsWork) {
  const Numbers numbers(64, {}, std::chrono::microseconds(200));
  for (int taken = 0; taken < 4; ++taken) {
    DataLoader loader(numbers, plain, {.batch = 8, .threads = 3}, *device_);
    loader.start(0);
    for (int i = 0; i < taken; ++i) loader.next();
    loader.start(1, 4);
    EXPECT_EQ(loader.next()->labels[0], 32);
    EXPECT_GT(loader.waited_s(), 0);
  }
  const DataLoader idle(numbers, plain, {.threads = 2}, *device_);
}

TEST(LoaderDeathTest, ThreadsThatTheSystemDoesNotGiveAreAnError) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto few_threads = [] {
    const std::unique_ptr<Device> device = make_cpu_device({1, ""});
    const rlimit limit{4, 4};
    setrlimit(RLIMIT_NPROC, &limit);
    if (getuid() == 0 && setuid(54321) != 0) std::_Exit(4);  // root has no limit
    const Numbers numbers(10);
    try {
      DataLoader loader(numbers, plain, {.batch = 4, .threads = 16}, *device);
    } catch (const EnvironmentError& error) {
      std::fputs(error.what(), stderr);
      std::_Exit(3);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(few_threads(), testing::ExitedWithCode(3), "cannot start 16 threads to load data");
}

TEST_F(Loader, RefusesNonsense) {
  const Numbers none(0), numbers(3);
  const auto make = [&](const Dataset& data, const LoaderOptions& options) {
    return [&, options] { DataLoader(data, plain, options, *device_); };
  };
  expect_error(make(none, {}), {"without images"});
  expect_error(make(numbers, {.batch = 0}), {"batch of 0"});
  expect_error(make(numbers, {.batch = 4, .drop_last = true}), {"4", "the 3 images"});
  for (const int power : {40, 62})
    expect_error(make(numbers, {.batch = std::int64_t(1) << power}), {"do not fit in"});
  expect_error(make(numbers, {.batch = 1 << 20, .prefetch = 2147483647}), {"do not fit in"});
  for (const int threads : {-1, 2147483647})
    expect_error(make(numbers, {.threads = threads}), {"threads"});
  expect_error(make(numbers, {.dtype = DType::f16}), {"f32 or f64"});
  DataLoader loader(numbers, plain, {}, *device_);
  expect_error([&] { loader.start(0, 4); }, {"batch 4"});
}

}  // namespace
}  // namespace convlab::nets
