// Which tiles, stride phases and blocks a Winograd convolution is computed in, and where they lie.
#include "kernels_cpu/winograd/spec.h"

#include <algorithm>
#include <initializer_list>

#include "kernels_cpu/amx/amx.h"
#include "kernels_cpu/gemm/non_temporal.h"
#include "kernels_cpu/groups.h"
#include "kernels_cpu/winograd/split.h"

namespace convlab::cpu {

std::int64_t winograd_taps(const ConvProblem& p) { return ceil_div(p.r, p.stride_h); }

std::vector<std::int64_t> winograd_tile_sizes(const ConvProblem& p) {
  switch (winograd_taps(p)) {
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

namespace {

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

}  // namespace

WinogradGeometry winograd_geometry(const ConvProblem& original, std::int64_t tile) {
  const ConvProblem p = problem_of_group(original);
  WinogradGeometry g;
  g.groups = original.groups;
  g.dilation_h = p.dilation_h;
  g.dilation_w = p.dilation_w;
  g.pass = p.pass;
  g.dtype = p.dtype;
  g.tile = tile;
  g.r = winograd_taps(p);
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

namespace {

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

}  // namespace

WinogradSpec winograd_spec(const WinogradGeometry& g, WinogradSchedule schedule, MathType math,
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
  s.prefetch_input = double(g.groups) * g.in_bytes() > double(s.threads * device.l2_bytes);
  set_buffers(s);
  return s;
}

std::int64_t winograd_most_workspace(const WinogradGeometry& g, const DeviceInfo& device) {
  return std::max(device.l2_bytes,
                  std::int64_t(2 * (g.in_bytes() + g.out_bytes() + g.kernel_bytes())));
}

namespace {

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
    return std::min(bytes, winograd_most_workspace(s.geometry, device) / s.v_copies() - sums_bytes);
  }
  if (!shared) return device.l2_bytes / 2;
  const bool from_memory = exceeds_caches(s.geometry.element() * s.buffers.packed, device);
  return std::max(shared_bytes, from_memory ? device.l3_bytes / 2 : 0);
}

}  // namespace

std::int64_t winograd_block(const WinogradGeometry& g, WinogradSchedule schedule, MathType math,
                            const DeviceInfo& device) {
  const WinogradSpec all = winograd_spec(g, schedule, math, g.tiles(), device);  // in one block
  if (!packs_filter(schedule) ||
      (all.final_sums && g.element() * all.buffers.workspace <= winograd_most_workspace(g, device)))
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
std::int64_t winograd_large_block(const WinogradSpec& s, const DeviceInfo& device) {
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

}  // namespace convlab::cpu
