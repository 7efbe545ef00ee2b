// Rules shared by algorithms that transform an image tile by tile (overlap-save).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "conv/algo.h"

namespace convlab {

// The longest side of a filter that leaves at least half of a tile's side as output.
constexpr std::int64_t largest_filter(std::int64_t tile) { return tile / 2 + 1; }

// Refuses what tiles up to this side cannot do: types other than f32, strides, dilation, groups,
// long filters.
std::optional<Refusal> refuse_tiled_fft(const ConvProblem&, std::int64_t largest_tile);

// Throws InputError unless the tile's side is one of these, which ascend, and takes the problem's
// filter.
void check_fft_tile(const ConvProblem&, std::int64_t tile, std::span<const std::int64_t> sides);

// FLOPs of one complex transform of length n, a power of two or five times one: butterflies with a
// twiddle are six fused multiply-adds, the others four additions.
double transform_flops(double n);

}  // namespace convlab
