// Convolution by Fourier transforms of small tiles (overlap-save).
//
// The image is cut into n x n tiles (n = 16 or 32) that overlap by R-1 rows and S-1 columns. On a
// tile the cyclic correlation with the filter equals the linear one in the first n-R+1 rows and
// n-S+1 columns, and the cyclic convolution in the last ones. So a tile gives that many outputs. In
// the frequency domain
//   forward          Y  = sum over c of X conj(W)
//   backward_data    DX = sum over k of DY W, where a tile of dy starts R-1-pad rows above its dx
//   backward_filter  DW = sum over tiles of conj(DY) X, where dy's tiles are n-R+1 rows of outputs
//                    followed by zeros; its inverse is taken once, after all tiles.
// A real tile has n*n/2 + 2 points. Each point takes a complex matrix product, [tiles, C] x [C, K].
// cuBLAS computes all points in one batch: as complex matrices (`product=complex`), or as three
// real products (`gauss`), which are a quarter fewer FLOPs and half as many bytes again. Our
// kernels transform from and to the tensors' layouts (tiles.cu) and take conjugates. For 3xTF32
// they also split factors into pairs of TF32 numbers, big and small. Three products on tensor
// cores, big big + big small + small big, are then as accurate as one in f32.
//
// A chunk is `tiles` tiles: with few, their spectra stay in L2; with many, the filters' spectra are
// read less often.
//
// Vasilache et al. 2014 (arXiv:1412.7580, fbfft); Zlateski, Jia, Li, Durand 2018
// (arXiv:1809.07851).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "conv/error.h"
#include "conv/math/fft_tile_rules.h"
#include "conv/refusals.h"
#include "kernels_cuda/algos.h"
#include "kernels_cuda/device/runtime.h"
#include "kernels_cuda/device/shared_memory.h"
#include "kernels_cuda/fft_tiled/tiles.h"
#include "kernels_cuda/vendor.h"

namespace convlab::cuda {
namespace {

// The kernels count the items of a launch in int.
constexpr std::int64_t most_items = 1 << 30;

// The tiles of a pass: `from` are transformed (x's, or dy's in backward_data), `to` are the outputs
// that each of them gives (of y, or dx; in backward_filter, the tiles of dy that pair with x's).
struct Tiling {
  Tiles from, to;
  std::int64_t tiles;

  Tiling(const ConvProblem& p, std::int64_t tile) {
    const bool data = p.pass == Pass::backward_data;
    to.desc = data ? p.x_desc() : p.y_desc();
    to.step_h = to.rows = tile - p.r + 1;
    to.step_w = to.cols = tile - p.s + 1;
    to.across = ceil_div(to.desc.w, to.step_w);
    to.per_image = ceil_div(to.desc.h, to.step_h) * to.across;
    tiles = p.n * to.per_image;
    from = to;
    from.desc = data ? p.y_desc() : p.x_desc();
    from.rows = from.cols = tile;
    from.start_h = -(data ? p.r - 1 - p.pad_h : p.pad_h);
    from.start_w = -(data ? p.s - 1 - p.pad_w : p.pad_w);
    if (data) to.inset_h = p.r - 1, to.inset_w = p.s - 1;
  }
};

// The filters as tiles: each K is an image of C channels.
Tiles filter_tiles(const ConvProblem& p) {
  return {.desc = {p.k, p.c, p.r, p.s, Layout::nchw}, .rows = p.r, .cols = p.s};
}

ComplexProduct product_of(const Config& config) {
  return config.choice<ComplexProduct>("product", complex_product_names);
}

class FftTiledPlan final : public ConvPlan {
 public:
  FftTiledPlan(const ConvProblem& p, const Config& config)
      : problem_(p),
        filter_pass_(p.pass == Pass::backward_filter),
        tile_(config.get("tile")),
        product_(product_of(config)),
        math_(math_type(config, p.dtype, card_math_types)),
        tf32_pairs_(math_ == MathType::tf32x3),
        tiling_(p, tile_),
        tiles_(std::min(config.get("tiles"), tiling_.tiles)) {}

  std::size_t workspace_bytes() const noexcept override {
    const std::int64_t sum = filter_pass_ ? spectra_bytes(problem_.k * problem_.c, false) : 0;
    return std::size_t(from_bytes() + to_bytes() + sum);
  }

  std::size_t packed_filter_bytes() const noexcept override {
    return filter_pass_ ? 0 : std::size_t(spectra_bytes(problem_.k * problem_.c, tf32_pairs_));
  }

  void pack_filter(ConstSpan w, Span packed, Stream& stream) const override {
    transform_tiles(filter_tiles(problem_), reinterpret_cast<const float*>(w.data()),
                    problem_.pass == Pass::forward,
                    spectra(packed.data(), 0, problem_.k, tf32_pairs_), stream);
  }

  void run(const ConvArgs& args, Workspace workspace, Stream& stream) const override {
    std::byte* const a = workspace.data();
    std::byte* const b = a + from_bytes();
    std::byte* const sum = b + to_bytes();
    for (std::int64_t first = 0; first < tiling_.tiles; first += tiles_) {
      const std::int64_t count = std::min(tiles_, tiling_.tiles - first);
      const Spectra from = spectra(a, first, count, tf32_pairs_);
      const Spectra to = spectra(b, first, count, tf32_pairs_ && filter_pass_);
      if (filter_pass_)
        add_up(args, from, to, sum, stream);
      else
        convolve(args, from, to, stream);
    }
    if (!filter_pass_) return;
    run_phase(args.phases, 2, stream, [&] {
      invert_tiles(spectra(sum, 0, problem_.k, false), filter_tiles(problem_), scale(),
                   epilogue(args), stream);
    });
  }

 private:
  // One area of spectra; areas begin at multiples of 256 bytes.
  std::int64_t spectra_bytes(std::int64_t items, bool tf32_pairs) const {
    return round_up(items * spectrum_floats(tile_, product_) * (tf32_pairs ? 8 : 4), 256);
  }
  std::int64_t from_bytes() const {
    return spectra_bytes(tiles_ * tiling_.from.desc.c, tf32_pairs_);
  }
  std::int64_t to_bytes() const {  // a factor in backward_filter, else the product
    return spectra_bytes(tiles_ * tiling_.to.desc.c, tf32_pairs_ && filter_pass_);
  }
  Spectra spectra(std::byte* data, std::int64_t first, std::int64_t tiles, bool tf32_pairs) const {
    return {tile_, product_, first, tiles, tf32_pairs, reinterpret_cast<float*>(data)};
  }
  OutputEpilogue<float> epilogue(const ConvArgs& args) const {
    return output_epilogue<float>(problem_.epilogue, problem_.accumulate, args);
  }
  // Both factors' spectra are twice the transform.
  float scale() const { return 0.25f / float(tile_ * tile_); }

  void convolve(const ConvArgs& args, const Spectra& from, const Spectra& to,
                Stream& stream) const {
    const bool forward = problem_.pass == Pass::forward;
    run_phase(args.phases, 0, stream, [&] {
      transform_tiles(tiling_.from, static_cast<const float*>(forward ? args.x : args.dy), false,
                      from, stream);
    });
    run_phase(args.phases, 1, stream, [&] {
      Gemm g;
      g.m = from.tiles;
      g.n = g.ldc = tiling_.to.desc.c;
      g.k = g.lda = tiling_.from.desc.c;
      g.ldb = problem_.c;
      g.transpose_b = forward;
      multiply(g, from.data, static_cast<const float*>(args.w), 0, to.data, stream);
    });
    run_phase(args.phases, 2, stream,
              [&] { invert_tiles(to, tiling_.to, scale(), epilogue(args), stream); });
  }

  void add_up(const ConvArgs& args, const Spectra& x, const Spectra& dy, std::byte* sum,
              Stream& stream) const {
    run_phase(args.phases, 0, stream, [&] {
      transform_tiles(tiling_.from, static_cast<const float*>(args.x), false, x, stream);
      transform_tiles(tiling_.to, static_cast<const float*>(args.dy), true, dy, stream);
    });
    run_phase(args.phases, 1, stream, [&] {
      Gemm g;
      g.m = g.lda = problem_.k;
      g.n = g.ldb = g.ldc = problem_.c;
      g.k = x.tiles;
      g.transpose_a = true;
      multiply(g, dy.data, x.data, x.first > 0 ? 1 : 0, reinterpret_cast<float*>(sum), stream);
    });
  }

  // All points.
  void multiply(Gemm g, const float* a, const float* b, double beta, float* out,
                Stream& stream) const {
    g.complex = product_ == ComplexProduct::complex;
    g.math = tf32_pairs_ ? MathType::tf32 : math_;
    g.batch = tile_points(tile_) * (g.complex ? 1 : 3);
    g.stride_a = g.m * g.k, g.stride_b = g.k * g.n, g.stride_c = g.m * g.n;
    if (!tf32_pairs_) return gemm(g, 1, a, b, beta, out, stream);
    const std::int64_t floats = spectrum_floats(tile_, product_);
    const float* const small_a = a + g.m * g.k * floats;
    const float* const small_b = b + g.k * g.n * floats;
    gemm(g, 1, small_a, b, beta, out, stream);
    gemm(g, 1, a, small_b, 1, out, stream);
    gemm(g, 1, a, b, 1, out, stream);
  }

  const ConvProblem problem_;
  const bool filter_pass_;
  const std::int64_t tile_;
  const ComplexProduct product_;
  const MathType math_;
  const bool tf32_pairs_;
  const Tiling tiling_;
  const std::int64_t tiles_;  // at a time
};

constexpr std::array<std::int64_t, 2> tile_sides{16, 32};

// FLOPs of a tile's transform: n complex transforms of length n, and four additions a number to
// separate two rows.
double tile_flops(double n) { return n * transform_flops(n) + 2 * n * n; }

class FftTiled final : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "fft_tiled",
                               .version = 2,
                               .device = DeviceKind::cuda,
                               .origin = Origin::own,
                               .summary = "FFT of 16x16 or 32x32 tiles, products by cuBLAS",
                               .libraries = {"cublas"}};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    if (auto refusal = refuse_tiled_fft(p, tile_sides.back())) return refusal;
    if (auto refusal = refuse_all_but_relu(p)) return refusal;
    if (auto refusal = refuse_blocked_layouts(p)) return refusal;
    // Kernels count the elements of an image, and tiles, in int.
    for (const std::int64_t elements : {p.x_desc().elements(), p.y_desc().elements()})
      if (elements / p.n >= most_items)
        return Refusal{Field::image, fmt::format("images of fewer than {} elements", most_items),
                       std::to_string(elements / p.n)};
    const std::int64_t smallest = std::max(p.r, p.s) > largest_filter(16) ? 32 : 16;
    const std::int64_t tiles = Tiling(p, smallest).tiles;
    if (tiles >= most_items)
      return Refusal{Field::size, fmt::format("fewer than {} tiles", most_items),
                     std::to_string(tiles)};
    if (p.k * p.c >= most_items)
      return Refusal{Field::channels,
                     fmt::format("fewer than {} pairs of a filter and a channel", most_items),
                     std::to_string(p.k * p.c)};
    if (auto refusal = refuse_shared_memory(tile_shared_bytes(smallest), device.info()))
      return refusal;
    return refuse_missing_libraries(info());
  }

  // f32 first, then 3xTF32, then TF32; each ordered by a rough machine model.
  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    struct Choice {
      Config config;
      double cost;
    };
    std::vector<Config> configs;
    for (const MathType math : {MathType::f32, MathType::tf32x3, MathType::tf32}) {
      std::vector<Choice> choices;
      for (const std::int64_t tile : tile_sides)
        for (const ComplexProduct product : {ComplexProduct::gauss, ComplexProduct::complex}) {
          if (std::max(p.r, p.s) > largest_filter(tile)) continue;
          if (!fits_block(tile_shared_bytes(tile), device.info())) continue;
          if (math != MathType::f32 && product == ComplexProduct::complex) continue;
          const auto fit = [&](std::int64_t bytes) {
            return tiles_of(p, tile, product, math, bytes);
          };
          for (const std::int64_t tiles :
               std::set{fit(device.info().l2_bytes), fit(std::int64_t(2) << 30)}) {
            const std::string name(complex_product_names[std::size_t(product)]);
            const Config config =
                with_math({{"tile", tile}, {"product", name}, {"tiles", tiles}}, p.dtype, math);
            choices.push_back({config, seconds(work(p, config, device))});
          }
        }
      std::stable_sort(choices.begin(), choices.end(),
                       [](const Choice& a, const Choice& b) { return a.cost < b.cost; });
      for (Choice& choice : choices) configs.push_back(std::move(choice.config));
    }
    return configs;
  }

  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    const std::int64_t tile = config.get("tile");
    const bool gauss = product_of(config) == ComplexProduct::gauss;
    const MathType math = math_type(config);
    const Tiling tiling(p, tile);
    const bool filter_pass = p.pass == Pass::backward_filter;
    const double spectrum = 4 * double(spectrum_floats(tile, product_of(config)));
    const double factor = math == MathType::tf32x3 ? 2 * spectrum : spectrum;
    const double tiles = double(tiling.tiles), filters = double(p.k * p.c);
    const double from = double(tiling.from.desc.c), to = double(tiling.to.desc.c);
    const std::int64_t at_a_time = std::min(config.get("tiles"), tiling.tiles);
    const double chunks = double(ceil_div(tiling.tiles, at_a_time));
    const double in_bytes = 4.0 * double(tiling.from.desc.elements());
    const double out_bytes = 4.0 * double(tiling.to.desc.elements());
    // The spectra of a chunk that fits in L2 cause no traffic.
    const double to_bytes = to * (filter_pass ? factor : spectrum);
    const bool cached =
        double(at_a_time) * (from * factor + to_bytes) <= double(device.info().l2_bytes);
    const double spill_from = cached ? 0 : tiles * from * factor;
    const double spill_to = cached ? 0 : tiles * to_bytes;
    const double one = tile_flops(double(tile));
    const double product = 2 * (gauss ? 3.0 : 4.0) * double(tile_points(tile)) * tiles * filters;
    // Shares of the f32 peak. cuBLAS works on blocks of at least 32 x 32 outputs. The three
    // products of 3xTF32 count as one.
    const auto used = [](std::int64_t n) { return double(n) / double(round_up(n, 32)); };
    const double product_efficiency =
        (math == MathType::tf32     ? 1
         : math == MathType::tf32x3 ? 0.25
         : gauss                    ? 0.4
                                    : 0.55) *
        (filter_pass ? used(p.k) * used(p.c) : used(at_a_time) * used(tiling.to.desc.c));
    constexpr double transform_efficiency = 0.4;
    WorkEstimate estimate;
    if (filter_pass) {
      estimate.phases.push_back({"input_transform", tiles * (from + to) * one, in_bytes + out_bytes,
                                 spill_from + spill_to, transform_efficiency});
      estimate.phases.push_back({"product", product,
                                 spill_from + spill_to + (chunks - 1) * filters * spectrum,
                                 chunks * filters * spectrum, product_efficiency});
      estimate.phases.push_back({"output_transform", filters * one, filters * spectrum,
                                 double(p.filter_bytes()), transform_efficiency});
    } else {
      estimate.phases.push_back(
          {"input_transform", tiles * from * one, in_bytes, spill_from, transform_efficiency});
      estimate.phases.push_back({"product", product, spill_from + chunks * filters * factor,
                                 spill_to, product_efficiency});
      estimate.phases.push_back(
          {"output_transform", tiles * to * one, spill_to, out_bytes, transform_efficiency});
    }
    return estimate;
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    config.require_only({"tile", "product", "tiles", "math"});
    const std::int64_t tile = config.get("tile"), tiles = config.get("tiles");
    check_fft_tile(p, tile, tile_sides);
    require_shared_memory("fft_tiled", config, tile_shared_bytes(tile), device.info());
    if (const std::int64_t most = most_items / std::max(p.c, p.k); tiles < 1 || tiles > most)
      throw InputError(fmt::format("fft_tiled: tiles={}: expected 1 to {}", tiles, most));
    return std::make_unique<FftTiledPlan>(p, config);
  }

 private:
  // The most tiles at a time whose spectra take no more than `bytes`, in whole blocks of cuBLAS.
  static std::int64_t tiles_of(const ConvProblem& p, std::int64_t tile, ComplexProduct product,
                               MathType math, std::int64_t bytes) {
    const std::int64_t one =
        (p.c + p.k) * spectrum_floats(tile, product) * (math == MathType::tf32x3 ? 8 : 4);
    const std::int64_t fit = std::max<std::int64_t>(bytes / one, 1);
    return std::min(fit < 32 ? fit : fit / 32 * 32, Tiling(p, tile).tiles);
  }

  // On an H200, only to order the candidates.
  static double seconds(const WorkEstimate& estimate) {
    double sum = 0;
    for (const PhaseWork& phase : estimate.phases)
      sum += std::max(phase.flops / phase.efficiency / 67e12,
                      (phase.bytes_read + phase.bytes_written) / 4.3e12);
    return sum;
  }
};

}  // namespace

std::unique_ptr<ConvAlgo> make_fft_tiled() { return std::make_unique<FftTiled>(); }

}  // namespace convlab::cuda
