// Images in one folder a class, as torchvision's ImageFolder has them.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "conv/error.h"
#include "nets/data/readers.h"

namespace convlab {
namespace {

namespace fs = std::filesystem;

class FolderDataset final : public Dataset {
 public:
  explicit FolderDataset(std::vector<std::string> classes) : classes_(std::move(classes)) {}
  void add(std::string path, std::int32_t label) {
    paths_.push_back(std::move(path));
    labels_.push_back(label);
  }

  std::int64_t size() const override { return paths_.size(); }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::int32_t label(std::int64_t index) const override { return labels_[index]; }
  Image image(std::int64_t index) const override { return read_image(paths_[index]); }
  std::string name(std::int64_t index) const override { return paths_[index]; }
  std::string format() const override { return "folders of images"; }

 private:
  std::vector<std::string> classes_, paths_;
  std::vector<std::int32_t> labels_;
};

bool hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

std::vector<std::string> folders_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.is_directory() && !hidden(entry.path())) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

bool named_as_image(const fs::path& path) {
  std::string end = path.extension();
  std::transform(end.begin(), end.end(), end.begin(),
                 [](unsigned char letter) { return char(std::tolower(letter)); });
  return end == ".jpg" || end == ".jpeg" || end == ".png";
}

// At any depth, in the order of their names.
std::vector<std::string> images_in(const fs::path& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && named_as_image(entry.path()) && !hidden(entry.path()))
      paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  if (paths.empty())
    throw InputError(fmt::format(
        "{} has no image; expected files called .jpg, .jpeg or .png in each class's folder",
        folder.string()));
  return paths;
}

}  // namespace

std::unique_ptr<Dataset> open_folders(const fs::path& directory, Split split) {
  const bool has_train = fs::is_directory(directory / "train");
  fs::path tests;
  for (const char* name : {"val", "test"})
    if (fs::is_directory(directory / name)) tests = directory / name;
  const bool hold_out = !has_train && tests.empty();
  if (split == Split::train && !has_train && !hold_out)
    throw InputError(
        fmt::format("{} has {}/ but no train/", directory.string(), tests.filename().string()));
  if (split == Split::test && has_train && tests.empty())
    throw InputError(fmt::format("{} has train/ but neither test/ nor val/", directory.string()));

  // A class has the same label in both splits.
  const fs::path named = has_train ? directory / "train" : hold_out ? directory : tests;
  const fs::path root = hold_out ? directory : split == Split::train ? directory / "train" : tests;
  const std::vector<std::string> classes = folders_in(named);
  if (classes.size() < 2)
    throw InputError(fmt::format(
        "{} has {} folder{}; expected at least two folders of images, one a class (or CIFAR's .bin "
        "files, or MNIST's train-images-idx3-ubyte)",
        named.string(), classes.size(), classes.size() == 1 ? "" : "s"));
  auto dataset = std::make_unique<FolderDataset>(classes);
  for (const std::string& folder : folders_in(root)) {
    const auto place = std::lower_bound(classes.begin(), classes.end(), folder);
    if (place == classes.end() || *place != folder)
      throw InputError(fmt::format("{} is a class that {} does not have", (root / folder).string(),
                                   named.string()));
    const std::vector<std::string> images = images_in(root / folder);
    for (std::size_t i = 0; i < images.size(); ++i)
      if (!hold_out || (i % 5 == 4) == (split == Split::test))
        dataset->add(images[i], std::int32_t(place - classes.begin()));
  }
  if (dataset->size() == 0)
    throw InputError(fmt::format("{} has no image for testing: every fifth of a class would be one",
                                 directory.string()));
  return dataset;
}

}  // namespace convlab
