// The products of split.h, for a policy of tiles (AmxTiles, EmulatedTiles).
//
// Included once by each of the files that compile it, with its instruction set in force.
#pragma once

#include <hwy/base.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels_cpu/amx/products-inl.h"
#include "kernels_cpu/winograd/split.h"

namespace convlab::cpu {

template <class Tiles, int kTerms>
class SplitMultiplier {
 public:
  explicit SplitMultiplier(const SplitProducts& all) : all_(all) {}

  void Run(const SplitProduct& item) {
    item.columns > tile_rows ? RunColumns<2>(item) : RunColumns<1>(item);
  }

 private:
  // The last tile of rows begins earlier rather than end beyond the block: some rows are multiplied
  // twice, and M has just the block's rows. Only where these are fewer than a tile's does the tile
  // read on, and the sums go through `sums_`.
  std::int64_t FirstRow(std::int64_t row_tile) const {
    return std::max<std::int64_t>(std::min(row_tile * tile_rows, all_.tiles - tile_rows), 0);
  }

  template <int kColTiles>
  void RunColumns(const SplitProduct& item) {
    const std::int64_t row_tiles = ceil_div(all_.tiles, tile_rows);
    const std::int64_t lines = all_.steps * kTerms * kColTiles * tile_bytes / 64;
    const std::int64_t rounds = ceil_div(row_tiles, 2) * all_.steps;
    prefetch_ = reinterpret_cast<const std::byte*>(item.next_u);
    prefetch_lines_ = ceil_div(lines, rounds);
    for (std::int64_t i = 0; i < row_tiles; i += 2)
      i + 1 < row_tiles ? RunTiles<2, kColTiles>(item, FirstRow(i), FirstRow(i + 1))
                        : RunTiles<1, kColTiles>(item, FirstRow(i), 0);
  }

  template <int kRowTiles, int kColTiles>
  HWY_INLINE void RunTiles(const SplitProduct& item, std::int64_t first, std::int64_t second) {
    tiles_.template zero<0>();
    if constexpr (kColTiles == 2) tiles_.template zero<1>();
    if constexpr (kRowTiles == 2) tiles_.template zero<2>();
    if constexpr (kRowTiles * kColTiles == 4) tiles_.template zero<3>();
    const std::byte* a = reinterpret_cast<const std::byte*>(item.v) + first * 64;
    const std::byte* b = reinterpret_cast<const std::byte*>(item.u);
    for (std::int64_t step = 0; step < all_.steps; ++step) {
      for (std::int64_t i = 0; i < prefetch_lines_; ++i, prefetch_ += 64)
        __builtin_prefetch(prefetch_, 0, 2);
      MultiplyStep<Tiles, kTerms, kRowTiles, kColTiles>(tiles_, a, (second - first) * 64,
                                                        all_.term_bytes, b);
      a += kTerms * all_.term_bytes;
      b += kTerms * kColTiles * tile_bytes;
    }
    Put<0>(item, first, 0);
    if constexpr (kColTiles == 2) Put<1>(item, first, tile_rows);
    if constexpr (kRowTiles == 2) Put<2>(item, second, 0);
    if constexpr (kRowTiles * kColTiles == 4) Put<3>(item, second, tile_rows);
  }

  template <int kTile>
  HWY_INLINE void Put(const SplitProduct& item, std::int64_t row, std::int64_t column) {
    float* const to = item.m + row * item.columns + column;
    const std::int64_t rows = std::min(tile_rows, all_.tiles - row);
    const std::int64_t columns = std::min(tile_rows, item.columns - column);
    if (rows == tile_rows && columns == tile_rows) {
      tiles_.template store<kTile>(to, item.columns * std::int64_t{sizeof(float)});
      return;
    }
    tiles_.template store<kTile>(sums_, 64);
    for (std::int64_t i = 0; i < rows; ++i)
      std::copy_n(sums_ + i * tile_rows, columns, to + i * item.columns);
  }

  const SplitProducts& all_;
  Tiles tiles_;
  const std::byte* prefetch_ = nullptr;
  std::int64_t prefetch_lines_ = 0;  // a step
  alignas(64) float sums_[tile_rows * tile_rows];
};

template <class Tiles>
void MultiplySplitBy(const SplitProducts& all, const SplitProduct* items, std::int64_t count) {
  const auto run = [&](auto terms) {
    SplitMultiplier<Tiles, terms()> multiplier(all);
    for (std::int64_t i = 0; i < count; ++i) multiplier.Run(items[i]);
  };
  if (all.math == MathType::bf16)
    run(std::integral_constant<int, 1>());
  else if (all.math == MathType::bf16x3)
    run(std::integral_constant<int, 2>());
  else
    run(std::integral_constant<int, 3>());
}

}  // namespace convlab::cpu
