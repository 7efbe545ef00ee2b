// The SIMD code under fft_tiled: transforms of one tile, and the product at one point.
#pragma once

#include <array>
#include <cstdint>

#include "kernels_cpu/epilogue.h"

namespace convlab::cpu {

// The spectrum of one tile and channel block: [re, im][lane] of each point, point_stride floats
// apart.
template <class T>
struct TileSpectrum {
  T* data;
  std::int64_t point_stride;
};

// Part of an image plane of h x w pixels, each a channel block: rows x cols pixels from (y, x) on.
// The plane may be every so many rows and pixels of a larger one.
struct Window {
  std::int64_t h, w, y, x, rows, cols;
  std::int64_t row_step = w, pixel_step = 1;  // to the next one in memory, in pixels

  std::int64_t offset(std::int64_t row, std::int64_t pixel) const {  // in pixels
    return row * row_step + pixel * pixel_step;
  }
};

struct WindowIn {
  const float* plane;
  Window at;
};

// The product at each of some points: out[i][v] (+)= sum over l of a[i][l] conj(b[l][v]). a is
// broadcast; v is `blocks` whole channel blocks, where a number's im lies one channel block after
// its re. Strides in floats.
struct PointProduct {
  std::int64_t points, a_point, b_point, out_point;  // from point to point
  const float* a;  // depth in groups: a + i * a_row + (l / group) * a_group + l % group
  std::int64_t a_row, a_group, group;  // group divides 16
  std::int64_t a_im;                   // from re to im
  const float* b;                      // b + l * b_depth + (v / block) * b_block
  std::int64_t b_depth, b_block;
  float* out;
  std::int64_t out_row;  // from row to row; blocks lie side by side
  std::int64_t rows, depth, blocks;
  bool accumulate;
};

// The same for few v, whose vectors would be mostly empty: vectors run over l, in `blocks` whole
// channel blocks, and their lanes are summed at the end. a is [row][block][re, im][lane], b is
// [block][v][re, im][lane]. Lanes of out past v become zero.
struct FewProduct {
  static constexpr std::int64_t most = 4;  // of v
  std::int64_t points, a_point, b_point, out_point;
  const float* a;
  const float* b;
  float* out;
  std::int64_t a_row, out_row;
  std::int64_t rows, blocks, few;
};

// The code for one tile size on the instruction set in force.
struct TileKernels {
  // Spectrum of the window's pixels at the tile's top left, the rest zero; so are pixels of the
  // window outside the plane. Prefetches `next`, of which there may be none, while no pixels are
  // read.
  void (*forward)(const WindowIn&, const WindowIn* next, float* scratch, TileSpectrum<float>);
  // Writes the window, which lies in the plane, from the tile's top left, times tile * tile.
  // `plane` is the epilogue from the plane's first pixel on, with a channel block of biases.
  void (*inverse)(TileSpectrum<const float>, float* scratch, const OutputEpilogue<float>& plane,
                  const Window&);
  void (*product)(const PointProduct&);
  void (*few_product)(const FewProduct&);
  // Copies `count` floats, whole cache lines, by non-temporal stores; end with hwy::FlushStream().
  void (*copy_non_temporal)(const float* from, std::int64_t count, float* to);
  std::int64_t points;   // of a spectrum
  std::int64_t scratch;  // floats that forward and inverse need, a multiple of 16
};

// Sides of tiles. 40 covers in few tiles sizes that 32 just misses: with an 11x11 filter it gives
// 30 outputs a side, 32 gives 22.
inline constexpr std::array<std::int64_t, 3> fft_tile_sides{16, 32, 40};

const TileKernels& fft_tile_kernels(std::int64_t tile);  // one of fft_tile_sides

}  // namespace convlab::cpu
