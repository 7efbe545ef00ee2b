// The padded rows of a plain NCHW image that one output row reads. Internal.
#pragma once

#include <hwy/base.h>

#include <algorithm>
#include <cstdint>

#include "kernels_cpu/implicit_gemm/implicit_gemm.h"

namespace convlab::cpu {

// to[c][r][column] = image[c][first_h + r * step_h][first_w + column], zero outside. Inlined into
// the kernels, it is compiled for their instruction set.
template <class T>
HWY_INLINE void copy_plain_rows(const PlainRows& rows, const T* image, std::int64_t first_h,
                                std::int64_t first_w, T* to) {
  const std::int64_t left = std::clamp<std::int64_t>(-first_w, 0, rows.width);
  const std::int64_t right = std::clamp(rows.w - first_w, left, rows.width);
  for (std::int64_t c = 0; c < rows.channels; ++c)
    for (std::int64_t r = 0; r < rows.r; ++r, to += rows.width) {
      const std::int64_t h = first_h + r * rows.step_h;
      if (h < 0 || h >= rows.h) {
        std::fill_n(to, rows.width, T(0));
        continue;
      }
      const T* const from = image + c * rows.channel_step + h * rows.w + first_w;
      std::fill(to, to + left, T(0));
      std::copy(from + left, from + right, to + left);
      std::fill(to + right, to + rows.width, T(0));
    }
}

}  // namespace convlab::cpu
