// Batches of a dataset, decoded and augmented ahead of their use by a pool of threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "conv/device.h"
#include "conv/problem.h"
#include "nets/data/dataset.h"

namespace convlab {

// What happens to an image on its way into a net, in this order.
struct Transform {
  std::int64_t channels = 3, height = 32, width = 32;  // as they come out
  std::int64_t resize = 0;           // the shorter side first becomes this long; 0: left as it is
  std::int64_t pad = 0;              // zeros around it, before cropping
  bool random_crop = false;          // else the middle
  bool random_resized_crop = false;  // 8% to 100% of the area, aspect 3/4 to 4/3, as for ImageNet
  bool random_flip = false;          // left to right, with probability 1/2
  std::vector<double> mean, deviation;  // a channel: (pixel / 255 - mean) / deviation
};
// As nets are usually trained and tested on images of this size: pad 4, crop and flip at 32x32, and
// so on; mean and deviation of the dataset where they are known, else ImageNet's.
Transform usual_transform(const Dataset&, std::int64_t channels, std::int64_t height,
                          std::int64_t width, Split);

struct LoaderOptions {
  std::int64_t batch = 1;
  bool shuffle = false;
  bool drop_last = false;  // else the last batch is filled up with images labelled -1
  std::uint64_t seed = 0;
  int threads = 1;   // that decode, beside the caller; 0: the caller decodes
  int prefetch = 2;  // batches ahead
  DType dtype = DType::f32;
  std::int64_t bad_images = 100;  // skipped and named; one more throws InputError
};

struct Batch {
  ConstSpan input;  // NCHW, of the loader's type
  std::span<const std::int32_t> labels;
  std::int64_t images = 0;  // the rest is filled up
};

// The order of an epoch and what is drawn for each image follow from the seed and the epoch alone:
// the same for any number of threads, and after a restart at any batch.
class DataLoader {
 public:
  // Host memory is the device's pinned memory. The dataset outlives the loader.
  DataLoader(const Dataset&, const Transform&, const LoaderOptions&, Device&);
  ~DataLoader();

  std::int64_t batches() const;  // of an epoch
  void start(std::int64_t epoch, std::int64_t first_batch = 0);
  // Null at the epoch's end. Valid until the next call, so until then a copy to the device must
  // have been waited for. What a thread threw is thrown here.
  const Batch* next();

  double waited_s() const;  // in next(), since the loader was made: I/O that was not hidden
  const std::vector<std::string>& bad_images() const;  // "FILE: why", as far as next() has come

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convlab
