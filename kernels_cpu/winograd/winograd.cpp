// Winograd convolution: minimal filtering F(m x m, r x r), nested in two dimensions.
//
// An m x m tile of outputs comes from T x T inputs, T = m + r - 1, with T^2 multiplications for
// each pair of channels in place of m^2 r^2 (conv/math/cook_toom.h). Sums over channels commute
// with the transforms, so in between stand T^2 matrix products of tiles x C by C x K:
//   forward:          y  = A^T [ sum_c (G w G^T) . (B^T x B) ] A
//   backward_data:    the forward of dy with the filter's taps reversed and its channels swapped
//   backward_filter:  dw = A^T [ sum_tiles (B^T x B) . (G dy G^T) ] A, as F(r, m)
//
// A stride of two is four convolutions of stride 1, with filters of two taps and one, over the
// phases of x; in a first layer, whose channels are few, a stride folds into them (winograd.h), and
// 3x3 of stride 1 goes in one dimension (rows.h).
//
// Lavin & Gray 2015 (arXiv:1509.09308). Blocks of tiles stay in L2 between the steps: Jia et al.
// 2018 (PPoPP), Gelashvili et al. 2019 (arXiv:1912.02165). Where filters are many and tiles few
// the threads share a block instead, each with its part of the points, so that the packed filter
// passes through the caches once and not once a thread. Or each takes a part of the filters, for
// which it transforms all tiles itself. Where a filter is used once after it has changed, as in
// training, each transforms it a panel at a time, and keeps none of it.
#include "kernels_cpu/winograd/winograd.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

#include "conv/error.h"
#include "conv/refusals.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/gemm/streaming.h"
#include "kernels_cpu/winograd/rows.h"

namespace convlab::cpu {
namespace {

const float* floats(const void* p) { return static_cast<const float*>(p); }

// A first layer: plain x of few channels.
bool folds(const ConvProblem& p) { return p.x_layout == Layout::nchw && p.c <= 4; }

// Of the filter that is transformed, stride 1.
std::int64_t taps_of(const ConvProblem& p) {
  return folds(p) ? ceil_div(p.r, p.stride_h) : ceil_div(p.r, p.r == 3 ? p.stride_h : 1);
}

std::vector<std::int64_t> tile_sizes(const ConvProblem& p) {
  switch (taps_of(p)) {
    case 2:
      return {4, 7};
    case 3:
      return {2, 4, 6};
    case 4:
      return {4, 5};
    default:
      return {2, 4};
  }
}

// Channel blocks whose sums for one panel take a quarter of L2, or filters half of it, in equal
// parts.
std::int64_t chunk_of(const WinogradShape& s, const DeviceInfo& device) {
  const std::int64_t bytes = 4 * s.points() * s.tile.block * s.tile.cols;
  const std::int64_t most = std::max<std::int64_t>(device.l2_bytes / (s.fused ? 2 : 4) / bytes, 1);
  return ceil_div(s.phase_blocks(), ceil_div(s.phase_blocks(), most));
}

// The mosaic with the fewest tiles, if it saves a sixteenth: tiles that cross a seam are put
// together first.
void choose_mosaic(WinogradShape& s) {
  const std::int64_t n = s.out.n;
  std::int64_t best = s.tiles() * 15 / 16;
  WinogradShape mosaic = s;
  for (mosaic.grid_h = 1; mosaic.grid_h <= n; ++mosaic.grid_h)
    for (mosaic.grid_w = 1; mosaic.grid_h * mosaic.grid_w <= n; ++mosaic.grid_w)
      if (n % (mosaic.grid_h * mosaic.grid_w) == 0 && mosaic.tiles() < best) {
        best = mosaic.tiles();
        s.grid_h = mosaic.grid_h;
        s.grid_w = mosaic.grid_w;
      }
}

// Of one dimension of x, `size` pixels long: the phases of a stride of two. Forward, the pixel that
// tile position i reads is 2 i + a - pad. Backwards dx at 2 u + a - pad, from phase a, gets
// dy[u - j] through tap 2 j + a. The single tap of a = 1 may as well stand where the other's second
// does, u one further on, so that both phases begin within the first two pixels.
struct PhasedDimension {
  std::int64_t first[2], count, pad;
  PhasedDimension(bool data, std::int64_t size, std::int64_t pad_x, std::int64_t outputs) {
    if (data) {
      const std::int64_t u = ceil_div(pad_x, 2);
      first[0] = 2 * u - pad_x;
      first[1] = first[0] - 1;
      count = (size + pad_x) / 2 - u + 1;
      pad = 1 - u;
    } else {
      first[0] = -pad_x;
      first[1] = 1 - pad_x;
      count = outputs + 1;
      pad = 0;
    }
  }
};

double in_bytes(const WinogradShape& s) {
  return 4 * double((s.folds() ? s.fold->x : s.in).elements());
}
double out_bytes(const WinogradShape& s) {
  return 4 * double((s.unfolds() ? s.fold->x : s.out).elements());
}
double kernel_bytes(const WinogradShape& s) {
  const std::int64_t channels = s.in.c / s.in_fold() * (s.out.c / s.out_fold());
  return 4 * double(channels * s.kernel * s.kernel);
}

// All but how the tiles are shared out.
WinogradShape shape_of(const ConvProblem& p, std::int64_t m, bool fused, const DeviceInfo& device) {
  WinogradShape s;
  s.fused = fused;
  s.pass = p.pass;
  s.m = m;
  s.r = taps_of(p);
  s.stride = p.stride_h;
  s.kernel = p.r;
  const bool data = p.pass == Pass::backward_data;
  s.in = data ? p.y_desc() : p.x_desc();
  s.out = data ? p.x_desc() : p.y_desc();
  if (folds(p)) {
    s.fold = {p.x_desc(), p.pad_h, p.pad_w};
    const auto folded = [&](std::int64_t outputs, std::int64_t size, std::int64_t pad) {
      return data ? ceil_div(size + pad, s.stride) : outputs + s.r - 1;  // all, or those seen
    };
    (data ? s.out : s.in) = {p.n, p.c * s.stride * s.stride, folded(p.p, p.h, p.pad_h),
                             folded(p.q, p.w, p.pad_w), p.y_layout};
  }
  s.in_grid = {1, s.in.h, s.in.w, {}, {}};
  s.out_grid = {1, s.out.h, s.out.w, {}, {}};
  s.pad_h = data ? p.r - 1 - p.pad_h : p.pad_h;
  s.pad_w = data ? p.s - 1 - p.pad_w : p.pad_w;
  if (s.fold) {
    s.pad_h = s.pad_w = data ? s.r - 1 : 0;
  } else if (p.stride_h == 2) {
    const PhasedDimension h(data, p.h, p.pad_h, p.p), w(data, p.w, p.pad_w, p.q);
    (data ? s.out_grid : s.in_grid) = {
        4, h.count, w.count, {h.first[0], h.first[1]}, {w.first[0], w.first[1]}};
    s.pad_h = h.pad;
    s.pad_w = w.pad;
  }
  if (!s.fold) choose_mosaic(s);
  s.epilogue = p.epilogue;
  s.accumulate = p.accumulate;
  s.threads = device.threads;
  s.prefetch_input = in_bytes(s) > double(s.threads * device.l2_bytes);
  s.tile = tile_shape();
  // Longer sums err more: 6.3e-6 instead of 4.4e-6 for F(6,3) with 256 (measured).
  s.depth = std::min<std::int64_t>(device.l1_bytes / 2 / (4 * s.tile.cols), 128);
  s.chunk = chunk_of(s, device);
  return s;
}

// backward_filter's workspace: twice as much as x, dy and dw, where that is enough, or a core's L2,
// which is nothing to save.
std::int64_t most_workspace(const WinogradShape& s, const DeviceInfo& device) {
  return std::max(device.l2_bytes,
                  std::int64_t(2 * (in_bytes(s) + out_bytes(s) + kernel_bytes(s))));
}

// What V and M of a block may take. Forward and backward_data: half of L2, which leaves room for
// the filter's panels that pass through; a shared block may leave L2, for it is the better the
// fewer times the filter passes, all the more where that comes from memory each time.
// backward_filter: so much that its sums, read and written once a block, weigh no more than the
// block; but a shared block stays in L3 beside them, if anything does.
std::int64_t block_bytes(const WinogradShape& s, const DeviceInfo& device) {
  const std::int64_t shared_bytes = 2 * s.threads * device.l2_bytes;
  if (s.pass == Pass::backward_filter) {
    const std::int64_t sums_bytes = 4 * s.chunks() * s.chunk_floats();
    const std::int64_t room = std::max(device.l3_bytes - sums_bytes, device.l3_bytes / 2);
    const std::int64_t bytes =
        s.shared ? std::max(shared_bytes, std::min(2 * sums_bytes, room))
                 : std::max(device.l2_bytes, std::min(sums_bytes, device.l3_bytes / s.threads));
    return std::min(bytes, most_workspace(s, device) / (s.shared ? 1 : s.threads) - sums_bytes);
  }
  if (!s.shared) return device.l2_bytes / 2;
  const bool from_memory = leaves_caches(4 * s.packed_floats(), device);
  return std::max(shared_bytes, from_memory ? device.l3_bytes / 2 : 0);
}

// How many tiles to transform at a time.
std::int64_t default_block(WinogradShape s, const DeviceInfo& device) {
  s.block = s.tiles();
  if (s.pass == Pass::backward_filter && s.sums_at_once() &&
      4 * s.workspace_floats() <= most_workspace(s, device))
    return s.block;
  const std::int64_t in_c = s.in_blocks() * s.tile.block,
                     out_c = s.panels_of_thread() * s.tile.cols;
  const std::int64_t tile_bytes =
      4 * s.points() * (s.overlaid() ? std::max(in_c, out_c) : in_c + out_c);
  const bool all = s.shared || s.panels;
  const std::int64_t tiles = ceil_div(s.tiles(), all ? 1 : s.threads);
  const std::int64_t fit =
      std::max<std::int64_t>(block_bytes(s, device) / tile_bytes / s.tile.rows, 1) * s.tile.rows;
  const bool nearest = all && s.pass != Pass::backward_filter;
  const std::int64_t blocks =
      std::max<std::int64_t>(nearest ? (tiles + fit / 2) / fit : ceil_div(tiles, fit), 1);
  return std::min(round_up(ceil_div(tiles, blocks), s.tile.rows), tiles);
}

WinogradShape plan_shape(const ConvProblem& p, const Config& config, const DeviceInfo& device) {
  const std::int64_t m = config.get("tile");
  const std::vector<std::int64_t> sizes = tile_sizes(p);
  if (std::find(sizes.begin(), sizes.end(), m) == sizes.end())
    throw InputError(fmt::format("winograd has no tile={} for {}x{} filters", m, p.r, p.s));
  const bool fused = config.has("fused") && config.get("fused") != 0;
  WinogradShape s = shape_of(p, m, fused, device);
  s.shared = config.get("shared") != 0;
  s.stream = streams(config);
  s.panels = config.has("panels") && config.get("panels") != 0;
  if (s.panels && s.shared) throw InputError("winograd's panels=1: expected shared=0");
  if (s.fused && (p.pass == Pass::backward_filter || s.fold || s.shared == s.panels ||
                  config.get("block") != s.tiles()))
    throw InputError(
        fmt::format("winograd's fused=1: expected fwd or bwd_d, no first layer, with shared=1 or "
                    "panels=1, and block={}",
                    s.tiles()));
  s.block = config.get("block");
  if (s.block < 1 || s.block > s.tiles())
    throw InputError(
        fmt::format("winograd's block={}: expected 1 to {} tiles", s.block, s.tiles()));
  return s;
}

// V and M, and the filter or the sums that meet them, cross L2's border unless they fit in it; a
// shared block's transforms and product run on different cores; what crosses between these counts
// in backward_filter only.
WorkEstimate work_of(const WinogradShape& s, const DeviceInfo& device) {
  const WinogradCosts costs = winograd_costs(s);
  const double tiles = double(s.tiles()), points = double(s.points());
  const double in_c = double(s.in_blocks() * s.tile.block),
               out_c = double(s.out_panels() * s.tile.cols);
  const double v_bytes = 4 * tiles * points * in_c, m_bytes = 4 * tiles * points * out_c;
  const double filter_bytes = 4 * points * in_c * out_c;  // packed, or sums
  const double columns = double(s.columns());
  // Multiplied points of each pair of channels, of a dimension: all but one phase's last.
  const double last = s.phased() ? 0.5 / double(s.t()) : 0;
  // Lanes that pad x's channels stay out of the product, but for those between forward's phases.
  const bool all_lanes = s.pass == Pass::forward && s.phased();
  const double multiplied_c = all_lanes ? in_c : double(s.in_grid.phases * s.in.c);
  const double products = tiles * points * (1 - last) * (1 - last);
  const double cores = s.shared ? double(s.threads) : 1;
  const double l2 = cores * double(device.l2_bytes);
  const double block_bytes = 4 * double(s.v_floats() + s.m_floats());
  const bool block_fits = block_bytes <= 0.75 * l2;
  const bool all_fits = block_bytes + filter_bytes <= l2;
  const double blocks = std::max(tiles / double(s.block), 1.0);  // of all threads

  PhaseWork input{.name = "input_transform",
                  .flops = tiles * in_c * costs.input * (s.panels ? double(s.threads) : 1),
                  .bytes_read = in_bytes(s),
                  .efficiency = 0.2};
  PhaseWork product{.name = "product",
                    .flops = 2 * products * multiplied_c * double(s.multiplied_columns()),
                    .efficiency = 0.62};
  PhaseWork output{.name = "output_transform", .efficiency = 0.2};
  if (!block_fits) {
    input.bytes_written += v_bytes;
    product.bytes_read += v_bytes;
  }
  if (s.pass == Pass::backward_filter) {
    const double sets = s.shared || s.panels ? 1 : double(s.threads);
    input.flops += tiles * columns * costs.filter;
    if (s.shared)  // core to core
      product.bytes_read += (v_bytes + (s.owners() > 1 ? 0 : m_bytes)) * (1 - 1 / cores);
    input.bytes_read += out_bytes(s);
    if (!block_fits) {
      input.bytes_written += m_bytes;
      product.bytes_read += m_bytes;
    }
    if (s.sums_at_once()) {
      product.bytes_read +=
          double(s.out_panels() - 1) * v_bytes + double(s.panel_chunks() - 1) * m_bytes;
    } else {
      product.bytes_read += all_fits ? 0 : filter_bytes * (blocks - sets);
      product.bytes_written += filter_bytes * (all_fits ? sets : blocks);
      output.bytes_read += filter_bytes * sets;
    }
    output.flops = in_c * columns * costs.output;
    output.bytes_written = kernel_bytes(s);
  } else {
    if (!s.fused)
      product.bytes_read += filter_bytes * (all_fits ? double(s.threads) / cores : blocks);
    output.flops = tiles * columns * costs.output;
    output.bytes_written = out_bytes(s);
    if (leaves_caches(std::int64_t(out_bytes(s)), device) && !s.stream)
      output.bytes_read += out_bytes(s);
    if (s.accumulate || s.epilogue.residual) output.bytes_read += out_bytes(s);
    if (!block_fits) {
      product.bytes_written += m_bytes;
      output.bytes_read += m_bytes;
    }
  }
  WorkEstimate estimate{{input, product, output}};
  if (s.fused)
    estimate.phases.push_back({.name = "filter_transform",
                               .flops = in_c * out_c * costs.filter,
                               .bytes_read = kernel_bytes(s),
                               .efficiency = 0.1});
  else if (s.pass != Pass::backward_filter)
    estimate.pack = {"pack_filter", 0, kernel_bytes(s), filter_bytes, packing_efficiency};
  return estimate;
}

// Orders configurations, in units of floating-point operations at peak: a byte from beyond L2 costs
// about eight, mostly hidden behind the arithmetic (both measured on AVX-512 machines).
double rough_cost(const WorkEstimate& work) {
  double cost = 8 * work.bytes();
  for (const PhaseWork& phase : work.phases) cost += phase.flops / phase.efficiency;
  return cost;
}

WinogradOperands operands_of(const ConvProblem& p, const ConvArgs& args, Workspace workspace,
                             bool stream) {
  WinogradOperands data;
  data.in = floats(p.pass == Pass::backward_data ? args.dy : args.x);
  data.dy = floats(args.dy);
  data.packed = floats(args.w);
  if (p.epilogue.bias) data.bias = floats(args.bias);
  if (p.epilogue.residual) data.residual = floats(args.residual);
  data.out = static_cast<float*>(args.out);
  data.workspace = reinterpret_cast<float*>(workspace.data());
  data.stream = stream && can_stream(args.out);
  data.phases = args.phases;
  return data;
}

class WinogradPlan : public ConvPlan {
 public:
  WinogradPlan(const ConvProblem& problem, WinogradShape shape)
      : problem_(problem), shape_(std::move(shape)) {}

  std::size_t workspace_bytes() const noexcept override {
    return std::size_t(shape_.workspace_floats()) * sizeof(float);
  }
  std::size_t packed_filter_bytes() const noexcept override {
    const bool packs = problem_.pass != Pass::backward_filter && !shape_.fused;
    return packs ? std::size_t(shape_.packed_floats()) * sizeof(float) : 0;
  }

  void pack_filter(ConstSpan w, Span packed, Stream&) const override {
    winograd_pack(shape_, FilterView(problem_, w.data()), reinterpret_cast<float*>(packed.data()));
  }

  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    WinogradOperands data = operands_of(problem_, args, workspace, shape_.stream);
    const FilterView filter(problem_, args.w);
    if (shape_.fused) data.filter = &filter;
    winograd_run(shape_, data);
  }

 private:
  ConvProblem problem_;
  WinogradShape shape_;
};

// Forward of a first layer that is transformed along its rows only.
bool goes_by_rows(const ConvProblem& p) {
  return p.pass == Pass::forward && folds(p) && p.stride_h == 1 && p.s == WinogradRows::r;
}

WinogradRows plan_rows(const ConvProblem& p, const Config& config, const DeviceInfo& device) {
  if (!goes_by_rows(p) || config.get("tile") != WinogradRows::m)
    throw InputError("winograd's rows=1: expected tile=4, fwd of a first layer, 3x3 of stride 1");
  return {p, device.threads, tile_shape(), streams(config)};
}

WorkEstimate work_of_rows(const WinogradRows& s, const DeviceInfo& device) {
  const ConvProblem& p = s.problem;
  const WinogradCosts costs = winograd_rows_costs();
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
  if (leaves_caches(p.y_bytes(), device) && !s.stream) product.bytes_read += double(p.y_bytes());
  WorkEstimate estimate{{input, product}};
  estimate.pack = {"pack_filter", 0, double(p.filter_bytes()), 4 * double(s.packed_floats()),
                   packing_efficiency};
  return estimate;
}

bool by_rows(const Config& config) { return config.has("rows") && config.get("rows") != 0; }

class WinogradRowsPlan : public ConvPlan {
 public:
  explicit WinogradRowsPlan(WinogradRows rows) : rows_(std::move(rows)) {}

  std::size_t workspace_bytes() const noexcept override {
    return std::size_t(rows_.threads * rows_.thread_floats()) * sizeof(float);
  }
  std::size_t packed_filter_bytes() const noexcept override {
    return std::size_t(rows_.packed_floats()) * sizeof(float);
  }
  void pack_filter(ConstSpan w, Span packed, Stream&) const override {
    winograd_rows_pack(rows_, floats(w.data()), reinterpret_cast<float*>(packed.data()));
  }
  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    winograd_rows_run(rows_, operands_of(rows_.problem, args, workspace, rows_.stream));
  }

 private:
  WinogradRows rows_;
};

class Winograd : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "winograd",
                               .version = 24,
                               .summary =
                                   "minimal filtering of 3x3 to 5x5; 3x3 of stride 2; "
                                   "strided first layers",
                               .libraries = {}};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    if (auto refusal = refuse_all_but({DType::f32}, p)) return refusal;
    ConvProblem dense = p;
    if (folds(p)) {
      const std::int64_t stride = p.stride_h, taps = taps_of(p);
      if (p.pass == Pass::backward_data && stride == 1)
        return Refusal{Field::stride, "a stride of 2 or 4 for the gradient of a plain input", "1"};
      if (p.r != p.s || p.stride_w != stride || (stride != 1 && stride != 2 && stride != 4) ||
          taps < 3 || taps > 5)
        return Refusal{Field::filter, "a stride of 1, 2 or 4 whose folding leaves 3x3 to 5x5 taps",
                       fmt::format("{}x{} of stride {}x{}", p.r, p.s, p.stride_h, p.stride_w)};
      dense.stride_h = dense.stride_w = 1;
      dense.x_layout = blocked_layout(device.info());
    } else {
      if (p.r != p.s || p.r < 3 || p.r > 5)
        return Refusal{Field::filter, "a 3x3 to 5x5 filter", extent(p.r, p.s)};
      if (p.r == 3 && p.stride_h == 2 && p.stride_w == 2) dense.stride_h = dense.stride_w = 1;
    }
    if (auto refusal = refuse_all_but_dense(dense)) return refusal;
    return refuse_all_but_blocked(dense, device.info());
  }

  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    // Best first by the estimate, and none that it finds hopeless; none of needless size. What
    // shares blocks is not held against what does not: the estimate does not know whether cores
    // share an L3, and where they do not a line takes six times as long from one to the other.
    struct Candidate {
      bool large;
      double cost;
      Config config;
    };
    if (goes_by_rows(p)) {
      const Config rows{{"tile", WinogradRows::m}, {"rows", 1}};
      if (p.accumulate || !leaves_caches(p.y_bytes(), device.info())) return {rows};
      Config streaming = rows;
      streaming.set("stores", "nontemporal");
      return {streaming, rows};
    }
    std::vector<Candidate> ranked;
    for (const std::int64_t m : tile_sizes(p))
      for (const std::string_view way : {"own", "shared", "panels", "fused", "fused panels"}) {
        WinogradShape s = shape_of(p, m, way.starts_with("fused"), device.info());
        s.panels = way.ends_with("panels");
        s.shared = way == "shared" || way == "fused";
        if (s.fused && (p.pass == Pass::backward_filter || s.fold)) continue;
        if (s.panels && s.threads == 1) continue;
        s.block = s.fused ? s.tiles() : default_block(s, device.info());
        // What meets each panel again is at hand then.
        const std::int64_t blocks_bytes = 4 * s.v_floats() * (s.shared ? 1 : s.threads);
        if (s.fused && blocks_bytes > device.info().l3_bytes / 2) continue;
        Config config{{"tile", m}, {"shared", s.shared}, {"block", s.block}};
        if (s.panels) config.set("panels", 1);
        if (s.fused) config.set("fused", 1);
        const bool large = p.pass == Pass::backward_filter &&
                           4 * s.workspace_floats() > most_workspace(s, device.info());
        ranked.push_back({large, rough_cost(work_of(s, device.info())), config});
        if (p.pass == Pass::backward_filter || p.accumulate || s.unfolds() ||
            !leaves_caches(4 * s.out.elements(), device.info()))
          continue;
        s.stream = true;
        ranked.push_back({large, rough_cost(work_of(s, device.info())), config});
        ranked.back().config.set("stores", "nontemporal");
      }
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
      return std::tie(a.large, a.cost) < std::tie(b.large, b.cost);
    });
    std::vector<Config> configs;
    std::map<std::int64_t, double> best;  // of shared=0 and shared=1
    for (const auto& [large, cost, config] : ranked) {
      if (large != ranked.front().large) break;
      const double least = best.try_emplace(config.get("shared"), cost).first->second;
      if (cost < 1.5 * least) configs.push_back(config);
    }
    return configs;
  }

  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    if (by_rows(config)) return work_of_rows(plan_rows(p, config, device.info()), device.info());
    return work_of(plan_shape(p, config, device.info()), device.info());
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    if (by_rows(config))
      return std::make_unique<WinogradRowsPlan>(plan_rows(p, config, device.info()));
    return std::make_unique<WinogradPlan>(p, plan_shape(p, config, device.info()));
  }
};

}  // namespace

std::unique_ptr<ConvAlgo> make_winograd() { return std::make_unique<Winograd>(); }

}  // namespace convlab::cpu
