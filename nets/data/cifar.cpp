// CIFAR-10 and CIFAR-100 in binary (Krizhevsky 2009, "Learning multiple layers of features from
// tiny images"): records of the label, for CIFAR-100 a coarse one before it, and 3x32x32 bytes.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "conv/error.h"
#include "nets/data/readers.h"
#include "nets/weights/file_io.h"
#include "nets/weights/notes.h"

namespace convlab::nets {
namespace {

namespace fs = std::filesystem;

struct Kind {
  const char *format, *train, *test, *class_names;
  std::size_t classes;
  std::int64_t header;  // bytes before the pixels, the last of them the label
  PixelStatistics statistics;
};

const Kind& cifar10() {
  static const Kind kind{"CIFAR-10",
                         "data_batch_1.bin",
                         "test_batch.bin",
                         "batches.meta.txt",
                         10,
                         1,
                         {{0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}}};
  return kind;
}
const Kind& cifar100() {
  static const Kind kind{"CIFAR-100",
                         "train.bin",
                         "test.bin",
                         "fine_label_names.txt",
                         100,
                         2,
                         {{0.5071, 0.4865, 0.4409}, {0.2673, 0.2564, 0.2762}}};
  return kind;
}

bool holds(const fs::path& directory, const Kind& kind) {
  return fs::exists(directory / kind.train) || fs::exists(directory / kind.test);
}

// data_batch_1.bin, data_batch_2.bin and so on, without a gap; for CIFAR-100 the one file.
std::vector<fs::path> files_of(const fs::path& directory, const Kind& kind, Split split,
                               std::vector<std::string>& notes) {
  if (split == Split::test) return {directory / kind.test};
  std::vector<fs::path> files{directory / kind.train};
  if (kind.header > 1) return files;
  std::size_t present = 0;
  for (const auto& entry : fs::directory_iterator(directory)) {
    constexpr std::string_view begin = "data_batch_", end = ".bin";
    const std::string name = entry.path().filename();
    if (!name.starts_with(begin) || !name.ends_with(end)) continue;
    const std::string number =
        name.substr(begin.size(), name.size() - std::min(name.size(), begin.size() + end.size()));
    if (!number.empty() && number.find_first_not_of("0123456789") == number.npos &&
        number.front() != '0')
      ++present;
    else
      notes.push_back(
          fmt::format("skipped {}: expected data_batch_NUMBER.bin", entry.path().string()));
  }
  while (files.size() < present)
    files.push_back(directory / fmt::format("data_batch_{}.bin", files.size() + 1));
  return files;
}

// One per line, if the file exists; else numbers.
std::vector<std::string> class_names(const fs::path& directory, const Kind& kind) {
  std::vector<std::string> names;
  const fs::path path = directory / kind.class_names;
  if (fs::exists(path)) {
    names = read_lines(path);
    if (names.size() != kind.classes)
      throw InputError(fmt::format("{} names {} classes; {} has {}", path.string(), names.size(),
                                   kind.format, kind.classes));
    require_class_names(path.string(), names);
    return names;
  }
  for (std::size_t i = 0; i < kind.classes; ++i) names.push_back(std::to_string(i));
  return names;
}

// "is a git-lfs pointer (...) and ", or empty.
std::string described(ConstSpan bytes) {
  const std::string kind = kind_of_content(bytes);
  return kind.empty() ? "" : fmt::format("is {} and ", kind);
}

}  // namespace

std::optional<fs::path> find_cifar(const fs::path& directory) {
  for (const fs::path& place :
       {directory, directory / "cifar-10-batches-bin", directory / "cifar-100-binary"})
    if (holds(place, cifar10()) || holds(place, cifar100())) return place;
  return {};
}

std::unique_ptr<Dataset> open_cifar(const fs::path& directory, Split split) {
  const Kind& kind = holds(directory, cifar10()) ? cifar10() : cifar100();
  LoadedImages loaded{.format = kind.format,
                      .shape = {3, 32, 32},
                      .classes = class_names(directory, kind),
                      .statistics = kind.statistics};
  const std::int64_t pixels = 3 * 32 * 32, record = kind.header + pixels;
  for (const fs::path& path : files_of(directory, kind, split, loaded.notes)) {
    const auto bytes = read_file(path);
    if (bytes.empty() || bytes.size() % record != 0)
      throw InputError(fmt::format(
          "{} {}has {} bytes; {} has a whole number of images of {} bytes ({} of labels, 3x32x32)",
          path.string(), described(bytes), bytes.size(), kind.format, record, kind.header));
    loaded.sources[std::int64_t(loaded.labels.size())] = path.string();
    const auto* image = reinterpret_cast<const std::uint8_t*>(bytes.data());
    for (const auto* const end = image + bytes.size(); image != end; image += record) {
      loaded.labels.push_back(image[kind.header - 1]);
      loaded.pixels.insert(loaded.pixels.end(), image + kind.header, image + record);
    }
  }
  return make_dataset(std::move(loaded));
}

}  // namespace convlab::nets
