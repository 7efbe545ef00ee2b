// Winograd's product by bf16 products of matrix tiles (kernels_cpu/amx/terms.h). Internal.
//
// The transforms are f32's. The input transform splits V into bf16 terms as it stores it, and the
// packed filter is split in the transform domain. So each value is split once, and V takes as many
// bytes as in f32 (half as many again with three terms). M is f32, and the output transform is
// f32's too. Results that are rounded to bf16 may do with a single term (math=bf16, tile=2): it
// errs by 4.4e-3 where that rounding makes 1.7e-3.
//
// A step of depth is 32 channels. Channels i and i + 16 are neighbours in it: two vectors of
// channels then become one of pairs without a permutation.
//   V [point][step][term][tile][32 channels]
//   U [point][panel][step][term][tile of columns][16 pairs of channels][16 columns][2]
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels_cpu/winograd/winograd.h"

namespace convlab::cpu {

// The product at a point for a panel.
struct SplitProduct {
  const float *v, *u, *next_u;  // from the point's first step on; next_u is prefetched
  float* m;                     // [tile][column]
  std::int64_t columns;
};

// What products of a block have in common.
struct SplitProducts {
  MathType math;
  std::int64_t tiles, steps;
  std::ptrdiff_t term_bytes;  // of V, from term to term
};

void multiply_split_amx(const SplitProducts&, const SplitProduct* items, std::int64_t count);
void multiply_split_emulated(const SplitProducts&, const SplitProduct* items, std::int64_t count);

}  // namespace convlab::cpu
