// A problem of one row as a problem of one column, for loops that divide images by rows. Internal.
#pragma once

#include <utility>

#include "conv/problem.h"

namespace convlab::cpu {

// With one row in x, y and the filter, exchanging height and width leaves every element where it
// is. Other problems are returned as they are.
inline ConvProblem row_as_column(ConvProblem p) {
  if (p.h > 1 || p.p > 1 || p.r > 1) return p;
  std::swap(p.h, p.w);
  std::swap(p.p, p.q);
  std::swap(p.r, p.s);
  std::swap(p.pad_h, p.pad_w);
  std::swap(p.stride_h, p.stride_w);
  std::swap(p.dilation_h, p.dilation_w);
  return p;
}

}  // namespace convlab::cpu
