// The multiply-adds of a convolution whose input lies in the image: those that a kernel executes if
// it skips the padding.
#pragma once

#include <cstdint>

#include "conv/problem.h"

namespace convlab::cpu {

// The taps of one output row (or column) that lie in the image.
inline std::int64_t inside_taps(std::int64_t output, std::int64_t taps, std::int64_t stride,
                                std::int64_t dilation, std::int64_t pad, std::int64_t inputs) {
  std::int64_t inside = 0;
  for (std::int64_t t = 0; t < taps; ++t) {
    const std::int64_t at = output * stride + t * dilation - pad;
    inside += at >= 0 && at < inputs ? 1 : 0;
  }
  return inside;
}
inline std::int64_t inside_taps_d(const ConvProblem& p, std::int64_t slice) {
  return inside_taps(slice, p.t, p.stride_d, p.dilation_d, p.pad_d, p.d);
}
inline std::int64_t inside_taps_h(const ConvProblem& p, std::int64_t row) {
  return inside_taps(row, p.r, p.stride_h, p.dilation_h, p.pad_h, p.h);
}
inline std::int64_t inside_taps_w(const ConvProblem& p, std::int64_t column) {
  return inside_taps(column, p.s, p.stride_w, p.dilation_w, p.pad_w, p.w);
}

// Their share of all that ConvProblem::flops() counts; in (0, 1]. With 3 x 3 taps at 7 x 7 pixels,
// padded by 1, it is 0.82.
inline double inside_share(const ConvProblem& p) {
  std::int64_t d = 0, h = 0, w = 0;
  for (std::int64_t slice = 0; slice < p.z; ++slice) d += inside_taps_d(p, slice);
  for (std::int64_t row = 0; row < p.p; ++row) h += inside_taps_h(p, row);
  for (std::int64_t column = 0; column < p.q; ++column) w += inside_taps_w(p, column);
  return double(d) / double(p.z * p.t) * (double(h) / double(p.p * p.r)) *
         (double(w) / double(p.q * p.s));
}

// Whether some pixel of y reads nothing but padding.
inline bool some_outside(const ConvProblem& p) {
  for (std::int64_t slice = 0; slice < p.z; ++slice)
    if (inside_taps_d(p, slice) == 0) return true;
  for (std::int64_t row = 0; row < p.p; ++row)
    if (inside_taps_h(p, row) == 0) return true;
  for (std::int64_t column = 0; column < p.q; ++column)
    if (inside_taps_w(p, column) == 0) return true;
  return false;
}

// Whether no tap falls on padding, on any side.
inline bool all_inside(const ConvProblem& p) {
  return p.pad_d == 0 && p.pad_h == 0 && p.pad_w == 0 && p.pad_back() <= 0 && p.pad_bottom() <= 0 &&
         p.pad_right() <= 0;
}

}  // namespace convlab::cpu
