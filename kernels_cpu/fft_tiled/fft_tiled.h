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

// One dimension of a tiling, height or width, with dilation d.
//
// Output d i + a of forward and backward_filter reads x at d (i + r) + a - pad. Let
// a - pad = d f + b with 0 <= b < d: the outputs of phase a, which are d i + a, read only phase b
// of x, the pixels d j + b, from j = i + f on. In backward_data, output d i + a reads dy at d (i -
// r) + a + pad. With a + pad = d f + b that is phase b of dy, from j = i + f - (taps - 1) on if the
// filter is flipped. So each phase of the outputs is a dense correlation of one phase of the input,
// whatever the padding, and all of them have the same filter.
struct FftTilingSide {
  std::int64_t dilation, from, to;  // pixels of the whole input and output
  std::int64_t shift, lead;         // f = floor((a + shift) / d); windows start at i + f - lead
  std::int64_t step;                // outputs of a tile
  std::int64_t long_phases;         // the first of the outputs' phases; others are a pixel shorter
  std::int64_t tiles_of_long, tiles_of_short, tiles;

  FftTilingSide(std::int64_t tile, std::int64_t taps, std::int64_t tap_distance, std::int64_t pad,
                std::int64_t input, std::int64_t output, bool flipped)
      : dilation(taps > 1 ? tap_distance : 1),
        from(input),
        to(output),
        shift(flipped ? pad : -pad),
        lead(flipped ? taps - 1 : 0) {
    const std::int64_t phases = std::min(dilation, to);
    const std::int64_t longest = phase_size(to, 0);
    // Paddings of two phases differ by at most one, and the first and the last have both.
    const auto whole = [&](std::int64_t phase) {
      return holds_all(tile, taps, lead - floor_of(phase), phase_size(from, 0), longest);
    };
    step = whole(0) && whole(phases - 1) ? longest : tile - taps + 1;
    long_phases = to % dilation == 0 ? phases : to % dilation;
    tiles_of_long = ceil_div(longest, step);
    tiles_of_short = ceil_div(to / dilation, step);
    tiles = long_phases * tiles_of_long + (phases - long_phases) * tiles_of_short;
  }

  // Pixels of one phase, from the first pixel of a tile on, which may lie outside.
  struct Part {
    std::int64_t phase, size, first;
  };
  struct Place {
    Part from, to;
  };
  Place place(std::int64_t tile) const {
    if (dilation == 1) {
      const std::int64_t first = tile * step;
      return {{0, from, first + shift - lead}, {0, to, first}};
    }
    const std::int64_t all_long = long_phases * tiles_of_long;
    const bool is_long = tile < all_long;
    const std::int64_t nth = is_long ? tile : tile - all_long;
    const std::int64_t of_phase = is_long ? tiles_of_long : tiles_of_short;
    const std::int64_t phase = nth / of_phase + (is_long ? 0 : long_phases);
    const std::int64_t first = nth % of_phase * step;
    const std::int64_t f = floor_of(phase), from_phase = phase + shift - dilation * f;
    return {{from_phase, phase_size(from, from_phase), first + f - lead},
            {phase, phase_size(to, phase), first}};
  }

 private:
  std::int64_t phase_size(std::int64_t pixels, std::int64_t phase) const {
    return ceil_div(pixels - phase, dilation);  // pixels - phase > -dilation: no less than zero
  }
  std::int64_t floor_of(std::int64_t phase) const {
    const std::int64_t at = phase + shift;
    return at >= 0 ? at / dilation : -ceil_div(-at, dilation);
  }
  // Whether a tile gives all outputs: if each that wraps around reads zeros on both sides of the
  // seam.
  static bool holds_all(std::int64_t tile, std::int64_t taps, std::int64_t pad, std::int64_t from,
                        std::int64_t to) {
    return std::max({to, from + pad, to + taps - 1 - pad}) <= tile;
  }
};

// A pass as a correlation of tiles of `from` (x, or dy in backward_data), of one group.
struct FftTiling {
  std::int64_t tile;    // pixels a side
  TensorDesc from, to;  // to: what the windows are counted over (y, or dx in backward_data)
  std::int64_t block;   // channels in a block
  std::int64_t lanes;   // of a block of `from` whose spectra are kept; not all if channels are few
  bool few_outputs;     // in a pass whose sums run over channels: FewProduct
  FftTilingSide height, width;
  std::int64_t per_image, tiles;

  FftTiling(const ConvProblem& p, std::int64_t side)
      : tile(side),
        from(flipped(p) ? p.y_desc() : p.x_desc()),
        to(flipped(p) ? p.x_desc() : p.y_desc()),
        block(channel_block(p.x_layout)),
        lanes(std::min(block, std::int64_t(std::bit_ceil(std::uint64_t(from.c))))),
        few_outputs(p.pass != Pass::backward_filter && lanes == block && to.c <= FewProduct::most),
        height(tile, p.r, p.dilation_h, p.pad_h, from.h, to.h, flipped(p)),
        width(tile, p.s, p.dilation_w, p.pad_w, from.w, to.w, flipped(p)),
        per_image(height.tiles * width.tiles),
        tiles(p.n * per_image) {}

  // Lanes of `from` whose spectra are kept.
  std::int64_t kept_channels() const { return ceil_div(from.c, block) * lanes; }

  // Spectra of filters. Each has `block` lanes, which are inputs if outputs are few, else outputs.
  std::int64_t filters() const {
    return few_outputs ? to.c * ceil_div(from.c, block) : ceil_div(to.c, block) * from.c;
  }

  struct Place {
    std::int64_t n;  // image
    FftTilingSide::Place h, w;
  };
  Place place(std::int64_t index) const {
    const std::int64_t inside = index % per_image;
    return {index / per_image, height.place(inside / width.tiles),
            width.place(inside % width.tiles)};
  }

  // What a tile reads, and its outputs; both begin at the first pixel of their phase.
  std::int64_t from_offset(const Place& at, std::int64_t channel) const {
    return from.offset(at.n, channel, at.h.from.phase, at.w.from.phase);
  }
  Window from_window(const Place& at) const {
    return window(from, at.h.from, at.w.from, tile, tile);
  }
  std::int64_t to_offset(const Place& at, std::int64_t channel) const {
    return to.offset(at.n, channel, at.h.to.phase, at.w.to.phase);
  }
  Window to_window(const Place& at) const {
    return window(to, at.h.to, at.w.to, std::min(height.step, at.h.to.size - at.h.to.first),
                  std::min(width.step, at.w.to.size - at.w.to.first));
  }

 private:
  static bool flipped(const ConvProblem& p) { return p.pass == Pass::backward_data; }
  Window window(const TensorDesc& tensor, const FftTilingSide::Part& h,
                const FftTilingSide::Part& w, std::int64_t rows, std::int64_t cols) const {
    return {h.size,        w.size, h.first, w.first, rows, cols, height.dilation * tensor.w,
            width.dilation};
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
