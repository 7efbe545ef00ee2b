// The plans of direct.cpp and the loops that run them. Internal.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "conv/problem.h"
#include "kernels_cpu/direct/family.h"
#include "kernels_cpu/gemm/pixel_grid.h"

namespace convlab::cpu {

// forward and backward_data. The packed filter is
// [grid][panel][chunk of channel blocks][tap][block of the chunk][channel in block][column].
// `depth` bounds taps x channels of a chunk, so that its filters stay in L2.
struct DirectPixels {
  ChannelView in, out;
  std::int64_t n = 1;
  std::int64_t in_blocks = 0;    // channel blocks of one group of the input
  std::int64_t in_channels = 0;  // channels of one group of the input
  Panels panels;
  std::int64_t in_step_h = 1, in_step_w = 1, out_step_h = 1, out_step_w = 1;
  std::vector<PixelGrid> grids;

  std::int64_t block = 1;  // channels in a channel block
  std::int64_t depth = 0;
  std::int64_t strip = 0;        // pixels whose input stays in L2
  std::int64_t row_threads = 1;  // threads = row_threads x panel_threads
  std::int64_t panel_threads = 1;

  std::int64_t chunk(const PixelGrid& grid) const {  // channel blocks
    const std::int64_t block_depth = std::int64_t(grid.taps.size()) * block;
    return block_depth == 0 ? in_blocks
                            : std::clamp<std::int64_t>(depth / block_depth, 1, in_blocks);
  }
};

// backward_filter. A unit is a panel and a channel block; its sums are
// [tap][channel in block][column]. With row_threads > 1 each of these threads has its own sums of
// every unit, which are added at the end; otherwise a thread has room for the sums of one unit.
struct DirectFilter {
  ChannelView x, dy;
  std::int64_t n = 1;
  std::int64_t in_blocks = 0;
  Panels panels;
  ConvProblem problem;
  std::int64_t strip = 0;  // rows of dy that stay in L1 with the rows of x that they multiply
  std::int64_t row_threads = 1;
  std::int64_t filter_threads = 1;
  std::int64_t unit_floats = 0;

  std::int64_t units() const { return panels.count() * in_blocks; }
};

// backward_filter of 3x3 filters of stride 1 or 2, a row of taps at a time. A thread copies a
// panel of x's channels, with the padding, for as many rows of dy as stay in L2: whole images, or a
// band of one.
struct DirectTaps {
  ConvProblem problem;
  ChannelView x, dy;
  std::int64_t panels = 0;            // of tile_shape().cols channels
  std::int64_t images = 1, rows = 1;  // of dy at once
  std::int64_t threads = 1;

  std::int64_t height(std::int64_t of_rows) const { return (of_rows - 1) * problem.stride_h + 3; }
  std::int64_t width() const { return (problem.q - 1) * problem.stride_w + 3; }
  std::int64_t patch_floats() const { return images * height(rows) * width() * tile_shape().cols; }
};

// One thread's part. Rows are images x output rows.
void direct_pixels(const DirectPixels&, const DirectOperands&, std::int64_t thread);
void direct_filter(const DirectFilter&, const DirectOperands&, std::int64_t thread);
void direct_finish_filter(const DirectFilter&, const DirectOperands&, std::int64_t unit);
void direct_taps(const DirectTaps&, const DirectOperands&, std::int64_t thread);

}  // namespace convlab::cpu
