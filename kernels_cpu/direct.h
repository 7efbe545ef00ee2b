// What direct.cpp plans and the loops that run it. Internal.
#pragma once

#include <cstdint>
#include <vector>

#include "conv/algo.h"
#include "kernels_cpu/implicit_gemm.h"
#include "kernels_cpu/pixel_grid.h"

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

  std::int64_t chunk = 1;        // channel blocks whose filters stay in L1
  std::int64_t strip = 0;        // pixels whose input stays in L2
  std::int64_t row_threads = 1;  // threads = row_threads x panel_threads
  std::int64_t panel_threads = 1;
};

// backward_filter. Each of row_threads sums its rows into its own copy of
// [panel][channel block][tap][channel in block][column]; the copies are added at the end.
struct DirectFilter {
  ChannelView x, dy;
  std::int64_t n = 1;
  std::int64_t in_blocks = 0;
  Panels panels;
  ConvProblem problem;
  std::int64_t strip = 0;  // rows of dy that stay in L1 with the rows of x that they meet
  std::int64_t row_threads = 1;
  std::int64_t filter_threads = 1;
};

// A first layer: x in plain NCHW with few channels. The rows of x that an output row meets are
// copied with their padding into a patch [c][r][pitch].
struct DirectFirst {
  ChannelView y;
  Panels panels;
  ConvProblem problem;
  std::int64_t pitch(std::int64_t pixels) const {
    return (pixels - 1) * problem.stride_w + (problem.s - 1) * problem.dilation_w + 1;
  }
  std::int64_t taps() const { return problem.c * problem.r * problem.s; }
};

struct DirectOperands {
  const float *in, *filter, *dy, *bias, *residual;
  float *out, *workspace;
};

// One thread's part. Rows are images x output rows; `threads` share them.
void direct_pixels(const DirectPixels&, const DirectOperands&, std::int64_t thread);
void direct_filter(const DirectFilter&, const DirectOperands&, std::int64_t thread);
void direct_first_forward(const DirectFirst&, const DirectOperands&, std::int64_t thread,
                          std::int64_t threads);
void direct_first_filter(const DirectFirst&, const DirectOperands&, std::int64_t thread,
                         std::int64_t threads);

// One thread's part of any problem, f32 or f64, by plain loops over rows of pixels.
void direct_plain(const ConvProblem&, const ConvArgs&, int thread, int threads);

}  // namespace convlab::cpu
