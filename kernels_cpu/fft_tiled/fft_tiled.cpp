// Convolution by Fourier transforms of small tiles (overlap-save).
//
// The image is cut into n x n tiles (n = 16, 32 or 40) that overlap by R-1 rows and S-1 columns.
// The cyclic correlation of a tile with the filter equals the linear one in its first n-R+1 rows
// and n-S+1 columns, so a tile gives that many outputs, or all of an image's if those that wrap
// around read only its padding (16 x 16 from 10 x 10 by a full 7 x 7); in the frequency domain
//   forward          Y  = sum over c of X conj(W)
//   backward_data    the same, of dy with the flipped filter and padding R-1-pad
//   backward_filter  DW = sum over tiles of X conj(DY), where dy's tiles are a tile's outputs
//                    followed by zeros; its inverse is taken once, after all tiles.
// A real tile has n*n/2 + 2 points, so an output costs about 2 n^2 / ((n-R+1)(n-S+1)) multiply-adds
// per channel pair instead of R S: for 5x5 filters 3.6 (n = 16) or 2.6 (n = 32) instead of 25.
//
// A dilation d cuts image and outputs into d phases a side, and each phase of the outputs is a
// dense convolution of a phase of the image (FftTilingSide). All have the same filter, so that
// tiles of all phases share blocks. Groups are computed one after the other.
//
// Vasilache et al. 2014 (arXiv:1412.7580, tiled FFT convolution), Zlateski, Jia, Li, Durand 2018
// (arXiv:1809.07851, FFT against Winograd on CPUs).
#include "kernels_cpu/fft_tiled/fft_tiled.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "conv/error.h"
#include "conv/math/fft_tile_rules.h"
#include "conv/refusals.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/fft_tiled/tiles.h"
#include "kernels_cpu/gemm/non_temporal.h"
#include "kernels_cpu/groups.h"

namespace convlab::cpu {
namespace {

double real_transform_flops(double n) {
  if (n == 1) return 0;
  return n == 5 ? 20 : 2 * real_transform_flops(n / 2) + 2 + 12 * std::floor((n / 2 - 1) / 2);
}
class FftTiled final : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "fft_tiled",
                               .version = 13,
                               .device = DeviceKind::cpu,
                               .origin = Origin::own,
                               .summary =
                                   "FFT of tiles of 16x16 to 40x40, fused in cache blocks; also "
                                   "dilated",
                               .libraries = {},
                               .family = "fft_tiled"};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    ConvProblem dense = p;
    dense.dilation_h = dense.dilation_w = dense.groups = 1;
    if (auto refusal = refuse_tiled_fft(dense, fft_tile_sides.back())) return refusal;
    if (auto refusal = refuse_all_but_blocked(p, device.info())) return refusal;
    return refuse_parts_of_blocks_in_groups(p);
  }

  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    struct Choice {
      Config config;
      double cost;
    };
    std::vector<Choice> choices;
    for (const std::int64_t tile : fft_tile_sides) {
      if (std::max(p.r, p.s) > largest_filter(tile)) continue;
      for (const SpectraOf spectra : {SpectraOf::all_threads, SpectraOf::one_thread}) {
        const Config config{{"tile", tile},
                            {"spectra", std::string(spectra_names[std::size_t(spectra)])},
                            {"block", block(p, tile, spectra, device)}};
        choices.push_back({config, ranking_cost(work(p, config, device))});
        if (!may_store_non_temporal(p, device.info()) || !stores_whole_lines(p)) continue;
        const Config streaming = with_nontemporal_stores(config);
        choices.push_back({streaming, ranking_cost(work(p, streaming, device))});
      }
    }
    std::stable_sort(choices.begin(), choices.end(),
                     [](const Choice& a, const Choice& b) { return a.cost < b.cost; });
    std::vector<Config> configs;
    for (Choice& choice : choices) configs.push_back(std::move(choice.config));
    return configs;
  }

  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  WorkEstimate work(const ConvProblem& whole, const Config& config, Device& device) const override {
    const ConvProblem p = problem_of_group(whole);
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
    // A block's spectra cost traffic only if they do not fit in L2. A thread's own outputs are made
    // in parts that do.
    const bool own = spectra_of(config) == SpectraOf::one_thread;
    const bool in_l2 = own && spectrum * tiles_per_block * from <= double(device.info().l2_bytes);
    const double in_spill = in_l2 ? 0 : spectrum * tiles;
    const double out_spill = own ? 0 : spectrum * tiles;
    constexpr double transform_efficiency = 0.22, product_efficiency = 0.42;
    const double one = fft_tile_flops(double(tile));
    WorkEstimate estimate;
    if (filter_pass) {
      // With its own spectra, each block of dy's channels is multiplied by the whole of x, and dy's
      // spectra are computed again for each part unless all of them are kept.
      const double parts =
          std::ceil(double(p.c) / double(summed_channels(p, std::int64_t(spectrum) * tiling.block,
                                                         device.info().l2_bytes)));
      const double passes = own && blocks > 1 ? parts : 1;
      const double x_passes = own ? to / double(tiling.block) : 1;
      const double kept = own ? 0 : filters;
      estimate.phases.push_back({"input_transform", tiles * (from + passes * to) * one,
                                 in_bytes + passes * out_bytes,
                                 spectrum * tiles * from + out_spill * to, transform_efficiency});
      estimate.phases.push_back(
          {"product", product_flops,
           spectrum * tiles * from * x_passes + out_spill * to + (blocks - 1) * kept, blocks * kept,
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
      estimate.phases.back().bytes_read +=
          p.accumulate
              ? out_bytes
              : bytes_read_for_ownership(whole, config, device.info()) / double(whole.groups);
      estimate.pack = {"pack_filter", 0, double(p.filter_bytes()), filters, packing_efficiency};
    }
    return work_of_groups(std::move(estimate), whole.groups);
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    if (p.pass == Pass::backward_filter)
      config.require_only({"tile", "spectra", "block"});
    else
      config.require_only({"tile", "spectra", "block", "stores"});
    check_fft_tile(p, config.get("tile"), fft_tile_sides);
    spectra_of(config);  // throws for another name
    if (config.get("block") < 1)
      throw InputError(fmt::format("fft_tiled: block={}: expected 1 or more", config.get("block")));
    return make_plan_by_groups(p, make_fft_tiled_plan(problem_of_group(p), config, device));
  }

 private:
  // Four rows of accumulators, real and imaginary, hide the latency of two multiply-adds a cycle;
  // fewer tiles leave the units idle, and read the filters more often.
  static constexpr std::int64_t product_rows = 4;

  // Non-temporal stores write lines, and neighbouring pixels belong to different phases.
  static bool stores_whole_lines(const ConvProblem& p) {
    return p.dilation_w == 1 || channel_block(p.x_layout) * size_of(p.dtype) >= 64;
  }

  // Tiles in a block.
  static std::int64_t block(const ConvProblem& whole, std::int64_t tile, SpectraOf spectra,
                            Device& device) {
    const ConvProblem p = problem_of_group(whole);
    const FftTiling tiling(p, tile);
    const bool shared = spectra == SpectraOf::all_threads;
    const std::int64_t points = fft_tile_kernels(tile).points;
    const std::int64_t from = points * tiling.kept_channels() * 2 * 4;
    const std::int64_t to = points * tiling.to.padded_c() * 2 * 4;
    const std::int64_t item = points * tiling.block * 2 * 4;  // of one channel block
    constexpr std::int64_t shared_bytes = 128 << 20;
    // A part of dw takes one channel block of dy at a time; its sums are read and written once for
    // each block of tiles. Blocks that fill half of L2 make that cheap enough.
    const bool parts_of_dw = !shared && p.pass == Pass::backward_filter;
    const std::int64_t l2 = device.info().l2_bytes;
    // A thread's own block fills a third of L2, or has as many tiles as the product has rows. With
    // few outputs the filters are few as well: a block fills most of L2, or has two tiles, which
    // share the reads of the filters.
    const std::int64_t fits = shared        ? shared_bytes / (from + to)
                              : parts_of_dw ? l2 / 2 / item
                              : tiling.few_outputs
                                  ? std::max(l2 * 4 / 5 / from, std::int64_t{2})
                                  : std::max(l2 / 3 / std::max(from, item), product_rows);
    const std::int64_t own =
        shared || parts_of_dw ? tiling.tiles : ceil_div(tiling.tiles, device.info().threads);
    // As few blocks as that allows, of equal size.
    const std::int64_t most = std::clamp<std::int64_t>(fits, 1, own);
    return ceil_div(own, ceil_div(own, most));
  }
};

}  // namespace

double fft_tile_flops(double side) {
  return (side + 2) * real_transform_flops(side) + (side / 2 - 1) * transform_flops(side);
}

std::unique_ptr<ConvAlgo> make_fft_tiled() { return std::make_unique<FftTiled>(); }

}  // namespace convlab::cpu
