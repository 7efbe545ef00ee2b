// Winograd convolution in one dimension, along the rows, for a first layer.
//
// With a first layer's few channels, the product at each point of a 2-D tile is too short to pay
// for transforms in two dimensions. Along rows, F(4,3) has C R products at each of its 6 points for
// 4 outputs: half the multiplications of the definition. With x in a row and w in a row of the
// filter,
//   y = A^T [ sum_c sum_r (G w) . (B^T x) ]
// A register tile is some tiles of a row times one vector of K at all points, so sums are
// transformed back in registers. They leave as evenly as those of the definition do: in bursts they
// would wait for memory, and all other work for them. x is transformed a row at a time, with tiles
// in the lanes.
//
// The other passes of a first layer, and strides above 1, are winograd.cpp's.
#include "kernels_cpu/winograd/winograd_1d.h"

#include <utility>

#include "conv/error.h"
#include "conv/refusals.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/gemm/non_temporal.h"

namespace convlab::cpu {
namespace {

constexpr double kElement = sizeof(float);

Winograd1d plan_1d(const ConvProblem& p, const Config& config, const DeviceInfo& device) {
  if (config.get("tile") != Winograd1d::m)
    throw InputError("winograd_1d's tile: expected 4, has " + std::to_string(config.get("tile")));
  return {p, device.threads, tile_shape(), stores_non_temporal(config)};
}

WorkEstimate work_of(const Winograd1d& s, const DeviceInfo& device) {
  const ConvProblem& p = s.problem;
  const WinogradCosts costs = winograd_1d_costs();
  const double tiles = double(p.n * p.p * s.row_tiles());
  const double k = double(s.filters()), taps = double(s.taps());
  const double overlap = double(s.band + p.r - 1) / double(s.band);
  const PhaseWork input{.name = "input_transform",
                        .flops = tiles * double(p.c) * overlap * costs.input,
                        .bytes_read = double(p.x_bytes()),
                        .efficiency = 0.2};
  PhaseWork product{.name = "product",  // and the output's transform
                    .flops = tiles * k * (2 * double(s.t) * taps + costs.output),
                    .bytes_read = p.epilogue.residual || p.accumulate ? double(p.y_bytes()) : 0,
                    .bytes_written = double(p.y_bytes()),
                    .efficiency = 0.62};
  if (exceeds_caches(p.y_bytes(), device) && !s.non_temporal_stores)
    product.bytes_read += double(p.y_bytes());
  WorkEstimate estimate{{input, product}};
  estimate.pack = {"pack_filter", 0, double(p.filter_bytes()), kElement * double(s.packed_size()),
                   packing_efficiency};
  return estimate;
}

class Winograd1dPlan : public ConvPlan {
 public:
  explicit Winograd1dPlan(Winograd1d plan) : plan_(std::move(plan)) {}

  std::size_t workspace_bytes() const noexcept override {
    return std::size_t(plan_.threads * plan_.thread_size()) * sizeof(float);
  }
  std::size_t packed_filter_bytes() const noexcept override {
    return std::size_t(plan_.packed_size()) * sizeof(float);
  }
  void pack_filter(ConstSpan w, Span packed, Stream&) const override {
    winograd_1d_pack(plan_, reinterpret_cast<const float*>(w.data()),
                     reinterpret_cast<float*>(packed.data()));
  }
  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    winograd_1d_run(plan_, WinogradOperandsOf<float>(plan_.problem, args, workspace,
                                                     plan_.non_temporal_stores));
  }

 private:
  Winograd1d plan_;
};

class Winograd1dAlgo : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "winograd_1d",
                               .version = 1,
                               .summary =
                                   "minimal filtering along rows; "
                                   "forward of first layers, 3x3 of stride 1",
                               .libraries = {},
                               .family = "winograd"};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    if (auto refusal = refuse_all_but({DType::f32}, p)) return refusal;
    if (p.pass != Pass::forward) return Refusal{Field::pass, "fwd", std::string(to_string(p.pass))};
    if (p.x_layout != Layout::nchw)
      return Refusal{Field::layout, "x in nchw", std::string(to_string(p.x_layout))};
    if (!winograd_first_layer(p))
      return Refusal{Field::channels, "at most 4 channels of x", std::to_string(p.c)};
    if (p.r != Winograd1d::r || p.s != Winograd1d::r)
      return Refusal{Field::filter, "a 3x3 filter", extent(p.r, p.s)};
    if (auto refusal = refuse_all_but_dense(p)) return refusal;
    ConvProblem blocked = p;
    blocked.x_layout = blocked_layout(device.info());
    return refuse_all_but_blocked(blocked, device.info());
  }

  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    const Config ordinary{{"tile", Winograd1d::m}};
    if (p.accumulate || !exceeds_caches(p.y_bytes(), device.info())) return {ordinary};
    Config nontemporal = ordinary;
    nontemporal.set("stores", "nontemporal");
    return {nontemporal, ordinary};
  }

  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    return work_of(plan_1d(p, config, device.info()), device.info());
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    config.require_only({"tile", "stores"});
    return std::make_unique<Winograd1dPlan>(plan_1d(p, config, device.info()));
  }
};

}  // namespace

std::unique_ptr<ConvAlgo> make_winograd_1d() { return std::make_unique<Winograd1dAlgo>(); }

}  // namespace convlab::cpu
