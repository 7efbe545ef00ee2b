// Forward and backward_data as one kind of loop: output pixels on a grid, all of which read the
// input through the same list of taps. Internal.
#pragma once

#include <cstdint>
#include <vector>

#include "conv/problem.h"

namespace convlab::cpu {

// Pixel (h, w) of a grid reads the input at (h * in_step_h + dh, w * in_step_w + dw) through filter
// element rs = r * S + s.
struct Tap {
  std::int32_t dh = 0, dw = 0;
  std::int64_t rs = 0;
};

// Output pixels (first + out_step * grid) that share their taps.
struct PixelGrid {
  std::vector<Tap> taps;
  std::int64_t h = 0, w = 0;
  std::int64_t first_h = 0, first_w = 0;
  std::int64_t filter = 0;  // where its packed filter starts, in floats
};

// To a pointwise filter that reads each pixel once, row ends do not matter: an image becomes one
// row.
ConvProblem flattened(ConvProblem);

// The grid of y over x: just one.
std::vector<PixelGrid> forward_grids(const ConvProblem&);
// The grids of dx over dy: one for each stride phase, some perhaps without taps.
std::vector<PixelGrid> backward_grids(const ConvProblem&);

}  // namespace convlab::cpu
