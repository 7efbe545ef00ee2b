// What winograd_1d.cpp plans and winograd_1d_kernels.cpp runs. Internal.
#pragma once

#include <cstdint>

#include "conv/algo.h"
#include "kernels_cpu/gemm/tile_shape.h"
#include "kernels_cpu/winograd/winograd.h"

namespace convlab::cpu {

struct Winograd1d {
  static constexpr std::int64_t m = 4, r = 3, t = m + r - 1;  // F(m, r)
  static constexpr std::int64_t band = 16;                    // output rows at a time

  ConvProblem problem;  // forward, x in plain NCHW, r x r filters of stride 1
  std::int64_t threads = 1;
  TileShape register_tile;
  bool non_temporal_stores = false;

  std::int64_t row_tiles() const { return ceil_div(problem.q, m); }
  std::int64_t filters() const { return round_up(problem.k, register_tile.block); }
  std::int64_t taps() const { return problem.c * r; }
  // Of a thread, in elements:
  //   V [channel][row][vector of tiles][point][tile]
  //   a row of x as it is, and as [pixel % m][pixel / m]
  std::int64_t v_row() const { return round_up(row_tiles(), register_tile.lanes) * t; }
  std::int64_t v_rows() const { return band + r - 1; }
  std::int64_t v_size() const { return problem.c * v_rows() * v_row(); }
  std::int64_t line() const { return row_tiles() + 1 + register_tile.lanes; }
  std::int64_t thread_size() const { return round_up(v_size() + 2 * m * line(), 16); }
  // [vector of filters][part of the points][channel][r][point][filter]
  std::int64_t packed_size() const { return filters() * taps() * t; }
};

void winograd_1d_pack(const Winograd1d&, const float* w, float* packed);
void winograd_1d_run(const Winograd1d&, const WinogradOperandsOf<float>&);
WinogradCosts winograd_1d_costs();  // of one tile, along its row

}  // namespace convlab::cpu
