// Plans, packing and work of implicit_gemm by bf16 products: see split.h.
#include "kernels_cpu/implicit_gemm/split.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>

#include "conv/error.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/amx/amx.h"
#include "kernels_cpu/amx/line.h"
#include "kernels_cpu/device/range.h"
#include "kernels_cpu/gemm/filter_block.h"
#include "kernels_cpu/gemm/non_temporal.h"
#include "kernels_cpu/groups.h"
#include "kernels_cpu/half/convert.h"
#include "kernels_cpu/implicit_gemm/split_filter.h"

namespace convlab::cpu {
namespace {

// Cycles of a core. Reading and splitting 32 rows of a step costs about 60 that the products do not
// hide. L3 delivers about 11 bytes a cycle.
constexpr double split_cycles = 60, l3_bytes_per_cycle = 11;

// Threads that share rows split each row once, and each reads the whole filter. Threads that share
// panels read the filter once, and each splits all rows. Costs are cycles a step of depth.
void split_threads(SplitGemm& gemm, const DeviceInfo& device) {
  PixelGemm& pixels = gemm.pixels;
  std::int64_t rows = 0;
  for (const PixelGrid& grid : pixels.grids) rows += pixels.out.n * grid.h * grid.w;
  const double panel_step_bytes = double(gemm.terms() * 2 * tile_bytes);
  const bool filter_in_l2 = gemm.packed_bytes() <= device.l2_bytes / 4;
  const double product_cycles = tile_product_cycles(device);
  double best = std::numeric_limits<double>::infinity();
  for (std::int64_t row_threads = 1; row_threads <= device.threads; ++row_threads) {
    const std::int64_t panel_threads = device.threads / row_threads;
    const double pairs = double(ceil_div(ceil_div(rows, pixels.tile.rows), row_threads));
    const double panels = double(gemm.panels()) / double(panel_threads);
    const double blocks =
        std::max(1.0, pairs * double(pixels.tile.rows) / double(pixels.block_rows));
    const double read = filter_in_l2 ? 0 : blocks * panels * panel_step_bytes / l3_bytes_per_cycle;
    const double cost =
        pairs * (panels * double(4 * gemm.products()) * product_cycles + split_cycles) + read;
    if (cost >= best) continue;
    best = cost;
    pixels.row_threads = row_threads;
    pixels.panel_threads = panel_threads;
  }
}

// Of one group, by one team.
SplitGemm plan_split(const ConvProblem& original, const Config& config, const DeviceInfo& device) {
  const ConvProblem p = problem_of_pixels(original);
  SplitGemm gemm;
  gemm.math = math_type(config);
  PixelGemm& pixels = gemm.pixels = describe_pixels(p, original.groups);
  pixels.tile = {.lanes = tile_rows,
                 .block = channel_block(pixels.in.layout),
                 .rows = 2 * tile_rows,
                 .cols = split_panel_cols};
  std::int64_t most_rows = 0, most_steps = 1, filter = 0;
  for (PixelGrid& grid : pixels.grids) {
    grid.filter = filter;
    filter += gemm.panels() * gemm.panel_bytes(grid);
    most_rows = std::max(most_rows, pixels.out.n * grid.h * grid.w);
    most_steps = std::max(most_steps, gemm.steps(grid));
  }
  gemm.chunk_steps =
      gemm.math == MathType::bf16
          ? most_steps  // parts of a sum would be rounded
          : std::clamp<std::int64_t>(config.get("depth") / tile_depth, 1, most_steps);
  const std::int64_t row_bytes = gemm.chunk_steps * gemm.terms() * tile_bytes / tile_rows;
  const std::int64_t unit = pixels.tile.rows;
  pixels.block_rows =
      std::clamp(device.l2_bytes / 2 / row_bytes / unit * unit, unit, round_up(most_rows, unit));
  split_threads(gemm, device);
  pixels.thread_bytes = split_workspace(gemm);
  return gemm;
}

// The terms of 16 columns at two neighbouring steps of depth, as pairs of bf16: `terms` lines, a
// tile's bytes times `apart` from one another. A NaN stays one: it is not rounded.
void pack_pairs(const float* even, const float* odd, std::int64_t terms, std::int64_t apart,
                std::byte* to) {
  Line x0 = *reinterpret_cast<const LineAt*>(even), x1 = *reinterpret_cast<const LineAt*>(odd);
  for (std::int64_t term = 0; term < terms; ++term, to += apart * tile_bytes) {
    const LineBits r0 = (LineBits)x0 + ((LineBits)(x0 == x0) & 0x8000u);
    const LineBits r1 = (LineBits)x1 + ((LineBits)(x1 == x1) & 0x8000u);
    *reinterpret_cast<LineBitsAt*>(to) = (r0 >> 16) | (r1 & 0xffff0000u);
    x0 -= (Line)(r0 & 0xffff0000u);
    x1 -= (Line)(r1 & 0xffff0000u);
  }
}

void pack_split(const SplitGemm& gemm, const ConvProblem& p, const float* w, std::byte* packed,
                int threads) {
  const PixelGemm& pixels = gemm.pixels;
  const std::int64_t block = pixels.tile.block, blocks = gemm.channel_blocks();
  const std::int64_t terms = gemm.terms();
  for (const PixelGrid& grid : pixels.grids) {
    const auto taps = std::int64_t(grid.taps.size());
    const std::vector<std::int64_t> tap_of = tap_of_element(grid, p.r * p.s);
#pragma omp parallel num_threads(threads)
    {
      std::vector<float> part(std::size_t(taps * block * split_panel_cols));
#pragma omp for schedule(static) collapse(3)
      for (std::int64_t group = 0; group < pixels.groups; ++group)
        for (std::int64_t panel = 0; panel < gemm.panels(); ++panel)
          for (std::int64_t b = 0; b < blocks; ++b) {
            const std::int64_t first = panel * split_panel_cols, tiles = gemm.col_tiles(panel);
            const std::int64_t cols = tiles * tile_rows;
            const FilterBlock of{.in = b * block,
                                 .out = first,
                                 .channels = std::min(block, pixels.in.c - b * block),
                                 .columns = std::min(cols, pixels.out.c - first),
                                 .packed_channels = block,
                                 .packed_columns = cols};
            pack_block(FilterViewOf<float>(p, w, group), of, tap_of, block * cols, part.data());
            std::byte* const to =
                packed + group * gemm.packed_bytes() + grid.filter + panel * gemm.panel_bytes(grid);
            // Where a pair of depth lies: of the first term and tile of columns.
            const auto pair_at = [&](std::int64_t depth) {
              return to + depth / tile_depth * terms * tiles * tile_bytes + depth % tile_depth * 32;
            };
            for (std::int64_t tap = 0; tap < taps; ++tap)
              for (std::int64_t c = 0; c < block; c += 2)
                for (std::int64_t tile = 0; tile < tiles; ++tile) {
                  const float* const at = part.data() + (tap * block + c) * cols + tile * tile_rows;
                  pack_pairs(at, at + cols, terms, tiles,
                             pair_at((tap * blocks + b) * block + c) + tile * tile_bytes);
                }
            if (b + 1 < blocks) continue;
            const std::int64_t depth = taps * blocks * block;
            for (std::int64_t d = depth; d < round_up(depth, tile_depth); d += 2)
              for (std::int64_t tile = 0; tile < terms * tiles; ++tile)
                std::fill_n(pair_at(d) + tile * tile_bytes, 64, std::byte{0});
          }
    }
  }
}

class SplitPlan : public ConvPlan {
 public:
  SplitPlan(const ConvProblem& problem, const Config& config, const DeviceInfo& device)
      : problem_(problem),
        teams_(problem.groups, device.threads),
        gemm_(plan_split(problem, config, teams_.device_of_team(device))),
        unit_(bf16_unit(device)),
        threads_(device.threads) {}

  std::size_t workspace_bytes() const noexcept override {
    return gemm_.pixels.thread_bytes * std::size_t(used_threads());
  }
  std::size_t packed_filter_bytes() const noexcept override {
    return std::size_t(problem_.groups * gemm_.packed_bytes());
  }
  void pack_filter(ConstSpan w, Span packed, Stream&) const override {
    if (problem_.dtype == DType::f32)
      return pack_split(gemm_, problem_, reinterpret_cast<const float*>(w.data()), packed.data(),
                        threads_);
    std::vector<float> wide(std::size_t(problem_.filter_elements()));
    widen(problem_.dtype, w.data(), wide.data(), problem_.filter_elements(), threads_, nullptr, 0);
    pack_split(gemm_, problem_, wide.data(), packed.data(), threads_);
  }
  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    if (problem_.dtype == DType::f32)
      run<float>(args, workspace);
    else
      run<StoredBf16>(args, workspace);
  }

 private:
  template <class S>
  void run(const ConvArgs& args, Workspace workspace) const {
    RunSplit<S>* const run_thread = run_split_on<S>(unit_);
    const PixelOperands<S> data{
        static_cast<const S*>(problem_.pass == Pass::forward ? args.x : args.dy),
        static_cast<const S*>(args.w), output_epilogue<S>(problem_, args)};
    const std::int64_t packed_elements = gemm_.packed_bytes() / std::int64_t{sizeof(S)};
    const std::int64_t of_team = gemm_.pixels.row_threads * gemm_.pixels.panel_threads;
#pragma omp parallel num_threads(used_threads())
    for (int t = omp_get_thread_num(); t < used_threads(); t += omp_get_num_threads()) {
      const std::int64_t team = t / of_team;
      const Range own = share(problem_.groups, team, teams_.teams);
      std::byte* const of_its_team =
          workspace.data() + std::size_t(team * of_team) * gemm_.pixels.thread_bytes;
      for (std::int64_t group = own.begin; group < own.end; ++group)
        run_thread(gemm_, data.of_group(gemm_.pixels, group, packed_elements), of_its_team,
                   t % of_team, args.phases);
    }
  }

  int used_threads() const {
    return int(teams_.teams * gemm_.pixels.row_threads * gemm_.pixels.panel_threads);
  }

  ConvProblem problem_;
  GroupTeams teams_;
  SplitGemm gemm_;
  std::string unit_;
  int threads_;
};

}  // namespace

double tile_product_cycles(const DeviceInfo& device) {
  return dot_unit(device).empty() ? 16 : 256;  // a vector of sums a cycle
}

std::vector<Config> split_configs(const ConvProblem& p, const DeviceInfo& device) {
  if (p.dtype != DType::f32 && p.dtype != DType::bf16) return {};
  const std::string_view unit = p.dtype == DType::bf16 ? bf16_unit(device) : matrix_unit(device);
  if (unit.empty() || !is_blocked(p.x_layout) || !is_blocked(p.y_layout)) return {};
  if (p.pass == Pass::backward_filter) return split_filter_configs(p);
  if (p.dtype == DType::bf16) return {with_math({}, p.dtype, MathType::bf16)};
  const std::int64_t depth = (p.pass == Pass::forward ? p.c : p.k) / p.groups * p.r * p.s;
  std::vector<Config> configs;
  for (const MathType math : {MathType::bf16x3, MathType::bf16x6})
    for (const std::int64_t chunk : {1024, 512})
      if (chunk == 512 || depth > 512)
        configs.push_back(with_math({{"depth", chunk}}, p.dtype, math));
  return configs;
}

bool is_split(const Config& config) { return config.has("math"); }

std::unique_ptr<ConvPlan> make_split_plan(const ConvProblem& p, const Config& config,
                                          const DeviceInfo& device) {
  const bool filter_pass = p.pass == Pass::backward_filter, in_bf16 = p.dtype == DType::bf16;
  const char* const key = filter_pass ? "pixels" : "depth";
  const bool in_chunks = filter_pass || !in_bf16;
  in_chunks ? config.require_only({key, "math"}) : config.require_only({"math"});
  const MathType math = math_type(config);
  if (!multiplies_bf16(math) || (math == MathType::bf16) != in_bf16)
    throw InputError(fmt::format("implicit_gemm: config '{}': math: expected {}", config.text(),
                                 in_bf16 ? "bf16" : "bf16x3 or bf16x6"));
  constexpr std::int64_t most = 1 << 20;  // far above what is worth trying
  if (in_chunks && (config.get(key) < 1 || config.get(key) > most))
    throw InputError(
        fmt::format("implicit_gemm: {}={}: expected 1 to {}", key, config.get(key), most));
  if (split_configs(p, device).empty())
    throw EnvironmentError(fmt::format(
        "implicit_gemm: math={} takes a matrix unit{}, f32 or bf16, and blocked layouts",
        math_type_names[std::size_t(math)], in_bf16 ? " or AVX512_BF16" : ""));
  if (filter_pass) return make_split_filter_plan(p, config, device);
  return std::make_unique<SplitPlan>(p, config, device);
}

WorkEstimate work_split(const ConvProblem& p, const Config& config, const DeviceInfo& device) {
  if (p.pass == Pass::backward_filter) return work_split_filter(p, config, device);
  const GroupTeams teams(p.groups, device.threads);
  const SplitGemm gemm = plan_split(p, config, teams.device_of_team(device));
  const PixelGemm& pixels = gemm.pixels;
  const double groups = double(p.groups), packed_bytes = double(gemm.packed_bytes());
  PhaseWork product{.name = "product"};
  double columns = 0;  // of all tiles
  for (std::int64_t panel = 0; panel < gemm.panels(); ++panel)
    columns += double(gemm.col_tiles(panel) * tile_rows);
  product.bytes_read =
      groups * double(size_of(p.dtype) * pixels.in.elements() * pixels.panel_threads);
  for (const PixelGrid& grid : pixels.grids) {
    const double rows = double(pixels.out.n * grid.h * grid.w);
    const std::int64_t steps = gemm.steps(grid);
    const double chunks = std::max(1.0, double(ceil_div(steps, gemm.chunk_steps)));
    product.flops += groups * double(gemm.products()) * 2 *
                     double(round_up(std::int64_t(rows), tile_rows)) * double(steps * tile_depth) *
                     columns;
    const double out_bytes = groups * double(size_of(p.dtype)) * rows * columns;
    product.bytes_read += out_bytes * (chunks - (p.accumulate ? 0 : 1));
    product.bytes_written += out_bytes * chunks;
    const double blocks =
        packed_bytes < double(device.l2_bytes) / 2
            ? double(pixels.row_threads)
            : std::max(double(pixels.row_threads), rows / double(pixels.block_rows));
    product.bytes_read += groups * blocks * double(gemm.panels() * gemm.panel_bytes(grid));
    // Of bf16 a block's rows have all the depth, and may exceed L2: each panel reads them then.
    const double row_bytes = double(gemm.chunk_steps * gemm.terms() * tile_depth * 2);
    if (row_bytes * double(pixels.block_rows) > double(device.l2_bytes))
      product.bytes_read += groups * rows * row_bytes * double(gemm.panels() - 1);
  }
  if (p.epilogue.residual) product.bytes_read += double(p.y_bytes());
  product.bytes_read += bytes_read_for_ownership(p, config, device);
  product.efficiency = bf16_efficiency(device);
  const double widened = p.dtype == DType::f32 ? 0 : 4 * double(p.filter_elements());
  return {{product},
          {"pack_filter", 0, double(p.filter_bytes()) + widened, groups * packed_bytes + widened,
           packing_efficiency}};
}

}  // namespace convlab::cpu
