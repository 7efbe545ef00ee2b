// Direct convolution: the loops of the definition, blocked for registers and caches; no column
// matrix, no transform, and no copy of the input.
//
// forward:         y[k][p][q] += x[c][p*stride + r][q*stride + s] w[k][c][r][s]. A register tile is
//                  14 x 2 (AVX-512): pixels along rows times vectors of K. Each w vector is loaded
//                  once for 14 pixels and each x value is broadcast to two vectors. Taps that fall
//                  into the padding read from a line of zeros.
// backward_data:   the same loop over dy with the flipped filter; for stride > 1 once per stride
//                  phase (see pixel_grid.h).
// backward_filter: a tile is half a channel block times two vectors of K, and its depth runs over
//                  pixels. 3x3 filters have tiles of their own (taps.cpp).
//
// Caches: the filters of a panel (the tile's K) and a chunk of C stay in L2 while all tiles of a
// strip of pixels use them, as does the strip's input for all panels. L1 need not hold the chunk,
// since a step of 28 multiply-adds reads 2 vectors of it; a smaller chunk would store and reload
// the partial sums of each tile more often, which costs more. In backward_filter rows of dy and x
// stay in L1 for all taps. Threads share pixels or panels; where backward_filter has to share
// pixels, each thread has its own copy of the sums, and the copies are added in a fixed order.
//
// The tiles need whole channel blocks of f32. The rest of the family takes the other problems:
// first layers with few channels (first_layer.cpp), small groups (grouped.cpp), and all others
// (plain.cpp) but those of one channel a group, which `depthwise` takes.
//
// Channel-blocked layouts after Georganas et al. 2018 (arXiv:1808.05567) and Zhang et al. 2018
// (arXiv:1809.10170).

#include "kernels_cpu/direct/direct.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "conv/refusals.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/gemm/filter_block.h"
#include "kernels_cpu/gemm/non_temporal.h"
#include "kernels_cpu/groups.h"
#include "kernels_cpu/inside_taps.h"
#include "kernels_cpu/row_as_column.h"

namespace convlab::cpu {
namespace {

using i64 = std::int64_t;

// How threads split forward and backward_data. By pixels, each reads the whole filter; by panels,
// each reads the whole input.
enum class Share : std::uint8_t { pixels, panels };
constexpr std::array<std::string_view, 2> share_names{"pixels", "panels"};

Share share_of(const Config& config) { return config.choice<Share>("share", share_names); }

bool has_rows_of_taps(const ConvProblem& p) {
  return p.pass == Pass::backward_filter && p.r == 3 && p.s == 3 && p.dilation_h == 1 &&
         p.dilation_w == 1 && p.stride_h == p.stride_w && p.stride_w <= 2 && p.groups == 1;
}

// The computation, before any blocking.
DirectPixels pixels_of(const ConvProblem& original) {
  const ConvProblem p = flattened(original);
  const bool forward = p.pass == Pass::forward;
  const TensorDesc in = forward ? p.x_desc() : p.y_desc();
  const TensorDesc out = forward ? p.y_desc() : p.x_desc();
  DirectPixels d;
  d.in = view_of(in);
  d.out = view_of(out);
  d.n = p.n;
  d.in_channels = in.c / p.groups;
  d.block = tile_shape().block;
  d.in_blocks = ceil_div(d.in_channels, d.block);
  d.panels = panels_of(p.groups, out.c);
  (forward ? d.in_step_h : d.out_step_h) = p.stride_h;
  (forward ? d.in_step_w : d.out_step_w) = p.stride_w;
  d.grids = forward ? forward_grids(p) : backward_grids(p);
  return d;
}

DirectPixels plan_pixels(const ConvProblem& p, const Config& config, const DeviceInfo& device) {
  const TileShape shape = tile_shape();
  DirectPixels d = pixels_of(p);
  i64 filter = 0, pixels = 0;
  for (PixelGrid& grid : d.grids) {
    grid.filter = filter;
    filter += d.panels.count() * d.in_blocks * i64(grid.taps.size()) * shape.block * shape.cols;
    pixels += d.n * grid.h * grid.w;
  }
  d.depth = config.get("depth");
  const i64 pixel_bytes = d.in_blocks * shape.block * 4 * d.in_step_h * d.in_step_w;
  d.strip = std::max(device.l2_bytes / 2 / pixel_bytes, 8 * shape.rows);
  const i64 threads = device.threads;
  d.panel_threads = share_of(config) == Share::panels ? std::min(threads, d.panels.count()) : 1;
  d.row_threads = std::min(threads / d.panel_threads, ceil_div(pixels, shape.rows));
  return d;
}

i64 packed_floats(const DirectPixels& d) {
  const TileShape shape = tile_shape();
  i64 taps = 0;
  for (const PixelGrid& grid : d.grids) taps += i64(grid.taps.size());
  return d.panels.count() * d.in_blocks * taps * shape.block * shape.cols;
}

void pack_pixels(const DirectPixels& d, const ConvProblem& p, const float* w, float* packed,
                 int threads) {
  const TileShape shape = tile_shape();
  for (const PixelGrid& grid : d.grids) {
    const i64 taps = i64(grid.taps.size()), room = d.in_blocks * taps * shape.block * shape.cols;
    const std::vector<i64> tap_of = tap_of_element(grid, p.r * p.s);
#pragma omp parallel for num_threads(threads) collapse(2) schedule(static)
    for (i64 index = 0; index < d.panels.count(); ++index)
      for (i64 b = 0; b < d.in_blocks; ++b) {
        const PanelColumns columns(d.panels, index);
        const i64 group = index / d.panels.per_group, chunk = b / d.chunk(grid) * d.chunk(grid);
        const i64 blocks = std::min(d.chunk(grid), d.in_blocks - chunk);
        const i64 block_floats = shape.block * columns.computed;
        const FilterBlock part{.in = b * shape.block,
                               .out = columns.first - group * d.panels.channels,
                               .channels = std::min(shape.block, d.in_channels - b * shape.block),
                               .columns = columns.count,
                               .packed_channels = shape.block,
                               .packed_columns = columns.computed};
        float* const to = packed + grid.filter + index * room;
        pack_block(FilterView(p, w, group), part, tap_of, blocks * block_floats,
                   to + (chunk * taps + b - chunk) * block_floats);
      }
  }
}

// The prologue and the epilogue of a tile, which transposes its sums, take as long as 25 steps of
// its depth.
double taps_efficiency(const ConvProblem& p) {
  const double depth = double(p.n * p.p * p.q);
  return 0.86 * depth / (depth + 25);
}

class PixelPlan : public ConvPlan {
 public:
  PixelPlan(const ConvProblem& p, const Config& config, const DeviceInfo& device)
      : problem_(p),
        pixels_(plan_pixels(p, config, device)),
        threads_(device.threads),
        non_temporal_(stores_non_temporal(config)) {}

  std::size_t workspace_bytes() const noexcept override { return 0; }
  std::size_t packed_filter_bytes() const noexcept override {
    return std::size_t(packed_floats(pixels_)) * sizeof(float);
  }
  void pack_filter(ConstSpan w, Span packed, Stream&) const override {
    pack_pixels(pixels_, problem_, reinterpret_cast<const float*>(w.data()),
                reinterpret_cast<float*>(packed.data()), threads_);
  }
  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    const DirectOperands data = direct_operands(
        problem_, args, workspace, non_temporal_ && is_aligned_for_non_temporal(args.out));
    const i64 used = pixels_.row_threads * pixels_.panel_threads;
#pragma omp parallel for num_threads(used) schedule(static, 1)
    for (i64 thread = 0; thread < used; ++thread) {
      const PhaseScope scope(args.phases, 0);
      direct_pixels(pixels_, data, thread);
    }
  }

 private:
  ConvProblem problem_;
  DirectPixels pixels_;
  int threads_;
  bool non_temporal_;
};

DirectFilter plan_filter(const ConvProblem& original, const Config& config,
                         const DeviceInfo& device) {
  const ConvProblem p = row_as_column(flattened(original));
  DirectFilter d;
  d.problem = p;
  d.x = view_of(p.x_desc());
  d.dy = view_of(p.y_desc());
  d.n = p.n;
  d.in_blocks = ceil_div(p.c / p.groups, tile_shape().block);
  d.panels = panels_of(p.groups, p.k);
  // Strips of equal size: each stores and reloads the sums.
  const i64 strips = std::llround(double(p.p * p.q) / double(config.get("pixels")));
  d.strip = ceil_div(p.p, std::clamp<i64>(strips, 1, p.p));
  d.unit_floats = p.r * p.s * tile_shape().block * tile_shape().cols;
  d.filter_threads = std::min<i64>(device.threads, d.units());
  d.row_threads = std::min(device.threads / d.filter_threads, p.n * p.p);
  return d;
}

class FilterPlan : public ConvPlan {
 public:
  FilterPlan(const ConvProblem& p, const Config& config, const DeviceInfo& device)
      : filter_(plan_filter(p, config, device)) {}

  std::size_t workspace_bytes() const noexcept override {
    const i64 units = filter_.row_threads > 1 ? filter_.row_threads * filter_.units() : threads();
    return std::size_t(units * filter_.unit_floats) * sizeof(float);
  }
  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    const DirectOperands data = direct_operands(filter_.problem, args, workspace);
#pragma omp parallel for num_threads(threads()) schedule(static, 1)
    for (i64 thread = 0; thread < threads(); ++thread) {
      const PhaseScope scope(args.phases, 0);
      direct_filter(filter_, data, thread);
    }
    if (filter_.row_threads == 1) return;
#pragma omp parallel for num_threads(threads()) schedule(static)
    for (i64 unit = 0; unit < filter_.units(); ++unit) {
      const PhaseScope scope(args.phases, 1);
      direct_finish_filter(filter_, data, unit);
    }
  }

 private:
  i64 threads() const { return filter_.row_threads * filter_.filter_threads; }

  DirectFilter filter_;
};

DirectTaps plan_taps(const ConvProblem& p, const DeviceInfo& device) {
  DirectTaps d;
  d.problem = p;
  d.x = view_of(p.x_desc());
  d.dy = view_of(p.y_desc());
  d.panels = ceil_div(p.c, tile_shape().cols);
  const i64 fit = device.l2_bytes / 4 / (4 * d.width() * tile_shape().cols);  // rows of x
  d.images = std::clamp<i64>(fit / d.height(p.p), 1, p.n);
  d.rows = std::clamp<i64>((fit - 3) / p.stride_h + 1, 1, p.p);
  d.rows = ceil_div(p.p, ceil_div(p.p, d.rows));
  d.threads = std::min<i64>(device.threads, d.panels * p.k);
  return d;
}

class TapsPlan : public ConvPlan {
 public:
  TapsPlan(const ConvProblem& p, const DeviceInfo& device) : taps_(plan_taps(p, device)) {}

  std::size_t workspace_bytes() const noexcept override {
    return std::size_t(taps_.threads * taps_.patch_floats()) * sizeof(float);
  }
  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    const DirectOperands data = direct_operands(taps_.problem, args, workspace);
#pragma omp parallel for num_threads(taps_.threads) schedule(static, 1)
    for (i64 thread = 0; thread < taps_.threads; ++thread) {
      const PhaseScope scope(args.phases, 0);
      direct_taps(taps_, data, thread);
    }
  }

 private:
  DirectTaps taps_;
};

class Direct : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "direct",
                               .version = 13,
                               .summary = "the definition's loops, tiled for registers and caches",
                               .libraries = {},
                               .family = "direct"};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    return refuse_direct(p, device.info());
  }

  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    if (has_rows_of_taps(p)) return {Config{}};
    if (p.pass == Pass::backward_filter) return {{{"pixels", 128}}};
    const DeviceInfo& info = device.info();
    const i64 depth = info.l2_bytes / 8 / (tile_shape().cols * 4);
    const Config by_pixels{{"depth", depth}, {"share", "pixels"}};
    const Config by_panels{{"depth", depth}, {"share", "panels"}};
    if (may_store_non_temporal(p, info)) return {with_nontemporal_stores(by_pixels), by_pixels};
    if (info.threads == 1) return {by_pixels};
    const i64 in_bytes = p.pass == Pass::forward ? p.x_bytes() : p.y_bytes();
    if (p.filter_bytes() > in_bytes) return {by_panels, by_pixels};
    return {by_pixels, by_panels};
  }

  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  // Tiles pad channels to whole blocks.
  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    const double block = double(tile_shape().block), w = double(p.filter_bytes());
    const double c = double(round_up(p.c, i64(block))) / double(p.c);
    const double k = double(round_up(p.k, i64(block))) / double(p.k);
    const double threads = double(device.info().threads);
    const double flops = p.flops() * c * k;
    if (p.pass == Pass::backward_filter) {
      PhaseWork loops{.name = "loops", .flops = flops};
      loops.bytes_read = double(p.x_bytes()) * threads + double(p.y_bytes());
      loops.bytes_written = w;
      loops.efficiency = has_rows_of_taps(p) ? taps_efficiency(p) : 0.67;
      // The patch of taps.cpp includes the padding's zeros.
      if (!has_rows_of_taps(p)) loops.flops *= inside_share(p);
      return {{loops, {"sum", 0, w, w, 1}}};
    }
    const bool by_panels = share_of(config) == Share::panels;
    PhaseWork loops = direct_pixel_work(p, by_panels ? threads : 1, by_panels ? 1 : threads);
    loops.bytes_read += bytes_read_for_ownership(p, config, device.info());
    // Tiles within one row skip its padding; those across rows multiply its zeros, uncounted here.
    loops.flops = flops * inside_share(p);
    loops.efficiency = 0.77;
    return {{loops}, {"pack_filter", 0, w, w * c * k, packing_efficiency}};
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    if (has_rows_of_taps(p)) {
      config.require_only({});
      return std::make_unique<TapsPlan>(p, device.info());
    }
    if (p.pass == Pass::backward_filter) {
      config.require_only({"pixels"});
      return std::make_unique<FilterPlan>(p, config, device.info());
    }
    config.require_only({"depth", "share", "stores"});
    return std::make_unique<PixelPlan>(p, config, device.info());
  }
};

}  // namespace

std::optional<Refusal> refuse_direct(const ConvProblem& p, const DeviceInfo& device) {
  if (auto refusal = refuse_all_but({DType::f32}, p)) return refusal;
  if (auto refusal = refuse_other_blocks(p, device)) return refusal;
  if (auto refusal = refuse_parts_of_blocks("y", p.y_layout, p.k, device)) return refusal;
  if (auto refusal = refuse_parts_of_blocks("x", p.x_layout, p.c, device)) return refusal;
  return refuse_parts_of_blocks_in_groups(p);
}

std::unique_ptr<ConvAlgo> make_direct() { return std::make_unique<Direct>(); }

}  // namespace convlab::cpu
