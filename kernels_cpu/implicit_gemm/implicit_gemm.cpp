// Implicit GEMM: convolution as one matrix product whose big operand, the matrix of image columns,
// is never stored.
//
// forward:        y[pixel][k]  = sum over (c, tap) of x[pixel * stride + tap][c] w[k][c][tap]
// backward_data:  dx[pixel][c] = sum over (k, tap) of dy[...][k] w[k][c][tap]. With stride > 1 the
//                 pixels of dx fall into stride_h x stride_w stride phases, each of which has only
//                 the taps with its remainder: one small dense product a phase (polyphase), and no
//                 multiplication by inserted zeros.
// backward_filter: dw[c, tap][k] = sum over pixels of x[pixel * stride + tap][c] dy[pixel][k].
//
// A product is of f32 multiply-adds unless the config says otherwise: split.h.
//
// Chetlur et al. 2014 (cuDNN, arXiv:1410.0759) form tiles of the column matrix on the fly;
// Georganas et al. 2018 (arXiv:1808.05567) have the channel-blocked layout that makes a tile's
// piece one cache line. Blocking follows Goto & van de Geijn 2008.
#include "kernels_cpu/implicit_gemm/implicit_gemm.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "conv/error.h"
#include "conv/refusals.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/device/range.h"
#include "kernels_cpu/gemm/filter_block.h"
#include "kernels_cpu/gemm/non_temporal.h"
#include "kernels_cpu/groups.h"
#include "kernels_cpu/implicit_gemm/block_product.h"
#include "kernels_cpu/implicit_gemm/split.h"
#include "kernels_cpu/inside_taps.h"
#include "kernels_cpu/row_as_column.h"

namespace convlab::cpu {
namespace {

std::int64_t panels(const PixelGemm& gemm) { return ceil_div(gemm.out.c, gemm.tile.cols); }

// AVX-512 has room for other tiles. A single vector of columns takes twice the rows. An odd number
// of vectors that three divides is cut into panels of three, not into pairs and a remainder. A
// shallow product, whose panels of B stay in L1 at any width, takes wide and flat tiles: the
// epilogue of 24 accumulators is shorter than that of 28.
TileShape tile_of(const PixelGemm& gemm, std::int64_t taps) {
  TileShape shape = tile_shape(gemm.dtype);
  const std::int64_t vecs = ceil_div(gemm.out.padded_c(), shape.lanes);
  if (shape.block < 16 || gemm.plain_in()) return shape;
  const bool whole_blocks = shape.lanes == shape.block;  // of any number of vectors
  if (whole_blocks && vecs == 1) shape.cols = shape.lanes;
  const bool shallow = gemm.in.padded_c() * taps <= 64;
  if (whole_blocks && (vecs % 6 == 3 || (shallow && vecs % 3 == 0)))
    shape.rows = 8, shape.cols = 3 * shape.lanes;
  else if (shallow && vecs % 4 == 0)
    shape.rows = 6, shape.cols = 4 * shape.lanes;
  return shape;
}

// A core multiplies and adds two vectors a cycle; in that time this many bytes come from beyond L2.
double bytes_per_cycle(const TileShape& shape, DType dtype) {
  return 4 * double(shape.lanes) / flops_per_byte(dtype);
}

// Threads that share rows of C gather each tile once, and each reads all of B. Threads that share
// panels read B once, and each gathers every tile. Costs are cycles per group of depth: a tile
// costs rows * lanes for each two vectors of columns and about 2 rows to gather; a chunk of a panel
// that misses L2 is read once for each block of rows. If the image stays in L2, threads share
// panels: with shared rows each would prefetch lines that the other writes.
void split_threads(PixelGemm& gemm, const DeviceInfo& device) {
  const TileShape& shape = gemm.tile;
  std::int64_t rows = 0, depth = 0;
  for (const PixelGrid& grid : gemm.grids) {
    rows += gemm.out.n * grid.h * grid.w;
    depth += gemm.depth_groups(grid);
  }
  const std::int64_t filter_bytes =
      depth * gemm.group_depth * panels(gemm) * shape.cols * size_of(gemm.dtype);
  const double pair_bytes = double(2 * shape.lanes * shape.block * size_of(gemm.dtype));
  const double read =
      filter_bytes > device.l2_bytes / 2 ? pair_bytes / bytes_per_cycle(shape, gemm.dtype) : 0;
  const bool ready = gemm.in_place() && gemm.in.n < device.threads &&
                     size_of(gemm.dtype) * gemm.groups * gemm.in.elements() <= device.l2_bytes / 2;
  const double gather = ready ? 0 : 2;
  double best = std::numeric_limits<double>::infinity();
  for (std::int64_t row_threads = 1; row_threads <= device.threads; ++row_threads) {
    const std::int64_t panel_threads = device.threads / row_threads;
    const double own_rows =
        double(std::min(rows, ceil_div(ceil_div(rows, shape.rows), row_threads) * shape.rows));
    // A last panel of a single vector costs less, and only one thread has it.
    const double of_panels = double(panels(gemm) * shape.cols) / double(panel_threads);
    const double own_pairs =
        std::min(double(ceil_div(gemm.out.c, shape.lanes)), of_panels / double(shape.lanes)) / 2;
    const double blocks = std::max(1.0, own_rows / double(gemm.block_rows));
    const double cost =
        own_rows * (double(shape.lanes) * own_pairs + gather) + blocks * own_pairs * read;
    if (cost < best) {
      best = cost;
      gemm.row_threads = row_threads;
      gemm.panel_threads = panel_threads;
    }
  }
}

PlainRows plain_rows(const ConvProblem& p) {
  const std::int64_t width = (p.q - 1) * p.stride_w + (p.s - 1) * p.dilation_w + 1;
  return {p.c, p.h, p.w, p.r, p.s, p.dilation_h, p.dilation_w, width, p.x_desc().channel_step()};
}

}  // namespace

PixelGemm plan_pixels(const ConvProblem& original, const Config& config, const DeviceInfo& device) {
  const ConvProblem p = problem_of_pixels(original);
  PixelGemm gemm = describe_pixels(p, original.groups);
  const TileShape shape = gemm.tile = tile_of(gemm, p.r * p.s);
  gemm.plain = plain_rows(p);
  gemm.group_depth = is_blocked(gemm.in.layout) ? shape.block : p.dilation_w == 1 ? p.s : 1;
  // With a 1x1 filter only one stride phase has a tap; the others contribute nothing.
  if (p.r * p.s == 1 && gemm.grids.size() > 1 && !gemm.grids[0].taps.empty() &&
      is_blocked(gemm.out.layout)) {
    gemm.grids.resize(1);
    gemm.zeros_between = !p.accumulate;
  }
  gemm.non_temporal = stores_non_temporal(config);
  const std::int64_t size = size_of(p.dtype);
  std::int64_t filter = 0, most_rows = 0;
  for (PixelGrid& g : gemm.grids) {
    g.filter = filter;
    filter += panels(gemm) * gemm.depth_groups(g) * gemm.group_depth * shape.cols;
    most_rows = std::max(most_rows, gemm.out.n * g.h * g.w);
  }
  if (gemm.plain_in()) {
    gemm.chunk = gemm.depth_groups(gemm.grids.front());
    gemm.block_rows = gemm.out.w;
  } else {
    gemm.chunk = std::max<std::int64_t>(1, config.get("depth") / shape.block);
    const std::int64_t row_bytes = gemm.chunk * shape.block * size;
    gemm.block_rows = std::clamp(device.l2_bytes / 2 / row_bytes / shape.rows * shape.rows,
                                 shape.rows, round_up(most_rows, shape.rows));
    if (const std::int64_t line = gemm.grids[0].w; gemm.zeros_between)
      gemm.block_rows = std::max<std::int64_t>(1, gemm.block_rows / line) * line;
  }
  const std::int64_t in_bytes = size * gemm.groups * gemm.in.elements();
  if (gemm.in_place() && in_bytes > device.threads * device.l2_bytes) {
    const std::int64_t row_bytes = gemm.depth_groups(gemm.grids[0]) * shape.block * size;
    const std::int64_t filter_bytes = row_bytes * panels(gemm) * shape.cols;
    // A single panel has no other panel's time to prefetch in: that pays only if its rows come from
    // memory.
    gemm.prefetch_rows = (panels(gemm) > 1 || exceeds_caches(in_bytes, device)) &&
                         gemm.depth_groups(gemm.grids[0]) <= gemm.chunk &&
                         2 * gemm.block_rows * row_bytes + filter_bytes <= device.l2_bytes;
  }
  split_threads(gemm, device);
  gemm.thread_bytes = thread_workspace(gemm);
  return gemm;
}

namespace {

// [group][grid][panel][channel block][tap][channel in block][column], zero where channels are
// padding.
template <class T>
void pack_pixels(const PixelGemm& gemm, const ConvProblem& p, const T* w, T* packed, int threads) {
  const TileShape& shape = gemm.tile;
  const std::int64_t block = channel_block(gemm.in.layout);
  for (const PixelGrid& grid : gemm.grids) {
    const std::int64_t depth_groups = gemm.depth_groups(grid);
    const auto taps = std::int64_t(grid.taps.size());
    const std::vector<std::int64_t> tap_of = tap_of_element(grid, p.r * p.s);
#pragma omp parallel for num_threads(threads) schedule(static) collapse(3)
    for (std::int64_t group = 0; group < gemm.groups; ++group)
      for (std::int64_t panel = 0; panel < panels(gemm); ++panel)
        for (std::int64_t b = 0; b < gemm.in.padded_c() / block; ++b) {
          const std::int64_t columns = std::min(shape.cols, gemm.out.c - panel * shape.cols);
          const FilterBlock part{.in = b * block,
                                 .out = panel * shape.cols,
                                 .channels = std::min(block, gemm.in.c - b * block),
                                 .columns = columns,
                                 .packed_channels = block,
                                 .packed_columns = gemm.packed_cols(columns),
                                 .in_fours = gemm.in_fours(columns)};
          T* const to = packed + group * gemm.packed_elements() + grid.filter +
                        panel * depth_groups * gemm.group_depth * shape.cols;
          pack_block(FilterViewOf<T>(p, w, group), part, tap_of, block * part.packed_columns,
                     to + b * taps * block * part.packed_columns);
        }
  }
}

}  // namespace

void pack_pixels(const PixelGemm& gemm, const ConvProblem& p, ConstSpan w, Span packed,
                 int threads) {
  const auto pack = [&](auto element) {
    using T = decltype(element);
    pack_pixels(gemm, p, reinterpret_cast<const T*>(w.data()), reinterpret_cast<T*>(packed.data()),
                threads);
  };
  p.dtype == DType::f64 ? pack(double()) : pack(float());
}

namespace {

// The gathered tiles and their chunk of B stay in the private caches. The input crosses once for
// each thread that gathers it, B once a block of rows, and C once a chunk of depth.
WorkEstimate work_pixels(const ConvProblem& p, const Config& config, const DeviceInfo& device) {
  const GroupTeams teams(p.groups, device.threads);
  const PixelGemm gemm = plan_pixels(p, config, teams.device_of_team(device));
  const TileShape& shape = gemm.tile;
  const double size = double(size_of(p.dtype)), groups = double(p.groups);
  const double in_bytes = groups * size * double(gemm.in.elements()) * double(gemm.panel_threads);
  const double packed_bytes = size * double(gemm.packed_elements());  // of a group
  const double row_parts = double(gemm.row_threads);
  PhaseWork gather{.name = "gather", .bytes_read = in_bytes};
  PhaseWork product{.name = "product"};
  const double columns = double(round_up(gemm.out.c, shape.block));
  const double multiplied = columns - (gemm.in_fours(gemm.out.c % shape.cols) ? 8 : 0);
  for (const PixelGrid& grid : gemm.grids) {
    const double rows = double(gemm.out.n * grid.h * grid.w);
    const std::int64_t depth_groups = gemm.depth_groups(grid);
    // The depth of AVX-512's 1x1 products ends with the channels, that of others with the padding
    // lanes.
    const bool ends = shape.block == 16 && grid.taps.size() == 1 && !gemm.plain_in();
    const double depth = double(ends ? gemm.in.c : depth_groups * gemm.group_depth);
    const double chunks = std::max(1.0, double(ceil_div(depth_groups, gemm.chunk)));
    product.flops += groups * 2 * rows * depth * multiplied;
    product.bytes_read += groups * size * rows * columns * (chunks - (p.accumulate ? 0 : 1));
    product.bytes_written += groups * size * rows * columns * chunks;
    const double blocks = packed_bytes < double(device.l2_bytes) / 2
                              ? row_parts
                              : std::max(row_parts, rows / double(gemm.block_rows));
    product.bytes_read += groups * blocks * size * depth * columns;
  }
  if (p.epilogue.residual) product.bytes_read += double(p.y_bytes());
  product.bytes_read += bytes_read_for_ownership(p, config, device);
  product.efficiency = 0.77;
  return {{gather, product},
          {"pack_filter", 0, double(p.filter_bytes()), groups * packed_bytes, packing_efficiency}};
}

class PixelPlan : public ConvPlan {
 public:
  PixelPlan(const ConvProblem& problem, const Config& config, const DeviceInfo& device)
      : problem_(problem),
        teams_(problem.groups, device.threads),
        gemm_(plan_pixels(problem, config, teams_.device_of_team(device))),
        threads_(device.threads) {}

  std::size_t workspace_bytes() const noexcept override {
    return gemm_.thread_bytes * std::size_t(used_threads());
  }
  std::size_t packed_filter_bytes() const noexcept override {
    return std::size_t(problem_.groups * gemm_.packed_elements() * size_of(problem_.dtype));
  }
  void pack_filter(ConstSpan w, Span packed, Stream&) const override {
    pack_pixels(gemm_, problem_, w, packed, threads_);
  }
  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    problem_.dtype == DType::f64 ? run<double>(args, workspace) : run<float>(args, workspace);
  }

 private:
  template <class T>
  void run(const ConvArgs& args, Workspace workspace) const {
    const PixelOperands<T> data{
        static_cast<const T*>(problem_.pass == Pass::forward ? args.x : args.dy),
        static_cast<const T*>(args.w),
        output_epilogue<T>(problem_, args,
                           gemm_.non_temporal && is_aligned_for_non_temporal(args.out))};
    const std::int64_t of_team = gemm_.row_threads * gemm_.panel_threads;
#pragma omp parallel num_threads(used_threads())
    for (int t = omp_get_thread_num(); t < used_threads(); t += omp_get_num_threads()) {
      const std::int64_t team = t / of_team;
      const Range own = share(problem_.groups, team, teams_.teams);
      std::byte* const of_its_team =
          workspace.data() + std::size_t(team * of_team) * gemm_.thread_bytes;
      for (std::int64_t group = own.begin; group < own.end; ++group)
        run_thread(gemm_, data.of_group(gemm_, group), of_its_team, t % of_team, args.phases);
    }
  }
  int used_threads() const { return int(teams_.teams * gemm_.row_threads * gemm_.panel_threads); }

  ConvProblem problem_;
  GroupTeams teams_;
  PixelGemm gemm_;
  int threads_;
};

// Outputs [begin, end) of one dimension whose input i * stride + offset is no padding.
struct TapRange {
  std::int64_t begin, end, offset;
};
std::vector<TapRange> tap_ranges(std::int64_t taps, std::int64_t count, std::int64_t stride,
                                 std::int64_t dilation, std::int64_t pad, std::int64_t size) {
  std::vector<TapRange> ranges;
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    const std::int64_t offset = tap * dilation - pad;
    const std::int64_t begin = offset >= 0 ? 0 : std::min(count, ceil_div(-offset, stride));
    const std::int64_t end = offset >= size ? 0 : (size - 1 - offset) / stride + 1;
    ranges.push_back({begin, std::clamp(end, begin, count), offset});
  }
  return ranges;
}

std::vector<FilterTap> filter_taps(const ConvProblem& p, std::int64_t block) {
  std::vector<FilterTap> taps;
  for (const TapRange& h : tap_ranges(p.r, p.p, p.stride_h, p.dilation_h, p.pad_h, p.h))
    for (const TapRange& w : tap_ranges(p.s, p.q, p.stride_w, p.dilation_w, p.pad_w, p.w)) {
      const std::int64_t width = w.end - w.begin;
      taps.push_back({.begin = h.begin,
                      .end = width > 0 ? h.end : h.begin,
                      .width = width,
                      .x_at = (h.offset * p.w + w.begin * p.stride_w + w.offset) * block,
                      .dy_at = w.begin * block,
                      .joined = width == p.q &&
                                (p.q == 1 || (p.w == p.q && p.stride_h == 1 && p.stride_w == 1))});
    }
  return taps;
}

// How many lines make up about `pixels`: whole images or an even share of one, so that joined lines
// make long runs.
std::int64_t chunk_lines(const ConvProblem& p, std::int64_t pixels) {
  const double images = double(std::max<std::int64_t>(1, pixels)) / double(p.p * p.q);
  if (images >= 1) return std::llround(images) * p.p;
  return ceil_div(p.p, std::int64_t{std::llround(1 / images)});
}

// Cuts dw and the pixels for the least estimated time, in cycles. Each pixel costs a tile of rows x
// cols as many cycles as it has rows, and a unit reads its panels of dy and its blocks of x from
// beyond L2. These reads are prefetched, but some of their time shows even where the product takes
// longer: of cuts that multiply alike, the one that reads least is best. Each part costs one more
// pass over dw. All groups are cut alike.
FilterGemm plan_filter(const ConvProblem& original, const Config& config,
                       const DeviceInfo& device) {
  ConvProblem p = problem_of_group(original);
  if (is_blocked(p.x_layout)) p = row_as_column(p);
  const TileShape shape = tile_shape(p.dtype);
  FilterGemm gemm;
  gemm.problem = p;
  gemm.groups = original.groups;
  gemm.plain_x = !is_blocked(p.x_layout);
  gemm.plain = plain_rows(p);
  gemm.panels = ceil_div(p.k, shape.cols);
  gemm.blocks = gemm.plain_x ? 1 : ceil_div(p.c, shape.block);
  gemm.block_rows = (gemm.plain_x ? p.c : shape.block) * p.r * p.s;
  gemm.threads = device.threads;
  if (!gemm.plain_x) {
    gemm.chunk_lines = chunk_lines(p, config.get("pixels"));
    gemm.taps = filter_taps(p, shape.block);
    for (std::int64_t c = 0; c < p.c; ++c)
      gemm.row_at.push_back(c / shape.block * p.x_desc().channel_step() + c % shape.block);
  } else {
    gemm.buffer_elements = std::size_t(gemm.plain.elements());
    for (std::int64_t cr = 0; cr < p.c * p.r; ++cr)
      for (std::int64_t col = 0; col < p.s; ++col)
        gemm.row_at.push_back(cr * gemm.plain.width + col * p.dilation_w);
  }

  const double pixels = double(p.n * p.p * p.q);
  const std::int64_t lines = p.n * p.p;
  const std::int64_t size = size_of(p.dtype), block_sums = gemm.block_rows * shape.cols;
  const std::int64_t fit = std::max<std::int64_t>(1, device.l2_bytes / 4 / size / block_sums);
  const std::int64_t most_parts = std::min<std::int64_t>(device.threads, lines);
  const double cycles_per_byte = 1 / bytes_per_cycle(shape, p.dtype);
  constexpr double exposed = 0.25;
  double best = std::numeric_limits<double>::infinity();
  for (std::int64_t panel_splits = 1; panel_splits <= gemm.panels; ++panel_splits)
    for (std::int64_t block_splits = 1; block_splits <= gemm.blocks; ++block_splits) {
      const std::int64_t panels = ceil_div(gemm.panels, panel_splits);
      const std::int64_t blocks = ceil_div(gemm.blocks, block_splits);
      if (panels * blocks > fit && (panels > 1 || blocks > 1)) continue;
      const std::int64_t rows = gemm.plain_x ? p.c : row_cost(std::min(p.c, blocks * shape.block));
      for (std::int64_t parts = 1; parts <= most_parts; ++parts) {
        const double rounds =
            double(ceil_div(gemm.groups * panel_splits * block_splits * parts, device.threads));
        const double compute = double(panels * rows * p.r * p.s);
        const double copy = double(gemm.buffer_elements) / double(8 * p.q);
        const double read =
            double(size * (panels * shape.cols + blocks * shape.block)) * cycles_per_byte;
        const double sums = double(panels * blocks * block_sums * size) * cycles_per_byte;
        const double pixel = std::max(compute, read) + exposed * read + copy;
        const double cost = rounds * (pixels / double(parts) * pixel + (parts > 1 ? 3 : 1) * sums);
        if (cost < best) {
          best = cost;
          gemm.panel_splits = panel_splits;
          gemm.block_splits = block_splits;
          gemm.parts = parts;
          gemm.unit_sums = std::size_t(panels * blocks * block_sums);
        }
      }
    }
  return gemm;
}

WorkEstimate work_filter(const ConvProblem& p, const Config& config, const DeviceInfo& device) {
  const FilterGemm gemm = plan_filter(p, config, device);
  const TileShape shape = tile_shape(p.dtype);
  const double x_bytes = double(p.x_bytes()), dy_bytes = double(p.y_bytes());
  const double size = double(size_of(p.dtype)), groups = double(p.groups);
  const double sums = groups * size * double(gemm.unit_sums) * double(gemm.rectangles());
  PhaseWork product{.name = "product"};
  product.flops = 2.0 * double(p.n * p.p * p.q) * double(gemm.blocks * gemm.block_rows) * groups *
                  double(round_up(gemm.problem.k, shape.block)) *
                  (gemm.plain_x ? 1 : inside_share(p));
  product.bytes_read = x_bytes * double(gemm.panel_splits) + dy_bytes * double(gemm.block_splits);
  product.bytes_written = gemm.parts > 1 ? sums * double(gemm.parts) : 0;
  product.efficiency = 0.77;
  PhaseWork reduce{.name = "reduce"};
  reduce.flops = sums / size * double(gemm.parts - 1);
  reduce.bytes_read = gemm.parts > 1 ? sums * double(gemm.parts) : 0;
  reduce.bytes_written = double(p.filter_bytes());
  return {{product, reduce}};
}

class FilterPlan : public ConvPlan {
 public:
  FilterPlan(const ConvProblem& problem, const Config& config, const DeviceInfo& device)
      : gemm_(plan_filter(problem, config, device)), size_(std::size_t(size_of(problem.dtype))) {}

  std::size_t workspace_bytes() const noexcept override {
    return size_ * (sums_slots() * slot() + std::size_t(gemm_.threads) * gemm_.buffer_elements);
  }

  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    std::byte* const sums = workspace.data();
    std::byte* const buffers = sums + sums_slots() * slot() * size_;
    const int threads = int(gemm_.threads);
    // A unit at a time for each thread. With one part its sums are final.
    const std::int64_t units = gemm_.groups * gemm_.rectangles() * gemm_.parts;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (std::int64_t unit = 0; unit < units; ++unit) {
      const std::int64_t rectangle = unit / gemm_.parts;
      const auto thread = std::size_t(omp_get_thread_num());
      std::byte* const own = sums + (gemm_.parts > 1 ? std::size_t(unit) : thread) * slot() * size_;
      {
        const PhaseScope scope(args.phases, 0);
        run_unit(gemm_, args.x, args.dy, own, buffers + thread * gemm_.buffer_elements * size_,
                 rectangle, unit % gemm_.parts);
      }
      if (gemm_.parts > 1) continue;
      const PhaseScope scope(args.phases, 1);
      finish_rectangle(gemm_, own, slot(), args.out, rectangle);
    }
    if (gemm_.parts == 1) return;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (std::int64_t rectangle = 0; rectangle < gemm_.groups * gemm_.rectangles(); ++rectangle) {
      const PhaseScope scope(args.phases, 1);
      finish_rectangle(gemm_, sums + std::size_t(rectangle * gemm_.parts) * slot() * size_, slot(),
                       args.out, rectangle);
    }
  }

 private:
  // Elements of a unit's sums, in whole cache lines.
  std::size_t slot() const { return (gemm_.unit_sums + 15) / 16 * 16; }
  std::size_t sums_slots() const {
    return std::size_t(gemm_.parts > 1 ? gemm_.groups * gemm_.rectangles() * gemm_.parts
                                       : gemm_.threads);
  }

  FilterGemm gemm_;
  std::size_t size_;  // of an element
};

class ImplicitGemm : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "implicit_gemm",
                               .version = 28,
                               .summary = "one matrix product; columns gathered tile by tile",
                               .libraries = {}};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    const Layout blocked = blocked_layout(device.info());
    const bool by_tiles = p.dtype == DType::bf16 && !split_configs(p, device.info()).empty();
    if (!by_tiles)
      if (auto refusal = refuse_all_but({DType::f32, DType::f64}, p)) return refusal;
    if (auto refusal = refuse_parts_of_blocks_in_groups(p)) return refusal;
    if (p.y_layout != blocked)
      return Refusal{Field::layout,
                     fmt::format("y as {} on this instruction set", to_string(blocked)),
                     std::string(to_string(p.y_layout))};
    if (p.x_layout != blocked && p.x_layout != Layout::nchw)
      return Refusal{Field::layout,
                     fmt::format("x as {} on this instruction set, or as nchw", to_string(blocked)),
                     std::string(to_string(p.x_layout))};
    if (p.x_layout == Layout::nchw && p.c > 4)
      return Refusal{Field::layout, "at most 4 channels for x as nchw", std::to_string(p.c)};
    // Positions within one image are 32-bit.
    constexpr std::int64_t limit = std::numeric_limits<std::int32_t>::max() / 2;
    const std::int64_t reach =
        std::max({p.h * p.w, p.p * p.q * p.stride_h * p.stride_w, p.r * p.dilation_h * p.w,
                  p.s * p.dilation_w, p.r * p.dilation_h * p.q});
    if (reach > limit)
      return Refusal{Field::image, fmt::format("images of at most {} pixels", limit),
                     std::to_string(reach)};
    return std::nullopt;
  }

  // Over a plain input only the stores are a choice.
  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    if (p.dtype == DType::bf16) return split_configs(p, device.info());
    const bool plain_in = has_plain_input(p);
    if (p.pass == Pass::backward_filter) {
      if (plain_in) return {Config{}};
      std::vector<Config> configs{{{"pixels", 192}}, {{"pixels", 384}}};
      for (Config& config : split_configs(p, device.info())) configs.push_back(std::move(config));
      return configs;
    }
    std::vector<Config> configs{Config{}};
    if (!plain_in) configs = {{{"depth", 512}}, {{"depth", 256}}};
    const TensorDesc out = p.pass == Pass::forward ? p.y_desc() : p.x_desc();
    if (is_blocked(out.layout) && may_store_non_temporal(p, device.info())) {
      configs.insert(configs.begin(), configs.front());
      configs.front() = with_nontemporal_stores(configs.front());
      // Partial sums of several chunks are read back from memory: longer chunks may pay.
      const std::int64_t depth = (p.pass == Pass::forward ? p.c : p.k) * p.r * p.s;
      if (!plain_in && depth > configs.front().get("depth"))
        configs.push_back(with_nontemporal_stores({{"depth", 1024}}));
    }
    for (Config& config : split_configs(p, device.info())) configs.push_back(std::move(config));
    return configs;
  }

  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    if (is_split(config)) return work_split(p, config, device.info());
    if (p.pass == Pass::backward_filter) return work_filter(p, config, device.info());
    return work_pixels(p, config, device.info());
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    if (is_split(config)) return make_split_plan(p, config, device.info());
    check(p, config);
    if (p.pass == Pass::backward_filter)
      return std::make_unique<FilterPlan>(p, config, device.info());
    return std::make_unique<PixelPlan>(p, config, device.info());
  }

 private:
  // Products over a plain input work row by row.
  static bool has_plain_input(const ConvProblem& p) {
    return p.pass != Pass::backward_data && !is_blocked(p.x_layout);
  }

  static void check(const ConvProblem& p, const Config& config) {
    const bool filter_pass = p.pass == Pass::backward_filter, plain_in = has_plain_input(p);
    const bool plain_out = p.pass == Pass::backward_data && !is_blocked(p.x_layout);
    if (filter_pass)
      plain_in ? config.require_only({}) : config.require_only({"pixels"});
    else if (plain_out)
      config.require_only({"depth"});
    else
      plain_in ? config.require_only({"stores"}) : config.require_only({"depth", "stores"});
    constexpr std::int64_t most = 1 << 20;  // far above what is worth trying
    for (const char* key : {"depth", "pixels"})
      if (config.has(key) && (config.get(key) < 1 || config.get(key) > most))
        throw InputError(
            fmt::format("implicit_gemm: {}={}: expected 1 to {}", key, config.get(key), most));
  }
};

}  // namespace

ConvProblem problem_of_pixels(const ConvProblem& p) {
  return problem_of_group(is_blocked(p.x_layout) ? flattened(p) : p);
}

PixelGemm describe_pixels(const ConvProblem& p, std::int64_t groups) {
  const bool forward = p.pass == Pass::forward;
  PixelGemm gemm;
  gemm.dtype = p.dtype;
  gemm.groups = groups;
  gemm.in = forward ? p.x_desc() : p.y_desc();
  gemm.out = forward ? p.y_desc() : p.x_desc();
  if (forward) {
    gemm.in_step_h = std::int32_t(p.stride_h);
    gemm.in_step_w = std::int32_t(p.stride_w);
  } else {
    gemm.out_step_h = p.stride_h;
    gemm.out_step_w = p.stride_w;
  }
  gemm.grids = forward ? forward_grids(p) : backward_grids(p);
  return gemm;
}

std::unique_ptr<ConvAlgo> make_implicit_gemm() { return std::make_unique<ImplicitGemm>(); }

}  // namespace convlab::cpu
