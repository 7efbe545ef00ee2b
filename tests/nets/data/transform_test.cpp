// Transforms against the same computation in a plain double loop.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "nets/data/transform_image.h"
#include "scratch.h"

namespace convlab::nets {
namespace {

Image noise(std::int64_t c, std::int64_t h, std::int64_t w) {
  std::mt19937 random(7);
  Image image{c, h, w, Bytes(c * h * w)};
  for (std::uint8_t& pixel : image.pixels) pixel = std::uint8_t(random());
  return image;
}

std::vector<double> apply(const Image& image, const Transform& transform, std::uint64_t seed = 1) {
  std::vector<double> out(transform.elements(), NAN);
  transform_image(image, transform, Draws{seed}, out.data());
  return out;
}

// The pixel in [0, 255]; zero outside the image.
double pixel_or_zero(const Image& image, std::int64_t c, std::int64_t y, std::int64_t x) {
  const bool inside = y >= 0 && y < image.h && x >= 0 && x < image.w;
  return inside ? image.pixels[(c * image.h + y) * image.w + x] : 0;
}

// The mean under a triangle around (y, x), as wide as an output pixel but at least as wide as an
// input pixel.
double triangle_mean(const Image& image, std::int64_t c, double y, double x, double scale_y,
                     double scale_x) {
  double sum = 0, weights = 0;
  for (std::int64_t v = 0; v < image.h; ++v)
    for (std::int64_t u = 0; u < image.w; ++u) {
      const double weight =
          std::max(0.0, 1 - std::abs(double(v) + 0.5 - y) / std::max(scale_y, 1.0)) *
          std::max(0.0, 1 - std::abs(double(u) + 0.5 - x) / std::max(scale_x, 1.0));
      weights += weight;
      sum += weight * pixel_or_zero(image, c, v, u);
    }
  return sum / weights;
}

TEST(Transform, NormalisesEachChannel) {
  const Image image = noise(3, 5, 4);
  const std::vector<double> mean{0.1, 0.2, 0.3}, deviation{0.5, 0.25, 2};
  const auto out = apply(image, {.height = 5, .width = 4, .mean = mean, .deviation = deviation});
  for (std::int64_t i = 0; i < 60; ++i)
    ASSERT_NEAR(out[i], (image.pixels[i] / 255.0 - mean[i / 20]) / deviation[i / 20], 1e-12);
  std::vector<float> single(60, NAN);
  transform_image(image, {.height = 5, .width = 4, .mean = mean, .deviation = deviation}, Draws{1},
                  single.data());
  for (std::int64_t i = 0; i < 60; ++i) ASSERT_NEAR(single[i], out[i], 1e-6);
}

TEST(Transform, TheMiddleIsCroppedAndZerosStandAround) {
  const Image image = noise(1, 7, 9);
  const auto smaller = apply(image, {.channels = 1, .height = 3, .width = 4});
  for (std::int64_t y = 0; y < 3; ++y)
    for (std::int64_t x = 0; x < 4; ++x)
      ASSERT_NEAR(255 * smaller[y * 4 + x], pixel_or_zero(image, 0, y + 2, x + 2), 1e-9);
  const auto larger = apply(image, {.channels = 1, .height = 11, .width = 13});
  for (std::int64_t y = 0; y < 11; ++y)
    for (std::int64_t x = 0; x < 13; ++x)
      ASSERT_NEAR(255 * larger[y * 13 + x], pixel_or_zero(image, 0, y - 2, x - 2), 1e-9);
}

TEST(Transform, AClipIsTheImageMovingLeft) {
  const Image image = noise(3, 7, 9);
  const auto clip = apply(image, {.height = 3, .width = 4, .frames = 5});
  for (std::int64_t c = 0, i = 0; c < 3; ++c)
    for (std::int64_t frame = 0; frame < 5; ++frame)
      for (std::int64_t y = 0; y < 3; ++y)
        for (std::int64_t x = 0; x < 4; ++x, ++i)
          ASSERT_NEAR(255 * clip[i], pixel_or_zero(image, c, y + 2, x + 2 + frame), 1e-9);
}

TEST(Transform, RandomCropsAndFlipsReachEveryPlaceAndNoOther) {
  const Image image = noise(1, 6, 6);
  const Transform transform{
      .channels = 1, .height = 6, .width = 6, .pad = 1, .random_crop = true, .random_flip = true};
  std::set<int> seen;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const auto out = apply(image, transform, seed);
    int matches = 0;
    for (int place = 0; place < 18; ++place) {
      bool same = true;
      for (std::int64_t y = 0; y < 6; ++y)
        for (std::int64_t x = 0; x < 6; ++x) {
          const std::int64_t from = place >= 9 ? 5 - x : x;
          same =
              same && std::abs(255 * out[y * 6 + x] - pixel_or_zero(image, 0, y + place / 3 % 3 - 1,
                                                                    from + place % 3 - 1)) < 1e-9;
        }
      if (same) {
        ++matches;
        seen.insert(place);
      }
    }
    ASSERT_EQ(matches, 1) << "seed " << seed;
  }
  EXPECT_EQ(seen.size(), 18u);
}

// Shrinking by a fraction, by more along one axis than the other, and enlarging.
TEST(Transform, ScalingIsATriangleMean) {
  for (const std::int64_t side : {7, 11, 40}) {
    const Image image = noise(3, 20, 30);
    const Transform transform{.height = side, .width = side, .resize = side};
    const auto out = apply(image, transform);
    const std::int64_t w = 30 * side / 20, left = std::llrint(double(w - side) / 2);
    const double scale_y = 20.0 / double(side), scale_x = 30.0 / double(w);
    for (std::int64_t i = 0; i < 3 * side * side; ++i) {
      const std::int64_t c = i / side / side, y = i / side % side, x = i % side + left;
      ASSERT_NEAR(255 * out[i],
                  triangle_mean(image, c, (double(y) + 0.5) * scale_y, (double(x) + 0.5) * scale_x,
                                scale_y, scale_x),
                  0.51)  // rounded to whole numbers
          << "side " << side << ", at " << i;
    }
  }
}

// In an image whose pixels encode their position, the scaled corners give the crop box.
TEST(Transform, RandomResizedCropsHaveTheAreaAndAspectTheyShould) {
  Image image{3, 200, 250, Bytes(3 * 200 * 250)};
  for (std::int64_t y = 0; y < 200; ++y)
    for (std::int64_t x = 0; x < 250; ++x) {
      image.pixels[y * 250 + x] = std::uint8_t(y);
      image.pixels[50000 + y * 250 + x] = std::uint8_t(x);
    }
  const Transform transform{.height = 50, .width = 50, .random_resized_crop = true};
  double smallest = 1, largest = 0, narrowest = 10, widest = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto out = apply(image, transform, seed);
    // The box between the centres of the first and last output pixels is 49/50 of the whole.
    const double h = 255 * (out[49 * 50 + 25] - out[25]) * 50 / 49,
                 w = 255 * (out[2500 + 25 * 50 + 49] - out[2500 + 25 * 50]) * 50 / 49;
    smallest = std::min(smallest, h * w / 50000);
    largest = std::max(largest, h * w / 50000);
    narrowest = std::min(narrowest, w / h);
    widest = std::max(widest, w / h);
  }
  EXPECT_GT(smallest, 0.07);
  EXPECT_LT(smallest, 0.12);
  EXPECT_GT(largest, 0.85);
  EXPECT_GT(narrowest, 0.72);
  EXPECT_LT(narrowest, 0.8);
  EXPECT_LT(widest, 1.39);
  EXPECT_GT(widest, 1.25);
}

TEST(Transform, GreyAndColourBecomeEachOther) {
  const Image grey = noise(1, 4, 4);
  const auto repeated = apply(grey, {.height = 4, .width = 4});
  for (std::int64_t i = 0; i < 48; ++i) ASSERT_NEAR(255 * repeated[i], grey.pixels[i % 16], 1e-9);
  Image colour{3, 1, 2, {255, 10, 0, 10, 0, 10}};  // red, and a grey
  const auto luma = apply(colour, {.channels = 1, .height = 1, .width = 2});
  EXPECT_NEAR(255 * luma[0], 76, 1e-9);  // 0.299 of 255
  EXPECT_NEAR(255 * luma[1], 10, 1e-9);
}

// Only the visible part is scaled: this one-pixel-high line, scaled to a net's height, would be too
// wide for memory.
TEST(Transform, OnlyWhatIsSeenIsScaled) {
  Image line{3, 1, 1'000'000, Bytes(3'000'000, 100)};
  const auto out = apply(line, {.height = 224, .width = 224, .resize = 256});
  for (const double value : out) ASSERT_NEAR(255 * value, 100, 1e-9);
}

class Like final : public Dataset {
 public:
  explicit Like(ImageShape shape) : shape_(shape) {}
  std::int64_t size() const override { return 1; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::int32_t label(std::int64_t) const override { return 0; }
  Image image(std::int64_t) const override { return noise(shape_.c, shape_.h, shape_.w); }
  std::string name(std::int64_t) const override { return "#0"; }
  ImageShape shape() const override { return shape_; }

 private:
  ImageShape shape_;
  std::vector<std::string> classes_{"one"};
};

TEST(UsualTransform, FollowsTheDataAndTheNet) {
  const Like cifar({3, 32, 32}), digits({1, 28, 28}), photographs({});
  Transform t = usual_transform(cifar, 3, 32, 32, Split::train);
  EXPECT_TRUE(t.pad == 4 && t.random_crop && t.random_flip && !t.random_resized_crop);
  EXPECT_EQ(t.deviation.size(), 3u);
  t = usual_transform(cifar, 3, 32, 32, Split::test);
  EXPECT_TRUE(t.pad == 0 && !t.random_crop && !t.random_flip);
  t = usual_transform(photographs, 3, 224, 224, Split::train);
  EXPECT_TRUE(t.random_resized_crop && t.random_flip);
  t = usual_transform(photographs, 3, 224, 224, Split::test);
  EXPECT_TRUE(t.resize == 256 && !t.random_resized_crop && !t.random_flip);
  // A mirrored digit is a different one, so digits are not mirrored.
  t = usual_transform(digits, 1, 28, 28, Split::train);
  EXPECT_TRUE(t.pad == 0 && t.resize == 0 && !t.random_flip);
  EXPECT_EQ(usual_transform(digits, 1, 32, 32, Split::train).resize, 0);  // zeros around it
  EXPECT_EQ(usual_transform(digits, 3, 224, 224, Split::train).mean.size(), 3u);
  // A net whose input is a plain vector.
  t = usual_transform(digits, 784, 1, 1, Split::train);
  EXPECT_TRUE(t.channels == 1 && t.height == 28 && t.width == 28);
  expect_error([&] { usual_transform(photographs, 20, 1, 1, Split::train); }, {"20x1x1", "square"});
  expect_error([&] { usual_transform(cifar, 20, 1, 1, Split::train); }, {"3072 numbers"});
}

TEST(Transform, RefusesNonsense) {
  EXPECT_NO_THROW(validate({}));
  expect_error([] { validate({.channels = 2}); }, {"2x32x32"});
  expect_error([] { validate({.height = 0}); }, {"3x0x32"});
  expect_error([] { validate({.pad = -1}); }, {"-1"});
  expect_error([] { validate({.mean = {0.5}, .deviation = {0.5}}); }, {"1 means", "3 channels"});
  expect_error([] { validate({.mean = {0, 0, 0}, .deviation = {1, 0, 1}}); }, {"deviation of 0"});
}

}  // namespace
}  // namespace convlab::nets
