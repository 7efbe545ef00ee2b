// The plan of grouped.cpp and the loops that run it. Internal.
#pragma once

#include <cstdint>
#include <vector>

#include "conv/algo.h"
#include "kernels_cpu/device/range.h"
#include "kernels_cpu/direct/family.h"
#include "kernels_cpu/gemm/pixel_grid.h"

namespace convlab::cpu {

// A tap of a row of outputs, whose input row exists.
struct GroupedTap {
  std::int64_t in = 0;      // what pixel 0 reads, in elements from the image's start
  std::int64_t filter = 0;  // in elements from the vector's start
  std::int64_t column = 0;  // of the input, that pixel 0 reads
};

// A grid with the taps of each of its rows: of row h from row_begin[h] to row_begin[h + 1].
struct GroupedGrid {
  PixelGrid pixels;
  std::vector<GroupedTap> taps;
  std::vector<std::int64_t> row_begin;
  Range inside;  // pixels of a row, of which no tap reads padding on the left or right
};

// A vector holds the same number of channels of x and of y, and whole groups. The packed filter is
// [vector][r][s][xor][lane]: see grouped.cpp.
struct Grouped {
  ConvProblem problem;
  std::int64_t group = 0;          // its channels: 2, 4 or 8
  std::int64_t lanes = 0;          // of a vector
  ChannelView in, out;             // in backward_filter of x and dy
  std::vector<GroupedGrid> grids;  // forward and backward_data
  std::int64_t in_step_h = 1, in_step_w = 1, out_step_h = 1, out_step_w = 1;
  bool rows_first = false;    // a row's vectors are neighbours in memory, not a vector's rows
  bool non_temporal = false;  // stores

  // backward_filter. A unit is a part of the rows of dy for one vector; its sums are
  // [r][s][xor][lane].
  std::int64_t parts = 1;
  std::int64_t strip = 1;  // rows of dy that stay in L1 with the rows of x that they multiply

  std::int64_t vectors() const { return round_up(problem.c, tile_shape().block) / lanes; }
  std::int64_t vector_taps() const { return problem.r * problem.s * group * lanes; }  // elements
};

// One thread's part.
void grouped_pixels(const Grouped&, const ConvArgs&, std::int64_t thread, std::int64_t threads);
// Computes a unit's sums.
void grouped_filter(const Grouped&, const ConvArgs&, std::int64_t unit, void* sums);

}  // namespace convlab::cpu
