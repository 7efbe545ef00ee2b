// MNIST's IDX files (LeCun, Cortes & Burges, "The MNIST database of handwritten digits"): a
// big-endian header (0, 0, 8 for bytes, the number of dimensions, each dimension), then the bytes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>

#include "conv/error.h"
#include "conv/text/counted.h"
#include "nets/data/gzip.h"
#include "nets/data/readers.h"
#include "nets/weights/file_io.h"

namespace convlab::nets {
namespace {

namespace fs = std::filesystem;

// "train-images-idx3-ubyte", as published or unpacked, or the variant with a dot.
std::optional<fs::path> find_file(const fs::path& directory, const std::string& begin, char rank) {
  for (const char* middle : {"-idx", ".idx"})
    for (const char* end : {"-ubyte", "-ubyte.gz"})
      if (const fs::path path = directory / (begin + middle + rank + end); fs::exists(path))
        return path;
  return {};
}

// A file whose header has been read.
class IdxFile {
 public:
  IdxFile(const fs::path& path, int rank) : path_(path), file_(path) {
    const auto header = file_.read(4 + 4 * rank);
    const std::array<std::uint8_t, 4> magic{0, 0, 8, std::uint8_t(rank)};
    if (header.size() < 4 || !std::equal(magic.begin(), magic.end(), header.begin())) {
      const std::string kind = kind_of_content(std::as_bytes(std::span(header)));
      throw InputError(fmt::format(
          "{} is {}: expected an IDX file of bytes in {}, which begins with 0 0 8 {}",
          path.string(), kind.empty() ? "no IDX file" : kind, counted(rank, "dimension"), rank));
    }
    double size = 1;  // double: a product of bogus sizes may overflow an integer
    for (std::size_t i = 4; i + 4 <= header.size(); i += 4) {
      dimensions_.push_back(std::int64_t(header[i]) << 24 | header[i + 1] << 16 |
                            header[i + 2] << 8 | header[i + 3]);
      size *= double(dimensions_.back());
    }
    if (int(dimensions_.size()) != rank || size < 1)
      throw InputError(fmt::format("{} says it holds '{}' bytes; expected {} from 1 on",
                                   path.string(), shape(), counted(rank, "number")));
    if (size > double(file_.most_bytes()))
      throw InputError(fmt::format("{} is cut short: it says it holds {} bytes and has at most {}",
                                   path.string(), shape(), file_.most_bytes()));
    size_ = std::int64_t(size);
  }

  const fs::path& path() const { return path_; }
  const std::vector<std::int64_t>& dimensions() const { return dimensions_; }

  std::vector<std::uint8_t> read() {
    return in_file(path_.string(), [this] {
      std::vector<std::uint8_t> bytes = file_.read(size_);
      if (std::int64_t(bytes.size()) < size_)
        throw InputError(fmt::format("is cut short: it says it holds {} bytes and has {}", shape(),
                                     bytes.size()));
      if (!file_.read(1).empty())
        throw InputError(fmt::format("goes on after the {} bytes it says it holds", shape()));
      return bytes;
    });
  }

 private:
  std::string shape() const { return fmt::format("{}", fmt::join(dimensions_, "x")); }

  fs::path path_;
  PlainOrGzip file_;
  std::vector<std::int64_t> dimensions_;
  std::int64_t size_ = 0;
};

fs::path need_file(const fs::path& directory, const std::string& begin, char rank) {
  if (const auto found = find_file(directory, begin, rank)) return *found;
  throw InputError(fmt::format("{} has no {}-idx{}-ubyte, with or without .gz", directory.string(),
                               begin, rank));
}

}  // namespace

std::optional<fs::path> find_idx(const fs::path& directory) {
  for (const fs::path& place : {directory, directory / "raw", directory / "MNIST" / "raw"})
    for (const char* begin : {"train-images", "t10k-images"})
      if (find_file(place, begin, '3')) return place;
  return {};
}

std::unique_ptr<Dataset> open_idx(const fs::path& directory, Split split) {
  const std::string begin = split == Split::train ? "train" : "t10k";
  // Headers and labels first, so that inconsistent files are not unpacked.
  IdxFile images(need_file(directory, begin + "-images", '3'), 3),
      labels(need_file(directory, begin + "-labels", '1'), 1);
  const std::int64_t count = images.dimensions()[0], h = images.dimensions()[1],
                     w = images.dimensions()[2];
  if (count != labels.dimensions()[0])
    throw InputError(fmt::format("{} has {} images but {} has {} labels", images.path().string(),
                                 count, labels.path().string(), labels.dimensions()[0]));
  if (h > largest_image / w)
    throw InputError(fmt::format("{} says its images are {}x{}; at most {} pixels are expected",
                                 images.path().string(), h, w, largest_image));
  LoadedImages loaded{.format = "MNIST",
                      .shape = {1, h, w},
                      .labels = labels.read(),
                      .statistics = {{0.1307}, {0.3081}},
                      .sources = {{0, labels.path().string()}}};
  for (int digit = 0; digit < 10; ++digit) loaded.classes.push_back(std::to_string(digit));
  require_labels(loaded);
  loaded.pixels = images.read();
  return make_dataset(std::move(loaded));
}

}  // namespace convlab::nets
