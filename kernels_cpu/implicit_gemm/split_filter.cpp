// Plans and work of implicit_gemm's backward_filter by bf16 products: see split_filter.h.
#include "kernels_cpu/implicit_gemm/split_filter.h"

#include <omp.h>

#include <algorithm>
#include <limits>
#include <string>

#include "conv/error.h"
#include "kernels_cpu/amx/amx.h"
#include "kernels_cpu/groups.h"
#include "kernels_cpu/half/convert.h"
#include "kernels_cpu/implicit_gemm/split.h"

namespace convlab::cpu {
namespace {

// Cycles of a core for splitting a tile of x or of dy, as far as products do not hide it. Bytes a
// cycle from beyond L2.
constexpr double split_x_cycles = 50, split_dy_cycles = 150, l3_bytes_per_cycle = 11;

// The estimated cycles of the thread that has most to do, if dw and the pixels are cut like this.
double cost_of(const SplitFilterGemm& gemm, const DeviceInfo& device) {
  const double rounds =
      double(ceil_div(gemm.groups() * gemm.rectangles() * gemm.parts, gemm.threads));
  const double steps = double(gemm.steps) / double(gemm.parts);
  const double chunks = double(ceil_div(ceil_div(gemm.steps, gemm.parts), gemm.chunk_steps));
  const double k_tiles = double(std::min(2 * gemm.most_k_pairs(), ceil_div(gemm.k(), tile_rows)));
  const double c_tiles = double(std::min(2 * gemm.most_c_pairs(), ceil_div(gemm.c(), tile_rows)));
  const double columns = c_tiles * double(gemm.taps());
  const double split = columns * split_x_cycles + k_tiles * split_dy_cycles;
  const double products = k_tiles * columns * double(gemm.products()) * tile_product_cycles(device);
  // x and dy are read once for each unit that has their channels.
  const double element = gemm.math == MathType::bf16 ? 2 : 4;
  const double read =
      element * double(tile_rows * tile_depth) * (k_tiles + c_tiles) / l3_bytes_per_cycle / 4;
  const double sums_bytes = k_tiles * columns * double(tile_bytes);
  const bool sums_in_l2 = double(gemm.unit_sums() * 4) <= double(device.l2_bytes) / 4;
  const double reload = sums_in_l2 ? 0 : 2 * sums_bytes * (chunks - 1);
  const double put = sums_bytes * (gemm.parts > 1 ? 3 : 1);
  return rounds * (steps * (split + products + read) + (reload + put) / l3_bytes_per_cycle);
}

// Cuts for the least estimated time, among those whose chunk of dy stays in L2.
SplitFilterGemm plan_split_filter(const ConvProblem& original, const Config& config,
                                  const DeviceInfo& device) {
  ConvProblem p = problem_of_pixels(original);
  p.pass = Pass::forward;
  SplitFilterGemm gemm;
  gemm.pixels = describe_pixels(p, original.groups);
  gemm.math = math_type(config);
  gemm.accumulate = original.accumulate;
  gemm.threads = device.threads;
  gemm.steps = ceil_div(p.n * p.p * p.q, tile_depth);
  const std::int64_t wanted = std::max<std::int64_t>(1, config.get("pixels") / tile_depth);
  const std::int64_t most_bytes = device.l2_bytes / 2;
  SplitFilterGemm best = gemm;
  double least = std::numeric_limits<double>::infinity();
  for (gemm.parts = 1; gemm.parts <= std::min(gemm.threads, gemm.steps); ++gemm.parts) {
    gemm.chunk_steps = std::min(wanted, ceil_div(gemm.steps, gemm.parts));
    for (gemm.k_splits = 1; gemm.k_splits <= gemm.k_pairs(); ++gemm.k_splits) {
      const std::int64_t dy_bytes =
          2 * gemm.most_k_pairs() * gemm.chunk_steps * gemm.terms() * tile_bytes;
      if (dy_bytes > most_bytes && gemm.most_k_pairs() > 1) continue;
      for (gemm.c_splits = 1; gemm.c_splits <= gemm.c_pairs(); ++gemm.c_splits)
        if (const double cost = cost_of(gemm, device); cost < least) {
          least = cost;
          best = gemm;
        }
    }
  }
  return best;
}

class SplitFilterPlan : public ConvPlan {
 public:
  SplitFilterPlan(const ConvProblem& problem, const Config& config, const DeviceInfo& device)
      : gemm_(plan_split_filter(problem, config, device)),
        dtype_(problem.dtype),
        unit_(bf16_unit(device)),
        scratch_(split_filter_workspace(gemm_)) {}

  std::size_t workspace_bytes() const noexcept override {
    const std::int64_t wide = dtype_ == DType::f32 ? 0 : round_up(filter_elements(), 16);
    return std::size_t(sums_slots() * gemm_.unit_sums() + wide) * sizeof(float) +
           std::size_t(gemm_.threads) * scratch_;
  }

  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    if (dtype_ == DType::f32) return run<float>(args, workspace, static_cast<float*>(args.out));
    const int threads = int(gemm_.threads);
    float* const dw = reinterpret_cast<float*>(workspace.data());
    if (gemm_.accumulate) widen(dtype_, args.out, dw, filter_elements(), threads, args.phases, 1);
    run<StoredBf16>(
        args, workspace.subspan(std::size_t(round_up(filter_elements(), 16)) * sizeof(float)), dw);
    round(dtype_, dw, args.out, filter_elements(), threads, args.phases, 1);
  }

 private:
  std::int64_t filter_elements() const { return gemm_.groups() * gemm_.filter_elements(); }

  template <class S>
  void run(const ConvArgs& args, Workspace workspace, float* dw) const {
    const SplitFilterOperands<S> data{static_cast<const S*>(args.x), static_cast<const S*>(args.dy),
                                      dw};
    RunSplitFilter<S>* const run_unit = run_split_filter_on<S>(unit_);
    float* const sums = reinterpret_cast<float*>(workspace.data());
    std::byte* const scratch = reinterpret_cast<std::byte*>(sums + sums_slots() * slot());
    const int threads = int(gemm_.threads);
    const std::int64_t rectangles = gemm_.groups() * gemm_.rectangles();
#pragma omp parallel for num_threads(threads) schedule(static)
    for (std::int64_t unit = 0; unit < rectangles * gemm_.parts; ++unit) {
      const std::int64_t thread = omp_get_thread_num();
      run_unit(gemm_, data, scratch + std::size_t(thread) * scratch_,
               sums + (gemm_.parts > 1 ? unit : thread) * slot(), unit / gemm_.parts,
               unit % gemm_.parts, args.phases);
    }
    if (gemm_.parts == 1) return;
    const std::int64_t pairs = gemm_.most_c_pairs();
#pragma omp parallel for num_threads(threads) schedule(static)
    for (std::int64_t i = 0; i < rectangles * pairs; ++i) {
      const std::int64_t rectangle = i / pairs;
      const Range k = gemm_.k_pairs_of(rectangle), c = gemm_.c_pairs_of(rectangle);
      if (i % pairs >= c.size()) continue;
      const PhaseScope scope(args.phases, 1);
      put_filter_sums(
          gemm_, sums + rectangle * gemm_.parts * slot() + i % pairs * k.size() * gemm_.pair_sums(),
          std::size_t(slot()), data.of_group(gemm_, rectangle / gemm_.rectangles()).dw, k,
          c.begin + i % pairs);
    }
  }

  std::int64_t slot() const { return gemm_.unit_sums(); }
  std::int64_t sums_slots() const {
    return gemm_.parts > 1 ? gemm_.groups() * gemm_.rectangles() * gemm_.parts : gemm_.threads;
  }

  SplitFilterGemm gemm_;
  DType dtype_;
  std::string unit_;
  std::size_t scratch_;  // bytes of a thread
};

}  // namespace

// Longer chunks re-read sums that exceed L2 less often; shorter ones leave room for more k.
std::vector<Config> split_filter_configs(const ConvProblem& p) {
  const std::int64_t pixels = p.n * p.p * p.q;
  std::vector<MathType> maths{MathType::bf16x3, MathType::bf16x6};
  if (p.dtype == DType::bf16) maths = {MathType::bf16};
  std::vector<Config> configs;
  for (const MathType math : maths)
    for (const std::int64_t chunk : {1024, 512})
      if (chunk == 512 || pixels > 512)
        configs.push_back(with_math({{"pixels", chunk}}, p.dtype, math));
  return configs;
}

std::unique_ptr<ConvPlan> make_split_filter_plan(const ConvProblem& p, const Config& config,
                                                 const DeviceInfo& device) {
  return std::make_unique<SplitFilterPlan>(p, config, device);
}

WorkEstimate work_split_filter(const ConvProblem& p, const Config& config,
                               const DeviceInfo& device) {
  const SplitFilterGemm gemm = plan_split_filter(p, config, device);
  const double groups = double(gemm.groups()), parts = double(gemm.parts);
  const double tiles = double(ceil_div(gemm.k(), tile_rows) * ceil_div(gemm.c(), tile_rows)) *
                       double(gemm.taps()) * groups;
  const double sums_bytes = tiles * double(tile_bytes);
  PhaseWork product{.name = "product"};
  product.flops = tiles * double(gemm.products()) * 2 * double(split_tile_sums) *
                  double(gemm.steps * tile_depth);
  product.bytes_read =
      double(p.x_bytes()) * double(gemm.k_splits) + double(p.y_bytes()) * double(gemm.c_splits);
  const double chunks = double(ceil_div(ceil_div(gemm.steps, gemm.parts), gemm.chunk_steps));
  if (double(gemm.unit_sums() * 4) > double(device.l2_bytes) / 2) {
    product.bytes_read += sums_bytes * parts * (chunks - 1);
    product.bytes_written += sums_bytes * parts * (chunks - 1);
  }
  if (gemm.parts > 1) product.bytes_written += sums_bytes * parts;
  product.efficiency = bf16_efficiency(device);
  PhaseWork reduce{.name = "reduce"};
  reduce.flops = double(p.filter_elements()) * (parts - 1);
  reduce.bytes_read =
      (gemm.parts > 1 ? sums_bytes * parts : 0) + (p.accumulate ? double(p.filter_bytes()) : 0);
  reduce.bytes_written = double(p.filter_bytes());
  if (p.dtype != DType::f32) {  // f32 sums are written, and read for rounding
    const double wide = 4 * double(p.filter_elements());
    reduce.bytes_read += wide * (p.accumulate ? 2 : 1);
    reduce.bytes_written += wide * (p.accumulate ? 2 : 1);
  }
  return {{product, reduce}};
}

}  // namespace convlab::cpu
