// The multiply-adds of a convolution whose input is in the image: what a kernel executes that skips
// the padding.
#pragma once

#include <cstdint>

#include "conv/problem.h"

namespace convlab::cpu {

// Over all that ConvProblem::flops() counts; in (0, 1]. Of 3 x 3 taps at 7 x 7 pixels, padded by 1,
// it is 0.82.
inline double inside_share(const ConvProblem& p) {
  const auto share = [](std::int64_t outputs, std::int64_t taps, std::int64_t stride,
                        std::int64_t dilation, std::int64_t pad, std::int64_t inputs) {
    std::int64_t inside = 0;
    for (std::int64_t o = 0; o < outputs; ++o)
      for (std::int64_t t = 0; t < taps; ++t) {
        const std::int64_t at = o * stride + t * dilation - pad;
        inside += at >= 0 && at < inputs ? 1 : 0;
      }
    return double(inside) / double(outputs * taps);
  };
  return share(p.p, p.r, p.stride_h, p.dilation_h, p.pad_h, p.h) *
         share(p.q, p.s, p.stride_w, p.dilation_w, p.pad_w, p.w);
}

}  // namespace convlab::cpu
