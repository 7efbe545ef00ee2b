// The blocks of strassen.cpp, and the loops that run them. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "conv/algo.h"
#include "kernels_cpu/device/range.h"
#include "kernels_cpu/epilogue.h"
#include "kernels_cpu/implicit_gemm/implicit_gemm.h"

namespace convlab::cpu {

// A pixel of the upper half, of the first images or of the first lines of each, has its partner in
// the lower one at a constant distance.
struct PixelPairs {
  std::int64_t images = 0, pixels = 0;              // of the upper half: `pixels` of each image
  std::int64_t apart_images = 0, apart_pixels = 0;  // from there to the lower half

  std::int64_t count() const { return images * pixels; }
};

// C[pixel][channel] = A[pixel][depth] B of a 1x1 filter, cut in halves along all three.
struct StrassenGemm {
  TensorDesc in, out;  // blocked
  // For each pixel of dy or y in an image, in floats: where the product reads, and where it writes.
  std::vector<std::int64_t> in_at, out_at;
  PixelPairs pairs;
  std::int64_t half_groups = 0;  // channel blocks of half the depth
  std::int64_t half_panels = 0;  // tile_shape().cols channels each, of half the output
  std::int64_t chunk = 0;        // groups of half the depth at a time
  std::int64_t block = 0;        // pairs of pixels at a time
  std::int64_t threads = 1;
  // The distance between pixels of dx that the filter reaches, and whether those between become
  // zero.
  std::int64_t out_step_h = 1, out_step_w = 1;
  bool zeros_between = false;

  // From a pair's upper pixel, in floats: the other half of the channels, and the partner.
  std::int64_t in_right() const { return half_groups * in.h * in.w * channel_block(in.layout); }
  std::int64_t in_below() const {
    return pairs.apart_images * in.c * in.h * in.w + in_at[std::size_t(pairs.apart_pixels)];
  }
  std::int64_t out_below() const {
    return pairs.apart_images * out.c * out.h * out.w + out_at[std::size_t(pairs.apart_pixels)];
  }
  // Workspace of a thread: the operands that multiply B's, and where the block's pixels lie.
  std::size_t sum_floats() const;
  std::size_t thread_bytes() const;
  // Packed: [panel pair][product][group][channel in block][column].
  std::int64_t product_floats() const;
  std::size_t packed_floats() const { return std::size_t(half_panels * 7 * product_floats()); }
};

struct StrassenOperands {
  const float *in, *packed;
  OutputEpilogue<float> output;
  PhaseRecorder* phases;
};

// One thread's part.
void run_strassen(const StrassenGemm&, const StrassenOperands&, std::byte* workspace,
                  std::int64_t thread);

// dw = A B, where A is dy^T and B is x: halves of dy's channels, of x's, and of the pixels between
// them.
//
// dw's quadrants are cut into row_splits x col_splits rectangles, the blocks of pairs into `parts`.
// A unit is one part of a rectangle of each quadrant; the seven products of each part are kept and
// added at the end.
struct StrassenFilter {
  TensorDesc x, dy;                // blocked
  std::vector<std::int64_t> x_at;  // for each pixel of dy in an image: its pixel of x, in floats
  PixelPairs pairs;
  TileShape tile;
  std::int64_t half_groups = 0, half_panels = 0;  // channel blocks of dy, panels of x
  // Blocks end with the images, so that pixels are neighbours in dy, of stride 1 also in x, and
  // products may read the quadrants in place.
  bool in_place = false, x_in_place = false;
  std::int64_t block = 0;  // pairs at a time, at most
  std::int64_t row_splits = 1, col_splits = 1, parts = 1;
  std::int64_t threads = 1;
  bool accumulate = false;

  std::int64_t blocks() const {
    return in_place ? pairs.images * ceil_div(pairs.pixels, block) : ceil_div(pairs.count(), block);
  }
  Range pairs_of(std::int64_t index) const {
    if (!in_place) return share(pairs.count(), index, blocks());
    const std::int64_t of_image = ceil_div(pairs.pixels, block);
    const std::int64_t first = index / of_image * pairs.pixels;
    const Range own = share(pairs.pixels, index % of_image, of_image);
    return {first + own.begin, first + own.end};
  }
  std::int64_t rectangles() const { return row_splits * col_splits; }
  std::int64_t unit_groups() const { return ceil_div(half_groups, row_splits); }  // at most
  std::int64_t unit_panels() const { return ceil_div(half_panels, col_splits); }
  // Buffers, in floats; an odd number of lines between products spreads them over caches' sets.
  //   sums of A [product][channel block][pair][channel], of B [product][panel][pair][column]
  //   products  [product][panel][channel][column]
  std::int64_t a_step() const { return (unit_groups() * block | 1) * tile.block; }
  std::int64_t b_step() const { return (unit_panels() * block | 1) * tile.cols; }
  std::int64_t product_step() const {
    return (unit_panels() * unit_groups() * tile.block | 1) * tile.cols;
  }
  std::int64_t a_floats() const { return round_up(7 * a_step(), 16); }
  std::int64_t b_floats() const { return round_up(7 * b_step(), 16); }
  // The part of them that a block fills.
  std::int64_t sums_floats() const {
    return (in_place ? 4 : 7) * a_step() + (x_in_place ? 4 : 7) * b_step();
  }
  std::int64_t thread_floats() const { return a_floats() + b_floats() + round_up(4 * block, 16); }
  std::int64_t set_floats() const { return round_up(7 * product_step(), 16); }
  std::int64_t sets_floats() const { return rectangles() * parts * set_floats(); }
  std::int64_t workspace_floats() const { return sets_floats() + threads * thread_floats(); }
};

struct StrassenFilterOperands {
  const float *x, *dy;
  PhaseRecorder* phases;
};

// Sums the seven products of a unit, [rectangle][part].
void run_strassen_unit(const StrassenFilter&, const StrassenFilterOperands&, float* products,
                       float* workspace, std::int64_t unit);
// A share of a rectangle of each of dw's quadrants, of the products of its parts.
void put_strassen_together(const StrassenFilter&, const float* products, std::int64_t rectangle,
                           std::int64_t index, std::int64_t shares, float* dw);

}  // namespace convlab::cpu
