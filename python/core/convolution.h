// Convolutions and their gradients on arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conv/problem.h"

namespace convlab::python {

namespace nb = nanobind;

// Each has one value for each of the 2 or 3 dimensions, from 0 to 2^31 - 1.
struct Window {
  std::vector<std::int64_t> stride, pad_front, pad_back, dilation;
  std::int64_t groups;

  Window(std::vector<std::int64_t> strides, std::vector<std::int64_t> front,
         std::vector<std::int64_t> back, std::vector<std::int64_t> dilations,
         std::int64_t group_count)
      : stride(std::move(strides)),
        pad_front(std::move(front)),
        pad_back(std::move(back)),
        dilation(std::move(dilations)),
        groups(group_count) {}
};

struct Wishes {
  std::string algo;        // an id or a family; empty: the fastest
  std::string activation;  // of `forward`; empty: none
  bool torch = false;      // the result is PyTorch's, else NumPy's
};

// All throw InputError for arrays that do not fit, and OutOfMemory. `bias` may be None. A size is
// an array's shape, N C H W or K C/groups R S.
nb::object forward(nb::handle x, nb::handle w, nb::handle bias, const Window&, const Wishes&);
// What forward(x, w, bias, ...) does with any dense arrays of these shapes and orders in memory, on
// addresses that the caller answers for: importing arrays takes longer than a small convolution.
class ForwardCall {
 public:
  // nullopt if one of the arrays would be copied. Throws InputError as forward does.
  static std::optional<ForwardCall> of(nb::handle x, nb::handle w, nb::handle bias, const Window&,
                                       const Wishes&);

  const std::vector<std::int64_t>& shape() const { return shape_; }  // of y
  bool is_channels_last() const { return problem_.y_layout == Layout::nhwc; }
  void run(std::uintptr_t x, std::uintptr_t w, std::uintptr_t bias, std::uintptr_t y) const;

 private:
  ForwardCall(const ConvProblem& problem, std::string algo, std::vector<std::int64_t> shape)
      : problem_(problem), algo_(std::move(algo)), shape_(std::move(shape)) {}

  ConvProblem problem_;
  std::string algo_;
  std::vector<std::int64_t> shape_;
};
nb::object input_gradient(const std::vector<std::int64_t>& size, nb::handle w, nb::handle grad,
                          const Window&, const Wishes&);
nb::object weight_gradient(nb::handle x, const std::vector<std::int64_t>& size, nb::handle grad,
                           const Window&, const Wishes&);

}  // namespace convlab::python
