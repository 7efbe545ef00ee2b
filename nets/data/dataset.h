// Labelled images, with random access.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nets/data/image.h"

namespace convlab::nets {

// The size common to all images of a dataset; 0 where they differ.
struct ImageShape {
  std::int64_t c = 0, h = 0, w = 0;
};

// Mean and deviation of pixel / 255 per channel; empty if unknown.
struct PixelStatistics {
  std::vector<double> mean, deviation;
};

// Safe for concurrent use by many threads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  virtual const std::vector<std::string>& classes() const = 0;
  virtual std::int32_t label(std::int64_t index) const = 0;  // in [0, classes().size())
  // Throws InputError naming the file when it cannot be read or decoded.
  virtual Image image(std::int64_t index) const = 0;
  virtual std::string name(std::int64_t index) const = 0;  // for messages: a file, or "FILE #17"
  virtual ImageShape shape() const { return {}; }
  virtual PixelStatistics statistics() const { return {}; }
  virtual std::string format() const { return {}; }  // "CIFAR-10", "folders of images"
  // Files among the data that were not read: lines for the user.
  virtual std::vector<std::string> notes() const { return {}; }
};

// The training images and the held-out test images.
enum class Split : std::uint8_t { train, test };

// Opens the dataset that `--data` names: "synthetic[:IMAGES]", or a directory whose contents
// determine the format.
//   CIFAR-10, CIFAR-100   in binary: data_batch_1.bin, test_batch.bin; train.bin, test.bin
//   MNIST                 IDX files, plain or gzip: train-images-idx3-ubyte.gz, t10k-...
//   folders of images     JPEG and PNG, one folder a class, below train/ and test/ (or val/);
//                         without these, the folders are the classes and every fifth image is for
//                         testing. Links are followed, hidden files are skipped
//   synthetic             shapes drawn into CIFAR-10's format and kept in $XDG_CACHE_HOME/convlab:
//                         10,000 to train with unless IMAGES says otherwise, a fifth of that to
//                         test
// Throws InputError that names the file and says what would be right; EnvironmentError if the
// synthetic images cannot be written.
std::unique_ptr<Dataset> open_dataset(const std::string& spec, Split);

}  // namespace convlab::nets
