// The products of terms of one step of depth, for a policy of tiles. See terms.h.
//
// Included once by each of the files that compile it, with its instruction set in force.
#pragma once

#include <hwy/base.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "kernels_cpu/amx/terms.h"

namespace convlab::cpu {

// The products of one step, in this order: each changes one operand, so that most tiles are loaded
// once. The smallest come first.
struct TermPair {
  int a, b;
};
template <int kTerms>
constexpr TermPair kProducts[] = {{1, 0}, {0, 0}, {0, 1}};
template <>
inline constexpr TermPair kProducts<1>[] = {{0, 0}};
template <>
inline constexpr TermPair kProducts<3>[] = {{2, 0}, {0, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 2}};

// The registers: sums 0 to 3, two tiles of A, two tiles of B.
constexpr int kTileA = 4, kTileB = 6;

// The tiles of rows of A lie a_tile bytes apart, its terms a_term bytes. B is [term][tile of
// columns]. A row of A takes 64 bytes.
template <class Tiles, int kTerms, int kRowTiles, int kColTiles, int kProduct = 0>
HWY_INLINE void MultiplyStep(Tiles& tiles, const std::byte* a, std::ptrdiff_t a_tile,
                             std::ptrdiff_t a_term, const std::byte* b) {
  constexpr TermPair now = kProducts<kTerms>[kProduct];
  constexpr TermPair before =
      kProduct == 0 ? TermPair{-1, -1} : kProducts<kTerms>[std::max(kProduct, 1) - 1];
  const std::byte* const from_a = a + now.a * a_term;
  const std::byte* const from_b = b + now.b * kColTiles * tile_bytes;
  if constexpr (now.b != before.b) tiles.template load<kTileB>(from_b, 64);
  if constexpr (now.a != before.a) tiles.template load<kTileA>(from_a, 64);
  tiles.template multiply_add<0, kTileA, kTileB>();
  if constexpr (kColTiles == 2) {
    if constexpr (now.b != before.b) tiles.template load<kTileB + 1>(from_b + tile_bytes, 64);
    tiles.template multiply_add<1, kTileA, kTileB + 1>();
  }
  if constexpr (kRowTiles == 2) {
    if constexpr (now.a != before.a) tiles.template load<kTileA + 1>(from_a + a_tile, 64);
    tiles.template multiply_add<2, kTileA + 1, kTileB>();
    if constexpr (kColTiles == 2) tiles.template multiply_add<3, kTileA + 1, kTileB + 1>();
  }
  if constexpr (kProduct + 1 < int(std::size(kProducts<kTerms>)))
    MultiplyStep<Tiles, kTerms, kRowTiles, kColTiles, kProduct + 1>(tiles, a, a_tile, a_term, b);
}

// Tiles 0 to 3 += A B over `steps` of depth. Before the products of a step ready.Step(step) is
// called, once and in order. Here that is while the unit multiplies the step before.
template <int kTerms, int kRowTiles, int kColTiles, class Tiles, class Steps>
HWY_INLINE void MultiplySteps(Tiles& tiles, const std::byte* a, std::ptrdiff_t a_tile,
                              const std::byte* b, std::int64_t steps, Steps& ready) {
  constexpr std::ptrdiff_t kStepA = kTerms * tile_bytes, kStepB = kStepA * kColTiles;
  if (steps > 0) ready.Step(0);
  for (std::int64_t step = 0; step < steps; ++step, a += kStepA, b += kStepB) {
    if (step + 1 < steps) ready.Step(step + 1);
    MultiplyStep<Tiles, kTerms, kRowTiles, kColTiles>(tiles, a, a_tile, tile_bytes, b);
  }
}

}  // namespace convlab::cpu
