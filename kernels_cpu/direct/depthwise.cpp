// Depthwise convolution directly: each channel has one filter of its own, so that nothing is summed
// over channels, and no operand is shared by a tile's rows or columns.
//
// forward:         y[k][p][q] = sum over taps of x[k][p*stride + r][q*stride + s] w[k][r][s]
// backward_data:   dx[c] is the same sum over dy with the flipped filter, once per stride phase
// backward_filter: dw[k][r][s] = sum over pixels of x[k][p*stride + r][q*stride + s] dy[k][p][q]
//
// A vector holds neighbouring channels of one pixel, and all operands are vectors. The R S
// multiply-adds of an output read as many vectors of x from L1, which bounds the rate. Each output,
// and each tap of dw, is computed by one thread. f32 and f64.
#include "kernels_cpu/direct/depthwise.h"

#include <fmt/format.h>

#include "conv/refusals.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/gemm/non_temporal.h"

namespace convlab::cpu {
namespace {

using i64 = std::int64_t;

Depthwise plan_depthwise(const ConvProblem& original) {
  const ConvProblem p = flattened(original);
  Depthwise d;
  d.problem = p;
  const bool data = p.pass == Pass::backward_data;
  d.in = view_of(data ? p.y_desc() : p.x_desc());
  d.out = view_of(data ? p.x_desc() : p.y_desc());
  if (p.pass == Pass::backward_filter) return d;
  (data ? d.out_step_h : d.in_step_h) = p.stride_h;
  (data ? d.out_step_w : d.in_step_w) = p.stride_w;
  d.grids = data ? backward_grids(p) : forward_grids(p);
  return d;
}

class DepthwisePlan : public ConvPlan {
 public:
  DepthwisePlan(const ConvProblem& p, const DeviceInfo& device)
      : depthwise_(plan_depthwise(p)), threads_(device.threads) {}

  std::size_t workspace_bytes() const noexcept override { return 0; }
  std::size_t packed_filter_bytes() const noexcept override {
    const ConvProblem& p = depthwise_.problem;
    if (p.pass == Pass::backward_filter) return 0;
    return std::size_t(round_up(p.k, tile_shape().block) * p.r * p.s * size_of(p.dtype));
  }
  void pack_filter(ConstSpan w, Span packed, Stream&) const override {
    depthwise_.problem.dtype == DType::f64 ? pack<double>(w, packed) : pack<float>(w, packed);
  }
  void run(const ConvArgs& args, Workspace, Stream&) const override {
    const bool filter_pass = depthwise_.problem.pass == Pass::backward_filter;
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
    for (i64 thread = 0; thread < threads_; ++thread) {
      const PhaseScope scope(args.phases, 0);
      (filter_pass ? depthwise_filter : depthwise_pixels)(depthwise_, args, thread, threads_);
    }
  }

 private:
  template <class T>
  void pack(ConstSpan span, Span packed) const {
    const T* const w = reinterpret_cast<const T*>(span.data());
    T* to = reinterpret_cast<T*>(packed.data());
    const ConvProblem& p = depthwise_.problem;
    const i64 block = tile_shape().block, area = p.r * p.s;
    for (i64 first = 0; first < p.k; first += block)
      for (i64 rs = 0; rs < area; ++rs)
        for (i64 k = first; k < first + block; ++k) *to++ = k < p.k ? w[k * area + rs] : T(0);
  }

  Depthwise depthwise_;
  i64 threads_;
};

class DirectDepthwise : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "direct_depthwise",
                               .version = 1,
                               .summary = "direct for one filter a channel, vectors of channels",
                               .libraries = {},
                               .family = "direct"};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    return refuse_direct_depthwise(p, device.info());
  }
  std::vector<Config> configs(const ConvProblem&, Device&) const override { return {Config{}}; }
  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  // Vectors pad channels to whole blocks.
  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    const double w = double(p.filter_bytes());
    const double padded = double(round_up(p.k, tile_shape().block)) / double(p.k);
    PhaseWork loops{.name = "loops"};
    if (p.pass == Pass::backward_filter) {
      loops.bytes_read = double(p.x_bytes() + p.y_bytes());
      loops.bytes_written = w;
    } else {
      loops = direct_pixel_work(p, 1, double(device.info().threads));
      loops.bytes_read += bytes_read_for_ownership(p, config, device.info());
    }
    loops.flops = p.flops() * padded;
    loops.efficiency = 0.3;
    WorkEstimate estimate{{loops}};
    if (p.pass != Pass::backward_filter)
      estimate.pack = {"pack_filter", 0, w, w * padded, packing_efficiency};
    return estimate;
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    config.require_only({});
    return std::make_unique<DepthwisePlan>(p, device.info());
  }
};

}  // namespace

std::optional<Refusal> refuse_direct_depthwise(const ConvProblem& p, const DeviceInfo& device) {
  if (auto refusal = refuse_all_but({DType::f32, DType::f64}, p)) return refusal;
  if (!is_depthwise(p))
    return Refusal{
        Field::groups, "several groups of 1 channel and 1 filter",
        fmt::format("{} of {} channels and {} filters", p.groups, p.c / p.groups, p.k / p.groups)};
  if (auto refusal = refuse_two_layouts(p)) return refusal;
  if (auto refusal = refuse_other_blocks(p, device)) return refusal;
  return refuse_parts_of_blocks("x", p.x_layout, p.c, device);
}

std::unique_ptr<ConvAlgo> make_direct_depthwise() { return std::make_unique<DirectDepthwise>(); }

}  // namespace convlab::cpu
