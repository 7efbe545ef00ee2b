// Products by bf16 products of matrix tiles: their terms, their order and their tiles.
// Internal.
//
// An f32 value is the sum of two or three bf16 terms, each the rounded rest of those before:
// a = a1 + a2 (+ a3). Of the products of terms only those down to the wanted size are added:
//   bf16x3: a1 b1 + a1 b2 + a2 b1                      the others are below 2^-16 of a b
//   bf16x6: ... + a1 b3 + a2 b2 + a3 b1                below 2^-24
// (Henry, Tang & Heinecke 2019, arXiv:1904.06376). The sums are f32. An infinite value becomes NaN,
// and so does one that rounds to infinity: its rest is infinite.
#pragma once

#include <cstdint>

#include "conv/types/math_type.h"

namespace convlab::cpu {

// A tile of A has 16 rows x 32 steps of depth, one of B 16 pairs of depth x 16 columns x 2.
inline constexpr std::int64_t tile_rows = 16, tile_depth = 32, tile_bytes = 1024;

// bf16: one term, which operands that are stored in bf16 are themselves.
constexpr std::int64_t terms_of(MathType math) {
  return math == MathType::bf16 ? 1 : math == MathType::bf16x6 ? 3 : 2;
}
constexpr std::int64_t products_of(MathType math) {
  return math == MathType::bf16 ? 1 : math == MathType::bf16x6 ? 6 : 3;
}

}  // namespace convlab::cpu
