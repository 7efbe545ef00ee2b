// Batches of a dataset, decoded, augmented and copied to the device ahead of use by a pool of
// threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "conv/device.h"
#include "conv/problem.h"
#include "nets/data/dataset.h"
#include "nets/data/transform.h"
#include "nets/label.h"

namespace convlab::nets {

inline constexpr int most_data_threads = 1024;

struct LoaderOptions {
  std::int64_t batch = 1;
  // This loader's share of each batch, the images from rank * batch / ranks on. Order and draws are
  // those of the whole batches.
  int rank = 0, ranks = 1;
  bool shuffle = false;
  bool drop_last = false;  // else the last batch is filled up: zeros, labelled no_label
  std::uint64_t seed = 0;
  int threads = 1;           // decoding threads besides the caller; 0: the caller decodes
  int prefetch = 2;          // batches ahead
  DType dtype = DType::f32;  // or f64
  // How many images may be skipped: their places are filled up and they are named. One more throws
  // InputError.
  std::int64_t bad_images = 100;
};

struct Batch {
  ConstSpan input;  // on the device: NCHW, of the loader's type
  std::span<const std::int32_t> labels;
  std::int64_t images =
      0;  // of this share, labelled 0 and up; any place may be a filler, not only the last
};

// The order of an epoch and each image's random draws depend only on the seed and the epoch: they
// are the same for any number of threads, and after a restart at any batch.
class DataLoader {
 public:
  // Images are decoded into the device's pinned memory. For a card, the threads copy batches on the
  // loader's own stream, concurrently with the card's computation. Dataset and device outlive the
  // loader. Throws InputError for invalid options or transforms, and for batches that do not fit in
  // memory.
  DataLoader(const Dataset&, const Transform&, const LoaderOptions&, Device&);
  ~DataLoader();

  std::int64_t batches() const;  // per epoch
  void start(std::int64_t epoch, std::int64_t first_batch = 0);
  // Null at the epoch's end. Valid until the next call, by which all reads must be complete
  // (Net::set_input has finished reading when it returns). Rethrows a thread's exception.
  const Batch* next();

  double waited_s() const;  // seconds in next(), since the loader was made: I/O that was not hidden
  const std::vector<std::string>& bad_images() const;  // "FILE: why", up to the position of next()

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convlab::nets
