// The shape of the register tile, for planning. Internal.
#pragma once

#include <cstdint>

#include "conv/types/layout.h"

namespace convlab::cpu {

// The microkernel of the instruction set in force, for f32 or f64. The channel block is the same
// for both: one vector of f32, two of f64.
struct TileShape {
  std::int64_t lanes;  // of a vector
  std::int64_t block;  // channels in a channel block
  std::int64_t rows, cols;
  // Columns that a panel really has; the last one may need a single vector.
  std::int64_t panel_cols(std::int64_t channels) const {
    return lanes == block && channels <= lanes ? lanes : cols;
  }
};
TileShape tile_shape(DType = DType::f32);

}  // namespace convlab::cpu
