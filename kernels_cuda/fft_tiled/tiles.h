// Fourier transforms of the tiles of an image, one spectrum for each tile and channel. For files
// with kernels.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "conv/device.h"
#include "conv/types/layout.h"
#include "kernels_cuda/epilogue.h"

namespace convlab::cuda {

// The points of a real n x n tile's spectrum that determine the others: columns 1 .. n/2 - 1, and
// rows 0 .. n/2 of columns 0 and n/2, which are transforms of real columns.
constexpr std::int64_t tile_points(std::int64_t n) { return n * n / 2 + 2; }

// rows x cols pixels of every tile of a tensor. Those of tile t of `per_image` = down * across
// start at pixel (t / across * step_h + start_h, ...) of the tensor and at (inset_h, inset_w) of
// the tile.
struct Tiles {
  TensorDesc desc;
  std::int64_t across = 1, per_image = 1;
  std::int64_t step_h = 0, step_w = 0, start_h = 0, start_w = 0;
  std::int64_t inset_h = 0, inset_w = 0, rows = 0, cols = 0;
};

// The product of two complex numbers: `complex` takes four real multiplications, `gauss` three:
//   (a + ib)(c + id) = P1 - P2 + i (P3 - P1 - P2),  P1 = a c, P2 = b d, P3 = (a + b)(c + d).
enum class ComplexProduct : std::uint8_t { gauss, complex };
inline constexpr std::array<std::string_view, 2> complex_product_names{"gauss", "complex"};

// The spectra of `items` = tiles x channels, in the layout that their product needs. `complex`:
// complex numbers [point][item]. `gauss`: three real numbers [which][point][item], which are re, im
// and re + im of factors, P1, P2 and P3 of products. Factors in TF32 pairs are all of that twice:
// every number rounded to TF32, then every remainder, rounded too.
struct Spectra {
  std::int64_t tile;  // its side: 16 or 32
  ComplexProduct product;
  std::int64_t first, tiles;  // the range of tiles
  bool tf32_pairs;
  float* data;
};
// Shared memory of a block.
std::int64_t tile_shared_bytes(std::int64_t tile);
// Floats of one item, or of one half of its pairs.
constexpr std::int64_t spectrum_floats(std::int64_t tile, ComplexProduct product) {
  return tile_points(tile) * (product == ComplexProduct::gauss ? 3 : 2);
}

// Every spectrum is twice the transform, or with `conjugate` twice its conjugate. Pixels outside of
// the tensor, and those of a tile outside of rows x cols, are zero.
void transform_tiles(const Tiles&, const float* data, bool conjugate, const Spectra&, Stream&);

// Writes the tiles' rows x cols pixels that lie in the tensor: `scale` times the inverse transform,
// which is not normalised (it gives tile * tile times the pixels), through the epilogue.
void invert_tiles(const Spectra&, const Tiles&, float scale, const OutputEpilogue<float>&, Stream&);

}  // namespace convlab::cuda
