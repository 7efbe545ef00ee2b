// Shared by fft and fft_tiled: complex numbers, and parts of tensors by their strides. For files
// with kernels.
#pragma once

#include "conv/types/layout.h"
#include "kernels_cuda/kernel.h"
#include "kernels_cuda/view.h"

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

}  // namespace convlab::cuda
