// Labelled images, one at a time and in any order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace convlab {

// 8-bit pixels, channel by channel (CHW).
struct Image {
  std::int64_t c = 0, h = 0, w = 0;
  std::vector<std::uint8_t> pixels;
};

// From many threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  virtual const std::vector<std::string>& classes() const = 0;
  virtual std::int32_t label(std::int64_t index) const = 0;  // in [0, classes().size())
  // Throws InputError naming the file when it cannot be read or decoded.
  virtual Image image(std::int64_t index) const = 0;
  virtual std::string name(std::int64_t index) const = 0;  // for messages: a file, or "#17"
};

enum class Split : std::uint8_t { train, test };

// What `--data` names: "synthetic[:IMAGES]", or a directory whose contents say what it is: CIFAR-10
// or CIFAR-100 in binary, MNIST's IDX files (plain or gzip), or images in one folder a class, below
// train/ and test/ (or val/) if there are such. Throws InputError that says what was looked for.
std::unique_ptr<Dataset> open_dataset(const std::string& spec, Split);

}  // namespace convlab
