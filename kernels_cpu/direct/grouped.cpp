// Direct convolution of groups smaller than a vector: as many filters as channels a group, 2, 4 or
// 8, and several groups in a vector.
//
// An output needs the products of its filter with all m channels of its group, which lie in m
// neighbouring lanes. Moving channels to the lanes of other filters before each multiply-add would
// take a shuffle for each. So each lane of x is multiplied where it is: with u_j[l] the tap from
// channel l to filter l ^ j, of the same group,
//   a_j[l] = sum over taps of x[l] u_j[l],  y[l] = sum over j of a_j[l ^ j]
// takes m accumulators a pixel, no shuffle in the loop over taps, and m - 1 at its end. A register
// tile is some pixels of a row times m accumulators: a tap's x is loaded once for m multiply-adds,
// its filter once for all pixels.
//
// backward_data:   the same loop over dy with channels and filters exchanged, once per stride phase
// backward_filter: b_j[l] = sum over pixels of x[l] dy[l ^ j] is dw of filter l ^ j and channel l.
//                  A tile is the m accumulators of neighbouring taps of a row. The m - 1 shuffles
//                  of a pixel's dy serve all of them.
//
// f32 and f64.
#include "kernels_cpu/direct/grouped.h"

#include <fmt/format.h>

#include <algorithm>

#include "conv/refusals.h"
#include "conv/text/counted.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/gemm/non_temporal.h"
#include "kernels_cpu/inside_taps.h"

namespace convlab::cpu {
namespace {

using i64 = std::int64_t;

GroupedGrid plan_grid(const Grouped& g, PixelGrid pixels) {
  GroupedGrid grid{.pixels = std::move(pixels), .taps = {}, .row_begin = {0}, .inside = {}};
  grid.inside = {0, grid.pixels.w};
  for (const Tap& tap : grid.pixels.taps) {
    const i64 left = tap.dw, step = g.in_step_w;
    grid.inside.begin = std::max(grid.inside.begin, left < 0 ? ceil_div(-left, step) : 0);
    grid.inside.end =
        std::min(grid.inside.end, left < g.in.width ? (g.in.width - 1 - left) / step + 1 : 0);
  }
  for (i64 row = 0; row < grid.pixels.h; ++row) {
    for (const Tap& tap : grid.pixels.taps) {
      const i64 h = row * g.in_step_h + tap.dh;
      if (h >= 0 && h < g.in.height)
        grid.taps.push_back({.in = (h * g.in.width + tap.dw) * g.in.pixel,
                             .filter = tap.rs * g.group * g.lanes,
                             .column = tap.dw});
    }
    grid.row_begin.push_back(i64(grid.taps.size()));
  }
  return grid;
}

Grouped plan_grouped(const ConvProblem& original, const Config& config, const DeviceInfo& device) {
  const ConvProblem p = flattened(original);
  Grouped g;
  g.problem = p;
  g.group = p.c / p.groups;
  g.lanes = tile_shape(p.dtype).lanes;
  const bool data = p.pass == Pass::backward_data;
  g.in = view_of(data ? p.y_desc() : p.x_desc());
  g.out = view_of(data ? p.x_desc() : p.y_desc());
  g.rows_first = p.y_layout == Layout::nhwc;
  if (p.pass == Pass::backward_filter) {
    const i64 vectors = g.vectors(), threads = device.threads;
    if (vectors % threads != 0 && vectors < 4 * threads)
      g.parts = std::min(ceil_div(4 * threads, vectors), p.n * p.p);
    g.strip = std::max<i64>(1, 160 / p.q);
    return g;
  }
  g.non_temporal = stores_non_temporal(config);
  (data ? g.out_step_h : g.in_step_h) = p.stride_h;
  (data ? g.out_step_w : g.in_step_w) = p.stride_w;
  for (PixelGrid& grid : data ? backward_grids(p) : forward_grids(p))
    g.grids.push_back(plan_grid(g, std::move(grid)));
  return g;
}

template <class T>
void pack(const Grouped& g, const T* w, T* to) {
  const ConvProblem& p = g.problem;
  const i64 area = p.r * p.s, m = g.group;
  const bool data = p.pass == Pass::backward_data;
  for (i64 first = 0; first < g.vectors() * g.lanes; first += g.lanes)
    for (i64 rs = 0; rs < area; ++rs)
      for (i64 j = 0; j < m; ++j)
        for (i64 lane = first; lane < first + g.lanes; ++lane) {
          const i64 k = data ? lane : lane ^ j, c = data ? lane ^ j : lane;
          *to++ = lane < p.k ? w[(k * m + c % m) * area + rs] : T(0);
        }
}

class PixelPlan : public ConvPlan {
 public:
  PixelPlan(const ConvProblem& p, const Config& config, const DeviceInfo& device)
      : grouped_(plan_grouped(p, config, device)), threads_(device.threads) {}

  std::size_t workspace_bytes() const noexcept override { return 0; }
  std::size_t packed_filter_bytes() const noexcept override {
    return std::size_t(grouped_.vectors() * grouped_.vector_taps() *
                       size_of(grouped_.problem.dtype));
  }
  void pack_filter(ConstSpan w, Span packed, Stream&) const override {
    const auto pack_as = [&](auto zero) {
      using T = decltype(zero);
      pack(grouped_, reinterpret_cast<const T*>(w.data()), reinterpret_cast<T*>(packed.data()));
    };
    grouped_.problem.dtype == DType::f64 ? pack_as(double()) : pack_as(float());
  }
  void run(const ConvArgs& args, Workspace, Stream&) const override {
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
    for (i64 thread = 0; thread < threads_; ++thread) {
      const PhaseScope scope(args.phases, 0);
      grouped_pixels(grouped_, args, thread, threads_);
    }
  }

 private:
  Grouped grouped_;
  i64 threads_;
};

class FilterPlan : public ConvPlan {
 public:
  FilterPlan(const ConvProblem& p, const DeviceInfo& device)
      : grouped_(plan_grouped(p, {}, device)), threads_(device.threads) {}

  std::size_t workspace_bytes() const noexcept override {
    return std::size_t(grouped_.vectors() * grouped_.parts) * unit_bytes();
  }
  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    const i64 vectors = grouped_.vectors(), units = vectors * grouped_.parts;
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (i64 unit = 0; unit < units; ++unit) {
      const PhaseScope scope(args.phases, 0);
      grouped_filter(grouped_, args, unit, workspace.data() + std::size_t(unit) * unit_bytes());
    }
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (i64 vector = 0; vector < vectors; ++vector) {
      const PhaseScope scope(args.phases, 1);
      grouped_.problem.dtype == DType::f64 ? sum_parts<double>(args, workspace, vector)
                                           : sum_parts<float>(args, workspace, vector);
    }
  }

 private:
  std::size_t unit_bytes() const {
    return std::size_t(grouped_.vector_taps() * size_of(grouped_.problem.dtype));
  }

  template <class T>
  void sum_parts(const ConvArgs& args, Workspace workspace, i64 vector) const {
    const ConvProblem& p = grouped_.problem;
    const i64 area = p.r * p.s, m = grouped_.group, taps = grouped_.vector_taps();
    const T* sums = reinterpret_cast<const T*>(workspace.data()) + vector * grouped_.parts * taps;
    for (i64 rs = 0; rs < area; ++rs)
      for (i64 j = 0; j < m; ++j)
        for (i64 lane = 0; lane < grouped_.lanes; ++lane, ++sums) {
          const i64 c = vector * grouped_.lanes + lane;
          if (c >= p.c) continue;
          T sum = 0;
          for (i64 part = 0; part < grouped_.parts; ++part) sum += sums[part * taps];
          T& to = static_cast<T*>(args.out)[((c ^ j) * m + c % m) * area + rs];
          to = p.accumulate ? to + sum : sum;
        }
  }

  Grouped grouped_;
  i64 threads_;
};

class DirectGrouped : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "direct_grouped",
                               .version = 1,
                               .summary = "direct for groups of 2, 4 or 8, several in a vector",
                               .libraries = {},
                               .family = "direct"};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    return refuse_direct_grouped(p, device.info());
  }

  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    if (may_store_non_temporal(p, device.info())) return {with_nontemporal_stores({}), Config{}};
    return {Config{}};
  }

  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  // Vectors pad channels to whole blocks.
  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    const Grouped g = plan_grouped(p, config, device.info());
    const double w = double(p.filter_bytes());
    const double padded = double(g.vectors() * g.lanes) / double(p.c);
    const double flops = p.flops() * padded * inside_share(p);
    if (p.pass == Pass::backward_filter) {
      const double sums = w * padded * double(g.parts);
      PhaseWork loops{.name = "loops", .flops = flops, .efficiency = 0.55};
      loops.bytes_read = double(p.x_bytes() + p.y_bytes());
      loops.bytes_written = sums;
      PhaseWork sum{.name = "sum", .bytes_read = sums, .bytes_written = w};
      return {{loops, sum}};
    }
    PhaseWork loops = direct_pixel_work(p, 1, double(device.info().threads));
    loops.bytes_read += bytes_read_for_ownership(p, config, device.info());
    loops.flops = flops;
    loops.efficiency = 0.65;
    return {{loops}, {"pack_filter", 0, w, w * padded, packing_efficiency}};
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    if (p.pass == Pass::backward_filter) {
      config.require_only({});
      return std::make_unique<FilterPlan>(p, device.info());
    }
    config.require_only({"stores"});
    return std::make_unique<PixelPlan>(p, config, device.info());
  }
};

}  // namespace

std::optional<Refusal> refuse_direct_grouped(const ConvProblem& p, const DeviceInfo& device) {
  if (auto refusal = refuse_all_but({DType::f32, DType::f64}, p)) return refusal;
  const TileShape shape = tile_shape(p.dtype);
  const i64 c = p.c / p.groups, k = p.k / p.groups;
  const i64 most = std::min({i64{8}, shape.lanes, shape.block / 2});
  if (p.groups == 1 || c != k || c < 2 || c > most || (c & (c - 1)) != 0)
    return Refusal{
        Field::groups,
        fmt::format("groups of 2{}{} channels and as many filters",
                    most == 4   ? " or 4"
                    : most == 8 ? ", 4"
                                : "",
                    most == 8 ? " or 8" : ""),
        fmt::format("{} of {} and {}", p.groups, counted(c, "channel"), counted(k, "filter"))};
  if (auto refusal = refuse_other_blocks(p, device)) return refusal;
  if (auto refusal = refuse_parts_of_blocks("y", p.y_layout, p.k, device)) return refusal;
  return refuse_parts_of_blocks("x", p.x_layout, p.c, device);
}

std::unique_ptr<ConvAlgo> make_direct_grouped() { return std::make_unique<DirectGrouped>(); }

}  // namespace convlab::cpu
