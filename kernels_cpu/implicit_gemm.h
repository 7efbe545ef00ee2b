// The two products that implicit_gemm.cpp plans, and the loops that run them. Internal.
//
// Forward and backward_data are the same product, C[pixel][channel] = A[pixel][depth] B, where a
// row is an output pixel and depth runs over (input channel, tap). A is never stored: a tile of its
// rows is gathered, a cache line (the channel block of one pixel) at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "conv/algo.h"
#include "kernels_cpu/pixel_grid.h"

namespace convlab::cpu {

struct PixelGemm {
  TensorDesc in, out;
  std::int32_t in_step_h = 1, in_step_w = 1;
  std::int64_t out_step_h = 1, out_step_w = 1;
  std::vector<PixelGrid> grids;
  Epilogue epilogue;
  bool accumulate = false;

  std::int64_t block_rows = 0;   // rows gathered at a time, so that they stay in L2
  std::int64_t chunk = 0;        // groups of depth at a time, so that a panel of B stays in L1
  std::int64_t row_threads = 1;  // threads = row_threads x panel_threads
  std::int64_t panel_threads = 1;
  std::size_t thread_bytes = 0;  // workspace of one thread

  std::int64_t depth_groups(const PixelGrid& g) const {
    return in.padded_c() / channel_block(in.layout) * std::int64_t(g.taps.size());
  }
};

// Floats in a gathered row of a plain NCHW input, and the deepest such product.
inline constexpr std::int64_t plain_pitch = 400;
inline constexpr std::int64_t plain_depth = plain_pitch - 16;

// What the instruction set in force works on.
struct TileShape {
  std::int64_t lanes, block, rows, cols;
  // Columns that a panel really has; the last one may need a single vector.
  std::int64_t panel_cols(std::int64_t channels) const {
    return lanes == block && channels <= lanes ? lanes : cols;
  }
};
TileShape tile_shape();

struct PixelOperands {
  const float *in, *packed, *bias, *residual;
  float* out;
};

// Bytes of workspace that one thread needs; reads all but the thread fields.
std::size_t thread_workspace(const PixelGemm&);
// One thread's part.
void run_thread(const PixelGemm&, const PixelOperands&, std::byte* workspace, std::int64_t thread,
                PhaseRecorder*);

}  // namespace convlab::cpu
