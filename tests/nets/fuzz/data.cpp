// For libFuzzer: for any file contents and names, the readers of data sets and images either return
// images of the stated size with the stated labels, or throw InputError with a one-line message.
// Built once for each FUZZ_KIND: fuzz_idx, fuzz_cifar, fuzz_folders, fuzz_image.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "conv/error.h"
#include "conv/text/text.h"
#include "nets/data/dataset.h"

namespace convlab::nets {
namespace {

namespace fs = std::filesystem;

// A directory in memory, emptied for each input.
class Place {
 public:
  Place() {
    std::string name = "/dev/shm/convlab-fuzz-XXXXXX";
    if (!mkdtemp(name.data())) std::abort();
    path_ = name;
  }
  ~Place() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }
  void clear() const {
    for (const auto& entry : fs::directory_iterator(path_)) fs::remove_all(entry);
  }
  void write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }

 private:
  fs::path path_;
};

void require(bool holds) {
  if (!holds) std::abort();
}

// Makes the calls that a caller may make on an opened dataset.
void try_dataset(const fs::path& directory) {
  for (const Split split : {Split::train, Split::test}) try {
      const auto images = open_dataset(directory, split);
      for (const std::string& name : images->classes()) require(is_plain(name));
      for (std::int64_t i = 0; i < std::min<std::int64_t>(images->size(), 50); ++i) {
        const std::int32_t label = images->label(i);
        require(label >= 0 && std::size_t(label) < images->classes().size());
        const Image image = images->image(i);
        require(std::int64_t(image.pixels.size()) == image.c * image.h * image.w);
      }
    } catch (const InputError& error) {
      require(std::string_view(error.what()).find('\n') == std::string_view::npos);
    }
}

[[maybe_unused]] void fuzz_idx(const Place& place, std::string_view input) {
  // The first byte says where labels end and images begin.
  if (input.empty()) return;
  const auto labels = std::min<std::size_t>(std::uint8_t(input[0]), input.size() - 1);
  place.write("train-labels-idx1-ubyte", input.substr(1, labels));
  place.write("train-images-idx3-ubyte", input.substr(1 + labels));
  try_dataset(place.path());
}

[[maybe_unused]] void fuzz_cifar(const Place& place, std::string_view input) {
  // Class names, a zero byte, and the start of a record that is padded with zeros.
  const std::size_t zero = std::min(input.find('\0'), input.size());
  std::string record(input.substr(std::min(zero + 1, input.size())));
  if (record.size() > 1 && record[0] % 2) record.resize(3073 * (1 + record.size() / 3073));
  place.write("batches.meta.txt", input.substr(0, zero));
  place.write("data_batch_1.bin", record);
  place.write("test_batch.bin", record);
  try_dataset(place.path());
}

// Paths, one per line: "dog/a.png", "train/", "dog/link>cat".
[[maybe_unused]] void fuzz_folders(const Place& place, std::string_view input) {
  for (int lines = 0; lines < 20 && !input.empty(); ++lines) {
    const std::size_t end = std::min(input.find('\n'), input.size());
    const std::string line(input.substr(0, end));
    input.remove_prefix(std::min(end + 1, input.size()));
    if (line.empty() || line.front() == '/' || line.find('\0') != line.npos ||
        line.find("..") != line.npos)
      continue;
    const std::size_t arrow = line.find('>');
    std::error_code ignored;
    const fs::path path = place.path() / line.substr(0, arrow);
    fs::create_directories(line.back() == '/' ? path : path.parent_path(), ignored);
    if (arrow != line.npos)
      fs::create_symlink(place.path() / line.substr(arrow + 1), path, ignored);
    else if (line.back() != '/')
      std::ofstream(path, std::ios::binary) << "no image";
  }
  try_dataset(place.path());
}

[[maybe_unused]] void fuzz_image(const Place&, std::string_view input) {
  const auto* const begin = reinterpret_cast<const std::uint8_t*>(input.data());
  try {
    const Image image = decode_image({begin, input.size()}, "f");
    require(image.c == 3 && std::int64_t(image.pixels.size()) == 3 * image.h * image.w);
  } catch (const InputError&) {
  }
}

}  // namespace
}  // namespace convlab::nets

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const convlab::nets::Place place;
  place.clear();
  convlab::nets::FUZZ_KIND(place, {reinterpret_cast<const char*>(data), size});
  return 0;
}
