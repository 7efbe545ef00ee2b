// The readers behind open_dataset, one a format. Each throws InputError that names the file and
// what would be right.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nets/data/dataset.h"

namespace convlab::nets {

// The directory among these (itself, and where archives unpack below it) that holds such a dataset.
std::optional<std::filesystem::path> find_cifar(const std::filesystem::path&);
std::optional<std::filesystem::path> find_idx(const std::filesystem::path&);

std::unique_ptr<Dataset> open_cifar(const std::filesystem::path& found, Split);
std::unique_ptr<Dataset> open_idx(const std::filesystem::path& found, Split);
std::unique_ptr<Dataset> open_folders(const std::filesystem::path&, Split);
// "synthetic" or "synthetic:20000".
std::unique_ptr<Dataset> open_synthetic(const std::string& spec, Split);

// Equally large images in memory.
struct LoadedImages {
  std::string format;
  ImageShape shape;
  std::vector<std::uint8_t> pixels = {}, labels = {};
  std::vector<std::string> classes = {};
  PixelStatistics statistics = {};
  // Which file an image came from: its first image's index, and its name.
  std::map<std::int64_t, std::string> sources = {};
  std::vector<std::string> notes = {};
};
// Throws InputError for a label that is not a class.
void require_labels(const LoadedImages&);
std::unique_ptr<Dataset> make_dataset(LoadedImages);  // with such labels only

}  // namespace convlab::nets
