// The synthetic images used when there are no others.
#include "nets/data/synthetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "nets/data/dataset.h"
#include "nets/data/random.h"
#include "nets/data/transform.h"
#include "scratch.h"

namespace convlab::nets {
namespace {

class Synthetic : public ::testing::Test {
 protected:
  Synthetic() { setenv("XDG_CACHE_HOME", scratch_.path().c_str(), 1); }
  ~Synthetic() override { unsetenv("XDG_CACHE_HOME"); }
  Scratch scratch_;
};

TEST_F(Synthetic, IsWrittenOnceAndReadBackAsCifar) {
  const auto train = open_dataset("synthetic:50", Split::train),
             test = open_dataset("synthetic:50", Split::test);
  ASSERT_EQ(train->size(), 50);
  EXPECT_EQ(test->size(), 10);
  EXPECT_EQ(train->classes().size(), 10u);
  EXPECT_EQ(train->classes()[0], "disc");
  for (std::int64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(train->image(i).pixels, draw_shape(train->label(i), 1, i));
    EXPECT_NE(train->image(i).pixels, test->image(i % 10).pixels);
  }
  const auto file = synthetic_directory(50) / "data_batch_1.bin";
  const auto written = std::filesystem::last_write_time(file);
  open_dataset("synthetic:50", Split::train);
  EXPECT_EQ(std::filesystem::last_write_time(file), written);
}

TEST_F(Synthetic, SeveralAtOnceLeaveOneWhole) {
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i)
    writers.emplace_back([] { EXPECT_EQ(open_dataset("synthetic:20", Split::train)->size(), 20); });
  for (std::thread& writer : writers) writer.join();
  int entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scratch_.path("convlab")))
    entries += entry.exists();
  EXPECT_EQ(entries, 1);
}

TEST_F(Synthetic, RefusesWhatCannotBe) {
  for (const char* spec : {"synthetic:", "synthetic:x", "synthetic:20x"})
    expect_error([&] { open_dataset(spec, Split::train); }, {spec, "synthetic:IMAGES"});
  expect_error([] { open_dataset("synthetic:9", Split::train); }, {"synthetic:9", "from 10"});
  scratch_.write("convlab", {});  // a file where the folder should be
  expect_error<EnvironmentError>([] { open_dataset("synthetic:20", Split::train); },
                                 {"cannot write", "XDG_CACHE_HOME"});
}

// Softmax regression on normalised pixels by SGD, on as many images as it needs.
TEST(SyntheticImages, ALinearModelFails) {
  constexpr int pixels = 3 * 32 * 32, classes = 10, images = 1000, tests = 500, epochs = 6;
  const auto picture = [](std::uint64_t seed, std::int64_t i) {
    std::vector<float> x(pixels);
    const auto bytes = draw_shape(std::int32_t(i % classes), seed, i);
    std::transform(bytes.begin(), bytes.end(), x.begin(),
                   [](std::uint8_t byte) { return float(byte) / 64 - 2; });
    return x;
  };
  std::vector<std::vector<float>> data;
  for (int i = 0; i < images; ++i) data.push_back(picture(1, i));
  using Scores = std::array<float, classes>;
  std::vector<Scores> weights(pixels, Scores{});
  Scores biases{};
  const auto probabilities = [&](const std::vector<float>& x) {
    Scores p = biases;
    for (int i = 0; i < pixels; ++i)
      for (int k = 0; k < classes; ++k) p[k] += weights[i][k] * x[i];
    const float greatest = *std::max_element(p.begin(), p.end());
    float sum = 0;
    for (float& value : p) sum += value = std::exp(value - greatest);
    for (float& value : p) value /= sum;
    return p;
  };
  const auto accuracy = [&](const auto& image, int count) {
    int right = 0;
    for (int i = 0; i < count; ++i) {
      const auto p = probabilities(image(i));
      right += std::max_element(p.begin(), p.end()) - p.begin() == i % classes;
    }
    return 100.0 * right / count;
  };
  Draws draws{1};
  for (int step = 0; step < epochs * images; ++step) {
    const std::int64_t i = draws.below(images);
    Scores change = probabilities(data[i]);
    for (int k = 0; k < classes; ++k) {
      change[k] = 1e-4f * (float(k == i % classes) - change[k]);
      biases[k] += change[k];
    }
    for (int j = 0; j < pixels; ++j)
      for (int k = 0; k < classes; ++k) weights[j][k] += change[k] * data[i][j];
  }
  const double learned = accuracy([&](int i) { return data[i]; }, images),
               held_out = accuracy([&](int i) { return picture(2, i); }, tests);
  std::printf("linear model: %.1f%% of the images it was trained on, %.1f%% of others\n", learned,
              held_out);
  EXPECT_GT(learned, 20);  // it did learn something
  EXPECT_LT(held_out, 50);
}

}  // namespace
}  // namespace convlab::nets
