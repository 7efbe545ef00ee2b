// Fourier transforms of the tiles of an image, one spectrum for each tile and channel.
#pragma once

#include "conv/device.h"
#include "conv/layout.h"

namespace convlab::cuda {

// Half of a real n x n tile's spectrum determines the rest: columns 1 .. n/2 - 1 whole, and of
// columns 0 and n/2, which are transforms of real columns, rows 0 .. n/2.
constexpr std::int64_t tile_points(std::int64_t n) { return n * n / 2 + 2; }

// Rows x cols pixels of every tile of a tensor: tile t of `per_image` = down * across starts at
// pixel (t / across * step_h + start_h, ...), and they lie in the tile from (inset_h, inset_w) on.
struct Tiles {
  TensorDesc desc;
  std::int64_t across = 1, per_image = 1;
  std::int64_t step_h = 0, step_w = 0, start_h = 0, start_w = 0;
  std::int64_t inset_h = 0, inset_w = 0, rows = 0, cols = 0;
};

// How the spectra of `items` = tiles x channels lie in memory, which follows from how their product
// is formed. With 4 real multiplications, as complex numbers [point][item]. With 3, as three real
// numbers [which][point][item] such that
//   (a + ib)(c + id) = P1 - P2 + i (P3 - P1 - P2),  P1 = a c, P2 = b d, P3 = (a + b)(c + d):
// re, im and re + im of factors; P1, P2 and P3 of products. Split factors are all of that twice:
// every number rounded to TF32, and then what the rounding left, rounded again.
struct Spectra {
  std::int64_t tile;          // its side: 16 or 32
  std::int64_t multiplies;    // 3 or 4
  std::int64_t first, tiles;  // which of the tiles
  bool split;
  float* data;
};
// Of one item, split or not.
constexpr std::int64_t spectrum_floats(std::int64_t tile, std::int64_t multiplies) {
  return tile_points(tile) * (multiplies == 3 ? 3 : 2);
}

// Every spectrum is twice the transform, or with `conjugate` twice its conjugate. Pixels outside of
// the tensor, and of a tile outside of rows x cols, are zero.
void transform_tiles(const Tiles&, const float* data, bool conjugate, const Spectra&, Stream&);

// Writes the tiles' rows x cols pixels that lie in the tensor, as scale times the inverse transform
// (which is not normalised: it gives tile * tile times the pixels) + bias[channel] + residual.
struct TileOutput {
  float* out;
  float scale;
  const float* bias = nullptr;
  const float* residual = nullptr;
  bool relu = false, accumulate = false;
};
void invert_tiles(const Spectra&, const Tiles&, const TileOutput&, Stream&);

}  // namespace convlab::cuda
