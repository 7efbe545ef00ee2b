// Depthwise convolution: one channel a group, with one filter or several. Nothing is summed over
// channels, so a vector holds neighbouring channels of one pixel, and every operand is a vector: a
// multiply-add may need a load of x and one of w, where the ports have one for each.
//
// forward:         y[k][p][q] = sum over taps of x[k][p*stride + r][q*stride + s] w[k][r][s].
//                  A register tile is the sums of neighbouring pixels of one output row. For each
//                  filter row its taps' vectors are loaded once for the tile, and each column of x
//                  once for all the taps that read it. T taps of P pixels take P + 2T - 1 loads for
//                  P T multiply-adds: 0.45 a multiply-add for 3 taps of 14 pixels.
// backward_data:   the same over dy: flipped filter, and output columns in stride phases.
// backward_filter: dw[k][r][s] = sum over pixels of x[k][p*stride + r][q*stride + s] dy[k][p][q].
//                  The sums of some taps in several filter rows stay in registers over all pixels.
//                  A column of x is loaded once for the taps of a row, a column of dy once for all.
//                  Threads share channels, and parts of the rows where these are few; the parts'
//                  sums are added in a fixed order.
//
// Strides and dilations are cut into lines that read their taps as if there were none (lines.h).
// Runs of more taps than registers hold are cut into chunks, so large filters need no other loop.
// With several filters a channel, a vector of y's channels reads each of fewer channels of x
// several times, by a permutation; a vector of dx's channels gathers dy, one filter of each channel
// after the other, as so many times the chunks. Padding costs nothing: a tile's chunk says which
// columns exist, an output row which filter rows.
//
// A tile goes down the rows of a band, so that a column of x is in L1 when the next row reads it.
// But where a plane of a blocked layout exceeds L1, and all planes L2, a row's tiles come one after
// the other: then x and y pass in the order of memory, which the hardware prefetcher follows. In
// nhwc the vectors of a pixel are neighbours in memory: all vectors are computed for one band,
// which fits in L2, before the next band. So x and dy are read from memory once.
#include "kernels_cpu/depthwise/depthwise.h"

#include <fmt/format.h>

#include <algorithm>

#include "conv/refusals.h"
#include "conv/text/counted.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/depthwise/rows.h"
#include "kernels_cpu/device/range.h"
#include "kernels_cpu/gemm/non_temporal.h"
#include "kernels_cpu/gemm/pixel_grid.h"

namespace convlab::cpu {
namespace {

using i64 = std::int64_t;

// Parts of a run of taps, each of which fits in the registers.
template <class F>
void for_each_chunk(const Run& run, i64 most, const F& f) {
  const i64 chunks = ceil_div(run.taps, most);
  for (i64 i = 0; i < chunks; ++i) f(share(run.taps, i, chunks));
}

void plan_tiles(Depthwise& d, const Lines& lines) {
  const DepthwiseTiles shape = depthwise_tiles();
  const i64 filters = d.problem.pass == Pass::backward_data ? d.multiplier : 1;
  for (const Line& line : lines.lines)
    for (i64 first = 0; first < line.count;) {
      PixelTile tile;
      tile.few = line.count - first <= shape.few_pixels;
      const i64 computed = tile.few ? shape.few_pixels : shape.pixels;
      tile.count = std::min(computed, line.count - first);
      tile.out = line.first * d.out.pixel + first * d.out_step;
      tile.chunks_begin = i64(d.chunks.size());
      for (const Run& run : line.runs)
        for_each_chunk(run, shape.taps, [&](Range taps) {
          const i64 in = run.first + lines.in_step * (first + taps.begin);
          TapChunk chunk{in * d.in.pixel, run.slot + taps.begin, taps.size()};
          for (i64 c = 0; c < tile.count + taps.size() - 1; ++c) {
            const i64 column = in + lines.in_step * c;
            if (column >= 0 && column < d.in.width) chunk.columns |= 1u << c;
          }
          chunk.all_columns = chunk.columns + 1 == 1u << (computed + taps.size() - 1);
          for (i64 filter = 0; filter < filters && chunk.columns != 0; ++filter) {
            d.chunks.push_back(chunk);
            chunk.in += 1;
            chunk.slot += d.problem.s;
          }
        });
      tile.chunks_end = i64(d.chunks.size());
      d.tiles.push_back(tile);
      first += tile.count;
    }
  // Lines are interleaved, and a band's output stays in the caches.
  std::stable_sort(d.tiles.begin(), d.tiles.end(),
                   [](const PixelTile& a, const PixelTile& b) { return a.out < b.out; });
  for (std::size_t i = 0; i < d.tiles.size(); ++i)
    d.tiles[i].ahead = share(d.in.width, i64(i), i64(d.tiles.size()));
}

void plan_rows(Depthwise& d) {
  const Dimension height = height_of(d.problem);
  i64 read = 0;  // rows of the input
  for (i64 row = 0; row < d.out.height; ++row) {
    d.row_begin.push_back(i64(d.row_taps.size()));
    const i64 before = read;
    for (const InsideTap& tap : inside_taps_of(height, row)) {
      d.row_taps.push_back({tap.in * d.in.width * d.in.pixel, tap.tap * d.filter_row()});
      read = std::max(read, tap.in + 1);
    }
    if (row > 0) d.rows_ahead.push_back({before, read});
  }
  d.rows_ahead.push_back({});
  d.row_begin.push_back(i64(d.row_taps.size()));
}

void plan_filter_chunks(Depthwise& d, const Lines& lines) {
  const std::vector<Run>& runs = lines.lines.front().runs;  // all lines have the same taps
  for (std::size_t i = 0; i < runs.size(); ++i)
    for_each_chunk(runs[i], depthwise_tiles().filter_taps, [&](Range taps) {
      FilterChunk chunk{.slot = 0, .taps = taps.size(), .sweeps = {}};
      for (const Line& line : lines.lines) {
        const Run& run = line.runs[i];
        const i64 x = run.first + lines.in_step * taps.begin;
        chunk.slot = run.slot + taps.begin;
        FilterSweep sweep{.x = x * d.in.pixel,
                          .dy = line.first * d.out.pixel,
                          .begin = x < 0 ? ceil_div(-x, lines.in_step) : 0,
                          .end = x < d.in.width ? (d.in.width - 1 - x) / lines.in_step + 1 : 0,
                          .outputs = line.count};
        sweep.end = std::min(sweep.end, line.count + taps.size() - 1);
        sweep.x += sweep.begin * d.in_step;
        sweep.dy += sweep.begin * d.out_step;
        if (sweep.begin < sweep.end) chunk.sweeps.push_back(sweep);
      }
      d.filter_chunks.push_back(std::move(chunk));
    });
}

void plan_filter_rows(Depthwise& d) {
  const ConvProblem& p = d.problem;
  for (i64 row = 0; row < p.p; ++row)
    for (i64 r = 0; r < p.r; ++r) {
      const i64 h = row * p.stride_h - p.pad_h + r * p.dilation_h;
      d.x_rows.push_back(h >= 0 && h < p.h ? h * d.in.width * d.in.pixel : -1);
    }
  d.slot_of.resize(d.order.size());
  for (std::size_t slot = 0; slot < d.order.size(); ++slot)
    d.slot_of[std::size_t(d.order[slot])] = i64(slot);
}

// A block's input, and in backward_filter dy, is to fit in half of L2.
void plan_blocks(Depthwise& d, const DeviceInfo& device) {
  const ConvProblem& p = d.problem;
  const i64 threads = device.threads, height = d.out.height, tiles = i64(d.tiles.size());
  const bool filter = p.pass == Pass::backward_filter;
  d.band = height;
  d.span = tiles;
  const i64 plane = d.in.height * d.in.width * d.in.pixel * size_of(p.dtype);
  const i64 all_l2 = threads * device.l2_bytes;
  const bool in_order =
      is_blocked(p.x_layout) && plane > device.l1_bytes && p.x_bytes() + p.y_bytes() > all_l2;
  d.tile_rows = in_order ? 1 : height;
  // With few multiply-adds a pixel of x the hardware prefetcher reacts too late. With more, the
  // prefetches cost more time than they save.
  d.prefetch = in_order && p.pass == Pass::forward && p.r * p.s < 4 * p.stride_h * p.stride_w &&
               p.x_bytes() > all_l2;
  if (p.x_layout == Layout::nhwc) {
    // Threads share rows, unless the rows that two of them read are too many.
    d.group = p.n * height < 4 * threads * p.r ? ceil_div(d.vectors, threads) : d.vectors;
    const i64 fit = std::max<i64>(1, device.l2_bytes / 2 / (d.lanes * size_of(p.dtype)));
    const i64 row_step = p.pass == Pass::backward_data ? 1 : p.stride_h,
              rows = p.r * row_step + p.r;
    const i64 row = (filter ? d.in.width + d.out.width : d.in.width) * d.group;
    if (!filter) d.span = std::clamp<i64>(fit * tiles / (rows * row), 1, tiles);
    const i64 fitting_rows = fit / std::max<i64>(1, filter ? row : row * d.span / tiles);
    d.band = std::clamp<i64>((fitting_rows - p.r) / row_step, 1, height);
  }
  const i64 groups = ceil_div(d.vectors, d.group);
  if (!filter) {
    const i64 units = p.n * groups * height;
    if (units < 4 * threads)
      d.span = std::min(d.span, ceil_div(tiles, ceil_div(4 * threads, units)));
    return;
  }
  i64 passes = 0;
  for (const FilterChunk& chunk : d.filter_chunks) passes += d.row_blocks(chunk);
  if (passes > 1) {
    const i64 fit = device.l1_bytes / 2 / (d.lanes * size_of(p.dtype));
    const i64 rows = fit / (d.in.width * p.stride_h + d.out.width);
    d.band = std::min(d.band, std::max<i64>(8, rows - p.r));
  }
  const auto balance = [&](i64 parts) {
    return double(groups * parts) / double(round_up(groups * parts, threads));
  };
  for (i64 parts = 2; parts <= std::min(threads, p.n * p.p) && balance(d.parts) < 0.9; ++parts)
    if (balance(parts) > balance(d.parts)) d.parts = parts;
}

}  // namespace

Depthwise plan_depthwise(const ConvProblem& original, const DeviceInfo& device) {
  Depthwise d;
  d.problem = flattened(original);
  const ConvProblem& p = d.problem;
  const bool data = p.pass == Pass::backward_data;
  d.in = view_of(data ? p.y_desc() : p.x_desc());
  d.out = view_of(data ? p.x_desc() : p.y_desc());
  d.multiplier = p.k / p.c;
  d.lanes = tile_shape(p.dtype).lanes;
  // x in nhwc has no lanes beyond its channels, even if y has.
  const i64 channels = data                     ? p.x_desc().padded_c()
                       : is_blocked(p.x_layout) ? p.y_desc().padded_c()
                                                : p.k;
  d.vectors = ceil_div(channels, d.lanes);
  d.last_lanes = channels - (d.vectors - 1) * d.lanes;
  const Lines lines = lines_of(width_of(p));
  d.in_step = lines.in_step * d.in.pixel;
  d.out_step = lines.out_step * d.out.pixel;
  for (i64 filter = 0; filter < (data ? d.multiplier : 1); ++filter)
    for (const i64 s : lines.order) d.order.push_back(filter * p.s + s);
  if (p.pass == Pass::backward_filter) {
    plan_filter_chunks(d, lines);
    plan_filter_rows(d);
  } else {
    plan_tiles(d, lines);
    plan_rows(d);
  }
  plan_blocks(d, device);
  return d;
}

namespace {

template <class T>
void pack(const Depthwise& d, const T* w, T* to) {
  const ConvProblem& p = d.problem;
  const i64 filters = p.pass == Pass::backward_data ? d.multiplier : 1;
  const i64 channels = p.k / filters;
  for (i64 first = 0; first < d.vectors * d.lanes; first += d.lanes)
    for (i64 r = 0; r < p.r; ++r)
      for (const i64 slot : d.order)
        for (i64 channel = first; channel < first + d.lanes; ++channel) {
          const i64 k = channel * filters + slot / p.s;
          *to++ = channel < channels ? w[(k * p.r + r) * p.s + slot % p.s] : T(0);
        }
}

}  // namespace

std::int64_t packed_depthwise_bytes(const Depthwise& d) {
  return d.vectors * d.filter_vector() * size_of(d.problem.dtype);
}

void pack_depthwise(const Depthwise& d, ConstSpan w, Span packed) {
  if (d.problem.dtype == DType::f64)
    pack(d, reinterpret_cast<const double*>(w.data()), reinterpret_cast<double*>(packed.data()));
  else
    pack(d, reinterpret_cast<const float*>(w.data()), reinterpret_cast<float*>(packed.data()));
}

namespace {

// Those that the loops execute, for one vector of channels and all images.
double multiply_adds(const Depthwise& d) {
  const ConvProblem& p = d.problem;
  double in_rows = 0, row = 0;
  if (p.pass == Pass::backward_filter) {
    in_rows = double(p.r * p.p);
    for (const FilterChunk& chunk : d.filter_chunks)
      for (const FilterSweep& sweep : chunk.sweeps)
        row += double((sweep.end - sweep.begin) * chunk.taps);
  } else {
    const DepthwiseTiles shape = depthwise_tiles();
    in_rows = double(d.row_taps.size());
    for (const PixelTile& tile : d.tiles)
      for (i64 i = tile.chunks_begin; i < tile.chunks_end; ++i) {
        const TapChunk& chunk = d.chunks[std::size_t(i)];
        const i64 pixels = tile.few ? shape.few_pixels : shape.pixels;
        for (i64 c = 0; c < pixels + chunk.taps - 1; ++c)
          if ((chunk.columns >> c & 1) != 0)
            row += double(std::min(c + 1, pixels) - std::max<i64>(0, c - chunk.taps + 1));
      }
  }
  return double(p.n) * in_rows * row;
}

class DepthwisePlan : public ConvPlan {
 public:
  DepthwisePlan(const ConvProblem& p, const Config& config, const DeviceInfo& device)
      : d_(plan_depthwise(p, device)),
        threads_(device.threads),
        non_temporal_(stores_non_temporal(config)) {}

  std::size_t workspace_bytes() const noexcept override {
    return filter_pass() ? std::size_t(d_.parts) * filter_bytes() : 0;
  }
  std::size_t packed_filter_bytes() const noexcept override {
    return filter_pass() ? 0 : filter_bytes();
  }
  void pack_filter(ConstSpan w, Span packed, Stream&) const override {
    pack_depthwise(d_, w, packed);
  }
  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    void* const sums = workspace.data();
    const bool non_temporal = non_temporal_ && is_aligned_for_non_temporal(args.out);
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
    for (i64 thread = 0; thread < threads_; ++thread) {
      const PhaseScope scope(args.phases, 0);
      if (!filter_pass()) {
        depthwise_pixels(d_, args, non_temporal, thread, threads_);
        continue;
      }
      depthwise_filter(d_, args, sums, thread, threads_);
      if (d_.parts == 1) depthwise_add_parts(d_, args, sums, thread, threads_);
    }
    if (!filter_pass() || d_.parts == 1) return;
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
    for (i64 thread = 0; thread < threads_; ++thread) {
      const PhaseScope scope(args.phases, 1);
      depthwise_add_parts(d_, args, sums, thread, threads_);
    }
  }

 private:
  bool filter_pass() const { return d_.problem.pass == Pass::backward_filter; }
  std::size_t filter_bytes() const { return std::size_t(packed_depthwise_bytes(d_)); }

  Depthwise d_;
  i64 threads_;
  bool non_temporal_;
};

class DepthwiseAlgo : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "depthwise",
                               .version = 3,
                               .summary = "one channel a group, vectors of channels",
                               .libraries = {}};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    return refuse_depthwise(p, device.info());
  }

  // Non-temporal stores need whole vectors, and neighbouring pixels to fill cache lines.
  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    const i64 channels = p.pass == Pass::backward_data ? p.c : p.k;
    const bool whole = is_blocked(p.x_layout) || channels % tile_shape(p.dtype).block == 0;
    if (whole && lines_of(width_of(p)).out_step == 1 && may_store_non_temporal(p, device.info()))
      return {with_nontemporal_stores({}), Config{}};
    return {Config{}};
  }

  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    const Depthwise d = plan_depthwise(p, device.info());
    const double w = double(p.filter_bytes());
    const double packed = double(packed_depthwise_bytes(d));
    PhaseWork loops{.name = "loops"};
    if (p.pass == Pass::backward_filter) {
      loops.bytes_read = double(p.x_bytes() + p.y_bytes());
      loops.bytes_written = d.parts == 1 ? w : 0;
    } else {
      loops = direct_pixel_work(p, 1, 1);
      loops.bytes_read += bytes_read_for_ownership(p, config, device.info());
    }
    loops.flops = 2 * multiply_adds(d) * double(d.vectors * d.lanes);
    loops.efficiency = p.pass == Pass::backward_data && d.multiplier > 1 ? 0.2 : 0.75;
    WorkEstimate estimate{{loops}};
    if (p.pass != Pass::backward_filter)
      estimate.pack = {"pack_filter", 0, w, packed, packing_efficiency};
    else if (d.parts > 1)
      estimate.phases.push_back({"sum", 0, packed * double(d.parts), w, 0.5});
    return estimate;
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    if (p.pass == Pass::backward_filter)
      config.require_only({});
    else
      config.require_only({"stores"});
    return std::make_unique<DepthwisePlan>(p, config, device.info());
  }
};

}  // namespace

std::optional<Refusal> refuse_depthwise(const ConvProblem& p, const DeviceInfo& device) {
  if (auto refusal = refuse_all_but({DType::f32, DType::f64}, p)) return refusal;
  if (p.groups == 1 || p.groups != p.c)
    return Refusal{Field::groups, "several groups of 1 channel",
                   fmt::format("{} of {}", p.groups, counted(p.c / p.groups, "channel"))};
  if (auto refusal = refuse_two_layouts(p)) return refusal;
  if (p.x_layout == Layout::nchw)
    return Refusal{Field::layout, fmt::format("nhwc or {}", to_string(blocked_layout(device))),
                   std::string(to_string(p.x_layout))};
  if (is_blocked(p.x_layout) && tile_shape(p.dtype).lanes % (p.k / p.c) != 0)
    return Refusal{
        Field::groups,
        fmt::format("a divisor of {} filters a channel, or nhwc", tile_shape(p.dtype).lanes),
        fmt::format("{}", p.k / p.c)};
  return refuse_other_blocks(p, device);
}

std::unique_ptr<ConvAlgo> make_depthwise() { return std::make_unique<DepthwiseAlgo>(); }

}  // namespace convlab::cpu
