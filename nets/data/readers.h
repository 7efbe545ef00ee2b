// The readers behind open_dataset, one per format. Each throws InputError that names the file and
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

// The first directory that holds such a dataset: this one, or one into which its archive unpacks.
std::optional<std::filesystem::path> find_cifar(const std::filesystem::path&);
std::optional<std::filesystem::path> find_idx(const std::filesystem::path&);

std::unique_ptr<Dataset> open_cifar(const std::filesystem::path& found, Split);
std::unique_ptr<Dataset> open_idx(const std::filesystem::path& found, Split);
std::unique_ptr<Dataset> open_folders(const std::filesystem::path&, Split);
// "synthetic" or "synthetic:20000".
std::unique_ptr<Dataset> open_synthetic(const std::string& spec, Split);

// Images of equal size in memory.
struct LoadedImages {
  std::string format;
  ImageShape shape;
  std::vector<std::uint8_t> pixels = {}, labels = {};
  std::vector<std::string> classes = {};
  PixelStatistics statistics = {};
  // The file of an image: keyed by the index of the file's first image.
  std::map<std::int64_t, std::string> sources = {};
  std::vector<std::string> notes = {};
};
// Throws InputError for a label that is not a class.
void require_labels(const LoadedImages&);
std::unique_ptr<Dataset> make_dataset(LoadedImages);  // labels must be valid

}  // namespace convlab::nets
