// Convolution by Fourier transforms of small tiles (overlap-save).
//
// The image is cut into n x n tiles (n = 16, 32 or 40) that overlap by R-1 rows and S-1 columns.
// The cyclic correlation of a tile with the filter equals the linear one in its first n-R+1 rows
// and n-S+1 columns, so a tile gives that many outputs, or all of an image's where those that wrap
// around meet only its padding (16 x 16 from 10 x 10 by a full 7 x 7); in the frequency domain
//   forward          Y  = sum over c of X conj(W)
//   backward_data    the same, of dy with the filter turned by 180 degrees and padding R-1-pad
//   backward_filter  DW = sum over tiles of X conj(DY), where dy's tiles are a tile's outputs
//                    followed by zeros; its inverse is taken once, after all tiles.
// A real tile has n*n/2 + 2 points, so an output costs about 2 n^2 / ((n-R+1)(n-S+1)) multiply-adds
// per channel pair instead of R S: for 5x5 filters 3.6 (n = 16) or 2.6 (n = 32) instead of 25.
//
// Vasilache et al. 2014 (arXiv:1412.7580, tiled FFT convolution), Zlateski, Jia, Li, Durand 2018
// (arXiv:1809.07851, FFT against Winograd on CPUs).
#include "kernels_cpu/fft_tiled/fft_tiled.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "conv/error.h"
#include "conv/math/fft_tile_rules.h"
#include "conv/refusals.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/fft_tiled/tiles.h"
#include "kernels_cpu/gemm/streaming.h"

namespace convlab::cpu {
namespace {

// FLOPs of the codelets for one channel.
double real_transform_flops(double n) {
  if (n == 1) return 0;
  return n == 5 ? 20 : 2 * real_transform_flops(n / 2) + 2 + 12 * std::floor((n / 2 - 1) / 2);
}
double tile_flops(double n) {
  return (n + 2) * real_transform_flops(n) + (n / 2 - 1) * transform_flops(n);
}

class FftTiled final : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "fft_tiled",
                               .version = 11,
                               .device = DeviceKind::cpu,
                               .origin = Origin::own,
                               .summary = "FFT of tiles of 16x16 to 40x40, fused in cache blocks",
                               .libraries = {}};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    if (auto refusal = refuse_tiled_fft(p, fft_tile_sides.back())) return refusal;
    return refuse_all_but_blocked(p, device.info());
  }

  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    struct Choice {
      Config config;
      double cost;
    };
    std::vector<Choice> choices;
    for (const std::int64_t tile : fft_tile_sides) {
      if (std::max(p.r, p.s) > largest_filter(tile)) continue;
      for (const std::int64_t shared : {1, 0}) {
        const Config config{
            {"tile", tile}, {"shared", shared}, {"block", block(p, tile, shared == 1, device)}};
        choices.push_back({config, seconds(work(p, config, device))});
        if (p.pass == Pass::backward_filter || p.accumulate ||
            !leaves_caches(4 * FftTiling(p, tile).to.elements(), device.info()))
          continue;
        Config streamed = config;
        streamed.set("stream", 1);
        choices.push_back({streamed, seconds(work(p, streamed, device))});
      }
    }
    std::stable_sort(choices.begin(), choices.end(),
                     [](const Choice& a, const Choice& b) { return a.cost < b.cost; });
    std::vector<Config> configs;
    for (Choice& choice : choices) configs.push_back(std::move(choice.config));
    return configs;
  }

  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    const std::int64_t tile = config.get("tile");
    const FftTiling tiling(p, tile);
    const bool filter_pass = p.pass == Pass::backward_filter;
    const double points = double(fft_tile_kernels(tile).points);
    const double tiles = double(tiling.tiles), spectrum = points * 2 * 4;  // bytes
    const double from = double(tiling.kept_channels()), to = double(tiling.to.padded_c());
    const double tiles_per_block = double(std::min(config.get("block"), tiling.tiles));
    const double blocks = std::ceil(tiles / tiles_per_block);
    const double in_bytes = 4.0 * double(tiling.from.elements());
    const double out_bytes = 4.0 * double(tiling.to.elements());
    const double filters = spectrum * double(tiling.filters() * tiling.block);
    const double product_flops = 8 * points * tiles * double(tiling.filters() * tiling.block);
    // Spectra of a block cost traffic only when L2 does not hold them: a thread's own outputs are
    // made in parts that it does hold.
    const bool apart = config.get("shared") == 0;
    const bool in_l2 = apart && spectrum * tiles_per_block * from <= double(device.info().l2_bytes);
    const double in_spill = in_l2 ? 0 : spectrum * tiles;
    const double out_spill = apart ? 0 : spectrum * tiles;
    constexpr double transform_efficiency = 0.22, product_efficiency = 0.42;
    const double one = tile_flops(double(tile));
    WorkEstimate estimate;
    if (filter_pass) {
      // Apart, each block of dy's channels meets the whole of x, and dy's spectra are made again
      // for each part unless they all stay.
      const double parts =
          std::ceil(double(p.c) / double(summed_channels(p, std::int64_t(spectrum) * tiling.block,
                                                         device.info().l2_bytes)));
      const double passes = apart && blocks > 1 ? parts : 1;
      const double met = apart ? to / double(tiling.block) : 1;
      const double kept = apart ? 0 : filters;
      estimate.phases.push_back({"input_transform", tiles * (from + passes * to) * one,
                                 in_bytes + passes * out_bytes,
                                 spectrum * tiles * from + out_spill * to, transform_efficiency});
      estimate.phases.push_back(
          {"product", product_flops,
           spectrum * tiles * from * met + out_spill * to + (blocks - 1) * kept, blocks * kept,
           product_efficiency});
      estimate.phases.push_back({"output_transform", double(p.c) * to * one, kept,
                                 double(p.filter_bytes()), transform_efficiency});
    } else {
      estimate.phases.push_back(
          {"input_transform", tiles * from * one, in_bytes, in_spill * from, transform_efficiency});
      const double busy =
          tiling.few_outputs ? 1 : std::min(1.0, tiles_per_block / double(product_rows));
      estimate.phases.push_back({"product", product_flops, in_spill * from + blocks * filters,
                                 out_spill * to, product_efficiency * busy});
      estimate.phases.push_back(
          {"output_transform", tiles * to * one, out_spill * to, out_bytes, transform_efficiency});
      if (leaves_caches(4 * tiling.to.elements(), device.info()) && !streams(config))
        estimate.phases.back().bytes_read += out_bytes;
      estimate.pack = {"pack_filter", 0, double(p.filter_bytes()), filters, packing_efficiency};
    }
    return estimate;
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    const std::int64_t tile = config.get("tile"), shared = config.get("shared");
    check_fft_tile(p, tile, fft_tile_sides);
    if (shared != 0 && shared != 1)
      throw InputError(fmt::format("fft_tiled: shared={}: expected 0 or 1", shared));
    if (config.get("block") < 1)
      throw InputError(fmt::format("fft_tiled: block={}: expected 1 or more", config.get("block")));
    return make_fft_tiled_plan(p, config, device);
  }

 private:
  // Four rows of sums, real and imaginary, are what two multiply-adds of four cycles a cycle wait
  // for; fewer tiles leave them idle, and read the filters once more each.
  static constexpr std::int64_t product_rows = 4;

  // Tiles in a block.
  static std::int64_t block(const ConvProblem& p, std::int64_t tile, bool shared, Device& device) {
    const FftTiling tiling(p, tile);
    const std::int64_t points = fft_tile_kernels(tile).points;
    const std::int64_t from = points * tiling.kept_channels() * 2 * 4;
    const std::int64_t to = points * tiling.to.padded_c() * 2 * 4;
    const std::int64_t item = points * tiling.block * 2 * 4;  // of one channel block
    constexpr std::int64_t shared_bytes = 128 << 20;
    // A part of dw takes one channel block of dy at a time; its sums are read and written once a
    // block of tiles, which half of L2 makes large enough.
    const bool apart = !shared && p.pass == Pass::backward_filter;
    const std::int64_t l2 = device.info().l2_bytes;
    // A thread's own block fills a third of L2, or has as many tiles as the product has rows. Of
    // few outputs filters are few as well: a block fills most of L2, or is of two tiles, which
    // share what is read of them (11x11 over 3 channels, bwd_d, 4 tiles instead: 9.9 -> 11.6 ms on
    // Zen 4).
    const std::int64_t fits = shared  ? shared_bytes / (from + to)
                              : apart ? l2 / 2 / item
                              : tiling.few_outputs
                                  ? std::max(l2 * 4 / 5 / from, std::int64_t{2})
                                  : std::max(l2 / 3 / std::max(from, item), product_rows);
    const std::int64_t own =
        shared || apart ? tiling.tiles : ceil_div(tiling.tiles, device.info().threads);
    // As few blocks as that allows, of equal size.
    const std::int64_t most = std::clamp<std::int64_t>(fits, 1, own);
    return ceil_div(own, ceil_div(own, most));
  }

  // A rough machine, only to order the candidates: FLOPs per second against bytes per second.
  static double seconds(const WorkEstimate& estimate) {
    double sum = 0;
    for (const PhaseWork& phase : estimate.phases)
      sum +=
          phase.flops / phase.efficiency / 300e9 + (phase.bytes_read + phase.bytes_written) / 40e9;
    return sum;
  }
};

}  // namespace

std::unique_ptr<ConvAlgo> make_fft_tiled() { return std::make_unique<FftTiled>(); }

}  // namespace convlab::cpu
