// Decoding JPEG and PNG of every kind, and invalid files.
#include "nets/data/image.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>

#include "encoders.h"
#include "nets/weights/arrays.h"

namespace convlab::nets {
namespace {

void expect_colour(const Bytes& file, std::int64_t h, std::int64_t w, std::array<int, 3> colour,
                   int within) {
  const Image image = decode_image(file, "picture");
  ASSERT_EQ(image.c, 3);
  ASSERT_EQ(image.h, h);
  ASSERT_EQ(image.w, w);
  ASSERT_EQ(std::int64_t(image.pixels.size()), 3 * h * w);
  for (std::int64_t i = 0; i < 3 * h * w; ++i)
    ASSERT_NEAR(image.pixels[i], colour[i / (h * w)], within) << "at " << i;
}

TEST(Image, JpegOfEveryColourSpace) {
  expect_colour(jpeg(JpegKind::grey, 9, 21, {80}), 9, 21, {80, 80, 80}, 1);
  expect_colour(jpeg(JpegKind::rgb, 21, 9, {200, 100, 50}), 21, 9, {200, 100, 50}, 2);
  expect_colour(jpeg(JpegKind::progressive, 17, 3, {20, 100, 250}), 17, 3, {20, 100, 250}, 2);
  // Light = (1 - ink) (1 - black).
  for (const JpegKind kind : {JpegKind::cmyk, JpegKind::ycck})
    expect_colour(jpeg(kind, 8, 12, {0, 51, 204, 102}), 8, 12, {153, 122, 31}, 3);
}

TEST(Image, PngOfEveryColourTypeAndDepth) {
  expect_colour(png(0, 8, 1, 2, {70, 70}), 1, 2, {70, 70, 70}, 0);
  expect_colour(png(0, 1, 2, 3, {0xE0, 0xE0}), 2, 3, {255, 255, 255}, 0);
  expect_colour(png(2, 8, 1, 2, {1, 2, 3, 1, 2, 3}), 1, 2, {1, 2, 3}, 0);
  expect_colour(png(3, 4, 1, 2, {0x11}, {9, 9, 9, 40, 50, 60}), 1, 2, {40, 50, 60}, 0);
  // Alpha is dropped, whatever its value.
  expect_colour(png(4, 8, 1, 2, {33, 0, 33, 128}), 1, 2, {33, 33, 33}, 0);
  expect_colour(png(6, 8, 1, 2, {5, 6, 7, 0, 5, 6, 7, 255}), 1, 2, {5, 6, 7}, 0);
  expect_colour(png(2, 16, 1, 1, {100, 100, 150, 150, 200, 200}), 1, 1, {100, 150, 200}, 0);
}

// Files of every kind made by generate.py, and their pixels as read by Pillow.
TEST(Image, IsWhatPillowReads) {
  const ArrayFile file = read_arrays(CONVLAB_PILLOW_DATA "/images.npz");
  int read = 0, refused = 0;
  for (const auto& [name, array] : file.arrays) {
    if (name == "pillow" || name.ends_with(".rgb")) continue;
    SCOPED_TRACE(name);
    const auto* const begin = reinterpret_cast<const std::uint8_t*>(array.bytes.data());
    const std::span<const std::uint8_t> bytes(begin, array.bytes.size());
    const auto pillow = file.arrays.find(name + ".rgb");
    if (pillow == file.arrays.end()) {
      // A named copy: clang 14 captures no structured binding.
      const std::string path = name;
      expect_error([&] { decode_image(bytes, path); }, {path + ": is "});
      ++refused;
      continue;
    }
    const Image image = decode_image(bytes, name);
    ASSERT_EQ((std::vector{image.c, image.h, image.w}), pillow->second.shape);
    const auto* const expected = reinterpret_cast<const std::uint8_t*>(pillow->second.bytes.data());
    std::int64_t different = 0;
    for (std::size_t i = 0; i < image.pixels.size(); ++i)
      different += image.pixels[i] != expected[i];
    EXPECT_EQ(different, 0) << "of " << image.pixels.size();
    ++read;
  }
  EXPECT_EQ(read, 44);
  EXPECT_EQ(refused, 6);
}

TEST(Image, PixelsStandChannelByChannel) {
  const Image image =
      decode_image(png(2, 8, 2, 2, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}), "picture");
  EXPECT_EQ(image.pixels, (Bytes{1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12}));
}

TEST(Image, RefusesWhatIsNoImage) {
  const Scratch scratch;
  const auto read = [&](const std::string& name, const Bytes& bytes) {
    return [path = scratch.write(name, bytes).string()] { read_image(path); };
  };
  expect_error([&] { read_image(scratch.path("none.jpg")); }, {"none.jpg", "No such file"});
  expect_error([&] { read_image(scratch.path()); }, {scratch.path().string(), "no file"});
  expect_error(read("empty.jpg", {}), {"empty.jpg", "empty"});
  expect_error(read("page.jpg", {'<', 'h', 't', 'm', 'l', '>'}), {"page.jpg", "a web page"});
  expect_error(read("text.jpg", {'h', 't', 'm', 'l'}), {"text.jpg", "neither JPEG nor PNG"});
  // Headers that promise more pixels than fit in memory.
  expect_error(read("vast.png", png(2, 8, 1u << 30, 1u << 30, {})), {"vast.png"});
  expect_error(read("big.png", png(0, 1, 20000, 20000, {})), {"big.png", "20000x20000", "at most"});
  Bytes big = jpeg(JpegKind::grey, 8, 8, {80});
  for (std::size_t i = 0; i + 8 < big.size(); ++i)
    if (big[i] == 0xFF && big[i + 1] == 0xC0)  // the frame: length, precision, height, width
      big[i + 5] = big[i + 7] = 0xFE;
  expect_error(read("big.jpg", big), {"big.jpg", "65032x65032", "at most"});
}

// Each scan passes over all pixels but may take only a few bytes of the file.
TEST(Image, RefusesAJpegOfCountlessScans) {
  const auto with_more_scans = [](int more) {
    const Bytes whole = jpeg(JpegKind::progressive, 8, 8, {200, 100, 50});
    const Bytes marker{0xFF, 0xDA};
    const auto last = std::find_end(whole.begin(), whole.end(), marker.begin(), marker.end());
    const Bytes scan(last, whole.end() - 2), end(whole.end() - 2, whole.end());
    Bytes file(whole.begin(), whole.end() - 2);
    for (int i = 0; i < more; ++i) file.insert(file.end(), scan.begin(), scan.end());
    file.insert(file.end(), end.begin(), end.end());
    return file;
  };
  EXPECT_NO_THROW(decode_image(with_more_scans(50), "picture"));
  expect_error([&] { decode_image(with_more_scans(1000), "picture"); },
               {"picture: ", "over 100 scans"});
}

TEST(Image, NamesWhatElseItIs) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\n";
  expect_error([&] { decode_image(Bytes(pointer.begin(), pointer.end()), "cat.jpg"); },
               {"cat.jpg: is a git-lfs pointer", "git lfs pull", "expected a JPEG or PNG"});
}

// A picture with varying content, so that damaged bytes matter.
Bytes noisy_png() {
  std::mt19937 random(3);
  Bytes rows(3 * 20 * 30);
  for (std::uint8_t& byte : rows) byte = std::uint8_t(random());
  return png(2, 8, 20, 30, rows);
}

TEST(Image, ATruncatedFileIsRefusedWhereverItEnds) {
  for (const Bytes& whole :
       {jpeg(JpegKind::rgb, 40, 40, {200, 100, 50}), jpeg(JpegKind::progressive, 40, 40, {9, 8, 7}),
        jpeg(JpegKind::ycck, 16, 16, {9, 8, 7, 6}), noisy_png()}) {
    EXPECT_NO_THROW(decode_image(whole, "whole"));
    // Cuts before the last marker: a file that lacks only that has all its pixels.
    const std::size_t end = whole.size() - (whole[0] == 0xFF ? 3 : 13);
    for (std::size_t size = 1; size < end; size += size < 40 ? 1 : 1 + size / 16) {
      const Bytes cut(whole.begin(), whole.begin() + std::ptrdiff_t(size));
      expect_error([&] { decode_image(cut, "cut"); }, {"cut: is"});
    }
  }
}

TEST(Image, DamageIsSurvivedAndUsuallyNamed) {
  std::mt19937 random(1);
  int refused = 0, tried = 0;
  for (const Bytes& whole : {jpeg(JpegKind::rgb, 24, 24, {200, 100, 50}),
                             jpeg(JpegKind::progressive, 24, 24, {20, 10, 50}), noisy_png()})
    for (int i = 0; i < 150; ++i, ++tried) {
      Bytes bytes = whole;
      for (int k = 0; k < 3; ++k) bytes[random() % bytes.size()] = std::uint8_t(random());
      try {
        const Image image = decode_image(bytes, "damaged");
        EXPECT_EQ(std::int64_t(image.pixels.size()), image.c * image.h * image.w);
      } catch (const InputError& error) {
        ++refused;
        EXPECT_EQ(std::string(error.what()).find("damaged: "), 0u);
      }
    }
  EXPECT_GT(refused, tried / 3);
}

}  // namespace
}  // namespace convlab::nets
