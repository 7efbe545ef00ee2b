// Strassen's algorithm for 1x1 filters: seven products of half size in each direction instead of
// eight, which saves an eighth of the multiplications, in the form of Winograd (1971), which has
// the fewest additions. With A (pixels x input channels) and B (input x output channels) in
// quadrants,
//   S1 = A21 + A22   S2 = S1 - A11    S3 = A11 - A21   S4 = A12 - S2
//   T1 = B12 - B11   T2 = B22 - T1    T3 = B22 - B12   T4 = T2 - B21
//   U2 = A11 B11 + S2 T2    U3 = U2 + S3 T3
//   C11 = A11 B11 + A12 B21           C12 = U2 + S1 T1 + S4 B22
//   C21 = U3 - A22 T4                 C22 = U3 + S1 T1
// The sums of B are made when the filter is packed, those of A for a block of pixels that stays in
// L2, and those of the products in registers. There is one level only: a second one would save as
// much again, with quadrants a quarter as large.
//
// In backward_filter A is dy^T, B is x, and the depth runs over pixels. Sums of both are made a
// block of pixels at a time. Each of the seven products is accumulated over all pixels before
// quadrants of dw are formed from them. It pays from some 256 channels on: the sums grow with the
// channels, the product with their square.
//
// The quadrants' sums cost accuracy: two to three times the error of plain summation (Higham 1990,
// Exploiting fast matrix multiplication within the level 3 BLAS, has the bounds).
// Huang et al. 2016 (Strassen's algorithm reloaded) fuse the sums of Strassen's own form into
// packing and micro-kernel of BLIS.
#include "kernels_cpu/strassen/strassen.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>

#include "conv/error.h"
#include "conv/refusals.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/gemm/filter_block.h"
#include "kernels_cpu/gemm/non_temporal.h"
#include "kernels_cpu/implicit_gemm/implicit_gemm.h"
#include "kernels_cpu/inside_taps.h"

namespace convlab::cpu {

std::int64_t StrassenGemm::product_floats() const {
  return half_groups * tile_shape().block * tile_shape().cols;
}
std::size_t StrassenGemm::sum_floats() const {
  return std::size_t(7 * chunk * block * tile_shape().block);
}
std::size_t StrassenGemm::thread_bytes() const {
  return 4 * sum_floats() + std::size_t(round_up(2 * block * 8, 64));
}

namespace {

const float* floats(const void* p) { return static_cast<const float*>(p); }

PixelPairs pair_pixels(const ConvProblem& p) {
  if (p.n % 2 == 0) return {.images = p.n / 2, .pixels = p.p * p.q, .apart_images = p.n / 2};
  return {.images = p.n, .pixels = p.p / 2 * p.q, .apart_pixels = p.p / 2 * p.q};
}

// Where the pixels of an image of y, or those of x that the filter reads, lie, in floats.
std::vector<std::int64_t> pixels_of_y(const ConvProblem& p) {
  std::vector<std::int64_t> at;
  for (std::int64_t i = 0; i < p.p * p.q; ++i) at.push_back(i * tile_shape().block);
  return at;
}
std::vector<std::int64_t> pixels_of_x(const ConvProblem& p) {
  std::vector<std::int64_t> at;
  for (std::int64_t h = 0; h < p.p; ++h)
    for (std::int64_t w = 0; w < p.q; ++w)
      at.push_back((h * p.stride_h * p.w + w * p.stride_w) * tile_shape().block);
  return at;
}

StrassenGemm plan_gemm(const ConvProblem& p, const Config& config, const DeviceInfo& device) {
  const TileShape shape = tile_shape();
  const bool forward = p.pass == Pass::forward;
  StrassenGemm gemm;
  gemm.in = forward ? p.x_desc() : p.y_desc();
  gemm.out = forward ? p.y_desc() : p.x_desc();
  gemm.in_at = forward ? pixels_of_x(p) : pixels_of_y(p);
  gemm.out_at = forward ? pixels_of_y(p) : pixels_of_x(p);
  if (!forward) {
    gemm.out_step_h = p.stride_h;
    gemm.out_step_w = p.stride_w;
    gemm.zeros_between = p.stride_h * p.stride_w > 1 && !p.accumulate;
  }
  gemm.pairs = pair_pixels(p);
  gemm.half_groups = gemm.in.c / shape.block / 2;
  gemm.half_panels = gemm.out.c / shape.cols / 2;
  const std::int64_t chunks = ceil_div(gemm.half_groups, config.get("depth") / shape.block);
  gemm.chunk = ceil_div(gemm.half_groups, chunks);
  gemm.threads = std::min<std::int64_t>(device.threads, gemm.pairs.count());
  const std::int64_t own = ceil_div(gemm.pairs.count(), gemm.threads);
  const std::int64_t fit = device.l2_bytes / 2 / (7 * gemm.chunk * shape.block * 4);
  gemm.block = std::min(own, std::max<std::int64_t>(1, fit / shape.rows) * shape.rows);
  return gemm;
}

void pack_sums(const StrassenGemm& gemm, const ConvProblem& p, const float* w, float* packed,
               int threads) {
  const TileShape shape = tile_shape();
  const FilterView filter(p, w);
  const std::int64_t right = gemm.half_panels * shape.cols, below = gemm.half_groups * shape.block;
  const std::int64_t step = gemm.product_floats(), floats = shape.block * shape.cols;
  const std::vector<std::int64_t> one_tap{0};
  const auto quadrant = [&](std::int64_t in, std::int64_t out, float* to) {
    const FilterBlock block{in, out, shape.block, shape.cols, shape.block, shape.cols};
    pack_block(filter, block, one_tap, 0, to);
  };
#pragma omp parallel for num_threads(threads) collapse(2)
  for (std::int64_t pair = 0; pair < gemm.half_panels; ++pair)
    for (std::int64_t group = 0; group < gemm.half_groups; ++group) {
      const std::int64_t in = group * shape.block, out = pair * shape.cols;
      float* const to = packed + pair * 7 * step + group * floats;
      // B11, B21 and B22 are operands themselves.
      float* const b11 = to;
      float* const b21 = to + step;
      float* const b22 = to + 6 * step;
      float* const b12 = to + 5 * step;  // where T1 = B12 - B11 will be
      quadrant(in, out, b11);
      quadrant(in, out + right, b12);
      quadrant(in + below, out, b21);
      quadrant(in + below, out + right, b22);
#pragma omp simd
      for (std::int64_t i = 0; i < floats; ++i) {
        const float t1 = b12[i] - b11[i], t2 = b22[i] - t1;
        to[2 * step + i] = t2;
        to[3 * step + i] = b22[i] - b12[i];
        to[4 * step + i] = b21[i] - t2;
        b12[i] = t1;
      }
    }
}

// How units are cut. If the pixels are cut into parts, one a thread, operands are read once, but
// each part keeps seven products. If those are too large, threads share rectangles of dw instead.
// Rectangles are small enough that a block's sums mostly stay in L2, where each product needs two
// of them at a time; larger ones would repeat fewer sums.
void split_filter(StrassenFilter& f, std::int64_t most_bytes, const DeviceInfo& device) {
  const auto widest = [&] {
    return f.unit_groups() * f.tile.block > f.unit_panels() * f.tile.cols;
  };
  f.parts = std::min(f.threads, f.blocks());
  while (f.parts > 1 && 4 * f.workspace_floats() > most_bytes) --f.parts;
  while (f.rectangles() * f.parts < f.threads || 8 * f.sums_floats() > 4 * device.l2_bytes) {
    if (f.unit_groups() > 1 && (widest() || f.unit_panels() == 1))
      f.row_splits *= 2;
    else if (f.unit_panels() > 1)
      f.col_splits *= 2;
    else
      return;
    f.row_splits = std::min(f.row_splits, f.half_groups);
    f.col_splits = std::min(f.col_splits, f.half_panels);
  }
}

StrassenFilter plan_filter(const ConvProblem& p, const Config& config, const DeviceInfo& device) {
  StrassenFilter f;
  f.x = p.x_desc();
  f.dy = p.y_desc();
  f.x_at = pixels_of_x(p);
  f.pairs = pair_pixels(p);
  f.tile = tile_shape();
  f.half_groups = f.dy.c / f.tile.block / 2;
  f.half_panels = f.x.c / f.tile.cols / 2;
  f.threads = device.threads;
  f.block = std::min(config.get("pairs"), ceil_div(f.pairs.count(), f.threads));
  // Short blocks would cost more than copies of the quadrants do.
  if (3 * f.pairs.pixels >= f.block) {
    f.in_place = true;
    f.x_in_place = p.p == p.h && p.q == p.w;
    f.block = std::min(f.block, f.pairs.pixels);
  }
  f.accumulate = p.accumulate;
  split_filter(f, 2 * std::int64_t(p.x_bytes() + p.y_bytes() + p.filter_bytes()), device);
  return f;
}

// Each rectangle's sums are made anew; the products, read and written once a block, stay in L3.
WorkEstimate work_filter(const ConvProblem& p, const StrassenFilter& f) {
  const double pairs = double(f.pairs.count()), k = double(p.k), c = double(p.c);
  const double made = pairs * (k * double(f.col_splits) + c * double(f.row_splits));
  const double products = 4 * double(f.sets_floats());
  // Both are measured: the sums are bound by memory and caches.
  PhaseWork sums{
      .name = "input_transform", .flops = 4 * made, .bytes_read = 8 * made, .efficiency = 0.08};
  PhaseWork product{.name = "product",
                    .flops = 3.5 * pairs * k * c,
                    .bytes_written = products * double(f.blocks()) / double(f.parts),
                    .efficiency = 0.77};
  product.bytes_read = product.bytes_written - products;
  PhaseWork output{.name = "output_transform",
                   .flops = 7.0 / 4 * k * c * double(f.parts),
                   .bytes_read = products + (p.accumulate ? double(p.filter_bytes()) : 0),
                   .bytes_written = double(p.filter_bytes()),
                   .efficiency = 0.08};
  return {{sums, product, output}};
}

class StrassenFilterPlan : public ConvPlan {
 public:
  explicit StrassenFilterPlan(StrassenFilter filter) : filter_(std::move(filter)) {}

  std::size_t workspace_bytes() const noexcept override {
    return 4 * std::size_t(filter_.workspace_floats());
  }
  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    const StrassenFilterOperands data{floats(args.x), floats(args.dy), args.phases};
    float* const products = reinterpret_cast<float*>(workspace.data());
    float* const buffers = products + filter_.sets_floats();
    float* const dw = static_cast<float*>(args.out);
    const int threads = int(filter_.threads);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (std::int64_t unit = 0; unit < filter_.rectangles() * filter_.parts; ++unit)
      run_strassen_unit(filter_, data, products + unit * filter_.set_floats(),
                        buffers + omp_get_thread_num() * filter_.thread_floats(), unit);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (std::int64_t i = 0; i < filter_.rectangles() * threads; ++i) {
      const PhaseScope scope(args.phases, 2);
      put_strassen_together(filter_, products + i / threads * filter_.parts * filter_.set_floats(),
                            i / threads, i % threads, threads, dw);
    }
  }

 private:
  StrassenFilter filter_;
};

class StrassenPlan : public ConvPlan {
 public:
  StrassenPlan(const ConvProblem& problem, const Config& config, const DeviceInfo& device)
      : problem_(problem),
        gemm_(plan_gemm(problem, config, device)),
        threads_(device.threads),
        non_temporal_(may_store_non_temporal(problem, device)) {}

  std::size_t workspace_bytes() const noexcept override {
    return gemm_.thread_bytes() * std::size_t(gemm_.threads);
  }
  std::size_t packed_filter_bytes() const noexcept override { return 4 * gemm_.packed_floats(); }
  void pack_filter(ConstSpan w, Span packed, Stream&) const override {
    pack_sums(gemm_, problem_, floats(w.data()), reinterpret_cast<float*>(packed.data()), threads_);
  }
  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    const StrassenOperands data{
        floats(problem_.pass == Pass::forward ? args.x : args.dy), floats(args.w),
        output_epilogue<float>(problem_, args,
                               non_temporal_ && is_aligned_for_non_temporal(args.out)),
        args.phases};
    const int threads = int(gemm_.threads);
#pragma omp parallel num_threads(threads)
    for (int t = omp_get_thread_num(); t < threads; t += omp_get_num_threads())
      run_strassen(gemm_, data, workspace.data() + std::size_t(t) * gemm_.thread_bytes(), t);
  }

 private:
  ConvProblem problem_;
  StrassenGemm gemm_;
  int threads_;
  bool non_temporal_;
};

class Strassen final : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "strassen",
                               .version = 9,
                               .summary = "1x1 filters with seven products instead of eight",
                               .libraries = {}};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    const TileShape shape = tile_shape();
    if (auto refusal = refuse_all_but({DType::f32}, p)) return refusal;
    if (auto refusal = refuse_groups(p)) return refusal;
    if (p.r * p.s != 1) return Refusal{Field::filter, "a 1x1 filter", extent(p.r, p.s)};
    if (!all_inside(p))
      return Refusal{Field::padding, "every tap inside the image",
                     fmt::format("taps in the padding around {}x{}", p.h, p.w)};
    if (auto refusal = refuse_all_but_blocked(p, device.info())) return refusal;
    if (p.pass == Pass::backward_filter) {
      if (p.c % (2 * shape.cols) != 0 || p.k % (2 * shape.block) != 0)
        return Refusal{Field::channels,
                       fmt::format("channels of x in multiples of {} and of y in multiples of {}",
                                   2 * shape.cols, 2 * shape.block),
                       fmt::format("{} and {}", p.c, p.k)};
    } else {
      const bool forward = p.pass == Pass::forward;
      const std::int64_t in = forward ? p.c : p.k, out = forward ? p.k : p.c;
      if (in % (2 * shape.block) != 0 || out % (2 * shape.cols) != 0)
        return Refusal{
            Field::channels,
            fmt::format("input channels in multiples of {} and output channels in multiples of {}",
                        2 * shape.block, 2 * shape.cols),
            fmt::format("{} and {}", in, out)};
    }
    if (p.n % 2 != 0 && p.p % 2 != 0)
      return Refusal{Field::size, "an even number of images or of output rows",
                     fmt::format("{} and {}", p.n, p.p)};
    return std::nullopt;
  }

  std::vector<Config> configs(const ConvProblem& p, Device&) const override {
    if (p.pass == Pass::backward_filter) return {{{"pairs", 112}}};
    return {{{"depth", 512}}};
  }

  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    if (p.pass == Pass::backward_filter)
      return work_filter(p, plan_filter(p, config, device.info()));
    const StrassenGemm gemm = plan_gemm(p, config, device.info());
    const double pairs = double(gemm.pairs.count()), depth = double(gemm.in.c),
                 cols = double(gemm.out.c);
    const double packed = 4.0 * double(gemm.packed_floats());
    const double chunks = double(ceil_div(gemm.half_groups, gemm.chunk));
    const double blocks =
        std::max(double(gemm.threads), double(ceil_div(gemm.pairs.count(), gemm.block)));
    // The cost of a pair of pixels in FLOPs of the product (measured): so many for each of A's
    // channels, whose operands are written and read again, and for each of C's, whose sums are.
    constexpr double around = 51, inner = 0.77;
    PhaseWork sums{.name = "input_transform",
                   .flops = 2 * pairs * depth,
                   .bytes_read = 4 * 2 * pairs * depth,
                   .efficiency = inner * 2 / around};
    PhaseWork product{.name = "product",
                      .flops = 3.5 * pairs * depth * cols + 3.5 * pairs * cols,
                      .bytes_read = blocks * packed,
                      .bytes_written = chunks * 4 * 2 * pairs * cols,
                      .efficiency = inner * depth / (depth + around / 3.5)};
    product.bytes_read += (chunks - (p.accumulate ? 0 : 1)) * 4 * 2 * pairs * cols;
    if (p.epilogue.residual) product.bytes_read += double(p.y_bytes());
    if (p.pass == Pass::backward_data && !p.accumulate)  // zeros
      product.bytes_written += double(p.x_bytes()) - 4 * 2 * pairs * cols;
    return {{sums, product},
            {"pack_filter", 0, double(p.filter_bytes()), packed, packing_efficiency}};
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    if (p.pass == Pass::backward_filter) {
      config.require_only({"pairs"});
      if (config.get("pairs") < 1)
        throw InputError(
            fmt::format("strassen: pairs={}: expected 1 or more", config.get("pairs")));
      return std::make_unique<StrassenFilterPlan>(plan_filter(p, config, device.info()));
    }
    config.require_only({"depth"});
    if (config.get("depth") < tile_shape().block)
      throw InputError(fmt::format("strassen: depth={}: expected {} or more", config.get("depth"),
                                   tile_shape().block));
    return std::make_unique<StrassenPlan>(p, config, device.info());
  }
};

}  // namespace

std::unique_ptr<ConvAlgo> make_strassen() { return std::make_unique<Strassen>(); }

}  // namespace convlab::cpu
