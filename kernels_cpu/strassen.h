// The blocks of strassen.cpp, and the loops that run them. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "conv/algo.h"

namespace convlab::cpu {

// C[pixel][channel] = A[pixel][depth] B of a 1x1 filter, cut in halves along all three. A pixel of
// the upper half, of the first images or of the first lines of each, has its partner in the lower
// one at a constant distance.
struct StrassenGemm {
  TensorDesc in, out;               // blocked
  std::vector<std::int64_t> in_at;  // of each output pixel of an image, in floats: what it reads
  std::int64_t images = 0, pixels = 0;            // of the upper half: `pixels` of each image
  std::int64_t pair_images = 0, pair_pixels = 0;  // from there to the lower half
  std::int64_t half_groups = 0;                   // channel blocks of half the depth
  std::int64_t half_panels = 0;  // tile_shape().cols channels each, of half the output
  std::int64_t chunk = 0;        // groups of half the depth at a time
  std::int64_t block = 0;        // pairs of pixels at a time
  std::int64_t threads = 1;
  Epilogue epilogue;
  bool accumulate = false;

  std::int64_t pairs() const { return images * pixels; }
  // From a pair's upper pixel, in floats: the other half of the channels, and the partner.
  std::int64_t in_right() const { return half_groups * in.h * in.w * channel_block(in.layout); }
  std::int64_t in_below() const {
    return pair_images * in.c * in.h * in.w + in_at[std::size_t(pair_pixels)];
  }
  // Workspace of a thread: what meets B, and where the block's pixels lie.
  std::size_t sum_floats() const;
  std::size_t thread_bytes() const;
  // Packed: [panel pair][product][group][channel in block][column].
  std::int64_t product_floats() const;
  std::size_t packed_floats() const { return std::size_t(half_panels * 7 * product_floats()); }
};

struct StrassenOperands {
  const float *in, *packed, *bias, *residual;
  float* out;
  PhaseRecorder* phases;
};

// One thread's part.
void run_strassen(const StrassenGemm&, const StrassenOperands&, std::byte* workspace,
                  std::int64_t thread);

}  // namespace convlab::cpu
