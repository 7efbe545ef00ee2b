// backward_filter as one matrix product over an explicit column matrix, in the channel-blocked
// layouts:
//
//   dw[k][c, tap] = sum over pixels of dy[pixel][k] columns[pixel][c, tap]
//
// which is dw in memory order. Columns come in panels of 3 vectors in the order of dw, for a chunk
// of pixels at a time; with a 1x1 filter of stride 1 they are x, and are not copied. A chunk is one
// depth, so that a tile of 4 filters by a panel (AVX-512: 8) goes from the registers to dw without
// a transpose. A few tiles of filters use one panel after the other, as many as stay in L2: dw is
// written along its rows, each of which has its own pages. Threads split filters before columns: if
// two threads wrote one row, each would prefetch lines at the seam that the other writes.
//
// Building columns of several taps takes as long as the products of some 20 filters, and the
// columns are R S times as large as x. That pays only if dw is the largest tensor by far.
//
// The layouts after Georganas et al. 2018 (arXiv:1808.05567), the column matrix after Chellapilla
// et al. 2006.
#include "kernels_cpu/im2col/blocked.h"

#include <fmt/format.h>

#include <algorithm>

#include "conv/refusals.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/inside_taps.h"

namespace convlab::cpu {
namespace {

// The bounds within which dw is the largest tensor by far, if there are several taps.
constexpr std::int64_t least_filters = 128, most_pixels = 64;

// Each chunk costs a pass over dw, so it is as long as one panel of it fits in a quarter of L2. It
// has at most 2048 pixels, whose sums err by 1e-6 if multiplying and adding both round.
BlockedColumns plan_columns(const ConvProblem& p, const DeviceInfo& device) {
  BlockedColumns b;
  b.problem = p;
  b.in_place = p.r * p.s == 1 && p.stride_h * p.stride_w == 1 && p.p == p.h && p.q == p.w &&
               all_inside(p) && tile_shape().lanes == tile_shape().block;
  const std::int64_t fit = device.l2_bytes / 4;
  const std::int64_t lines =
      std::max<std::int64_t>(1, std::min(fit / (4 * b.panel_floats()), 2048 / p.q));
  b.images = std::clamp<std::int64_t>(lines / p.p, 1, p.n);
  b.images = ceil_div(p.n, ceil_div(p.n, b.images));  // evenly
  b.rows = ceil_div(p.p, ceil_div(p.p, lines));
  b.panels = std::max<std::int64_t>(1, fit / (4 * b.panel_floats()));
  return b;
}

class BlockedPlan : public ConvPlan {
 public:
  BlockedPlan(const ConvProblem& p, const DeviceInfo& device)
      : columns_(plan_columns(p, device)), threads_(device.threads) {}

  std::size_t workspace_bytes() const noexcept override {
    return std::size_t(columns_.column_floats()) * sizeof(float);
  }
  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    const ConvProblem& p = columns_.problem;
    float* const built = reinterpret_cast<float*>(workspace.data());
    for (std::int64_t n = 0; n < p.n; n += columns_.images)
      for (std::int64_t row = 0; row < p.p; row += columns_.rows)
        run(args, built,
            {.images = {n, std::min(p.n, n + columns_.images)},
             .rows = {row, std::min(p.p, row + columns_.rows)}});
  }

 private:
  void run(const ConvArgs& args, float* built, const ColumnsChunk& chunk) const {
    const float* const x = static_cast<const float*>(args.x);
    if (!columns_.in_place) {
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
      for (int thread = 0; thread < threads_; ++thread) {
        const PhaseScope scope(args.phases, 1);
        fill_columns(columns_, chunk, x, built, thread, threads_);
      }
    }
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
    for (int thread = 0; thread < threads_; ++thread) {
      const PhaseScope scope(args.phases, 0);
      multiply_columns(columns_, chunk, columns_.in_place ? x : built,
                       static_cast<const float*>(args.dy), static_cast<float*>(args.out), thread,
                       threads_);
    }
  }

  BlockedColumns columns_;
  int threads_;
};

class Im2colBlocked : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{
        .id = "im2col_blocked",
        .version = 1,
        .summary = "column matrix in panels as dw has them, for backward_filter of blocked layouts",
        .libraries = {},
        .family = "im2col"};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    if (p.pass != Pass::backward_filter)
      return Refusal{Field::pass, std::string(to_string(Pass::backward_filter)),
                     std::string(to_string(p.pass))};
    if (auto refusal = refuse_all_but({DType::f32}, p)) return refusal;
    if (auto refusal = refuse_groups(p)) return refusal;
    const std::int64_t lanes = tile_shape().lanes, taps = p.r * p.s;
    if (p.c % lanes != 0)
      return Refusal{Field::channels, fmt::format("a multiple of {} channels of x", lanes),
                     std::to_string(p.c)};
    if (taps > BlockedColumns::most_taps)
      return Refusal{Field::filter, fmt::format("at most {} taps", BlockedColumns::most_taps),
                     std::to_string(taps)};
    if (taps > 1 && p.k < least_filters)
      return Refusal{Field::channels,
                     fmt::format("at least {} filters unless they have 1 tap", least_filters),
                     std::to_string(p.k)};
    if (taps > 1 && p.p * p.q > most_pixels)
      return Refusal{
          Field::image,
          fmt::format("at most {} output pixels an image unless filters have 1 tap", most_pixels),
          std::to_string(p.p * p.q)};
    return refuse_all_but_blocked(p, device.info());
  }

  std::vector<Config> configs(const ConvProblem&, Device&) const override { return {Config{}}; }
  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  // A tile's prologue and its stores take as long as some 15 steps of its depth.
  WorkEstimate work(const ConvProblem& p, const Config&, Device& device) const override {
    const BlockedColumns b = plan_columns(p, device.info());
    const double chunks = double(ceil_div(p.n, b.images) * ceil_div(p.p, b.rows));
    const double built = 4 * chunks * double(b.column_floats()), dw = double(p.filter_bytes());
    const double depth = double(b.images * b.rows * p.q);
    PhaseWork product{.name = "product", .flops = p.flops()};
    product.bytes_read = (b.in_place ? double(p.x_bytes()) : built) * double(device.info().threads);
    product.bytes_read += double(p.y_bytes()) + (chunks - 1) * dw;
    product.bytes_written = chunks * dw;
    product.efficiency = 0.86 * depth / (depth + 15);
    WorkEstimate estimate{{product}};
    if (!b.in_place)
      estimate.phases.push_back(
          {.name = "columns", .bytes_read = double(p.x_bytes()), .bytes_written = built});
    return estimate;
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    config.require_only({});
    return std::make_unique<BlockedPlan>(p, device.info());
  }
};

}  // namespace

std::unique_ptr<ConvAlgo> make_im2col_blocked() { return std::make_unique<Im2colBlocked>(); }

}  // namespace convlab::cpu
