#include "kernels_cpu/gemm/pixel_grid.h"

#include <algorithm>

namespace convlab::cpu {

ConvProblem flattened(ConvProblem p) {
  if (p.r == 1 && p.s == 1 && p.stride_h == 1 && p.stride_w == 1 && p.pad_h == 0 && p.pad_w == 0 &&
      p.p == p.h && p.q == p.w) {
    p.w = p.q = p.h * p.w;
    p.h = p.p = 1;
  }
  return p;
}

std::vector<PixelGrid> forward_grids(const ConvProblem& p) {
  PixelGrid grid{.taps = {}, .h = p.p, .w = p.q};
  for (std::int64_t r = 0; r < p.r; ++r)
    for (std::int64_t s = 0; s < p.s; ++s)
      grid.taps.push_back({std::int32_t(r * p.dilation_h - p.pad_h),
                           std::int32_t(s * p.dilation_w - p.pad_w), r * p.s + s});
  return {grid};
}

// dx at h = first + stride * i collects dy at (h + pad - r * dilation) / stride for the taps r that
// leave no remainder, which is dy at i + (first + pad - r * dilation) / stride.
std::vector<PixelGrid> backward_grids(const ConvProblem& p) {
  std::vector<PixelGrid> grids;
  for (std::int64_t fh = 0; fh < std::min(p.stride_h, p.h); ++fh)
    for (std::int64_t fw = 0; fw < std::min(p.stride_w, p.w); ++fw) {
      PixelGrid grid{.taps = {},
                     .h = ceil_div(p.h - fh, p.stride_h),
                     .w = ceil_div(p.w - fw, p.stride_w),
                     .first_h = fh,
                     .first_w = fw};
      for (std::int64_t r = 0; r < p.r; ++r)
        for (std::int64_t s = 0; s < p.s; ++s) {
          const std::int64_t dh = fh + p.pad_h - r * p.dilation_h;
          const std::int64_t dw = fw + p.pad_w - s * p.dilation_w;
          if (dh % p.stride_h == 0 && dw % p.stride_w == 0)
            grid.taps.push_back(
                {std::int32_t(dh / p.stride_h), std::int32_t(dw / p.stride_w), r * p.s + s});
        }
      grids.push_back(std::move(grid));
    }
  return grids;
}

}  // namespace convlab::cpu
