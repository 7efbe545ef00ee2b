// What fft and fft_tiled share: complex numbers, tensors by their strides, and what becomes of an
// output element. For files with kernels.
#pragma once

#include "conv/layout.h"
#include "kernels_cuda/kernel.h"

namespace convlab::cuda {

template <class T>
struct alignas(2 * sizeof(T)) Complex {
  T re, im;
};

// An NCHW or NHWC tensor, or some of its images and channels: sizes and strides.
struct Image {
  int n, c, h, w;
  std::int64_t image, row;
  int channel, column;

  Image(const TensorDesc& d, std::int64_t images, std::int64_t channels)
      : n(int(images)),
        c(int(channels)),
        h(int(d.h)),
        w(int(d.w)),
        image(d.c * d.h * d.w),
        row(d.layout == Layout::nhwc ? d.w * d.c : d.w),
        channel(d.layout == Layout::nhwc ? 1 : int(d.h * d.w)),
        column(d.layout == Layout::nhwc ? int(d.c) : 1) {}

  __device__ std::int64_t offset(int ni, int ci, int hi, int wi) const {
    return ni * image + std::int64_t(ci) * channel + hi * row + std::int64_t(wi) * column;
  }
};

template <class T>
struct Finish {
  T scale;
  const T* bias;      // by channel, or null
  const T* residual;  // like the output, or null
  bool relu, accumulate;

  __device__ void store(T* out, std::int64_t at, int channel, T value) const {
    value *= scale;
    if (bias) value += bias[channel];
    if (residual) value += residual[at];
    if (relu) value = max(value, T(0));
    if (accumulate) value += out[at];
    store_global(out + at, value);
  }
};

}  // namespace convlab::cuda
