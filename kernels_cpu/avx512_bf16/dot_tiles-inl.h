// Tiles of sums by dot products of bf16, as a policy of kernels beside AmxTiles and EmulatedTiles.
// Dots (VectorDots, EmulatedDots) says how. Operands lie as they do for matrix tiles.
//
// Sums of 16 rows x 32 columns exceed the registers, so a product covers a part of the rows. Some
// steps of depth are multiplied at a time, so that their B stays in L1 for all rows.
//
// Included once by each of the files that compile it, with its instruction set in force.
#pragma once

#include <hwy/base.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels_cpu/amx/terms.h"

namespace convlab::cpu {

template <class Dots>
class DotTiles {
 public:
  template <int kTile>
  HWY_INLINE void zero() {
    std::memset(sums_[kTile], 0, sizeof sums_[kTile]);
  }
  template <int kTile>
  HWY_INLINE void store(void* to, std::ptrdiff_t row_bytes) const {
    for (int row = 0; row < tile_rows; ++row)
      std::memcpy(static_cast<std::byte*>(to) + row * row_bytes, sums_[kTile] + row * tile_rows,
                  64);
  }
  // Tiles 0 to 3 += A B, as MultiplyStep numbers them.
  template <int kRowTiles, int kColTiles>
  HWY_INLINE void multiply_add(const std::byte* a, std::ptrdiff_t a_tile, const std::byte* b,
                               std::int64_t steps) {
    constexpr int kRows = int(tile_rows) / kColTiles;
    for (int tile = 0; tile < kRowTiles; ++tile)
      for (int row = 0; row < tile_rows; row += kRows)
        Dots::template multiply_add<kRows, kColTiles>(a + tile * a_tile + row * 64, b, steps,
                                                      sums_[2 * tile] + row * tile_rows);
  }

 private:
  alignas(64) float sums_[4][tile_rows * tile_rows];
};

// As for matrix tiles (products-inl.h).
template <int kTerms, int kRowTiles, int kColTiles, class Dots, class Steps>
HWY_INLINE void MultiplySteps(DotTiles<Dots>& tiles, const std::byte* a, std::ptrdiff_t a_tile,
                              const std::byte* b, std::int64_t steps, Steps& ready) {
  static_assert(kTerms == 1);
  constexpr std::int64_t kAtOnce = 4;
  for (std::int64_t first = 0; first < steps; first += kAtOnce) {
    const std::int64_t count = std::min(kAtOnce, steps - first);
    for (std::int64_t i = 0; i < count; ++i) ready.Step(first + i);
    tiles.template multiply_add<kRowTiles, kColTiles>(a + first * tile_bytes, a_tile,
                                                      b + first * kColTiles * tile_bytes, count);
  }
}

}  // namespace convlab::cpu
