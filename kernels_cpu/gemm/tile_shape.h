// The register tile as planning sees it. Internal.
#pragma once

#include <cstdint>

namespace convlab::cpu {

// The microkernel of the instruction set in force.
struct TileShape {
  std::int64_t lanes;  // of a vector
  std::int64_t block;  // channels in a channel block
  std::int64_t rows, cols;
  // Columns that a panel really has; the last one may need a single vector.
  std::int64_t panel_cols(std::int64_t channels) const {
    return lanes == block && channels <= lanes ? lanes : cols;
  }
};
TileShape tile_shape();

}  // namespace convlab::cpu
