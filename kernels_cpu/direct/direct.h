// What direct.cpp plans and the loops that run it. Internal.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "conv/algo.h"
#include "kernels_cpu/gemm/pixel_grid.h"
#include "kernels_cpu/implicit_gemm/implicit_gemm.h"

namespace convlab::cpu {

// Where a tensor's channels lie, in elements: channel c of pixel (h, w) of image n is at
// n * image + c / B * block + (h * width + w) * pixel + c % B, with B the channel block.
struct ChannelView {
  std::int64_t image = 0, block = 0, pixel = 0;
  std::int64_t height = 0, width = 0;
};

// The output's channels in panels of one register tile's width; no panel crosses a group.
struct Panels {
  std::int64_t groups = 1;
  std::int64_t channels = 0;   // of one group
  std::int64_t per_group = 0;  // panels
  std::int64_t count() const { return groups * per_group; }
};

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
  Epilogue epilogue;
  bool accumulate = false;

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
// [tap][channel in block][column]. With row_threads > 1 each of them has its own sums of every
// unit, which are added at the end; otherwise a thread has room for the unit it is at.
struct DirectFilter {
  ChannelView x, dy;
  std::int64_t n = 1;
  std::int64_t in_blocks = 0;
  Panels panels;
  ConvProblem problem;
  std::int64_t strip = 0;  // rows of dy that stay in L1 with the rows of x that they meet
  std::int64_t row_threads = 1;
  std::int64_t filter_threads = 1;
  std::int64_t unit_floats = 0;

  std::int64_t units() const { return panels.count() * in_blocks; }
};

// backward_filter of 3x3 filters of stride 1 or 2, a row of taps at a time. A thread copies what a
// panel of x's channels and some rows of dy meet, with the padding, as much as stays in L2: whole
// images, or a band of one.
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

// A first layer: x in plain NCHW with few channels. Rows of x are copied with their padding into a
// patch [c][height][pitch]. An output row sees a window of `extent` of them, which slides down by
// the stride: most of what the next output row meets is there already. After `slides` output rows
// the window starts again at the top.
struct DirectFirst {
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

// backward_data of a first layer, dx in plain NCHW. Rows are those of the phases of dx; `band` of
// them meet band + span_h rows of dy, which are copied into planes of their own, [k][row][pitch],
// from row and column (first_h, first_w) relative to the band on.
struct DirectFirstData {
  ChannelView dy;
  ConvProblem problem;
  std::vector<PixelGrid> grids;                     // packed filters are [k][tap][c]
  std::vector<std::vector<std::ptrdiff_t>> tap_at;  // of each grid, where each tap lies in a plane
  std::int64_t first_h = 0, first_w = 0, span_h = 0, span_w = 0;
  std::int64_t pitch = 0, band = 0;

  std::int64_t bands() const { return ceil_div(ceil_div(problem.h, problem.stride_h), band); }
  // An odd number of cache lines, lest planes meet in the same sets.
  std::int64_t plane_floats() const { return (ceil_div((band + span_h) * pitch, 16) | 1) * 16; }
  // The last vector may reach beyond its plane.
  std::int64_t planes_floats() const {
    return problem.k * plane_floats() + round_up(span_w, 16) + 16;
  }
  // Of one channel of one phase.
  std::int64_t sums_floats() const { return round_up(band * pitch, 16); }
  std::int64_t thread_floats() const {
    return planes_floats() + std::min(problem.stride_w, problem.w) * problem.c * sums_floats();
  }
};

struct DirectOperands {
  const float *in, *filter, *dy, *bias, *residual;
  float *out, *workspace;
  bool stream = false;  // forward, backward_data: past the caches; `out` is aligned for it
};

// One thread's part. Rows are images x output rows; `threads` share them.
void direct_pixels(const DirectPixels&, const DirectOperands&, std::int64_t thread);
void direct_filter(const DirectFilter&, const DirectOperands&, std::int64_t thread);
void direct_finish_filter(const DirectFilter&, const DirectOperands&, std::int64_t unit);
void direct_taps(const DirectTaps&, const DirectOperands&, std::int64_t thread);
void direct_first_forward(const DirectFirst&, const DirectOperands&, std::int64_t thread,
                          std::int64_t threads);
void direct_first_filter(const DirectFirst&, const DirectOperands&, std::int64_t thread,
                         std::int64_t threads);
void direct_first_data(const DirectFirstData&, const DirectOperands&, std::int64_t thread,
                       std::int64_t threads);

// One filter a channel. The packed filter is [channel block][r][s][channel].
void direct_depthwise_pixels(const DirectPixels&, const ConvArgs&, const ConvProblem&,
                             std::int64_t thread, std::int64_t threads);
void direct_depthwise_filter(const DirectFilter&, const ConvArgs&, std::int64_t thread,
                             std::int64_t threads);

// One thread's part of any problem, f32 or f64, by plain loops over rows of pixels.
void direct_plain(const ConvProblem&, const ConvArgs&, int thread, int threads);

}  // namespace convlab::cpu
