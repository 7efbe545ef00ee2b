// Winograd convolution: minimal filtering F(m x m, r x r), nested in two dimensions.
//
// An m x m tile of outputs comes from T x T inputs, T = m + r - 1. It takes T^2 multiplications for
// each pair of channels instead of m^2 r^2 (conv/math/cook_toom.h). Sums over channels commute with
// the transforms, so between them are T^2 matrix products of tiles x C by C x K:
//   forward:          y  = A^T [ sum_c (G w G^T) . (B^T x B) ] A
//   backward_data:    the forward of dy with the flipped filter, channels swapped
//   backward_filter:  dw = A^T [ sum_tiles (B^T x B) . (G dy G^T) ] A, as F(r, m)
//
// A stride of two is four convolutions of stride 1 over the stride phases of x, with filters of two
// taps, and of one where the filter has three. In a first layer, whose channels are few, the stride
// folds into them (winograd.h); the forward of 3x3 with stride 1 is winograd_1d.cpp's in f32.
//
// With math=bf16x3 or bf16x6 the product of 3x3 filters of stride 1 is by bf16 tiles (split.h), and
// with math=bf16 that of problems in bf16.
//
// Lavin & Gray 2015 (arXiv:1509.09308). Blocks of tiles stay in L2 between the steps: Jia et al.
// 2018 (PPoPP), Gelashvili et al. 2019 (arXiv:1912.02165). How threads share out blocks and filters
// is the schedule (WinogradSchedule).
#include "kernels_cpu/winograd/winograd.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <type_traits>

#include "conv/error.h"
#include "conv/refusals.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/amx/amx.h"
#include "kernels_cpu/device/range.h"
#include "kernels_cpu/gemm/non_temporal.h"
#include "kernels_cpu/groups.h"
#include "kernels_cpu/winograd/spec.h"

namespace convlab::cpu {
namespace {

// Of one group, by one team.
WinogradSpec plan_spec(const ConvProblem& p, const Config& config, const DeviceInfo& device) {
  const std::int64_t tile = config.get("tile");
  const std::vector<std::int64_t> sizes = winograd_tile_sizes(p);
  if (std::find(sizes.begin(), sizes.end(), tile) == sizes.end())
    throw InputError(fmt::format("winograd has no tile={} for {}x{} filters", tile, p.r, p.s));
  const auto schedule = config.choice<WinogradSchedule>("schedule", winograd_schedules);
  const WinogradGeometry g = winograd_geometry(p, tile);
  if (!g.allows(schedule))
    throw InputError(fmt::format("winograd's schedule={}: expected fwd or bwd_d, no first layer",
                                 config.choice("schedule")));
  std::int64_t block = g.tiles();
  if (packs_filter(schedule)) {
    block = config.get("block");
    if (block < 1 || block > g.tiles())
      throw InputError(
          fmt::format("winograd's block={}: expected 1 to {} tiles", block, g.tiles()));
  } else if (config.has("block")) {
    throw InputError(fmt::format("winograd's schedule={} has no block: it takes all tiles",
                                 config.choice("schedule")));
  }
  const MathType math = math_type(config);
  if (config.has("math")) {
    if (!multiplies_bf16(math))
      throw InputError(fmt::format("winograd's math={}: expected bf16x3, bf16x6 or bf16",
                                   config.choice("math")));
    if (!g.may_split() || !packs_filter(schedule))
      throw InputError(
          fmt::format("winograd's math={}: expected fwd or bwd_d of 3x3 filters with stride 1 in "
                      "f32, packed",
                      config.choice("math")));
    if (math == MathType::bf16 && tile != 2)
      throw InputError(fmt::format("winograd's tile={}: expected 2 with math=bf16", tile));
    if (matrix_unit(device).empty())
      throw EnvironmentError(
          fmt::format("winograd: math={} takes a matrix unit", config.choice("math")));
  }
  WinogradSpec s = winograd_spec(g, schedule, math, block, device);
  s.non_temporal_stores = stores_non_temporal(config);
  return s;
}

Config config_of(const WinogradSpec& s) {
  Config config{{"tile", s.geometry.tile},
                {"schedule", std::string(winograd_schedules[std::size_t(s.schedule)])}};
  if (packs_filter(s.schedule)) config.set("block", s.block_tiles);
  if (s.non_temporal_stores) config.set("stores", "nontemporal");
  if (s.splits()) return with_math(std::move(config), DType::f32, s.math);
  return config;
}

// Whether non-temporal stores of the output fill whole lines. A channel block of several vectors is
// written in as many passes: with two f64 vectors of AVX2 each store would be half a line, and with
// four-lane vectors less.
bool stores_whole_lines(const WinogradGeometry& g) {
  const TileShape& shape = g.register_tile;
  return g.pass != Pass::backward_filter && !g.unfolds() &&
         (shape.lanes == shape.block || shape.lanes * g.element() >= 64);
}

// V and M, and the filter or the sums, cross L2's border unless they fit in it. The transforms and
// the product of a shared block run on different cores; what crosses between these counts in
// backward_filter only.
WorkEstimate work_of(const WinogradSpec& s, const DeviceInfo& device) {
  const WinogradGeometry& g = s.geometry;
  const WinogradBuffers& b = s.buffers;
  const WinogradCosts costs = winograd_costs(g);
  const double element = double(g.element());
  const double tiles = double(g.tiles()), points = double(g.points());
  const double in_c = double(g.in_blocks() * g.register_tile.block),
               out_c = double(g.out_panels() * g.register_tile.cols);
  const double v_bytes = element * tiles * points * double(s.v_channels()),
               m_bytes = element * tiles * points * out_c;
  // Packed, or sums.
  const double filter_bytes = element * points * double(s.v_channels()) * out_c;
  const double columns = double(g.columns());
  const std::int64_t last_panel = g.phase_panels() - 1;
  const double multiplied_columns = double(
      g.out_grid.phases * (last_panel * g.register_tile.cols + s.packed_columns(last_panel)));
  // Points of each pair of channels that are multiplied: in a dimension, all but one stride phase's
  // last.
  const double last = g.short_phases() ? 0.5 / double(g.t()) : 0;
  const double products = tiles * points * (1 - last) * (1 - last);
  // Lanes that pad x's channels stay out of the product, but for those between forward's phases.
  const bool all_lanes = g.pass == Pass::forward && g.polyphase();
  const double multiplied_c = all_lanes ? in_c : double(g.in_grid.phases * g.in.c);
  const bool shared = shares_v(s.schedule);
  const double cores = shared ? double(s.threads) : 1;
  const double l2 = cores * double(device.l2_bytes);
  const double block_bytes = element * double(b.v.size + b.m.size);
  const bool block_fits = block_bytes <= 0.75 * l2;
  const bool all_fits = block_bytes + filter_bytes <= l2;
  const double blocks = std::max(tiles / double(s.block_tiles), 1.0);  // of all threads

  PhaseWork input{
      .name = "input_transform",
      .flops = tiles * in_c * costs.input * (repeats_transform(s.schedule) ? double(s.threads) : 1),
      .bytes_read = g.in_bytes(),
      .efficiency = 0.2};
  PhaseWork product{.name = "product",
                    .flops = 2 * products * multiplied_c * multiplied_columns,
                    .efficiency = 0.62};
  if (s.splits()) {
    // A split takes about six operations a term.
    input.flops += tiles * points * in_c * double(6 * s.terms());
    product.flops = double(products_of(s.math)) * 2 * points *
                    double(round_up(g.tiles(), tile_rows) * s.split_steps() * tile_depth) * columns;
    product.efficiency = split_efficiency(device);
  }
  PhaseWork output{.name = "output_transform", .efficiency = 0.2};
  if (!block_fits) {
    input.bytes_written += v_bytes;
    product.bytes_read += v_bytes;
  }
  if (g.pass == Pass::backward_filter) {
    const double copies = sees_all_tiles(s.schedule) ? 1 : double(s.threads);  // of the sums
    input.flops += tiles * columns * costs.filter;
    if (shared)  // core to core
      product.bytes_read += (v_bytes + (b.m.thread_step > 0 ? 0 : m_bytes)) * (1 - 1 / cores);
    input.bytes_read += g.out_bytes();
    if (!block_fits) {
      input.bytes_written += m_bytes;
      product.bytes_read += m_bytes;
    }
    if (s.final_sums) {
      product.bytes_read +=
          double(g.out_panels() - 1) * v_bytes + double(b.panel_chunks - 1) * m_bytes;
    } else {
      product.bytes_read += all_fits ? 0 : filter_bytes * (blocks - copies);
      product.bytes_written += filter_bytes * (all_fits ? copies : blocks);
      output.bytes_read += filter_bytes * copies;
    }
    output.flops = in_c * columns * costs.output;
    output.bytes_written = g.kernel_bytes();
  } else {
    if (packs_filter(s.schedule))
      product.bytes_read += filter_bytes * (all_fits ? double(s.threads) / cores : blocks);
    output.flops = tiles * columns * costs.output;
    output.bytes_written = g.out_bytes();
    if (exceeds_caches(g.groups * std::int64_t(g.out_bytes()), device) && !s.non_temporal_stores)
      output.bytes_read += g.out_bytes();
    if (g.accumulate || g.epilogue.residual) output.bytes_read += g.out_bytes();
    if (!block_fits) {
      product.bytes_written += m_bytes;
      output.bytes_read += m_bytes;
    }
  }
  WorkEstimate estimate{{input, product, output}};
  if (!packs_filter(s.schedule))
    estimate.phases.push_back({.name = "filter_transform",
                               .flops = in_c * out_c * costs.filter,
                               .bytes_read = g.kernel_bytes(),
                               .efficiency = 0.1});
  else if (g.pass != Pass::backward_filter)
    estimate.pack = {"pack_filter", 0, g.kernel_bytes(), filter_bytes, packing_efficiency};
  return work_of_groups(std::move(estimate), g.groups);
}

class WinogradPlan : public ConvPlan {
 public:
  WinogradPlan(const ConvProblem& problem, WinogradSpec spec, GroupTeams teams)
      : problem_(problem), spec_(std::move(spec)), teams_(teams) {}

  std::size_t workspace_bytes() const noexcept override {
    return std::size_t(teams_.teams * spec_.geometry.element() * spec_.buffers.workspace);
  }
  std::size_t packed_filter_bytes() const noexcept override {
    return std::size_t(teams_.groups * spec_.geometry.element() * spec_.buffers.packed);
  }

  void pack_filter(ConstSpan w, Span packed, Stream&) const override {
    problem_.dtype == DType::f64 ? pack_filter_of<double>(w, packed)
                                 : pack_filter_of<float>(w, packed);
  }

  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    problem_.dtype == DType::f64 ? run_of<double>(args, workspace) : run_of<float>(args, workspace);
  }

 private:
  template <class Real>
  void pack_filter_of(ConstSpan w, Span packed) const {
    Real* const to = reinterpret_cast<Real*>(packed.data());
    for_each_group([&](std::int64_t group, std::int64_t, std::int64_t rank, std::int64_t size) {
      const FilterViewOf<Real> filter(problem_, w.data(), group);
      Real* const own = to + group * spec_.buffers.packed;
      if constexpr (std::is_same_v<Real, float>) {
        if (spec_.splits()) return winograd_pack_split(spec_, filter, own, rank, size);
      }
      winograd_pack(spec_, filter, own, rank, size);
    });
  }

  template <class Real>
  void run_of(const ConvArgs& args, Workspace workspace) const {
    const WinogradOperandsOf<Real> data(problem_, args, workspace, spec_.non_temporal_stores);
    std::vector<WorkShares> tiles;
    for (std::int64_t group = 0; group < teams_.groups; ++group)
      tiles.emplace_back(spec_.geometry.tiles(), spec_.threads);
    for_each_group(
        [&](std::int64_t group, std::int64_t team, std::int64_t rank, std::int64_t size) {
          WinogradOperandsOf<Real> own = data.of_group(spec_, group, team);
          const FilterViewOf<Real> filter(problem_, args.w, group);
          if (!packs_filter(spec_.schedule)) own.filter = &filter;
          own.tiles = &tiles[std::size_t(group)];
          if constexpr (std::is_same_v<Real, float>) {
            if (spec_.splits()) return winograd_run_split(spec_, own, rank, size);
          }
          winograd_run(spec_, own, rank, size);
        });
  }

  // f(group, team, rank, size) by each thread of the team that takes the group. A team of all
  // threads meets between groups, whose buffers are the same.
  template <class F>
  void for_each_group(const F& f) const {
#pragma omp parallel num_threads(int(teams_.teams * teams_.threads))
    {
      const std::int64_t rank = omp_get_thread_num(), size = omp_get_num_threads();
      if (teams_.teams == 1) {
        for (std::int64_t group = 0; group < teams_.groups; ++group) {
          if (group > 0) {
#pragma omp barrier
          }
          f(group, 0, rank, size);
        }
      } else {
        for (std::int64_t team = rank; team < teams_.teams; team += size) {
          const Range own = share(teams_.groups, team, teams_.teams);
          for (std::int64_t group = own.begin; group < own.end; ++group) f(group, team, 0, 1);
        }
      }
    }
  }

  ConvProblem problem_;
  WinogradSpec spec_;
  GroupTeams teams_;
};

bool is_dilated(const ConvProblem& p) { return p.dilation_h * p.dilation_w > 1; }

// The filters and dilations of blocked layouts.
std::optional<Refusal> refuse_filter(const ConvProblem& p) {
  if (p.r != p.s || p.r < 3 || p.r > 5)
    return Refusal{Field::filter, "a 3x3 to 5x5 filter", extent(p.r, p.s)};
  if (is_dilated(p) && (p.pad_h % p.dilation_h != 0 || p.pad_w % p.dilation_w != 0))
    return Refusal{
        Field::padding,
        fmt::format("padding in multiples of the dilation, {}", extent(p.dilation_h, p.dilation_w)),
        extent(p.pad_h, p.pad_w)};
  return {};
}

class Winograd : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "winograd",
                               .version = 30,
                               .summary =
                                   "minimal filtering of 3x3 to 5x5, also dilated; 3x3 and "
                                   "4x4 of stride 2; strided first layers",
                               .libraries = {},
                               .family = "winograd"};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    if (auto refusal = refuse_all_but({DType::f32, DType::f64}, p)) return refusal;
    ConvProblem dense = p;
    if (winograd_first_layer(p)) {
      // Groups and dilations are for blocked layouts. If those refuse them as well, their reason is
      // the one that helps.
      if (auto refusal = refuse_parts_of_blocks_in_groups(p)) return refusal;
      if (is_dilated(p)) {
        if (auto refusal = refuse_filter(p)) return refusal;
        return Refusal{Field::dilation, "dilation 1 with x in nchw",
                       extent(p.dilation_h, p.dilation_w)};
      }
      const std::int64_t stride = p.stride_h, taps = winograd_taps(p);
      if (p.pass == Pass::backward_data && stride == 1)
        return Refusal{Field::stride, "a stride of 2 or 4 for the gradient of a plain input", "1"};
      if (p.r != p.s || p.stride_w != stride || (stride != 1 && stride != 2 && stride != 4) ||
          taps < 3 || taps > 5)
        return Refusal{Field::filter, "a stride of 1, 2 or 4 whose folding leaves 3x3 to 5x5 taps",
                       fmt::format("{}x{} of stride {}x{}", p.r, p.s, p.stride_h, p.stride_w)};
      if (p.pass == Pass::forward && stride == 1 && p.r == 3 && p.dtype == DType::f32)
        return Refusal{Field::filter, "4x4 or 5x5 in the forward of a first layer of stride 1",
                       "3x3, which winograd_1d takes"};
      dense.stride_h = dense.stride_w = 1;
      dense.x_layout = blocked_layout(device.info());
    } else {
      if (auto refusal = refuse_filter(p)) return refusal;
      if (is_dilated(p)) {
        dense.dilation_h = dense.dilation_w = 1;
      } else if (p.r <= 4 && p.stride_h == 2 && p.stride_w == 2) {
        dense.stride_h = dense.stride_w = 1;
      }
      dense.groups = 1;
    }
    if (auto refusal = refuse_all_but_dense(dense)) return refusal;
    if (auto refusal = refuse_all_but_blocked(dense, device.info())) return refusal;
    return refuse_parts_of_blocks_in_groups(p);
  }

  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    // Best first by the estimate, and none that it finds hopeless; none of needless size. Schedules
    // with a shared V are not compared with those without: the estimate does not know whether the
    // cores share an L3, and where they do not, a line takes six times as long from core to core.
    struct Candidate {
      bool large;
      double cost;
      WinogradSpec spec;
    };
    const DeviceInfo machine =
        GroupTeams(p.groups, device.info().threads).device_of_team(device.info());
    std::vector<Candidate> ranked;
    const auto rank_spec = [&](WinogradSpec s, bool large) {
      ranked.push_back({large, ranking_cost(work_of(s, machine), p.dtype), s});
      const WinogradGeometry& g = s.geometry;
      if (!stores_whole_lines(g) || p.accumulate ||
          !exceeds_caches(g.groups * g.element() * g.out.elements(), machine))
        return;
      s.non_temporal_stores = true;
      ranked.push_back({large, ranking_cost(work_of(s, machine), p.dtype), s});
    };
    const auto rank = [&](const WinogradGeometry& g, MathType math) {
      for (std::size_t i = 0; i < winograd_schedules.size(); ++i) {
        const auto schedule = WinogradSchedule(i);
        if (!g.allows(schedule) || (math != MathType::f32 && !packs_filter(schedule))) continue;
        if (repeats_transform(schedule) && machine.threads == 1) continue;
        const WinogradSpec s =
            winograd_spec(g, schedule, math, winograd_block(g, schedule, math, machine), machine);
        // V of all tiles is read again for each panel, from L3 if not from L2.
        const std::int64_t v_bytes = g.element() * s.buffers.v.size * s.v_copies();
        if (!packs_filter(schedule) && v_bytes > machine.l3_bytes / 2) continue;
        const bool large = p.pass == Pass::backward_filter &&
                           g.element() * s.buffers.workspace > winograd_most_workspace(g, machine);
        rank_spec(s, large);
        if (const std::int64_t block = winograd_large_block(s, machine); block > s.block_tiles)
          rank_spec(winograd_spec(g, schedule, math, block, machine), large);
      }
    };
    for (const std::int64_t tile : winograd_tile_sizes(p)) {
      const WinogradGeometry g = winograd_geometry(p, tile);
      rank(g, MathType::f32);
      if (matrix_unit(machine).empty() || !g.may_split()) continue;
      if (tile <= 4) rank(g, MathType::bf16x3);
      if (tile >= 4) rank(g, MathType::bf16x6);
    }
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
      return std::tuple(a.spec.math, a.large, a.cost) < std::tuple(b.spec.math, b.large, b.cost);
    });
    std::vector<Config> configs;
    std::map<std::tuple<MathType, std::int64_t, bool>, double> best;
    for (const auto& [large, cost, spec] : ranked) {
      if (large != ranked.front().large) break;
      // An error limit may leave only one of the tile sizes of bf16x3.
      const std::int64_t tile = spec.math == MathType::bf16x3 ? spec.geometry.tile : 0;
      const double least =
          best.try_emplace({spec.math, tile, shares_v(spec.schedule)}, cost).first->second;
      if (cost < 1.5 * least) configs.push_back(config_of(spec));
    }
    return configs;
  }

  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    const DeviceInfo team =
        GroupTeams(p.groups, device.info().threads).device_of_team(device.info());
    return work_of(plan_spec(p, config, team), team);
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    const GroupTeams teams(p.groups, device.info().threads);
    WinogradSpec spec = plan_spec(p, config, teams.device_of_team(device.info()));
    if (stores_whole_lines(spec.geometry))
      config.require_only({"tile", "schedule", "block", "stores", "math"});
    else
      config.require_only({"tile", "schedule", "block", "math"});
    return std::make_unique<WinogradPlan>(p, std::move(spec), teams);
  }
};

}  // namespace

bool winograd_first_layer(const ConvProblem& p) { return p.x_layout == Layout::nchw && p.c <= 4; }

std::unique_ptr<ConvAlgo> make_winograd() { return std::make_unique<Winograd>(); }

}  // namespace convlab::cpu
