// Problems with depth. A tensor has D * H rows (conv/problem.h), so one slice of D is an image of H
// rows, H * row elements after the slice before it, in NCHW and in NHWC. Internal.
#pragma once

#include <cstdint>

#include "kernels_cuda/kernel.h"

namespace convlab::cuda {

struct Range {
  int begin, end;
};

// The i < count for which `first + i * step` lies in [0, size), which are neighbours. A block
// computes outputs of one slice, so it skips the taps in depth that meet padding alone.
__host__ __device__ inline Range indices_inside(int first, int step, int count, int size) {
  const auto inside = [&](int i) { return unsigned(first + i * step) < unsigned(size); };
  Range range{0, 0};
  while (range.begin < count && !inside(range.begin)) ++range.begin;
  range.end = range.begin;
  while (range.end < count && inside(range.end)) ++range.end;
  return range;
}

}  // namespace convlab::cuda
