// Winograd convolution: minimal filtering F(m x m, r x r), nested in two dimensions.
//
// An m x m tile of outputs comes from T x T inputs, T = m + r - 1, with T^2 multiplications for
// each pair of channels in place of m^2 r^2 (conv/cook_toom.h). Sums over channels commute with
// the transforms, so in between stand T^2 matrix products of tiles x C by C x K:
//   forward:          y  = A^T [ sum_c (G w G^T) . (B^T x B) ] A
//   backward_data:    the forward of dy with the filter's taps reversed and its channels swapped
//   backward_filter:  dw = A^T [ sum_tiles (B^T x B) . (G dy G^T) ] A, as F(r, m)
//
// Lavin & Gray 2015 (arXiv:1509.09308). Blocks of tiles stay in L2 between the steps: Jia et al.
// 2018 (PPoPP), Gelashvili et al. 2019 (arXiv:1912.02165). Where filters are many and tiles few
// the threads share a block instead, each with its part of the points, so that the packed filter
// passes through the caches once and not once a thread.
#include "kernels_cpu/winograd.h"

#include <fmt/format.h>

#include <algorithm>

#include "conv/error.h"
#include "kernels_cpu/algos.h"

namespace convlab::cpu {
namespace {

const float* floats(const void* p) { return static_cast<const float*>(p); }

std::vector<std::int64_t> tile_sizes(const ConvProblem& p) {
  return p.r == 3 ? std::vector<std::int64_t>{4, 6, 2} : std::vector<std::int64_t>{4, 2};
}

// Channel blocks whose sums for one panel take a quarter of L2, in equal parts.
std::int64_t sums_chunk(const WinogradShape& s, const DeviceInfo& device) {
  const std::int64_t bytes = 4 * s.points() * s.tile.block * s.tile.cols;
  const std::int64_t most = std::max<std::int64_t>(device.l2_bytes / 4 / bytes, 1);
  return ceil_div(s.in_blocks(), ceil_div(s.in_blocks(), most));
}

// All but how the tiles are shared out.
WinogradShape shape_of(const ConvProblem& p, std::int64_t m, const DeviceInfo& device) {
  WinogradShape s;
  s.pass = p.pass;
  s.m = m;
  s.r = p.r;
  const bool data = p.pass == Pass::backward_data;
  s.in = data ? p.y_desc() : p.x_desc();
  s.out = data ? p.x_desc() : p.y_desc();
  s.pad_h = data ? p.r - 1 - p.pad_h : p.pad_h;
  s.pad_w = data ? p.s - 1 - p.pad_w : p.pad_w;
  s.epilogue = p.epilogue;
  s.accumulate = p.accumulate;
  s.threads = device.threads;
  s.tile = tile_shape();
  s.depth = device.l1_bytes / 2 / (4 * s.tile.cols);
  s.chunk = sums_chunk(s, device);
  return s;
}

// How many tiles to transform at a time. A thread's own block leaves most of L2 to the filter's
// panels that pass through (or to backward_filter's sums). A shared block is the larger, the fewer
// times the filter passes through; for backward_filter so large that its sums, read and written
// once a block, weigh less than the block itself.
std::int64_t default_block(const WinogradShape& s, const DeviceInfo& device) {
  const bool filter = s.pass == Pass::backward_filter;
  const std::int64_t tile_bytes = 4 * s.points() * (s.in.padded_c() + s.out_panels() * s.tile.cols);
  const std::int64_t sums_bytes = filter ? 4 * s.chunk_floats() * s.chunks() : 0;
  const std::int64_t budget =
      s.shared ? std::max(2 * s.threads * device.l2_bytes, 2 * sums_bytes) : device.l2_bytes / 2;
  const std::int64_t most = ceil_div(s.tiles(), s.shared ? 1 : s.threads);
  return std::min(std::max(budget / tile_bytes / s.tile.rows, std::int64_t{1}) * s.tile.rows, most);
}

WinogradShape plan_shape(const ConvProblem& p, const Config& config, const DeviceInfo& device) {
  const std::int64_t m = config.get("tile");
  const std::vector<std::int64_t> sizes = tile_sizes(p);
  if (std::find(sizes.begin(), sizes.end(), m) == sizes.end())
    throw InputError(fmt::format("winograd has no tile={} for {}x{} filters", m, p.r, p.s));
  WinogradShape s = shape_of(p, m, device);
  s.shared = config.get("shared") != 0;
  s.block = config.get("block");
  if (s.block < 1 || s.block > s.tiles())
    throw InputError(
        fmt::format("winograd's block={}: expected 1 to {} tiles", s.block, s.tiles()));
  return s;
}

WorkEstimate work_of(const WinogradShape& s, const DeviceInfo& device) {
  const WinogradCosts costs = winograd_costs(s);
  const double tiles = double(s.tiles()), in_c = double(s.in.padded_c());
  const double out_c = double(s.out_panels() * s.tile.cols);
  const double blocks = double(ceil_div(s.tiles(), s.block));
  const double in_bytes = 4.0 * double(s.in.elements()), out_bytes = 4.0 * double(s.out.elements());
  const double v_bytes = 4.0 * tiles * double(s.points()) * in_c;
  const double m_bytes = 4.0 * tiles * double(s.points()) * out_c;
  const bool leaves = 4 * s.set_floats() > device.l2_bytes * (s.shared ? s.threads : 1);

  PhaseWork input{.name = "input_transform", .flops = tiles * in_c * costs.input};
  PhaseWork product{.name = "product", .flops = 2 * tiles * double(s.points()) * in_c * out_c};
  PhaseWork output{.name = "output_transform"};
  input.bytes_read = in_bytes;
  if (s.pass == Pass::backward_filter) {
    input.flops += tiles * out_c * costs.filter;
    input.bytes_read += out_bytes;
    output.flops = in_c * out_c * costs.output;
    output.bytes_read = 4.0 * double(s.s_floats()) * double(s.shared ? 1 : s.threads);
    output.bytes_written = 4.0 * double(s.in.c * s.out.c * s.r * s.r);
    // The sums, once a block, unless they too stay in L2.
    if (leaves) {
      product.bytes_read += blocks * 4.0 * double(s.s_floats());
      product.bytes_written += blocks * 4.0 * double(s.s_floats());
    }
  } else {
    output.flops = tiles * out_c * costs.output;
    output.bytes_written = out_bytes;
    if (s.accumulate || s.epilogue.residual) output.bytes_read += out_bytes;
    const double filter_bytes = 4.0 * double(s.packed_floats());
    const double share = s.shared ? double(s.threads) : 1;
    product.bytes_read += filter_bytes / share < double(device.l2_bytes) / 2 && !leaves
                              ? filter_bytes
                              : filter_bytes * blocks;
  }
  if (leaves) {
    input.bytes_written += v_bytes;
    product.bytes_read += v_bytes;
    product.bytes_written += s.pass == Pass::backward_filter ? 0 : m_bytes;
    output.bytes_read += s.pass == Pass::backward_filter ? 0 : m_bytes;
  }
  input.efficiency = output.efficiency = 0.3;
  product.efficiency = 0.8;
  return {{input, product, output}};
}

class WinogradPlan : public ConvPlan {
 public:
  WinogradPlan(const ConvProblem& problem, WinogradShape shape)
      : problem_(problem), shape_(std::move(shape)) {}

  std::size_t workspace_bytes() const noexcept override {
    return std::size_t(shape_.workspace_floats()) * sizeof(float);
  }
  std::size_t packed_filter_bytes() const noexcept override {
    return problem_.pass == Pass::backward_filter
               ? 0
               : std::size_t(shape_.packed_floats()) * sizeof(float);
  }

  void pack_filter(ConstSpan w, Span packed, Stream&) const override {
    const std::int64_t taps = problem_.r * problem_.s;
    const bool data = problem_.pass == Pass::backward_data;
    const FilterView view{floats(w.data()), data ? taps : problem_.c * taps,
                          data ? problem_.c * taps : taps, data};
    winograd_pack(shape_, view, reinterpret_cast<float*>(packed.data()));
  }

  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    WinogradOperands data;
    data.in = floats(problem_.pass == Pass::backward_data ? args.dy : args.x);
    data.dy = floats(args.dy);
    data.packed = floats(args.w);
    if (problem_.epilogue.bias) data.bias = floats(args.bias);
    if (problem_.epilogue.residual) data.residual = floats(args.residual);
    data.out = static_cast<float*>(args.out);
    data.workspace = reinterpret_cast<float*>(workspace.data());
    data.phases = args.phases;
    winograd_run(shape_, data);
  }

 private:
  ConvProblem problem_;
  WinogradShape shape_;
};

class Winograd : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{
        .id = "winograd", .summary = "minimal filtering of 3x3 and 5x5, stride 1", .libraries = {}};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device&) const override {
    if (p.dtype != DType::f32) return Refusal{fmt::format("takes f32, not {}", to_string(p.dtype))};
    if (p.r != p.s || (p.r != 3 && p.r != 5))
      return Refusal{fmt::format("takes 3x3 and 5x5 filters, has {}x{}", p.r, p.s)};
    if (p.stride_h != 1 || p.stride_w != 1)
      return Refusal{fmt::format("needs stride 1, has {}x{}", p.stride_h, p.stride_w)};
    if (p.dilation_h != 1 || p.dilation_w != 1)
      return Refusal{fmt::format("needs dilation 1, has {}x{}", p.dilation_h, p.dilation_w)};
    if (p.groups != 1) return Refusal{fmt::format("takes one group, has {}", p.groups)};
    const Layout blocked = tile_shape().block == 16 ? Layout::nchw16c : Layout::nchw8c;
    for (const Layout layout : {p.x_layout, p.y_layout})
      if (layout != blocked)
        return Refusal{fmt::format("takes {} on this instruction set, not {}", to_string(blocked),
                                   to_string(layout))};
    return std::nullopt;
  }

  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    std::vector<Config> configs;
    for (const std::int64_t m : tile_sizes(p))
      for (const bool shared : {false, true}) {
        WinogradShape s = shape_of(p, m, device.info());
        s.shared = shared;
        configs.push_back(
            {{"tile", m}, {"shared", shared}, {"block", default_block(s, device.info())}});
      }
    return configs;
  }

  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    return work_of(plan_shape(p, config, device.info()), device.info());
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    return std::make_unique<WinogradPlan>(p, plan_shape(p, config, device.info()));
  }
};

}  // namespace

std::unique_ptr<ConvAlgo> make_winograd() { return std::make_unique<Winograd>(); }

}  // namespace convlab::cpu
