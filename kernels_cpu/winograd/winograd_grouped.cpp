// Winograd convolution in one dimension, along the rows, for groups of few channels.
//
// With few channels a group, the products at the points of a 2-D tile are too short to pay for
// transforms in two dimensions, whose V and M take more loads and stores than multiply-adds. Along
// rows, F(4,3) has C R products at each of its 6 points for 4 outputs, half the multiplications of
// the definition. With x in a row and w in a row of the filter,
//   y = A^T [ sum_c sum_r (G w) . (B^T x) ]
// A row of V serves R rows of outputs. M of a register tile stays in L1 until it is transformed.
//
// Groups smaller than a channel block share a vector. A vector of accumulators then holds four
// columns, of different groups, and for each the sums over every fourth channel, as in QuadTile.
// Each 128 bits of V's vector are four channels of the group that its column belongs to, so that
// no lane multiplies channels of another group.
//
// backward_data is the forward of dy with the flipped filter.
#include "kernels_cpu/winograd/winograd_grouped.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "conv/refusals.h"
#include "conv/text/counted.h"
#include "kernels_cpu/algos.h"

namespace convlab::cpu {
namespace {

constexpr std::int64_t kMostChannels = 64;  // of a group: with more, two dimensions are cheaper

WinogradGrouped plan_grouped(const ConvProblem& p, const DeviceInfo& device) {
  const bool data = p.pass == Pass::backward_data;
  WinogradGrouped s;
  s.problem = p;
  s.threads = device.threads;
  s.register_tile = tile_shape();
  s.in = view_of(data ? p.y_desc() : p.x_desc());
  s.out = view_of(data ? p.x_desc() : p.y_desc());
  s.pad_h = data ? WinogradGrouped::r - 1 - p.pad_h : p.pad_h;
  s.pad_w = data ? WinogradGrouped::r - 1 - p.pad_w : p.pad_w;
  const std::int64_t block = s.register_tile.block, c = p.c / p.groups, k = p.k / p.groups;
  if (c < block) {
    s.small = c;
    s.units = ceil_div(p.c, block);
    s.in_channels = s.out_channels = block;
  } else {
    s.units = p.groups;
    s.in_channels = data ? k : c;
    s.out_channels = data ? c : k;
  }
  // V stays in L2, and each thread has several bands. Two bands read the rows between them.
  const std::int64_t row_bytes =
      std::int64_t(sizeof(float)) * s.blocks() * WinogradGrouped::t * s.v_row();
  const std::int64_t fit = device.l2_bytes / 8 / row_bytes - (WinogradGrouped::r - 1);
  const std::int64_t bands = ceil_div(4 * s.threads, p.n * s.units);
  const std::int64_t most = std::clamp<std::int64_t>(fit, 1, ceil_div(s.out.height, bands));
  s.band = ceil_div(s.out.height, ceil_div(s.out.height, most));
  return s;
}

WorkEstimate work_of(const WinogradGrouped& s) {
  const ConvProblem& p = s.problem;
  const WinogradCosts costs = winograd_grouped_costs();
  const double tiles = double(p.n * s.out.height * s.row_tiles());
  const double in = double(s.units * s.in_channels), out = double(s.units * s.out_channels);
  const double overlap = double(s.band + WinogradGrouped::r - 1) / double(s.band);
  const bool data = p.pass == Pass::backward_data;
  const PhaseWork input{.name = "input_transform",
                        .flops = tiles * in * overlap * costs.input,
                        .bytes_read = double(data ? p.y_bytes() : p.x_bytes()),
                        .efficiency = 0.2};
  const double taps = double(WinogradGrouped::t * WinogradGrouped::r * s.depth());
  PhaseWork product{.name = "product",  // and the output's transform
                    .flops = tiles * out * (2 * taps + costs.output),
                    .bytes_read = double(s.threads) * double(p.filter_bytes()) * 2,
                    .bytes_written = double(p.output_bytes()),
                    .efficiency = 0.7};
  // Four partial sums become one in nine operations a vector.
  if (s.small > 0) product.flops += tiles * out * 9 * double(WinogradGrouped::t);
  if (p.epilogue.residual || p.accumulate) product.bytes_read += double(p.output_bytes());
  WorkEstimate estimate{{input, product}};
  estimate.pack = {"pack_filter", 0, double(p.filter_bytes()),
                   double(sizeof(float)) * double(s.units * s.packed_unit()), packing_efficiency};
  return estimate;
}

class WinogradGroupedPlan : public ConvPlan {
 public:
  explicit WinogradGroupedPlan(WinogradGrouped plan) : plan_(std::move(plan)) {}

  std::size_t workspace_bytes() const noexcept override {
    return std::size_t(plan_.threads * plan_.v_size()) * sizeof(float);
  }
  std::size_t packed_filter_bytes() const noexcept override {
    return std::size_t(plan_.units * plan_.packed_unit()) * sizeof(float);
  }
  void pack_filter(ConstSpan w, Span packed, Stream&) const override {
    winograd_grouped_pack(plan_, reinterpret_cast<const float*>(w.data()),
                          reinterpret_cast<float*>(packed.data()));
  }
  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    winograd_grouped_run(plan_, WinogradOperandsOf<float>(plan_.problem, args, workspace, false));
  }

 private:
  WinogradGrouped plan_;
};

class WinogradGroupedAlgo : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "winograd_grouped",
                               .version = 1,
                               .summary =
                                   "minimal filtering along rows; "
                                   "small groups, 3x3 of stride 1",
                               .libraries = {},
                               .family = "winograd"};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    if (auto refusal = refuse_all_but({DType::f32}, p)) return refusal;
    if (p.pass == Pass::backward_filter)
      return Refusal{Field::pass, "fwd or bwd_d", std::string(to_string(p.pass))};
    if (p.r != WinogradGrouped::r || p.s != WinogradGrouped::r)
      return Refusal{Field::filter, "a 3x3 filter", extent(p.r, p.s)};
    ConvProblem dense = p;
    dense.groups = 1;
    if (auto refusal = refuse_all_but_dense(dense)) return refusal;
    const TileShape shape = tile_shape();
    const std::int64_t c = p.c / p.groups, k = p.k / p.groups;
    const bool blocks = c % shape.block == 0 && k % shape.block == 0;
    const bool small = shape.lanes == shape.block && c == k && (c == 4 || c == 8);
    if (p.groups == 1 || std::max(c, k) > kMostChannels || (!blocks && !small))
      return Refusal{
          Field::groups,
          fmt::format("groups of up to {} channels and filters, both in multiples of {}{}",
                      kMostChannels, shape.block,
                      shape.lanes != shape.block ? ""
                      : shape.block == 16        ? ", or 4 or 8 of each"
                                                 : ", or 4 of each"),
          fmt::format("{} of {} and {}", p.groups, counted(c, "channel"), counted(k, "filter"))};
    if (auto refusal = refuse_other_blocks(p, device.info())) return refusal;
    if (auto refusal = refuse_parts_of_blocks("y", p.y_layout, p.k, device.info())) return refusal;
    return refuse_parts_of_blocks("x", p.x_layout, p.c, device.info());
  }

  std::vector<Config> configs(const ConvProblem&, Device&) const override { return {Config{}}; }

  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  WorkEstimate work(const ConvProblem& p, const Config&, Device& device) const override {
    return work_of(plan_grouped(p, device.info()));
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    config.require_only({});
    return std::make_unique<WinogradGroupedPlan>(plan_grouped(p, device.info()));
  }
};

}  // namespace

std::unique_ptr<ConvAlgo> make_winograd_grouped() {
  return std::make_unique<WinogradGroupedAlgo>();
}

}  // namespace convlab::cpu
