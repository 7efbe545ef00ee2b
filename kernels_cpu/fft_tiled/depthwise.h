// The products of depthwise.cpp, and its tiles beyond those of fft_tiled. Internal.
#pragma once

#include <array>
#include <cstdint>

#include "kernels_cpu/fft_tiled/tiles.h"

namespace convlab::cpu {

// Spectra of one channel block, [point][re, im][lane].
// product = x conj(w); `product` may be x.
void depthwise_product(const float* x, const float* w, std::int64_t points, float* product);
// sums += x conj(dy)
void depthwise_add_product(const float* x, const float* dy, std::int64_t points, float* sums);

// Sides of tiles that hold the images of nets with large filters: 28 x 28 pixels need 42 with a
// filter of 29, 56 x 56 need 71 with one of 31.
inline constexpr std::array<std::int64_t, 3> large_fft_tile_sides{48, 64, 80};

// They transform only, and have no products.
const TileKernels& large_fft_tile_kernels(std::int64_t tile);
double large_fft_tile_flops(double side);

}  // namespace convlab::cpu
