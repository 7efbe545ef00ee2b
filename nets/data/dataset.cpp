#include "nets/data/dataset.h"

#include <fmt/format.h>

#include <new>

#include "conv/error.h"
#include "nets/data/readers.h"

namespace convlab::nets {

namespace fs = std::filesystem;

std::unique_ptr<Dataset> open_dataset(const std::string& spec, Split split) {
  if (spec == "synthetic" || spec.starts_with("synthetic:")) return open_synthetic(spec, split);
  const fs::path directory = spec;
  try {
    if (!fs::is_directory(directory))
      throw InputError(fmt::format(
          "no data in '{}': expected synthetic, synthetic:IMAGES, or a directory", spec));
    if (const auto found = find_cifar(directory)) return open_cifar(*found, split);
    if (const auto found = find_idx(directory)) return open_idx(*found, split);
    if (fs::exists(directory / "data_batch_1") || fs::is_regular_file(directory / "train"))
      throw InputError(fmt::format(
          "{} holds CIFAR for Python; expected the binary version (data_batch_1.bin, train.bin)",
          spec));
    return open_folders(directory, split);
  } catch (const fs::filesystem_error& error) {
    throw InputError(fmt::format("{}: {}", error.path1().string(), error.code().message()));
  } catch (const std::bad_alloc&) {
    throw EnvironmentError(fmt::format("{}: out of memory", spec));
  }
}

}  // namespace convlab::nets
