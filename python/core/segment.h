// A part of a model as a net that runs in place of it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "graph.h"
#include "nets/net.h"

namespace convlab::python {

namespace nb = nanobind;

struct SegmentOptions {
  bool training = false, input_gradient = false;
  std::string dtype;  // "float32" or "float64"
  std::optional<double> max_error;
  std::int64_t threads =
      0;  // 0: as OpenMP gives the caller now, which PyTorch's set_num_threads sets
  std::uint64_t seed = 0;      // of dropout
  bool channels_last = false;  // of most inputs; others are converted
};

// Calls from several threads take turns. Every function checks its arguments and throws InputError.
class Segment {
 public:
  // Plans by the tuning store and, where that has nothing, by predictions.
  Segment(const GraphBuilder&, SegmentOptions);
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // [(name, shape, whether it is trained)]; all functions that take an index count in this list.
  nb::list parameters() const;
  // Copies the array, of any strides.
  void set(std::int64_t index, nb::handle array);
  // Without a copy: the value is the array's own memory from now on, and training moves running
  // statistics there. In inference call changed() after each change. False, and nothing is done,
  // for an array that is not dense or not aligned to 64 bytes.
  bool use(std::int64_t index, nb::handle array);
  void changed();
  nb::object get(std::int64_t index, bool torch);

  // y has x's library and order of axes in memory, N C H W or N H W C.
  nb::object forward(nb::handle x, bool torch);
  // Of the last forward. The input's gradient, if the segment computes it, in x's order, or None.
  nb::object backward(nb::handle dy, bool torch);
  // Of the last backward, or None for what is not trained. Not copied: later backwards write
  // elsewhere as long as one of these arrays lives.
  nb::list gradients(bool torch);
  // How many forwards there were: backward belongs to the last one.
  std::uint64_t forwards() const;

  // forward and backward on dense memory of the right size, which the caller answers for. In
  // training x stays as it is until backward has ended. dx: 0 for none.
  void run(std::uintptr_t x, std::uintptr_t y, bool channels_last);
  void run_backward(std::uintptr_t dy, std::uintptr_t dx, bool channels_last);

  // [(layer, pass, problem, algorithm, config, ms, whether ms was measured)]
  nb::list plan() const;
  // [(problem's text, [pass])], as convlab.tune takes them
  nb::list problems() const;

 private:
  const nets::Parameter& parameter(std::int64_t index) const;
  std::size_t bytes(const Sizes& shape) const;
  InputArray checked(const nets::Parameter&, nb::handle array) const;
  void notice_statistics();
  void compute(const std::byte* x, Layout, std::byte* y, Layout);
  void compute_gradients(const std::byte* dy, Layout, std::byte* dx);

  SegmentOptions options_;
  DType dtype_;
  Sizes input_, output_;  // shapes
  std::unique_ptr<nets::Net> net_;
  std::vector<std::size_t> visible_;  // the net's parameters that the model has
  std::vector<bool> trained_;         // of those
  mutable std::mutex mutex_;          // of all below, and of the net; taken without the GIL
  std::optional<InputArray> held_;    // the input that backward will read
  std::vector<std::optional<InputArray>> used_;  // by index
  std::vector<std::byte> folded_;                // statistics in inference, as last seen
  std::shared_ptr<Buffer> gradients_;            // where backward writes, shared with arrays
  bool has_gradients_ = false;
  Layout order_ = Layout::nchw;  // of the last input
};

}  // namespace convlab::python
