// Labelled images, one at a time and in any order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nets/data/image.h"

namespace convlab::nets {

// What all images of a dataset have in common; 0 where they differ.
struct ImageShape {
  std::int64_t c = 0, h = 0, w = 0;
};

// Of each channel of pixel / 255; empty where they are not known.
struct PixelStatistics {
  std::vector<double> mean, deviation;
};

// Used by many threads at once.
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
  // What lies among the data and was not read: lines for the user.
  virtual std::vector<std::string> notes() const { return {}; }
};

// The images to train on, and those held out to test on.
enum class Split : std::uint8_t { train, test };

// What `--data` names: "synthetic[:IMAGES]", or a directory whose contents say what it is.
//   CIFAR-10, CIFAR-100   in binary: data_batch_1.bin, test_batch.bin; train.bin, test.bin
//   MNIST                 IDX files, plain or gzip: train-images-idx3-ubyte.gz, t10k-...
//   folders of images     JPEG and PNG, one folder a class, below train/ and test/ (or val/);
//                         without these, the folders are the classes and every fifth image is for
//                         testing. Links are followed, what is hidden is skipped
//   synthetic             shapes drawn into CIFAR-10's format and kept in $XDG_CACHE_HOME/convlab:
//                         10,000 to train with unless IMAGES says otherwise, a fifth of that to
//                         test
// Throws InputError that names the file and says what would be right; EnvironmentError where the
// synthetic images cannot be written.
std::unique_ptr<Dataset> open_dataset(const std::string& spec, Split);

}  // namespace convlab::nets
