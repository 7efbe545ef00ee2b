// Tensors for kernels. Internal.
#pragma once

#include <cstdint>

#include "kernels_cuda/kernel.h"

namespace convlab::cuda {

// An NCHW or NHWC tensor's sizes and strides in elements. Positions within an image fit in int.
struct View {
  int channels, h, w;
  int channel, row, column;
  std::int64_t image;
  bool channels_last;

  explicit View(const TensorDesc& d)
      : channels(int(d.c)),
        h(int(d.h)),
        w(int(d.w)),
        channel(d.layout == Layout::nhwc ? 1 : int(d.h * d.w)),
        row(int(d.layout == Layout::nhwc ? d.w * d.c : d.w)),
        column(d.layout == Layout::nhwc ? int(d.c) : 1),
        image(d.c * d.h * d.w),
        channels_last(d.layout == Layout::nhwc) {}
  // One of a tensor's slices, of `rows` rows. The next begins slice() elements later.
  View(const TensorDesc& d, std::int64_t rows) : View(d) { h = int(rows); }
  __host__ __device__ std::int64_t slice() const { return std::int64_t(h) * row; }
};

// Calls f with a value of the element type.
template <class F>
void with_element(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(float());
    case DType::f64:
      return f(double());
    case DType::f16:
      return f(f16());
    case DType::bf16:
      return f(bf16());
  }
}

}  // namespace convlab::cuda
