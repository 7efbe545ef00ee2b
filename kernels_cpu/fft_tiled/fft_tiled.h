// The tilings that fft_tiled.cpp offers and plan.cpp runs. Internal.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <string_view>

#include "conv/algo.h"
#include "kernels_cpu/fft_tiled/tiles.h"

namespace convlab::cpu {

// A pass as a correlation of tiles of `from` (x, or dy in backward_data) whose windows start at
// (i * step - pad) for outputs from i * step on.
struct FftTiling {
  TensorDesc from, to;  // to: what the windows are counted over (y, or dx in backward_data)
  std::int64_t block;   // channels in a block
  std::int64_t lanes;   // of a block of `from` whose spectra are kept; not all if channels are few
  bool few_outputs;     // in a pass whose sums run over channels: FewProduct
  std::int64_t pad_h, pad_w, step_h, step_w;
  std::int64_t across, per_image, tiles;

  FftTiling(const ConvProblem& p, std::int64_t tile) {
    const bool flipped = p.pass == Pass::backward_data;
    from = flipped ? p.y_desc() : p.x_desc();
    to = flipped ? p.x_desc() : p.y_desc();
    block = channel_block(p.x_layout);
    lanes = std::min(block, std::int64_t(std::bit_ceil(std::uint64_t(from.c))));
    few_outputs = p.pass != Pass::backward_filter && lanes == block && to.c <= FewProduct::most;
    pad_h = flipped ? p.r - 1 - p.pad_h : p.pad_h;
    pad_w = flipped ? p.s - 1 - p.pad_w : p.pad_w;
    step_h = step(tile, p.r, pad_h, from.h, to.h);
    step_w = step(tile, p.s, pad_w, from.w, to.w);
    across = ceil_div(to.w, step_w);
    per_image = ceil_div(to.h, step_h) * across;
    tiles = p.n * per_image;
  }

  // Outputs of a tile along one side: all of them if each that wraps around reads zeros on both
  // sides of the seam.
  static std::int64_t step(std::int64_t tile, std::int64_t taps, std::int64_t pad,
                           std::int64_t from, std::int64_t to) {
    const bool whole = std::max({to, from + pad, to + taps - 1 - pad}) <= tile;
    return whole ? to : tile - taps + 1;
  }

  // Lanes of `from` whose spectra are kept.
  std::int64_t kept_channels() const { return ceil_div(from.c, block) * lanes; }

  // Spectra of filters. Each has `block` lanes, which are inputs if outputs are few, else outputs.
  std::int64_t filters() const {
    return few_outputs ? to.c * ceil_div(from.c, block) : ceil_div(to.c, block) * from.c;
  }

  struct Place {
    std::int64_t n, h, w;  // image and first output
  };
  Place place(std::int64_t tile) const {
    const std::int64_t inside = tile % per_image;
    return {tile / per_image, inside / across * step_h, inside % across * step_w};
  }
};

// Channels of x whose sums with one block of dy's, item_bytes each, take two thirds of L2: whole
// blocks of them or an even part of one.
inline std::int64_t summed_channels(const ConvProblem& p, std::int64_t item_bytes,
                                    std::int64_t l2) {
  std::int64_t channels = 1;
  while (channels < p.c && 2 * channels * item_bytes <= l2 * 2 / 3) channels *= 2;
  return std::min(channels, p.c);
}

// Whether the spectra of a block of tiles belong to one thread or to all (plan.cpp).
enum class SpectraOf : std::uint8_t { one_thread, all_threads };
inline constexpr std::array<std::string_view, 2> spectra_names{"private", "shared"};

inline SpectraOf spectra_of(const Config& config) {
  return config.choice<SpectraOf>("spectra", spectra_names);
}

// FLOPs of the codelets that transform a tile of one channel, of so many pixels a side.
double fft_tile_flops(double side);

// The config is one of the algorithm's, or has passed its checks.
std::unique_ptr<ConvPlan> make_fft_tiled_plan(const ConvProblem&, const Config&, Device&);

}  // namespace convlab::cpu
