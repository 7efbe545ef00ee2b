// The rows of a PixelGemm's product: where their pixels lie, and which thread has which. Internal.
#pragma once

#include <hwy/base.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels_cpu/device/range.h"
#include "kernels_cpu/implicit_gemm/implicit_gemm.h"

namespace convlab::cpu {

// The properties of each row of the current block, one array a field, padded to whole vectors.
struct RowTable {
  std::int64_t* image;  // where the pixel's image starts in the input
  std::int64_t* out;    // where the pixel's first channel lies in the output
  std::int32_t* h;      // input position of a tap at (0, 0), and the same as h * W + w
  std::int32_t* w;
  std::int32_t* pixel;
};

// Inlined into the kernels, it is compiled for their instruction set.
HWY_INLINE void fill_rows(const PixelGemm& gemm, const PixelGrid& grid, std::int64_t first,
                          std::int64_t count, const RowTable& rows) {
  const std::int64_t out_block = channel_block(gemm.out.layout);
  const std::int64_t in_image = gemm.in.image_step(), out_image = gemm.out.image_step();
  const std::int64_t out_step = gemm.out_step_w * out_block;
  std::int64_t w = first % grid.w, h = first / grid.w % grid.h, n = first / (grid.w * grid.h);
  for (std::int64_t begin = 0; begin < count;) {  // a line of the grid at a time
    const std::int64_t end = std::min(count, begin + grid.w - w);
    const std::int64_t out_h = grid.first_h + h * gemm.out_step_h;
    const std::int64_t out_w = grid.first_w + w * gemm.out_step_w;
    const std::int64_t image = n * in_image;
    const std::int64_t out = n * out_image + (out_h * gemm.out.w + out_w) * out_block;
    const std::int32_t in_h = static_cast<std::int32_t>(h) * gemm.in_step_h;
    const std::int32_t in_w = static_cast<std::int32_t>(w) * gemm.in_step_w;
    const std::int32_t pixel = in_h * static_cast<std::int32_t>(gemm.in.w) + in_w;
    const std::int32_t in_step = gemm.in_step_w;
    std::int64_t* HWY_RESTRICT const images = rows.image + begin;
    std::int64_t* HWY_RESTRICT const outs = rows.out + begin;
    std::int32_t* HWY_RESTRICT const hs = rows.h + begin;
    std::int32_t* HWY_RESTRICT const ws = rows.w + begin;
    std::int32_t* HWY_RESTRICT const pixels = rows.pixel + begin;
    const auto line = static_cast<std::int32_t>(end - begin);
    for (std::int32_t i = 0; i < line; ++i) {
      images[i] = image;
      outs[i] = out + i * out_step;
      hs[i] = in_h;
      ws[i] = in_w + i * in_step;
      pixels[i] = pixel + i * in_step;
    }
    begin = end;
    w = 0;
    if (++h == grid.h) h = 0, ++n;
  }
}

// A rectangle of tiles: panels x units of rows.
struct TileRange {
  Range panels, units;
};

// Threads share rows in whole tiles, so that only the last tile is partial, or in whole output
// rows.
inline std::int64_t row_unit(const PixelGemm& gemm, const PixelGrid& grid) {
  return gemm.whole_lines() ? grid.w : gemm.tile.rows;
}

// A thread's tiles of a grid. Threads that share rows take their tiles panel by panel, each equally
// many: the last rows of one panel, whole panels, and the first rows of another.
inline std::array<TileRange, 3> own_tiles(const PixelGemm& gemm, const PixelGrid& grid,
                                          std::int64_t thread) {
  const std::int64_t rows = ceil_div(gemm.out.n * grid.h * grid.w, row_unit(gemm, grid));
  const Range units = share(rows, thread / gemm.panel_threads, gemm.row_threads);
  const std::int64_t each = units.size();
  if (each == 0) return {};
  const Range own = share(ceil_div(gemm.out.c, gemm.tile.cols) * each, thread % gemm.panel_threads,
                          gemm.panel_threads);
  const std::int64_t first = ceil_div(own.begin, each), last = own.end / each;
  const auto of_panel = [&](std::int64_t panel, std::int64_t begin, std::int64_t end) {
    const std::int64_t at = units.begin - panel * each;
    return TileRange{{panel, panel + 1}, {at + begin, at + end}};
  };
  if (first > last) return {of_panel(last, own.begin, own.end)};
  return {of_panel(first - 1, own.begin, first * each), TileRange{{first, last}, units},
          of_panel(last, last * each, own.end)};
}

// f(grid, rows, panels) for each block of rows that a thread has, and the panels that it has there.
template <class F>
void for_each_block(const PixelGemm& gemm, std::int64_t thread, const F& f) {
  for (std::size_t piece = 0; piece < 3; ++piece) {
    const auto own = [&](const PixelGrid& grid) { return own_tiles(gemm, grid, thread)[piece]; };
    // Grids take turns block by block: they read the same input and write neighbouring pixels.
    std::int64_t blocks = 0;
    for (const PixelGrid& grid : gemm.grids)
      blocks = std::max(blocks,
                        ceil_div(own(grid).units.size() * row_unit(gemm, grid), gemm.block_rows));
    for (std::int64_t block = 0; block < blocks; ++block)
      for (const PixelGrid& grid : gemm.grids) {
        const TileRange tiles = own(grid);
        const std::int64_t unit = row_unit(gemm, grid);
        const Range part = share(tiles.units.size(), block, blocks);
        const std::int64_t end =
            std::min(gemm.out.n * grid.h * grid.w, (tiles.units.begin + part.end) * unit);
        f(grid, Range{(tiles.units.begin + part.begin) * unit, end}, tiles.panels);
      }
  }
}

}  // namespace convlab::cpu
