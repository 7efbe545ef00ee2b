// Batches of a dataset, decoded, augmented and brought to the device ahead of their use by a pool
// of threads.
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
  bool shuffle = false;
  bool drop_last = false;  // else the last batch is filled up: zeros, labelled no_label
  std::uint64_t seed = 0;
  int threads = 1;           // that decode, beside the caller; 0: the caller decodes
  int prefetch = 2;          // batches ahead
  DType dtype = DType::f32;  // or f64
  // That may be skipped: their place is filled up and they are named; one more throws InputError.
  std::int64_t bad_images = 100;
};

struct Batch {
  ConstSpan input;  // on the device: NCHW, of the loader's type
  std::span<const std::int32_t> labels;
  std::int64_t images = 0;  // labelled 0 and up; filled up may be any, not only the last
};

// The order of an epoch and what is drawn for each image follow from the seed and the epoch alone:
// the same for any number of threads, and after a restart at any batch.
class DataLoader {
 public:
  // Images are decoded into the device's pinned memory. From there, a card's batches are copied by
  // the threads on a stream of the loader's own, beside whatever the card computes. Dataset and
  // device outlive the loader. Throws InputError for options and a transform that make no sense,
  // and for batches that do not fit the memory.
  DataLoader(const Dataset&, const Transform&, const LoaderOptions&, Device&);
  ~DataLoader();

  std::int64_t batches() const;  // of an epoch
  void start(std::int64_t epoch, std::int64_t first_batch = 0);
  // Null at the epoch's end. Valid until the next call; by then whatever reads it is to be done, as
  // Net::set_input is when it returns. What a thread threw is thrown here.
  const Batch* next();

  double waited_s() const;  // seconds in next(), since the loader was made: I/O that was not hidden
  const std::vector<std::string>& bad_images() const;  // "FILE: why", as far as next() has come

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convlab::nets
