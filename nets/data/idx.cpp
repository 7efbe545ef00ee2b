// MNIST's IDX files (LeCun, Cortes & Burges, "The MNIST database of handwritten digits"): a
// big-endian header (0, 0, 8 for bytes, the number of dimensions, each dimension), then the bytes.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "conv/error.h"
#include "nets/data/gzip.h"
#include "nets/data/readers.h"

namespace convlab {
namespace {

namespace fs = std::filesystem;

// "train-images-idx3-ubyte", as it was published or unpacked, or with the dot that some have put
// in.
std::optional<fs::path> find_file(const fs::path& directory, const std::string& begin, char rank) {
  for (const char* middle : {"-idx", ".idx"})
    for (const char* end : {"-ubyte", "-ubyte.gz"})
      if (const fs::path path = directory / (begin + middle + rank + end); fs::exists(path))
        return path;
  return {};
}

struct Tensor {
  std::vector<std::int64_t> dimensions;
  std::vector<std::uint8_t> bytes;
};

Tensor read_idx(const fs::path& path, int rank) {
  PlainOrGzip file(path);
  const auto header = file.read(4 + 4 * rank);
  const std::array<std::uint8_t, 4> magic{0, 0, 8, std::uint8_t(rank)};
  if (header.size() < 4 || !std::equal(magic.begin(), magic.end(), header.begin()))
    throw InputError(
        fmt::format("{} is no IDX file of bytes in {} dimension{}: it does not begin "
                    "with 0 0 8 {}",
                    path.string(), rank, rank == 1 ? "" : "s", rank));
  Tensor tensor;
  double size = 1;  // a product of lies may overflow an integer
  std::string text;
  for (std::size_t i = 4; i + 4 <= header.size(); i += 4) {
    tensor.dimensions.push_back(std::int64_t(header[i]) << 24 | header[i + 1] << 16 |
                                header[i + 2] << 8 | header[i + 3]);
    size *= double(tensor.dimensions.back());
    text += fmt::format("{}{}", text.empty() ? "" : "x", tensor.dimensions.back());
  }
  constexpr double most = 1e10;
  if (int(tensor.dimensions.size()) != rank || size < 1 || size > most)
    throw InputError(fmt::format("{} says it holds '{}' bytes; expected {} number{} from 1 on",
                                 path.string(), text, rank, rank == 1 ? "" : "s"));
  tensor.bytes = file.read(std::int64_t(size));
  if (double(tensor.bytes.size()) < size)
    throw InputError(fmt::format("{} is cut short: it says it holds {} bytes and has {}",
                                 path.string(), text, tensor.bytes.size()));
  if (!file.read(1).empty())
    throw InputError(
        fmt::format("{} goes on after the {} bytes it says it holds", path.string(), text));
  return tensor;
}

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
  const fs::path images_path = need_file(directory, begin + "-images", '3'),
                 labels_path = need_file(directory, begin + "-labels", '1');
  Tensor images = read_idx(images_path, 3), labels = read_idx(labels_path, 1);
  if (images.dimensions[0] != labels.dimensions[0])
    throw InputError(fmt::format("{} has {} images but {} has {} labels", images_path.string(),
                                 images.dimensions[0], labels_path.string(), labels.dimensions[0]));
  if (images.dimensions[1] * images.dimensions[2] > largest_image)
    throw InputError(fmt::format("{} says its images are {}x{}; at most {} pixels are expected",
                                 images_path.string(), images.dimensions[1], images.dimensions[2],
                                 largest_image));
  LoadedImages loaded{.format = "MNIST",
                      .shape = {1, images.dimensions[1], images.dimensions[2]},
                      .pixels = std::move(images.bytes),
                      .labels = std::move(labels.bytes),
                      .statistics = {{0.1307}, {0.3081}},
                      .sources = {{0, labels_path.string()}}};
  for (int digit = 0; digit < 10; ++digit) loaded.classes.push_back(std::to_string(digit));
  return make_dataset(std::move(loaded));
}

}  // namespace convlab
