// Tensors as kernels see them. Internal.
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
};

// What becomes of an output element.
template <class T>
struct Finish {
  const T* bias;      // by channel, or null
  const T* residual;  // like the output, or null
  bool relu, accumulate;

  __device__ T value(const T* out, std::int64_t at, int channel, Accumulator<T> sum) const {
    if (bias) sum += widen(bias[channel]);
    if (residual) sum += widen(residual[at]);
    if (relu) sum = cuda::relu(sum);
    if (accumulate) sum += widen(out[at]);
    return narrow<T>(sum);
  }
  __device__ void store(T* out, std::int64_t at, int channel, Accumulator<T> sum) const {
    out[at] = value(out, at, channel, sum);
  }
  // Four neighbouring channels of NHWC; `at` is a multiple of 4.
  struct Sums {
    Accumulator<T> v[4];
  };
  __device__ void store_quad(T* out, std::int64_t at, int channel, const Sums& sums) const {
    struct alignas(sizeof(T) == 8 ? 16 : 4 * sizeof(T)) Elements {
      T v[sizeof(T) == 8 ? 2 : 4];
    };
    constexpr int size = sizeof(Elements) / sizeof(T);
#pragma unroll
    for (int i = 0; i < 4; i += size) {
      Elements e;
#pragma unroll
      for (int j = 0; j < size; ++j)
        e.v[j] = value(out, at + i + j, channel + i + j, sums.v[i + j]);
      store_global(out + at + i, e);
    }
  }
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
