// Images in one folder per class, the layout of torchvision's ImageFolder.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <set>
#include <utility>

#include "conv/error.h"
#include "conv/text/counted.h"
#include "nets/data/readers.h"
#include "nets/weights/notes.h"

namespace convlab::nets {
namespace {

namespace fs = std::filesystem;

class FolderDataset final : public Dataset {
 public:
  explicit FolderDataset(std::vector<std::string> classes) : classes_(std::move(classes)) {}
  void add(std::string path, std::int32_t label) {
    paths_.push_back(std::move(path));
    labels_.push_back(label);
  }
  void note(std::string line) { notes_.push_back(std::move(line)); }

  std::int64_t size() const override { return paths_.size(); }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::int32_t label(std::int64_t index) const override { return labels_[index]; }
  Image image(std::int64_t index) const override { return read_image(paths_[index]); }
  std::string name(std::int64_t index) const override { return paths_[index]; }
  std::string format() const override { return "folders of images"; }
  std::vector<std::string> notes() const override { return notes_; }

 private:
  std::vector<std::string> classes_, paths_, notes_;
  std::vector<std::int32_t> labels_;
};

bool hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

bool named_as_image(const fs::path& path) {
  std::string end = path.extension();
  std::transform(end.begin(), end.end(), end.begin(),
                 [](unsigned char letter) { return char(std::tolower(letter)); });
  return end == ".jpg" || end == ".jpeg" || end == ".png";
}

// Files among the images that are not read.
class Skipped {
 public:
  enum Why : std::uint8_t { is_hidden, other_file, broken_link, known_folder, no_class, whys };

  void add(Why why, const fs::path& path) {
    constexpr std::size_t shown = 3;
    ++counts_[why];
    if (examples_[why].size() < shown) examples_[why].push_back(path.string());
  }

  std::vector<std::string> lines() const {
    constexpr std::array<const char*, whys> what{
        "hidden", "neither .jpg, .jpeg nor .png", "a broken link",
        "a link to a folder that is read already", "in no class's folder"};
    std::vector<std::string> lines;
    for (std::size_t why = 0; why < whys; ++why)
      if (counts_[why] > 0)
        lines.push_back(fmt::format("skipped {} that {} {}: {}{}", counts_[why],
                                    counts_[why] == 1 ? "is" : "are", what[why],
                                    fmt::join(examples_[why], ", "),
                                    counts_[why] > examples_[why].size() ? ", ..." : ""));
    return lines;
  }

 private:
  std::array<std::size_t, whys> counts_{};
  std::array<std::vector<std::string>, whys> examples_;
};

// A link counts as its target.
enum class Kind : std::uint8_t { folder, image, other, broken, hidden };

Kind kind_of(const fs::directory_entry& entry) {
  if (hidden(entry.path())) return Kind::hidden;
  std::error_code error;
  const fs::file_status status = entry.status(error);
  if (!fs::exists(status)) return Kind::broken;
  if (fs::is_directory(status)) return Kind::folder;
  return fs::is_regular_file(status) && named_as_image(entry.path()) ? Kind::image : Kind::other;
}

std::vector<fs::directory_entry> sorted_entries(const fs::path& directory) {
  std::vector<fs::directory_entry> entries;
  for (const auto& entry : fs::directory_iterator(directory)) entries.push_back(entry);
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::vector<std::string> folders_in(const fs::path& directory, Skipped* skipped = nullptr) {
  std::vector<std::string> names;
  for (const auto& entry : sorted_entries(directory)) {
    const Kind kind = kind_of(entry);
    if (kind == Kind::folder) names.push_back(entry.path().filename());
    if (!skipped) continue;
    if (kind == Kind::image) skipped->add(Skipped::no_class, entry.path());
    if (kind == Kind::hidden) skipped->add(Skipped::is_hidden, entry.path());
    if (kind == Kind::broken) skipped->add(Skipped::broken_link, entry.path());
  }
  return names;
}

// The images of a class, at any depth. A link back to a folder above, or into one already read,
// would show the same images twice: as another class, or on both sides of a hold-out.
class ImagesIn {
 public:
  ImagesIn(const fs::path& root, Skipped& skipped) : skipped_(skipped) { enter(root); }

  std::vector<std::string> operator()(const fs::path& folder) {
    collect(folder);
    std::sort(paths_.begin(), paths_.end());
    if (paths_.empty())
      throw InputError(fmt::format(
          "{} has no image; expected files called .jpg, .jpeg or .png in each class's folder",
          folder.string()));
    return std::move(paths_);
  }

 private:
  bool enter(const fs::path& folder) {
    struct stat status {};
    if (stat(folder.c_str(), &status) != 0)
      throw fs::filesystem_error("", folder, {errno, std::generic_category()});
    return known_.emplace(status.st_dev, status.st_ino).second;
  }

  void collect(const fs::path& folder) {
    if (!enter(folder)) return skipped_.add(Skipped::known_folder, folder);
    for (const auto& entry : sorted_entries(folder)) switch (kind_of(entry)) {
        case Kind::folder:
          collect(entry.path());
          break;
        case Kind::image:
          paths_.push_back(entry.path());
          break;
        case Kind::other:
          skipped_.add(Skipped::other_file, entry.path());
          break;
        case Kind::broken:
          skipped_.add(Skipped::broken_link, entry.path());
          break;
        case Kind::hidden:
          skipped_.add(Skipped::is_hidden, entry.path());
          break;
      }
  }

  Skipped& skipped_;
  std::set<std::pair<dev_t, ino_t>> known_;
  std::vector<std::string> paths_;
};

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
        "{} has {}; expected at least two folders of images, one a class (or CIFAR's .bin "
        "files, or MNIST's train-images-idx3-ubyte)",
        named.string(), counted(classes.size(), "folder")));
  require_class_names(named.string(), classes);
  auto dataset = std::make_unique<FolderDataset>(classes);
  Skipped skipped;
  const std::vector<std::string> folders = folders_in(root, &skipped);
  if (folders.empty())
    throw InputError(fmt::format("{} has no folders; expected one a class, as {} has them",
                                 root.string(), named.string()));
  for (const std::string& folder : folders) {
    const auto place = std::lower_bound(classes.begin(), classes.end(), folder);
    if (place == classes.end() || *place != folder)
      throw InputError(fmt::format("{} is a class that {} does not have", (root / folder).string(),
                                   named.string()));
    const std::vector<std::string> images = ImagesIn(root, skipped)(root / folder);
    for (std::size_t i = 0; i < images.size(); ++i)
      if (!hold_out || (i % 5 == 4) == (split == Split::test))
        dataset->add(images[i], std::int32_t(place - classes.begin()));
  }
  if (dataset->size() == 0)
    throw InputError(fmt::format("{} has no image for testing: every fifth of a class would be one",
                                 directory.string()));
  for (const std::string& line : skipped.lines()) dataset->note(line);
  if (folders.size() < classes.size())
    dataset->note(fmt::format("{} has {} of the {} classes of {}", root.string(), folders.size(),
                              classes.size(), named.string()));
  if (!hold_out)
    for (const std::string& beside : folders_in(directory))
      if (const fs::path folder = directory / beside; beside != "train" && folder != tests)
        dataset->note(fmt::format("{} is not read: train/ and {} are", folder.string(),
                                  tests.empty() ? "no other" : tests.filename().string() + "/"));
  return dataset;
}

}  // namespace convlab::nets
