// Products of which one factor is packed into panels: C = A B or C += A B. Internal.
//
// B may be packed once and used again and again, as a recurrent layer's weights at each step. Its
// columns may be in several parts of one width (an LSTM's four gates), each of which has panels of
// its own, so that a thread takes the same columns of all parts.
//
// Depth comes in chunks. Each element of C is summed over a chunk in the order of depth, and then
// over chunks: results do not depend on threads, panels or tiles.
#pragma once

#include <algorithm>
#include <cstdint>

#include "conv/types/layout.h"
#include "kernels_cpu/device/range.h"

namespace convlab::cpu {

// Bytes of a row in a chunk of depth, with which the rows of A of a tile stay in L1; rows of A in a
// block, which stays in L2 while all panels pass.
inline constexpr std::int64_t panel_chunk_bytes = 3072, panel_block_rows = 168;

struct PanelShape {
  DType dtype = DType::f32;
  std::int64_t depth = 0, columns = 0, parts = 1;  // columns of each part
  std::int64_t vectors = 2;                        // of a panel: 2, 4 or 8
  std::int64_t panel_columns = 0;
  std::int64_t least_chunks = 1;

  std::int64_t chunks() const {
    return std::min(depth,
                    std::max(least_chunks, ceil_div(depth * size_of(dtype), panel_chunk_bytes)));
  }
  Range depths_of(std::int64_t chunk) const { return share(depth, chunk, chunks()); }
  std::int64_t panels() const { return ceil_div(columns, panel_columns); }  // of each part
  std::int64_t elements() const { return parts * panels() * depth * panel_columns; }
  std::int64_t bytes() const { return elements() * size_of(dtype); }
  // The columns of these panels.
  Range columns_of(Range panels) const;
};

// Panels for products with so many rows of A, whose panels so many threads share. Few rows take
// wide panels: a tile needs some eight accumulators to hide the latency of its multiply-adds.
// `widest` limits the vectors.
PanelShape panel_shape(DType, std::int64_t rows, std::int64_t depth, std::int64_t columns,
                       std::int64_t parts, std::int64_t threads, std::int64_t widest = 8);

// B(d, part, column), from an element on with these distances.
struct PanelSource {
  const void* data = nullptr;
  std::int64_t depth_step = 1, column_step = 1, part_step = 0;
};
// Packs these panels of each part, at these depths; the source begins at the first of them.
void pack_panels(const PanelShape&, const PanelSource&, Range panels, Range depths, void* to);

struct PanelProduct {
  const void* a = nullptr;  // A(row, d) at row * row_step + d * depth_step, of which one is 1
  std::int64_t row_step = 0, depth_step = 1;
  const void* b = nullptr;  // all that was packed
  void* c = nullptr;        // C(row, part, column) at row * c_step + part * part_step + column
  std::int64_t c_step = 0, part_step = 0;
  bool add = false;
  // Is read after this product, and prefetched into L2 meanwhile.
  const void* after = nullptr;
  std::int64_t after_bytes = 0;
  // If depth_step is not 1: copied_a_bytes for the calling thread. Blocks of A are copied there
  // before they are used: steps of a large power of two would evict each other from L1.
  void* copied_a = nullptr;
};
inline std::int64_t copied_a_bytes(const PanelShape& shape) {
  return ceil_div(shape.depth, shape.chunks()) * panel_block_rows * size_of(shape.dtype);
}

// These rows and panels of each part, over all chunks of depth or over some.
void multiply_panels(const PanelShape&, const PanelProduct&, Range rows, Range panels);
void multiply_panels(const PanelShape&, const PanelProduct&, Range rows, Range panels,
                     Range chunks);

// A thread's share of a product: of the panels, or of the rows where there are more threads than
// panels.
void multiply_share(const PanelShape&, const PanelProduct&, std::int64_t rows, std::int64_t thread,
                    std::int64_t threads);

}  // namespace convlab::cpu
