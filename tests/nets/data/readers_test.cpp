// CIFAR in binary and MNIST's IDX files, valid and damaged.
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>

#include "nets/data/dataset.h"
#include "scratch.h"

namespace convlab::nets {
namespace {

// Pixels that encode their position.
std::uint8_t pixel_at(std::int64_t image, std::int64_t position) {
  return std::uint8_t(7 * image + position % 251);
}

Bytes cifar_file(std::int64_t images, int first_label, int header = 1) {
  Bytes bytes;
  for (std::int64_t i = 0; i < images; ++i) {
    if (header == 2) bytes.push_back(19);  // the coarse label
    bytes.push_back(std::uint8_t(first_label + i));
    for (int p = 0; p < 3072; ++p) bytes.push_back(pixel_at(i, p));
  }
  return bytes;
}

Bytes text(const std::string& lines) { return {lines.begin(), lines.end()}; }

Bytes idx(const std::vector<std::uint32_t>& dimensions, const Bytes& data) {
  Bytes bytes{0, 0, 8, std::uint8_t(dimensions.size())};
  for (const std::uint32_t size : dimensions)
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(std::uint8_t(size >> shift));
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

Bytes digits(std::int64_t images, std::int64_t h, std::int64_t w) {
  Bytes bytes;
  for (std::int64_t i = 0; i < images; ++i)
    for (std::int64_t p = 0; p < h * w; ++p) bytes.push_back(pixel_at(i, p));
  return bytes;
}

Bytes gzip(const Bytes& bytes) {
  Scratch scratch;
  const auto path = scratch.path("packed.gz");
  const gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), unsigned(bytes.size()));
  gzclose(file);
  Bytes packed(std::filesystem::file_size(path));
  std::FILE* const raw = std::fopen(path.c_str(), "rb");
  EXPECT_EQ(std::fread(packed.data(), 1, packed.size(), raw), packed.size());
  std::fclose(raw);
  return packed;
}

void expect_pixels(const Image& image, std::int64_t number, ImageShape shape) {
  ASSERT_EQ(image.c, shape.c);
  ASSERT_EQ(image.h, shape.h);
  ASSERT_EQ(image.w, shape.w);
  ASSERT_EQ(std::int64_t(image.pixels.size()), shape.c * shape.h * shape.w);
  for (std::size_t p = 0; p < image.pixels.size(); ++p)
    ASSERT_EQ(image.pixels[p], pixel_at(number, std::int64_t(p))) << "pixel " << p;
}

TEST(Cifar, TenClassesInSeveralFiles) {
  const Scratch scratch;
  scratch.write("data_batch_1.bin", cifar_file(3, 0));
  scratch.write("data_batch_2.bin", cifar_file(2, 8));
  scratch.write("test_batch.bin", cifar_file(1, 5));
  scratch.write("batches.meta.txt", text("airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\n"
                                         "ship\ntruck\n\n"));
  const auto train = open_dataset(scratch.path(), Split::train);
  ASSERT_EQ(train->size(), 5);
  EXPECT_EQ(train->classes().at(9), "truck");
  EXPECT_EQ(train->label(2), 2);
  EXPECT_EQ(train->label(4), 9);
  expect_pixels(train->image(4), 1, {3, 32, 32});
  EXPECT_EQ(train->name(4), scratch.path("data_batch_2.bin").string() + " #1");
  EXPECT_EQ(train->format(), "CIFAR-10");

  const auto test = open_dataset(scratch.path(), Split::test);
  ASSERT_EQ(test->size(), 1);
  EXPECT_EQ(test->label(0), 5);
}

TEST(Cifar, HundredClassesWhereTheArchiveUnpacks) {
  const Scratch scratch;
  scratch.write("cifar-100-binary/train.bin", cifar_file(2, 98, 2));
  const auto train = open_dataset(scratch.path(), Split::train);
  ASSERT_EQ(train->size(), 2);
  EXPECT_EQ(train->classes().size(), 100u);
  EXPECT_EQ(train->label(1), 99);  // the fine label
  expect_pixels(train->image(1), 1, {3, 32, 32});
  expect_error([&] { open_dataset(scratch.path(), Split::test); }, {"test.bin", "No such file"});
}

TEST(Cifar, RefusesWhatIsBroken) {
  const Scratch scratch;
  const auto open = [&] { open_dataset(scratch.path(), Split::train); };
  Bytes file = cifar_file(2, 8);
  file.pop_back();
  scratch.write("data_batch_1.bin", file);
  expect_error(open, {"data_batch_1.bin has 6145 bytes", "3073"});
  scratch.write("data_batch_1.bin", {});
  expect_error(open, {"data_batch_1.bin has 0 bytes", "3073"});
  scratch.write("data_batch_1.bin", cifar_file(3, 8));
  expect_error(open, {"data_batch_1.bin #2 has the label 10", "CIFAR-10 has 0 to 9"});
  scratch.write("data_batch_1.bin", cifar_file(1, 0));
  scratch.write("data_batch_3.bin", cifar_file(1, 0));
  expect_error(open, {"data_batch_2.bin", "No such file"});
  std::filesystem::remove(scratch.path("data_batch_3.bin"));
  scratch.write("batches.meta.txt", text("cat\ndog\n"));
  expect_error(open, {"batches.meta.txt names 2 classes", "CIFAR-10 has 10"});
  std::string names;
  for (int i = 0; i < 9; ++i) names += "k" + std::to_string(i) + "\n";
  scratch.write("batches.meta.txt", text(names + "\x1b[2J\n"));
  expect_error(open, {"batches.meta.txt: '\\x1b[2J' as a class's name"});
  scratch.write("batches.meta.txt", text("\xef\xbb\xbf" + names + "caf\xc3\xa9\r\n\r\n"));
  EXPECT_EQ(open_dataset(scratch.path(), Split::train)->classes().front(), "k0");
  scratch.write("data_batch_1.bin", text("version https://git-lfs.github.com/spec/v1\n"));
  expect_error(open, {"data_batch_1.bin is a git-lfs pointer"});
}

// A browser's name for a second download.
TEST(Cifar, SkipsWhatIsNoBatch) {
  const Scratch scratch;
  scratch.write("data_batch_1.bin", cifar_file(3, 0));
  scratch.write("data_batch_2.bin", cifar_file(2, 0));
  for (const char* stray : {"data_batch_1 (1).bin", "data_batch_.bin", "data_batch_02.bin"})
    scratch.write(stray, cifar_file(1, 0));
  const auto train = open_dataset(scratch.path(), Split::train);
  EXPECT_EQ(train->size(), 5);
  std::vector<std::string> notes = train->notes();
  std::sort(notes.begin(), notes.end());
  ASSERT_EQ(notes.size(), 3u);
  EXPECT_EQ(notes[1], "skipped " + scratch.path("data_batch_02.bin").string() +
                          ": expected data_batch_NUMBER.bin");
}

TEST(Cifar, ThePythonVersionIsNamed) {
  const Scratch scratch;
  scratch.write("data_batch_1", text("pickle"));
  expect_error([&] { open_dataset(scratch.path(), Split::train); },
               {scratch.path().string(), "for Python", "binary"});
}

TEST(Mnist, PlainAndGzip) {
  const Scratch scratch;
  scratch.write("raw/train-images-idx3-ubyte", idx({3, 28, 28}, digits(3, 28, 28)));
  scratch.write("raw/train-labels-idx1-ubyte", idx({3}, {5, 0, 9}));
  scratch.write("raw/t10k-images-idx3-ubyte.gz", gzip(idx({2, 5, 4}, digits(2, 5, 4))));
  scratch.write("raw/t10k-labels.idx1-ubyte.gz", gzip(idx({2}, {1, 2})));
  const auto train = open_dataset(scratch.path(), Split::train);
  ASSERT_EQ(train->size(), 3);
  EXPECT_EQ(train->classes().size(), 10u);
  EXPECT_EQ(train->label(2), 9);
  expect_pixels(train->image(2), 2, {1, 28, 28});
  const auto test = open_dataset(scratch.path(), Split::test);
  ASSERT_EQ(test->size(), 2);
  EXPECT_EQ(test->label(1), 2);
  expect_pixels(test->image(1), 1, {1, 5, 4});
}

TEST(Mnist, RefusesWhatIsBroken) {
  const Scratch scratch;
  const auto open = [&] { open_dataset(scratch.path(), Split::train); };
  const Bytes images = idx({2, 28, 28}, digits(2, 28, 28)), labels = idx({2}, {1, 2});
  const auto images_are = [&](const Bytes& bytes) {
    scratch.write("train-images-idx3-ubyte", bytes);
  };
  images_are(images);
  expect_error(open, {"no train-labels-idx1-ubyte"});
  const auto labels_path = scratch.write("train-labels-idx1-ubyte", labels);
  EXPECT_NO_THROW(open());

  Bytes cut = images;
  cut.pop_back();
  images_are(cut);
  expect_error(open, {"train-images-idx3-ubyte: is cut short", "2x28x28", "1567"});
  Bytes longer = images;
  longer.push_back(0);
  images_are(longer);
  expect_error(open, {"train-images-idx3-ubyte: goes on after the 2x28x28"});
  images_are(labels);
  expect_error(open, {"train-images-idx3-ubyte is no IDX file", "0 0 8 3"});
  images_are({0, 0, 8, 3, 0, 0});
  expect_error(open, {"train-images-idx3-ubyte says", "3 numbers"});
  images_are({0, 0});
  expect_error(open, {"train-images-idx3-ubyte is no IDX file"});
  images_are(idx({0, 28, 28}, {}));
  expect_error(open, {"0x28x28"});
  images_are(idx({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, {}));
  expect_error(open, {"4294967295x4294967295x4294967295"});
  // The header claims gigabytes but three bytes follow; only those are allocated.
  images_are(idx({9000, 1000, 1000}, {1, 2, 3}));
  expect_error(open, {"is cut short", "9000x1000x1000", "has at most 19"});
  images_are(images);
  scratch.write("train-labels-idx1-ubyte", idx({3}, {1, 2, 3}));
  expect_error(open, {"has 2 images", "has 3 labels"});
  scratch.write("train-labels-idx1-ubyte", idx({2}, {1, 10}));
  expect_error(open, {"train-labels-idx1-ubyte #1 has the label 10", "0 to 9"});

  std::filesystem::remove(labels_path);
  Bytes packed = gzip(labels);
  packed.erase(packed.end() - 5, packed.end());
  scratch.write("train-labels-idx1-ubyte.gz", packed);
  expect_error(open, {"train-labels-idx1-ubyte.gz", "gzip"});
  packed = gzip(idx({2}, {1, 2}));
  packed[12] ^= 0x55;
  scratch.write("train-labels-idx1-ubyte.gz", packed);
  expect_error(open, {"train-labels-idx1-ubyte.gz"});
}

// Headers and labels are compared before the pixels are unpacked, which here would end early.
TEST(Mnist, UnpacksNoPixelsThatDoNotFit) {
  const Scratch scratch;
  const auto open = [&] { open_dataset(scratch.path(), Split::train); };
  Bytes cut = gzip(idx({200, 28, 28}, digits(200, 28, 28)));
  cut.resize(cut.size() / 2);
  scratch.write("train-images-idx3-ubyte.gz", cut);
  scratch.write("train-labels-idx1-ubyte", idx({200}, Bytes(200, 1)));
  expect_error(open, {"train-images-idx3-ubyte.gz", "cut short"});
  scratch.write("train-labels-idx1-ubyte", idx({199}, Bytes(199, 1)));
  expect_error(open, {"has 200 images", "has 199 labels"});
  Bytes labels(200, 1);
  labels.back() = 10;
  scratch.write("train-labels-idx1-ubyte", idx({200}, labels));
  expect_error(open, {"#199 has the label 10"});
  // More than deflate can expand this file to.
  scratch.write("train-images-idx3-ubyte.gz", gzip(idx({200, 10000, 5000}, Bytes(100))));
  expect_error(open, {"200x10000x5000", "at most"});
}

TEST(OpenDataset, SaysWhatWouldBeRight) {
  const Scratch scratch;
  expect_error([&] { open_dataset(scratch.path("nowhere"), Split::train); },
               {"nowhere", "synthetic", "a directory"});
  expect_error([&] { open_dataset(scratch.path(), Split::train); },
               {scratch.path().string(), "two folders of images", ".bin", "idx3"});
}

}  // namespace
}  // namespace convlab::nets
