// What winograd.cpp plans for first layers of stride 1 and rows.cpp runs. Internal.
//
// Over a first layer's few channels a product at each point of a tile is too short to pay for
// transforms in two dimensions. In one, along rows, F(4,3) has C R products at each of its 6 points
// for 4 outputs, half the multiplications of the definition. A register tile is some tiles of a row
// times one vector of K at all points, so that sums are transformed back where they are, and leave
// as evenly as those of the definition do: in bursts they would wait for memory, and all else for
// them. x is transformed a row at a time, with tiles in the lanes.
#pragma once

#include <cstdint>

#include "conv/algo.h"
#include "kernels_cpu/implicit_gemm/implicit_gemm.h"
#include "kernels_cpu/winograd/winograd.h"

namespace convlab::cpu {

struct WinogradRows {
  static constexpr std::int64_t m = 4, r = 3, t = m + r - 1;  // F(m, r)
  static constexpr std::int64_t band = 16;                    // output rows at a time

  ConvProblem problem;  // forward, x in plain NCHW, r x r filters of stride 1
  std::int64_t threads = 1;
  TileShape tile;
  bool stream = false;

  std::int64_t row_tiles() const { return ceil_div(problem.q, m); }
  std::int64_t filters() const { return round_up(problem.k, tile.block); }
  std::int64_t taps() const { return problem.c * r; }
  // Of a thread, in floats:
  //   V [channel][row][vector of tiles][point][tile]
  //   a row of x as it is, and as [pixel % m][pixel / m]
  std::int64_t v_row() const { return round_up(row_tiles(), tile.lanes) * t; }
  std::int64_t v_rows() const { return band + r - 1; }
  std::int64_t v_floats() const { return problem.c * v_rows() * v_row(); }
  std::int64_t line() const { return row_tiles() + 1 + tile.lanes; }
  std::int64_t thread_floats() const { return round_up(v_floats() + 2 * m * line(), 16); }
  // [vector of filters][part of the points][channel][r][point][filter]
  std::int64_t packed_floats() const { return filters() * taps() * t; }
};

void winograd_rows_pack(const WinogradRows&, const float* w, float* packed);
void winograd_rows_run(const WinogradRows&, const WinogradOperands&);
WinogradCosts winograd_rows_costs();  // of one tile, along its row

}  // namespace convlab::cpu
