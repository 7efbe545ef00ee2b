// Depthwise convolution by Fourier transforms of tiles, for large filters.
//
// The transforms and the tiling are fft_tiled's (fft_tiled.cpp). But each channel has one filter,
// so that the product at a point is a number, not a matrix product: a tile of one channel block is
// transformed, multiplied lane by lane and transformed back while its spectrum stays in L2. With
// m x m outputs in an n x n tile an output costs two transforms of n^2 / m^2 pixels, whatever the
// filter's size; directly it costs R S multiply-adds.
//
// forward and backward_data: a thread takes tiles, channel block by channel block, so that a
//                            filter's spectrum is read again from L2 only
// backward_filter:           DW = sum over tiles of X conj(DY). A unit is a part of the tiles of
//                            one channel block; its sum is transformed back at the end.
//
// Most of the work repeats where small tiles overlap. A tile that holds the image, whose padding
// wraps around, repeats nothing: 56 x 56 outputs of a 31 x 31 filter take 36 tiles of 40 x 40, or
// one of 80 x 80 (large_tiles.cpp).
#include "kernels_cpu/fft_tiled/depthwise.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwy/cache_control.h>

#include <algorithm>
#include <vector>

#include "conv/error.h"
#include "conv/math/fft_tile_rules.h"
#include "conv/refusals.h"
#include "conv/text/counted.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/device/range.h"
#include "kernels_cpu/device/thread_padding.h"
#include "kernels_cpu/fft_tiled/fft_tiled.h"
#include "kernels_cpu/fft_tiled/tiles.h"
#include "kernels_cpu/gemm/non_temporal.h"

namespace convlab::cpu {
namespace {

using i64 = std::int64_t;

bool is_large(i64 side) { return side > fft_tile_sides.back(); }
const TileKernels& kernels_of(i64 side) {
  return is_large(side) ? large_fft_tile_kernels(side) : fft_tile_kernels(side);
}
double flops_of_tile(i64 side) {
  return is_large(side) ? large_fft_tile_flops(double(side)) : fft_tile_flops(double(side));
}

// The sides of tiles that give all outputs of an image, or a quarter of their own side. Large ones
// only until one holds the image.
std::vector<i64> tiles_for(const ConvProblem& p) {
  std::vector<i64> sides;
  bool holds_image = false;
  const auto add = [&](i64 side) {
    if (std::max(p.r, p.s) > side || (is_large(side) && holds_image)) return;
    const FftTiling tiling(p, side);
    if (tiling.height.step < std::min(tiling.to.h, side / 4) ||
        tiling.width.step < std::min(tiling.to.w, side / 4))
      return;
    sides.push_back(side);
    holds_image = holds_image || tiling.per_image == 1;
  };
  for (const i64 side : fft_tile_sides) add(side);
  for (const i64 side : large_fft_tile_sides) add(side);
  return sides;
}

class FftDepthwisePlan final : public ConvPlan {
 public:
  FftDepthwisePlan(const ConvProblem& p, const Config& config, Device& device)
      : problem_(p),
        kernels_(kernels_of(config.get("tile"))),
        tiling_(p, config.get("tile")),
        device_(device),
        threads_(device.info().threads),
        tile_(config.get("tile")),
        non_temporal_(stores_non_temporal(config)),
        parts_(parts_of_tiles()) {}

  std::size_t workspace_bytes() const noexcept override {
    return std::size_t(threads_ * thread_floats() + (filter_pass() ? units() * item() : 0)) *
           sizeof(float);
  }
  std::size_t packed_filter_bytes() const noexcept override {
    return filter_pass() ? 0 : std::size_t(blocks() * item()) * sizeof(float);
  }

  void pack_filter(ConstSpan span, Span packed, Stream&) const override {
    const float* const w = reinterpret_cast<const float*>(span.data());
    float* const to = reinterpret_cast<float*>(packed.data());
    const i64 block = tiling_.block, taps = problem_.r * problem_.s;
    const bool flipped = problem_.pass == Pass::backward_data;
    const float scale = 1.f / float(tile_ * tile_);
    const Buffer memory = device_.allocate(std::size_t(threads_ * thread_floats()) * sizeof(float));
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
    for (i64 thread = 0; thread < threads_; ++thread) {
      float* const scratch = memory.as<float>() + thread * thread_floats();
      float* const plane = plane_of(scratch);
      const Range own = share(blocks(), thread, threads_);
      for (i64 b = own.begin; b < own.end; ++b) {
        std::fill_n(plane, taps * block, 0.f);
        for (i64 lane = 0; lane < lanes_of(b); ++lane)
          for (i64 t = 0; t < taps; ++t)
            plane[(flipped ? taps - 1 - t : t) * block + lane] =
                scale * w[(b * block + lane) * taps + t];
        kernels_.forward({plane, {problem_.r, problem_.s, 0, 0, tile_, tile_}}, nullptr, scratch,
                         {to + b * item(), 2 * block});
      }
    }
  }

  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    float* const memory = reinterpret_cast<float*>(workspace.data());
    float* const sums = memory + threads_ * thread_floats();
    const i64 threads = threads_;
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
    for (i64 thread = 0; thread < threads; ++thread) {
      float* const scratch = memory + thread * thread_floats();
      if (!filter_pass()) {
        convolve(args, share(blocks() * tiling_.tiles, thread, threads), scratch);
      } else {
        const Range own = share(units(), thread, threads);
        for (i64 unit = own.begin; unit < own.end; ++unit)
          sum_unit(args, unit, scratch, sums + unit * item());
      }
    }
    if (!filter_pass()) return;
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
    for (i64 thread = 0; thread < threads; ++thread) {
      const Range own = share(blocks(), thread, threads);
      for (i64 b = own.begin; b < own.end; ++b)
        write_gradient(args, b, sums + b * parts_ * item(), memory + thread * thread_floats());
    }
  }

 private:
  bool filter_pass() const { return problem_.pass == Pass::backward_filter; }
  i64 blocks() const { return ceil_div(problem_.c, tiling_.block); }
  i64 units() const { return blocks() * parts_; }
  i64 item() const { return kernels_.points * 2 * tiling_.block; }  // floats of a spectrum
  i64 lanes_of(i64 b) const { return std::min(tiling_.block, problem_.c - b * tiling_.block); }

  // So that threads have equally many units, or nearly.
  i64 parts_of_tiles() const {
    if (!filter_pass() || blocks() % threads_ == 0 || blocks() >= 4 * threads_) return 1;
    return std::min(ceil_div(2 * i64{threads_}, blocks()), tiling_.tiles);
  }

  // A thread's scratch: for the codelets, two spectra, and the pixels of a filter.
  i64 thread_floats() const {
    return kernels_.scratch + 2 * item() + round_up(problem_.r * problem_.s * tiling_.block, 16) +
           thread_padding_bytes / 4;
  }
  float* spectrum_of(float* scratch, i64 index) const {
    return scratch + kernels_.scratch + index * item();
  }
  float* plane_of(float* scratch) const { return spectrum_of(scratch, 2); }

  WindowIn input_at(const void* data, i64 b, i64 tile) const {
    const FftTiling::Place at = tiling_.place(tile);
    return {static_cast<const float*>(data) + tiling_.from_offset(at, b * tiling_.block),
            tiling_.from_window(at)};
  }

  // Items [channel block][tile].
  void convolve(const ConvArgs& args, Range items, float* scratch) const {
    const void* const data = problem_.pass == Pass::forward ? args.x : args.dy;
    const OutputEpilogue<float> output = output_epilogue<float>(
        problem_, args, non_temporal_ && is_aligned_for_non_temporal(args.out));
    float* const spectrum = spectrum_of(scratch, 0);
    const auto input = [&](i64 i) { return input_at(data, i / tiling_.tiles, i % tiling_.tiles); };
    for (i64 i = items.begin; i < items.end; ++i) {
      const i64 b = i / tiling_.tiles, channel = b * tiling_.block;
      {
        const PhaseScope scope(args.phases, 0);
        const WindowIn next = input(std::min(i + 1, items.end - 1));
        kernels_.forward(input(i), &next, scratch, {spectrum, 2 * tiling_.block});
      }
      {
        const PhaseScope scope(args.phases, 1);
        depthwise_product(spectrum, static_cast<const float*>(args.w) + b * item(), kernels_.points,
                          spectrum);
      }
      const PhaseScope scope(args.phases, 2);
      const FftTiling::Place at = tiling_.place(i % tiling_.tiles);
      alignas(64) float bias[16] = {};  // lanes past K stay zero
      if (output.bias != nullptr) std::copy_n(output.bias + channel, lanes_of(b), bias);
      kernels_.inverse({spectrum, 2 * tiling_.block}, scratch,
                       output.at(tiling_.to_offset(at, channel), 0).with_biases(bias),
                       tiling_.to_window(at));
    }
    if (output.non_temporal) hwy::FlushStream();
  }

  void sum_unit(const ConvArgs& args, i64 unit, float* scratch, float* sums) const {
    const i64 b = unit / parts_;
    float* const x_spectrum = spectrum_of(scratch, 0);
    float* const dy_spectrum = spectrum_of(scratch, 1);
    std::fill_n(sums, item(), 0.f);
    const Range tiles = share(tiling_.tiles, unit % parts_, parts_);
    for (i64 tile = tiles.begin; tile < tiles.end; ++tile) {
      {
        const PhaseScope scope(args.phases, 0);
        kernels_.forward(input_at(args.x, b, tile), nullptr, scratch,
                         {x_spectrum, 2 * tiling_.block});
        const FftTiling::Place at = tiling_.place(tile);
        const WindowIn gradient{
            static_cast<const float*>(args.dy) + tiling_.to_offset(at, b * tiling_.block),
            tiling_.to_window(at)};
        kernels_.forward(gradient, nullptr, scratch, {dy_spectrum, 2 * tiling_.block});
      }
      const PhaseScope scope(args.phases, 1);
      depthwise_add_product(x_spectrum, dy_spectrum, kernels_.points, sums);
    }
  }

  // From the sums of all parts of a channel block.
  void write_gradient(const ConvArgs& args, i64 b, float* sums, float* scratch) const {
    const PhaseScope scope(args.phases, 2);
    const i64 block = tiling_.block, taps = problem_.r * problem_.s;
    for (i64 part = 1; part < parts_; ++part)
      for (i64 i = 0; i < item(); ++i) sums[i] += sums[part * item() + i];
    float* const plane = plane_of(scratch);
    kernels_.inverse({sums, 2 * block}, scratch, {.out = plane},
                     {problem_.r, problem_.s, 0, 0, problem_.r, problem_.s});
    const float scale = 1.f / float(tile_ * tile_);
    for (i64 lane = 0; lane < lanes_of(b); ++lane) {
      float* const to = static_cast<float*>(args.out) + (b * block + lane) * taps;
      for (i64 t = 0; t < taps; ++t) {
        const float value = scale * plane[t * block + lane];
        to[t] = problem_.accumulate ? to[t] + value : value;
      }
    }
  }

  const ConvProblem problem_;
  const TileKernels& kernels_;
  const FftTiling tiling_;
  Device& device_;
  const int threads_;
  const i64 tile_;
  const bool non_temporal_;
  const i64 parts_;
};

class FftTiledDepthwise final : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "fft_tiled_depthwise",
                               .version = 2,
                               .device = DeviceKind::cpu,
                               .origin = Origin::own,
                               .summary = "FFT of tiles for one large filter a channel",
                               .libraries = {},
                               .family = "fft_tiled"};
    return info;
  }

  // Filters of fewer than five taps a side are never faster than the definition's loops.
  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    if (auto refusal = refuse_all_but({DType::f32}, p)) return refusal;
    if (p.groups == 1 || p.groups != p.c || p.groups != p.k)
      return Refusal{Field::groups, "several groups of 1 channel and 1 filter",
                     fmt::format("{} of {} and {}", p.groups, counted(p.c / p.groups, "channel"),
                                 counted(p.k / p.groups, "filter"))};
    ConvProblem one_group = p;
    one_group.groups = 1;
    if (auto refusal = refuse_all_but_dense(one_group)) return refusal;
    if (auto refusal = refuse_all_but_blocked(p, device.info())) return refusal;
    if (std::max(p.r, p.s) < 5 || tiles_for(p).empty())
      return Refusal{
          Field::filter,
          fmt::format("a filter of at least 5 taps a side, and at most {0} unless a "
                      "tile of {1}x{1} holds the padded image",
                      large_fft_tile_sides.back() * 3 / 4 + 1, large_fft_tile_sides.back()),
          extent(p.r, p.s)};
    return {};
  }

  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    std::vector<std::pair<double, Config>> ranked;
    for (const i64 tile : tiles_for(p)) {
      Config config{{"tile", tile}};
      ranked.emplace_back(ranking_cost(work(p, config, device)), config);
      if (!may_store_non_temporal(p, device.info())) continue;
      config = with_nontemporal_stores(config);
      ranked.emplace_back(ranking_cost(work(p, config, device)), config);
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Config> configs;
    for (auto& [cost, config] : ranked) configs.push_back(std::move(config));
    return configs;
  }

  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  // Lanes that pad the last block are transformed too.
  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    const i64 tile = config.get("tile");
    const FftTiling tiling(p, tile);
    const double channels = double(round_up(p.c, tiling.block));
    const double points = double(kernels_of(tile).points);
    const double items = double(tiling.tiles) * channels, one = flops_of_tile(tile);
    const double in_bytes = 4.0 * double(tiling.from.elements());
    const double out_bytes = 4.0 * double(tiling.to.elements());
    const double spectra = 8 * points * channels, w = double(p.filter_bytes());
    constexpr double transform_efficiency = 0.22;
    PhaseWork input{"input_transform", items * one, in_bytes, 0, transform_efficiency};
    PhaseWork product{"product", 8 * items * points, 0, 0, 0.3};
    PhaseWork output{"output_transform", items * one, 0, out_bytes, transform_efficiency};
    if (p.pass == Pass::backward_filter) {
      input.flops *= 2;
      input.bytes_read += out_bytes;
      product.bytes_written = spectra;
      output = {"output_transform", channels * one, spectra, w, transform_efficiency};
      return {{input, product, output}};
    }
    product.bytes_read = spectra;
    output.bytes_read = p.accumulate || p.epilogue.residual
                            ? out_bytes
                            : bytes_read_for_ownership(p, config, device.info());
    return {{input, product, output},
            {"pack_filter", channels * one, w, spectra, transform_efficiency}};
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    if (p.pass == Pass::backward_filter)
      config.require_only({"tile"});
    else
      config.require_only({"tile", "stores"});
    const i64 tile = config.get("tile");
    const std::vector<i64> fit = tiles_for(p);
    if (std::find(fit.begin(), fit.end(), tile) == fit.end())
      throw InputError(fmt::format("fft_tiled_depthwise: tile={}: expected one of {}", tile,
                                   fmt::join(fit, ", ")));
    return std::make_unique<FftDepthwisePlan>(p, config, device);
  }
};

}  // namespace

std::unique_ptr<ConvAlgo> make_fft_tiled_depthwise() {
  return std::make_unique<FftTiledDepthwise>();
}

}  // namespace convlab::cpu
