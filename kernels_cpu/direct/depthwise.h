// The plan of depthwise.cpp and the loops that run it. Internal.
#pragma once

#include <cstdint>
#include <vector>

#include "conv/algo.h"
#include "kernels_cpu/direct/family.h"
#include "kernels_cpu/gemm/pixel_grid.h"

namespace convlab::cpu {

// The packed filter is [channel block][r][s][channel].
struct Depthwise {
  ConvProblem problem;
  ChannelView in, out;           // in backward_filter those of x and dy
  std::vector<PixelGrid> grids;  // forward and backward_data
  std::int64_t in_step_h = 1, in_step_w = 1, out_step_h = 1, out_step_w = 1;
};

// One thread's part.
void depthwise_pixels(const Depthwise&, const ConvArgs&, std::int64_t thread, std::int64_t threads);
void depthwise_filter(const Depthwise&, const ConvArgs&, std::int64_t thread, std::int64_t threads);

}  // namespace convlab::cpu
