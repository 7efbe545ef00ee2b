// The plan of blocked.cpp and the loops that run it. Internal.
#pragma once

#include <cstdint>

#include "conv/problem.h"
#include "kernels_cpu/device/range.h"
#include "kernels_cpu/gemm/tile_shape.h"

namespace convlab::cpu {

// A chunk of pixels at a time: whole images, or rows of one. Columns come in panels of three
// vectors; with a 1x1 filter of stride 1 they are x, read in place.
struct BlockedColumns {
  static constexpr std::int64_t most_taps = 9;
  ConvProblem problem;
  bool in_place = false;
  std::int64_t images = 1, rows = 1;  // of dy, in a chunk
  std::int64_t panels = 1;            // that stay in L2

  std::int64_t filter() const { return problem.c * problem.r * problem.s; }
  std::int64_t panel_floats() const { return images * rows * problem.q * 3 * tile_shape().lanes; }
  std::int64_t column_floats() const {  // to be built
    return in_place ? 0 : ceil_div(filter(), 3 * tile_shape().lanes) * panel_floats();
  }
};
struct ColumnsChunk {
  Range images, rows;
};

// One thread's part of the columns, and of dw.
void fill_columns(const BlockedColumns&, const ColumnsChunk&, const float* x, float* columns,
                  std::int64_t thread, std::int64_t threads);
void multiply_columns(const BlockedColumns&, const ColumnsChunk&, const float* columns,
                      const float* dy, float* dw, std::int64_t thread, std::int64_t threads);

}  // namespace convlab::cpu
