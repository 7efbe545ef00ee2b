// The first layer of a net directly: x, or dx, is an image in plain NCHW of at most 4 channels,
// which fill no vector; y has whole channel blocks.
//
// forward:         a register tile is pixels along a row times vectors of K, as in direct; its
//                  depth runs over all C R S taps. Rows of x are copied with their padding into a
//                  patch in L1, so that a tap is one distance from pixel to pixel.
// backward_filter: a tile is taps times vectors of K, and its depth runs over the pixels of an
//                  output row; x comes from the same patch. Threads share rows, each with its own
//                  copy of dw, and the copies are added in a fixed order.
// backward_data:   vectors run along the pixels of dx (first_layer_data_kernels.cpp).
#include "kernels_cpu/direct/first_layer.h"

#include <fmt/format.h>

#include <algorithm>

#include "conv/refusals.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/gemm/non_temporal.h"

namespace convlab::cpu {
namespace {

using i64 = std::int64_t;

constexpr i64 most_channels = 4;

// forward and backward_filter.
class RowsPlan : public ConvPlan {
 public:
  RowsPlan(const ConvProblem& p, const Config& config, const DeviceInfo& device)
      : first_{view_of(p.y_desc()), panels_of(1, p.k), p, {}},
        threads_(std::min<i64>(device.threads, p.n * p.p)),
        non_temporal_(stores_non_temporal(config)) {
    for (i64 c = 0; c < p.c; ++c)
      for (i64 r = 0; r < p.r; ++r)
        for (i64 s = 0; s < p.s; ++s)
          first_.tap_at.push_back((c * first_.height() + r * p.dilation_h) * first_.pitch() +
                                  s * p.dilation_w);
  }

  std::size_t packed_filter_bytes() const noexcept override {
    return forward() ? std::size_t(copy_floats()) * sizeof(float) : 0;
  }
  void pack_filter(ConstSpan span, Span packed, Stream&) const override {
    const TileShape shape = tile_shape();
    const float* const w = reinterpret_cast<const float*>(span.data());
    for (i64 index = 0; index < first_.panels.count(); ++index) {
      const PanelColumns columns(first_.panels, index);
      float* to = reinterpret_cast<float*>(packed.data()) + index * first_.taps() * shape.cols;
      for (i64 tap = 0; tap < first_.taps(); ++tap)
        for (i64 column = 0; column < columns.computed; ++column)
          *to++ = column < columns.count ? w[(columns.first + column) * first_.taps() + tap] : 0.f;
    }
  }
  std::size_t workspace_bytes() const noexcept override {
    const i64 copy = forward() ? 0 : copy_floats();
    return std::size_t(threads_ * (first_.patch_floats() + copy)) * sizeof(float);
  }
  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    const DirectOperands data = direct_operands(
        first_.problem, args, workspace, non_temporal_ && is_aligned_for_non_temporal(args.out));
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
    for (i64 thread = 0; thread < threads_; ++thread) {
      const PhaseScope scope(args.phases, 0);
      (forward() ? first_layer_forward : first_layer_filter)(first_, data, thread, threads_);
    }
    if (forward()) return;
    const PhaseScope scope(args.phases, 1);
    add_copies(data.workspace, data.output.out);
  }

 private:
  bool forward() const { return first_.problem.pass == Pass::forward; }
  i64 copy_floats() const { return first_.panels.count() * first_.taps() * tile_shape().cols; }

  void add_copies(const float* sums, float* dw) const {
    const TileShape shape = tile_shape();
    const i64 copy = copy_floats();
    for (i64 k = 0; k < first_.problem.k; ++k) {
      const i64 index = k / shape.cols, cols = PanelColumns(first_.panels, index).computed;
      for (i64 tap = 0; tap < first_.taps(); ++tap) {
        const float* from = sums + index * first_.taps() * shape.cols + tap * cols + k % shape.cols;
        float sum = 0;
        for (i64 thread = 0; thread < threads_; ++thread, from += copy) sum += *from;
        float& to = dw[k * first_.taps() + tap];
        to = first_.problem.accumulate ? to + sum : sum;
      }
    }
  }

  FirstLayer first_;
  i64 threads_;
  bool non_temporal_;
};

FirstLayerData plan_data(const ConvProblem& p, const DeviceInfo& device) {
  FirstLayerData d;
  d.dy = view_of(p.y_desc());
  d.problem = p;
  d.grids = backward_grids(p);
  i64 last_h = 0, last_w = 0, filter = 0;
  for (PixelGrid& grid : d.grids) {
    for (const Tap& tap : grid.taps) {
      d.first_h = std::min<i64>(d.first_h, tap.dh);
      d.first_w = std::min<i64>(d.first_w, tap.dw);
      last_h = std::max<i64>(last_h, tap.dh);
      last_w = std::max<i64>(last_w, tap.dw);
    }
    grid.filter = filter;
    filter += p.k * i64(grid.taps.size()) * p.c;
  }
  d.span_h = last_h - d.first_h;
  d.span_w = last_w - d.first_w;
  d.pitch = ceil_div(p.w, p.stride_w) + d.span_w;
  const i64 rows = ceil_div(p.h, p.stride_h);
  const i64 fit = std::max<i64>(1, device.l2_bytes / 2 / (4 * p.k * d.pitch) - d.span_h);
  d.band = ceil_div(rows, std::max(ceil_div(rows, fit), ceil_div(i64(device.threads), p.n)));
  for (const PixelGrid& grid : d.grids) {
    d.tap_at.emplace_back();
    for (const Tap& tap : grid.taps)
      d.tap_at.back().push_back((tap.dh - d.first_h) * d.pitch + tap.dw - d.first_w);
  }
  return d;
}

class DataPlan : public ConvPlan {
 public:
  DataPlan(const ConvProblem& p, const DeviceInfo& device)
      : first_(plan_data(p, device)),
        threads_(std::min<i64>(device.threads, p.n * first_.bands())) {}

  std::size_t packed_filter_bytes() const noexcept override {
    return std::size_t(first_.problem.filter_bytes());
  }
  void pack_filter(ConstSpan span, Span packed, Stream&) const override {
    const ConvProblem& p = first_.problem;
    const float* const w = reinterpret_cast<const float*>(span.data());
    float* to = reinterpret_cast<float*>(packed.data());
    for (const PixelGrid& grid : first_.grids)
      for (i64 k = 0; k < p.k; ++k)
        for (const Tap& tap : grid.taps)
          for (i64 c = 0; c < p.c; ++c) *to++ = w[(k * p.c + c) * p.r * p.s + tap.rs];
  }
  std::size_t workspace_bytes() const noexcept override {
    return std::size_t(threads_ * first_.thread_floats()) * sizeof(float);
  }
  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    const DirectOperands data = direct_operands(first_.problem, args, workspace);
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
    for (i64 thread = 0; thread < threads_; ++thread) {
      const PhaseScope scope(args.phases, 0);
      first_layer_data(first_, data, thread, threads_);
    }
  }

 private:
  FirstLayerData first_;
  i64 threads_;
};

class DirectFirstLayer : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "direct_first_layer",
                               .version = 1,
                               .summary = "direct for an image of at most 4 channels in nchw",
                               .libraries = {},
                               .family = "direct"};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    return refuse_direct_first_layer(p, device.info());
  }

  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    if (p.pass == Pass::forward && may_store_non_temporal(p, device.info()))
      return {with_nontemporal_stores({}), Config{}};
    return {Config{}};
  }

  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  // Tiles pad K to whole blocks.
  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    const double w = double(p.filter_bytes());
    const double k = double(round_up(p.k, tile_shape().block)) / double(p.k);
    if (p.pass == Pass::backward_filter)
      return {{{.name = "loops",
                .flops = p.flops() * k,
                .bytes_read = double(p.x_bytes() + p.y_bytes()),
                .bytes_written = w,
                .efficiency = 0.6},
               {"sum", 0, w, w, 1}}};
    const bool forward = p.pass == Pass::forward;
    PhaseWork loops = direct_pixel_work(p, 1, double(device.info().threads));
    loops.bytes_read += bytes_read_for_ownership(p, config, device.info());
    loops.flops = p.flops() * (forward ? k : 1);
    loops.efficiency = forward ? 0.6 : 0.7;
    return {{loops}, {"pack_filter", 0, w, w * (forward ? k : 1), packing_efficiency}};
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    if (p.pass == Pass::forward)
      config.require_only({"stores"});
    else
      config.require_only({});
    if (p.pass == Pass::backward_data) return std::make_unique<DataPlan>(p, device.info());
    return std::make_unique<RowsPlan>(p, config, device.info());
  }
};

}  // namespace

std::optional<Refusal> refuse_direct_first_layer(const ConvProblem& p, const DeviceInfo& device) {
  if (auto refusal = refuse_all_but({DType::f32}, p)) return refusal;
  if (auto refusal = refuse_groups(p)) return refusal;
  if (p.c > most_channels)
    return Refusal{Field::channels, fmt::format("at most {} channels of x", most_channels),
                   std::to_string(p.c)};
  if (auto refusal = refuse_other_blocks(p, device)) return refusal;
  if (p.x_layout != Layout::nchw)
    return Refusal{Field::layout, "x as nchw", std::string(to_string(p.x_layout))};
  return refuse_parts_of_blocks("y", p.y_layout, p.k, device);
}

std::unique_ptr<ConvAlgo> make_direct_first_layer() { return std::make_unique<DirectFirstLayer>(); }

}  // namespace convlab::cpu
