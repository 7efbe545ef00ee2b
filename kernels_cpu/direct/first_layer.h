// The plans of first_layer.cpp and the loops that run them. Internal.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "conv/problem.h"
#include "kernels_cpu/direct/family.h"
#include "kernels_cpu/gemm/pixel_grid.h"

namespace convlab::cpu {

// A first layer: x in plain NCHW with few channels. Rows of x are copied with their padding into a
// patch [c][height][pitch]. An output row reads a window of `extent` of them, which slides down by
// the stride: most of the next output row's input is there already. After `slides` output rows the
// window starts again at the top.
struct FirstLayer {
  ChannelView y;
  Panels panels;
  ConvProblem problem;
  std::vector<std::ptrdiff_t> tap_at;  // where (c, r, s) lies, from the window's first pixel
  static constexpr std::int64_t slides = 8;
  std::int64_t extent() const { return (problem.r - 1) * problem.dilation_h + 1; }
  std::int64_t height() const { return extent() + (slides - 1) * problem.stride_h; }
  std::int64_t pitch() const {
    return (problem.q - 1) * problem.stride_w + (problem.s - 1) * problem.dilation_w + 1;
  }
  std::int64_t patch_floats() const { return problem.c * height() * pitch(); }
  std::int64_t taps() const { return problem.c * problem.r * problem.s; }
};

// backward_data of a first layer, dx in plain NCHW. Rows are those of dx's stride phases; a band of
// them reads band + span_h rows of dy, which are copied into planes [k][row][pitch], starting at
// row and column (first_h, first_w) relative to the band.
struct FirstLayerData {
  ChannelView dy;
  ConvProblem problem;
  std::vector<PixelGrid> grids;                     // packed filters are [k][tap][c]
  std::vector<std::vector<std::ptrdiff_t>> tap_at;  // of each grid, where each tap lies in a plane
  std::int64_t first_h = 0, first_w = 0, span_h = 0, span_w = 0;
  std::int64_t pitch = 0, band = 0;

  std::int64_t bands() const { return ceil_div(ceil_div(problem.h, problem.stride_h), band); }
  // An odd number of cache lines, so that planes do not share cache sets.
  std::int64_t plane_floats() const { return (ceil_div((band + span_h) * pitch, 16) | 1) * 16; }
  // The last vector may reach beyond its plane.
  std::int64_t planes_floats() const {
    return problem.k * plane_floats() + round_up(span_w, 16) + 16;
  }
  // For one channel of one phase.
  std::int64_t sums_floats() const { return round_up(band * pitch, 16); }
  std::int64_t thread_floats() const {
    return planes_floats() + std::min(problem.stride_w, problem.w) * problem.c * sums_floats();
  }
};

// One thread's part. Rows are images x output rows; `threads` share them.
void first_layer_forward(const FirstLayer&, const DirectOperands&, std::int64_t thread,
                         std::int64_t threads);
void first_layer_filter(const FirstLayer&, const DirectOperands&, std::int64_t thread,
                        std::int64_t threads);
void first_layer_data(const FirstLayerData&, const DirectOperands&, std::int64_t thread,
                      std::int64_t threads);

}  // namespace convlab::cpu
