// What winograd_grouped.cpp plans and winograd_grouped_kernels.cpp runs. Internal.
#pragma once

#include <cstdint>

#include "conv/algo.h"
#include "kernels_cpu/direct/family.h"
#include "kernels_cpu/gemm/tile_shape.h"
#include "kernels_cpu/winograd/winograd.h"

namespace convlab::cpu {

// A unit is a group, or a vector of groups that are smaller than a channel block. Forward goes from
// `in` to `out`; backward_data is the forward of dy with the flipped filter.
struct WinogradGrouped {
  static constexpr std::int64_t m = 4, r = 3, t = m + r - 1;  // F(m, r)

  ConvProblem problem;
  std::int64_t threads = 1;
  TileShape register_tile;
  ChannelView in, out;
  std::int64_t pad_h = 0, pad_w = 0;
  std::int64_t units = 1;
  std::int64_t in_channels = 0, out_channels = 0;  // of a unit
  std::int64_t small = 0;                          // channels of a group, if they share a vector
  std::int64_t band = 1;                           // output rows at a time

  std::int64_t row_tiles() const { return ceil_div(out.width, m); }
  std::int64_t bands() const { return ceil_div(out.height, band); }
  std::int64_t blocks() const { return in_channels / register_tile.block; }
  // The channels that an output channel sums over.
  std::int64_t depth() const { return small > 0 ? small : in_channels; }
  // V [channel block][point][row][tile][cell] of a thread, in elements. A cell is a channel block,
  // or the vectors that SpreadQuads makes of one.
  std::int64_t cell() const {
    return small > 0 ? small / 4 * register_tile.lanes : register_tile.block;
  }
  std::int64_t v_row() const { return row_tiles() * cell(); }
  // An odd number of cells, so that the points of a tile spread over the cache's sets.
  std::int64_t v_point() const { return ((band + r - 1) * row_tiles() | 1) * cell(); }
  std::int64_t v_size() const { return round_up(blocks() * t * v_point(), 16); }
  // [unit][panel][point][channel block][r][channel][column], or of small groups
  // [unit][point][r][four channels][column % 4][column / 4][channel % 4].
  std::int64_t packed_unit() const { return t * r * depth() * out_channels; }
};

void winograd_grouped_pack(const WinogradGrouped&, const float* w, float* packed);
void winograd_grouped_run(const WinogradGrouped&, const WinogradOperandsOf<float>&);
WinogradCosts winograd_grouped_costs();  // of one tile, along its row

}  // namespace convlab::cpu
