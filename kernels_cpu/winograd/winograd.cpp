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
#include <initializer_list>
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
#include "kernels_cpu/winograd/split.h"

namespace convlab::cpu {
namespace {

// Of the filter that is transformed, which has stride 1; in one dimension.
std::int64_t taps_of(const ConvProblem& p) { return ceil_div(p.r, p.stride_h); }

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

// The mosaic with the fewest tiles, if it saves a sixteenth: tiles that cross a seam cost more to
// gather.
void choose_mosaic(WinogradGeometry& g) {
  const std::int64_t n = g.out.n;
  std::int64_t best = g.tiles() * 15 / 16;
  WinogradGeometry mosaic = g;
  for (mosaic.mosaic_h = 1; mosaic.mosaic_h <= n; ++mosaic.mosaic_h)
    for (mosaic.mosaic_w = 1; mosaic.mosaic_h * mosaic.mosaic_w <= n; ++mosaic.mosaic_w)
      if (n % (mosaic.mosaic_h * mosaic.mosaic_w) == 0 && mosaic.tiles() < best) {
        best = mosaic.tiles();
        g.mosaic_h = mosaic.mosaic_h;
        g.mosaic_w = mosaic.mosaic_w;
      }
}

// One dimension of x, `size` pixels long, in the two phases of a stride of two. Forward, tile
// position i reads pixel 2 i + a - pad. Backwards, dx at 2 u + a - pad, in phase a, gets dy[u - j]
// through tap 2 j + a. With three taps the single one of a = 1 may stand where the other's second
// tap does, with u one further on: then both phases begin within the first two pixels. With four
// the flipped filter exchanges the phases, and the first pixel of one of them may not exist.
struct PolyphaseDimension {
  std::int64_t first[2], count, pad;
  PolyphaseDimension(bool data, std::int64_t size, std::int64_t pad_x, std::int64_t outputs,
                     std::int64_t taps) {
    if (data && taps == 4) {
      const std::int64_t u = pad_x / 2;
      first[1] = 2 * u - pad_x;
      first[0] = first[1] + 1;
      count = (size - 1 + pad_x) / 2 - u + 1;
      pad = 1 - u;
    } else if (data) {
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

WinogradGeometry geometry_of(const ConvProblem& original, std::int64_t tile) {
  const ConvProblem p = problem_of_group(original);
  WinogradGeometry g;
  g.groups = original.groups;
  g.dilation_h = p.dilation_h;
  g.dilation_w = p.dilation_w;
  g.pass = p.pass;
  g.dtype = p.dtype;
  g.tile = tile;
  g.r = taps_of(p);
  g.stride = p.stride_h;
  g.kernel = p.r;
  g.epilogue = p.epilogue;
  g.accumulate = p.accumulate;
  g.register_tile = tile_shape(p.dtype);
  const bool data = p.pass == Pass::backward_data, first_layer = winograd_first_layer(p);
  g.in = data ? p.y_desc() : p.x_desc();
  g.out = data ? p.x_desc() : p.y_desc();
  if (first_layer) {
    g.fold = {p.x_desc(), p.pad_h, p.pad_w};
    const auto folded = [&](std::int64_t outputs, std::int64_t size, std::int64_t pad) {
      return data ? ceil_div(size + pad, g.stride)
                  : outputs + g.r - 1;  // all, or those that are read
    };
    (data ? g.out : g.in) = {p.n, p.c * g.stride * g.stride, folded(p.p, p.h, p.pad_h),
                             folded(p.q, p.w, p.pad_w), p.y_layout};
  }
  // Of the first remainder, which is the largest.
  const auto grid_of = [&](const TensorDesc& t) -> WinogradGrid {
    return {1, ceil_div(t.h, g.dilation_h), ceil_div(t.w, g.dilation_w), {}, {}};
  };
  g.in_grid = grid_of(g.in);
  g.out_grid = grid_of(g.out);
  const std::int64_t pad_h = p.pad_h / p.dilation_h, pad_w = p.pad_w / p.dilation_w;
  g.pad_h = data ? p.r - 1 - pad_h : pad_h;
  g.pad_w = data ? p.s - 1 - pad_w : pad_w;
  if (first_layer) {
    g.pad_h = g.pad_w = data ? g.r - 1 : 0;
  } else if (p.stride_h == 2) {
    const PolyphaseDimension h(data, p.h, p.pad_h, p.p, p.r), w(data, p.w, p.pad_w, p.q, p.s);
    (data ? g.out_grid : g.in_grid) = {
        4, h.count, w.count, {h.first[0], h.first[1]}, {w.first[0], w.first[1]}};
    g.pad_h = h.pad;
    g.pad_w = w.pad;
  }
  if (g.dilated())
    g.mosaic_h = g.dilation_h, g.mosaic_w = g.dilation_w;
  else if (!first_layer)
    choose_mosaic(g);
  return g;
}

// Of one group.
double in_bytes(const WinogradGeometry& g) {
  return double(g.element() * (g.folds() ? g.fold->x : g.in).elements());
}
double out_bytes(const WinogradGeometry& g) {
  return double(g.element() * (g.unfolds() ? g.fold->x : g.out).elements());
}
double kernel_bytes(const WinogradGeometry& g) {
  const std::int64_t channels = g.in.c / g.in_fold() * (g.out.c / g.out_fold());
  return double(g.element() * channels * g.kernel * g.kernel);
}

// Channel blocks of a chunk, whose sums for one panel take a quarter of L2, or whose filters take
// half of it; all chunks are equal but for the rounding.
std::int64_t chunk_of(const WinogradGeometry& g, WinogradSchedule schedule,
                      const DeviceInfo& device) {
  const std::int64_t block_bytes =
      g.element() * g.points() * g.register_tile.block * g.register_tile.cols;
  const std::int64_t room = device.l2_bytes / (packs_filter(schedule) ? 4 : 2);
  const std::int64_t most = std::max<std::int64_t>(room / block_bytes, 1);
  return ceil_div(g.phase_blocks(), ceil_div(g.phase_blocks(), most));
}

// The cheaper of two ways with the sums of a chunk: written to dw at once, which reads V once a
// panel and M once a chunk; or all stored, which costs about twelve passes over them, since they
// are written through and read back by strides.
bool sums_are_final(const WinogradSpec& s) {
  const WinogradGeometry& g = s.geometry;
  const WinogradBuffers& b = s.buffers;
  if (g.pass != Pass::backward_filter || !sees_all_tiles(s.schedule) || s.block_tiles < g.tiles())
    return false;
  const std::int64_t panels = s.panels_at_once();
  const std::int64_t m = g.points() * panels * b.padded_tiles * g.register_tile.cols;
  return panels * b.v.size + b.panel_chunks * m < 12 * panels * b.panel_chunks * b.sums_chunk;
}

// A thread that goes through the points of its own block in order may store M of a point where V of
// the points before was, which is still in cache. M begins just so far before V that it stays
// behind what is read. Half as many bytes cross L2 while the filter passes through.
bool overlays_m(const WinogradSpec& s) {
  return !shares_v(s.schedule) && packs_filter(s.schedule) &&
         s.geometry.pass != Pass::backward_filter;
}

// Puts buffers one behind the other from `begin` on: once for the team, or once for each of so many
// threads. Returns where they end.
std::int64_t place(std::int64_t begin, std::initializer_list<WinogradBuffer*> buffers,
                   std::int64_t threads = 0) {
  std::int64_t size = 0;
  for (const WinogradBuffer* const buffer : buffers) size += buffer->size;
  for (WinogradBuffer* const buffer : buffers) {
    buffer->begin = begin;
    buffer->thread_step = threads > 0 ? size : 0;
    begin += buffer->size;
  }
  return begin + std::max<std::int64_t>(threads - 1, 0) * size;
}

// Computes the buffers from the rest of the spec, and what depends on their sizes.
void set_buffers(WinogradSpec& s) {
  const WinogradGeometry& g = s.geometry;
  const TileShape& shape = g.register_tile;
  const std::int64_t points = g.points(), line = 64 / g.element();
  const bool backward_filter = g.pass == Pass::backward_filter;
  WinogradBuffers& b = s.buffers;
  b.padded_tiles = s.block_tiles | 1;
  if (s.splits()) {
    b.v_point = (s.split_steps() * s.terms() * b.padded_tiles | 1) * line;
    b.v.size = points * b.v_point + tile_rows * line;  // a tile of few rows reads on
  } else {
    b.v_point = (g.in_blocks() * b.padded_tiles | 1) * shape.block;
    b.v.size = round_up(points * b.v_point, line);
  }

  b.phase_chunks = ceil_div(g.phase_blocks(), s.chunk_blocks);
  b.panel_chunks = g.in_grid.phases * b.phase_chunks;
  b.sums_point = (s.chunk_blocks * shape.block | 1) * shape.cols;
  b.sums_chunk = round_up(points * b.sums_point, line);
  s.final_sums = sums_are_final(s);
  const std::int64_t chunks = s.final_sums ? 1 : s.panels_at_once() * b.panel_chunks;
  if (backward_filter) b.sums.size = b.sums_chunk * chunks;

  // Beside a shared V, a thread whose sums are final makes M itself, panel by panel: a line that
  // another core read last is slow to write.
  const bool m_beside_shared_v = shares_v(s.schedule) && s.final_sums && s.threads > 1;
  b.m_panels = m_beside_shared_v ? 1 : s.panels_at_once();
  b.m_point = (b.m_panels * b.padded_tiles | 1) * shape.cols;
  const std::int64_t m = points * b.m_point;
  b.m.size = round_up(overlays_m(s) ? std::max(b.m_point, m - (points - 1) * b.v_point) : m, line);

  const auto packed = [&](std::int64_t columns) {  // of a panel
    return s.splits() ? s.split_steps() * s.terms() * ceil_div(columns, tile_rows) * tile_bytes /
                            g.element()
                      : g.in_blocks() * shape.block * columns;
  };
  b.packed_panel = packed(shape.cols);
  b.packed_point = (g.out_panels() - 1) * b.packed_panel +  // the last panel ends with its columns
                   packed(s.packed_columns(g.phase_panels() - 1));
  if (packs_filter(s.schedule) && !backward_filter) b.packed = points * b.packed_point;
  if (!packs_filter(s.schedule)) {
    b.filter_point = (s.chunk_blocks * shape.block + 1) * shape.cols;
    b.filter.size = points * b.filter_point;
    b.taps_block = (shape.block * g.kernel * g.kernel + 3) * shape.cols;
    b.taps.size = s.chunk_blocks * b.taps_block;
  }

  switch (s.schedule) {
    case WinogradSchedule::private_blocks:
    case WinogradSchedule::private_panels:
      b.workspace = backward_filter ? place(0, {&b.v, &b.m, &b.sums}, s.threads)
                                    : place(0, {&b.m, &b.v}, s.threads);
      break;
    case WinogradSchedule::shared_blocks:
      b.workspace = m_beside_shared_v ? place(place(0, {&b.v}), {&b.m, &b.sums}, s.threads)
                                      : place(0, {&b.v, &b.m, &b.sums});
      break;
    case WinogradSchedule::unpacked_shared:
      b.workspace = place(place(0, {&b.v}), {&b.filter, &b.taps, &b.m}, s.threads);
      break;
    case WinogradSchedule::unpacked_private:
      b.workspace = place(place(0, {&b.v}, s.threads), {&b.filter, &b.taps, &b.m}, s.threads);
      break;
  }

  // An ordinary store to a line that another core has read takes the line from that core first, one
  // line at a time; a non-temporal store does not. Where sums are not final, V is better off in the
  // caches. Vectors must be whole lines.
  s.non_temporal_v = shares_v(s.schedule) && s.threads > 1 && shape.lanes == line &&
                     (!backward_filter || s.final_sums);
}

WinogradSpec spec_of(const WinogradGeometry& g, WinogradSchedule schedule, MathType math,
                     std::int64_t block_tiles, const DeviceInfo& device) {
  WinogradSpec s;
  s.geometry = g;
  s.schedule = schedule;
  s.math = math;
  s.multiply_split = matrix_unit(device) == amx_unit ? multiply_split_amx : multiply_split_emulated;
  s.threads = device.threads;
  s.block_tiles = block_tiles;
  // Longer sums err more.
  s.part_depth =
      std::clamp<std::int64_t>(device.l1_bytes / 2 / (g.element() * g.register_tile.cols), 1, 128);
  s.chunk_blocks = chunk_of(g, schedule, device);
  s.prefetch_input = double(g.groups) * in_bytes(g) > double(s.threads * device.l2_bytes);
  set_buffers(s);
  return s;
}

// How often V exists.
std::int64_t v_copies(const WinogradSpec& s) { return shares_v(s.schedule) ? 1 : s.threads; }

// The most that backward_filter's workspace may take: twice as much as x, dy and dw, where that is
// enough, or a core's L2, below which nothing is worth saving.
std::int64_t most_workspace(const WinogradGeometry& g, const DeviceInfo& device) {
  return std::max(device.l2_bytes,
                  std::int64_t(2 * (in_bytes(g) + out_bytes(g) + kernel_bytes(g))));
}

// The most that V and M of a block may take.
//
// Forward and backward_data: half of L2, which leaves room for the filter's panels that pass
// through. A shared block may exceed L2, since larger blocks re-read the filter less often; all the
// more where the filter comes from memory each time.
//
// backward_filter: so much that the sums, read and written once a block, weigh no more than the
// block. A shared block stays in L3 beside them, if anything does.
std::int64_t block_bytes(const WinogradSpec& s, const DeviceInfo& device) {
  const bool shared = shares_v(s.schedule);
  const std::int64_t shared_bytes = 2 * s.threads * device.l2_bytes;
  if (s.geometry.pass == Pass::backward_filter) {
    const std::int64_t sums_bytes =
        s.geometry.element() * s.panels_at_once() * s.buffers.panel_chunks * s.buffers.sums_chunk;
    const std::int64_t room = std::max(device.l3_bytes - sums_bytes, device.l3_bytes / 2);
    const std::int64_t bytes =
        shared ? std::max(shared_bytes, std::min(2 * sums_bytes, room))
               : std::max(device.l2_bytes, std::min(sums_bytes, device.l3_bytes / s.threads));
    return std::min(bytes, most_workspace(s.geometry, device) / v_copies(s) - sums_bytes);
  }
  if (!shared) return device.l2_bytes / 2;
  const bool from_memory = exceeds_caches(s.geometry.element() * s.buffers.packed, device);
  return std::max(shared_bytes, from_memory ? device.l3_bytes / 2 : 0);
}

// How many tiles to transform at a time.
std::int64_t default_block(const WinogradGeometry& g, WinogradSchedule schedule, MathType math,
                           const DeviceInfo& device) {
  const WinogradSpec all = spec_of(g, schedule, math, g.tiles(), device);  // in one block
  if (!packs_filter(schedule) ||
      (all.final_sums && g.element() * all.buffers.workspace <= most_workspace(g, device)))
    return g.tiles();
  const std::int64_t in_c = all.v_channels(), out_c = all.panels_at_once() * g.register_tile.cols;
  const std::int64_t bytes_of_tile =
      g.element() * g.points() * (overlays_m(all) ? std::max(in_c, out_c) : in_c + out_c);
  const std::int64_t tiles = ceil_div(g.tiles(), sees_all_tiles(schedule) ? 1 : all.threads);
  const std::int64_t row_tile = all.splits() ? 2 * tile_rows : g.register_tile.rows;
  const std::int64_t fit =
      std::max<std::int64_t>(block_bytes(all, device) / bytes_of_tile / row_tile, 1) * row_tile;
  const bool nearest = sees_all_tiles(schedule) && g.pass != Pass::backward_filter;
  const std::int64_t blocks =
      std::max<std::int64_t>(nearest ? (tiles + fit / 2) / fit : ceil_div(tiles, fit), 1);
  return std::min(round_up(ceil_div(tiles, blocks), row_tile), tiles);
}

// Products of tiles outrun L3, from which a filter that does not fit in L2 comes once a block.
// There they take less time with blocks that exceed L2 themselves, of which V and M cross its
// border once.
std::int64_t large_block(const WinogradSpec& s, const DeviceInfo& device) {
  const WinogradGeometry& g = s.geometry;
  const std::int64_t tiles = ceil_div(g.tiles(), sees_all_tiles(s.schedule) ? 1 : s.threads);
  if (!s.splits() || shares_v(s.schedule) || g.element() * s.buffers.packed < device.l2_bytes)
    return s.block_tiles;
  const std::int64_t bytes = std::min(7 * device.l2_bytes / 2, device.l3_bytes / s.threads / 2);
  const std::int64_t unit = 2 * tile_rows;
  const std::int64_t fit =
      std::max(bytes / (g.element() * g.points() * s.v_channels()) / unit, std::int64_t{1}) * unit;
  return std::min(round_up(ceil_div(tiles, ceil_div(tiles, fit)), unit), g.tiles());
}

// Products of bf16 terms: of a filter that is packed, in one grid of pixels.
bool may_split(const WinogradGeometry& g) {
  return g.dtype == DType::f32 && g.r == 3 && g.pass != Pass::backward_filter && !g.fold &&
         !g.polyphase();
}

// The unpacked schedules: backward_filter packs nothing anyway, and a first layer's filter is
// small.
bool allows(const WinogradGeometry& g, WinogradSchedule schedule) {
  return packs_filter(schedule) || (g.pass != Pass::backward_filter && !g.fold);
}

// Of one group, by one team.
WinogradSpec plan_spec(const ConvProblem& p, const Config& config, const DeviceInfo& device) {
  const std::int64_t tile = config.get("tile");
  const std::vector<std::int64_t> sizes = tile_sizes(p);
  if (std::find(sizes.begin(), sizes.end(), tile) == sizes.end())
    throw InputError(fmt::format("winograd has no tile={} for {}x{} filters", tile, p.r, p.s));
  const auto schedule = config.choice<WinogradSchedule>("schedule", winograd_schedules);
  const WinogradGeometry g = geometry_of(p, tile);
  if (!allows(g, schedule))
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
    if (!may_split(g) || !packs_filter(schedule))
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
  WinogradSpec s = spec_of(g, schedule, math, block, device);
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
      .bytes_read = in_bytes(g),
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
    input.bytes_read += out_bytes(g);
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
    output.bytes_written = kernel_bytes(g);
  } else {
    if (packs_filter(s.schedule))
      product.bytes_read += filter_bytes * (all_fits ? double(s.threads) / cores : blocks);
    output.flops = tiles * columns * costs.output;
    output.bytes_written = out_bytes(g);
    if (exceeds_caches(g.groups * std::int64_t(out_bytes(g)), device) && !s.non_temporal_stores)
      output.bytes_read += out_bytes(g);
    if (g.accumulate || g.epilogue.residual) output.bytes_read += out_bytes(g);
    if (!block_fits) {
      product.bytes_written += m_bytes;
      output.bytes_read += m_bytes;
    }
  }
  WorkEstimate estimate{{input, product, output}};
  if (!packs_filter(s.schedule))
    estimate.phases.push_back({.name = "filter_transform",
                               .flops = in_c * out_c * costs.filter,
                               .bytes_read = kernel_bytes(g),
                               .efficiency = 0.1});
  else if (g.pass != Pass::backward_filter)
    estimate.pack = {"pack_filter", 0, kernel_bytes(g), filter_bytes, packing_efficiency};
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
      const std::int64_t stride = p.stride_h, taps = taps_of(p);
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
        if (!allows(g, schedule) || (math != MathType::f32 && !packs_filter(schedule))) continue;
        if (repeats_transform(schedule) && machine.threads == 1) continue;
        const WinogradSpec s =
            spec_of(g, schedule, math, default_block(g, schedule, math, machine), machine);
        // V of all tiles is read again for each panel, from L3 if not from L2.
        const std::int64_t v_bytes = g.element() * s.buffers.v.size * v_copies(s);
        if (!packs_filter(schedule) && v_bytes > machine.l3_bytes / 2) continue;
        const bool large = p.pass == Pass::backward_filter &&
                           g.element() * s.buffers.workspace > most_workspace(g, machine);
        rank_spec(s, large);
        if (const std::int64_t block = large_block(s, machine); block > s.block_tiles)
          rank_spec(spec_of(g, schedule, math, block, machine), large);
      }
    };
    for (const std::int64_t tile : tile_sizes(p)) {
      const WinogradGeometry g = geometry_of(p, tile);
      rank(g, MathType::f32);
      if (matrix_unit(machine).empty() || !may_split(g)) continue;
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
