// winograd: minimal filtering F(m x m, r x r), nested in two dimensions.
//
// An m x m tile of outputs depends on T x T inputs, T = m + r - 1. It takes T^2 multiplications for
// each pair of channels in place of m^2 r^2 (conv/math/cook_toom.h). Sums over channels commute
// with the transforms, so T^2 matrix products stand between them:
//   forward:          y  = A^T [ sum_c (G w G^T) . (B^T x B) ] A
//   backward_data:    the forward of dy with the filter flipped and its channels swapped
//   backward_filter:  dw = A^T [ sum_tiles (B^T x B) . (G dy G^T) ] A, as F(r, m)
// Lavin & Gray 2015 (arXiv:1509.09308).
//
// The schedule `fused` keeps all steps in one kernel (fused.cu). `nonfused`, in this file, takes
// three steps through memory, for some images at a time; the points of few images stay in L2. The
// matrices keep the tensors' order, so that reads and writes are coalesced on both sides: a
// channel's tiles are contiguous for NCHW, a tile's channels for NHWC, and cuBLAS transposes.
#include <fmt/format.h>

#include <array>
#include <set>

#include "conv/error.h"
#include "conv/refusals.h"
#include "kernels_cuda/algos.h"
#include "kernels_cuda/device/shared_memory.h"
#include "kernels_cuda/vendor.h"
#include "kernels_cuda/winograd/transforms.h"
#include "kernels_cuda/winograd/winograd.h"

namespace convlab::cuda {
namespace {

constexpr int block_size = 256;

enum class Schedule : std::uint8_t { fused, nonfused };
constexpr std::array<std::string_view, 2> schedule_names{"fused", "nonfused"};

// For each point a matrix of channels x tiles, or tiles x channels. A product that sums over the
// tiles may split them into parts, which run side by side to fill the card. The tiles that the last
// part lacks are zero.
struct PointMatrices {
  bool by_channel = true;  // a channel's tiles are contiguous
  int channels = 0, tiles = 0, parts = 1;

  // Vectors of 16 bytes, whatever the element.
  __host__ __device__ int row() const { return ((by_channel ? tiles : channels) + 3) / 4 * 4; }
  __host__ __device__ std::int64_t point_step() const {
    return std::int64_t(row()) * (by_channel ? channels : tiles);
  }
  std::int64_t elements(std::int64_t points) const { return parts * points * point_step(); }
};

// A thread's tile and channel. Neighbouring threads have neighbours in memory.
struct TilePlace {
  int channel, tile, part;
  bool exists;
  __device__ explicit TilePlace(const PointMatrices& p) {
    const unsigned i = blockIdx.x * unsigned(block_size) + threadIdx.x;
    const unsigned tiles = unsigned(p.tiles) * p.parts, channels = p.channels;
    const unsigned all = p.by_channel ? i % tiles : i / channels;
    channel = int(p.by_channel ? i / tiles : i % channels);
    tile = int(all % p.tiles);
    part = int(all / p.tiles);
    exists = p.by_channel ? channel < p.channels : all < tiles;
  }
  // In the matrix of the first of `points` points.
  __device__ std::int64_t offset(const PointMatrices& p, int points) const {
    return part * points * p.point_step() + (p.by_channel ? std::int64_t(channel) * p.row() + tile
                                                          : std::int64_t(tile) * p.row() + channel);
  }
};

// The start of the place's tile in its tensor.
struct TileOrigin {
  int image, row, column;
  __device__ TileOrigin(const TileWindows& w, const PointMatrices& p, const TilePlace& place) {
    const int tile = place.part * p.tiles + place.tile;
    column = tile % w.tiles_w * w.step - w.pad_w;
    row = tile / w.tiles_w % w.tiles_h * w.step - w.pad_h;
    image = tile / w.tiles_w / w.tiles_h;
  }
  __device__ std::int64_t offset(const TileWindows& w, int channel) const {
    return image * w.image_step + std::int64_t(channel) * w.channel_step +
           std::int64_t(row) * w.row_step + std::int64_t(column) * w.column_step;
  }
};

// B^T d B of windows of the input, G g G^T of tiles of dy or of the filter.
template <class Code, class Real>
__global__ void __launch_bounds__(block_size)
    to_points(TileWindows from, const Real* data, PointMatrices to, Real* points) {
  const TilePlace place(to);
  if (!place.exists) return;
  const TileOrigin at(from, to, place);
  const Real* const window = data + at.offset(from, place.channel);
  Real x[Code::inputs][Code::inputs], y[Code::outputs][Code::outputs];
#pragma unroll
  for (int r = 0; r < Code::inputs; ++r)
#pragma unroll
    for (int c = 0; c < Code::inputs; ++c) {
      const bool inside = at.image < from.images && unsigned(at.row + r) < unsigned(from.h) &&
                          unsigned(at.column + c) < unsigned(from.w);
      x[r][c] = inside ? window[r * from.row_step + c * from.column_step] : Real(0);
    }
  nested<Code>(x, y);
  Real* const out = points + place.offset(to, Code::outputs * Code::outputs);
  const std::int64_t step = to.point_step();
#pragma unroll
  for (int r = 0; r < Code::outputs; ++r)
#pragma unroll
    for (int c = 0; c < Code::outputs; ++c) out[(r * Code::outputs + c) * step] = y[r][c];
}

// A^T m A, for m the sum of `parts` times as many matrices as `from` has.
template <class Code, class Real>
__global__ void __launch_bounds__(block_size)
    from_points(PointMatrices from, const Real* points, int parts, TileWindows to,
                TileOutput<Real> output) {
  constexpr int kPoints = Code::inputs * Code::inputs;
  const TilePlace place(from);
  if (!place.exists) return;
  const TileOrigin at(to, from, place);
  if (at.image >= to.images) return;
  Real x[Code::inputs][Code::inputs], y[Code::outputs][Code::outputs];
  const Real* m = points + place.offset(from, kPoints);
  const std::int64_t step = from.point_step();
#pragma unroll
  for (int r = 0; r < Code::inputs; ++r)
#pragma unroll
    for (int c = 0; c < Code::inputs; ++c) x[r][c] = m[(r * Code::inputs + c) * step];
#pragma unroll 1
  for (int part = 1; part < parts; ++part) {
    m += kPoints * step;
#pragma unroll
    for (int r = 0; r < Code::inputs; ++r)
#pragma unroll
      for (int c = 0; c < Code::inputs; ++c) x[r][c] += m[(r * Code::inputs + c) * step];
  }
  nested<Code>(x, y);
  store_tile(to, output, at.offset(to, place.channel), place.channel, to.h - at.row,
             to.w - at.column, y);
}

template <class Code, class Real>
void launch_to_points(const TileWindows& from, const Real* data, const PointMatrices& to,
                      Real* points, Stream& stream) {
  const std::int64_t threads = std::int64_t(to.channels) * to.tiles * to.parts;
  launch(to_points<Code, Real>, dim3(unsigned(ceil_div(threads, block_size))), block_size, 0,
         stream, from, data, to, points);
}

template <class Code, class Real>
void launch_from_points(const PointMatrices& from, const Real* points, int parts,
                        const TileWindows& to, const TileOutput<Real>& output, Stream& stream) {
  const std::int64_t threads = std::int64_t(from.channels) * from.tiles;
  launch(from_points<Code, Real>, dim3(unsigned(ceil_div(threads, block_size))), block_size, 0,
         stream, from, points, parts, to, output);
}

// ---- The steps on the host ----

// The sizes and matrices of a nonfused run.
struct Steps {
  WinogradShape shape;
  MathType math = MathType::f32;
  std::int64_t images = 1;  // at a time
  std::int64_t split = 1;   // parts of their tiles, in backward_filter

  bool filter_pass() const { return shape.pass == Pass::backward_filter; }
  std::int64_t element() const { return size_of(shape.dtype); }

  PointMatrices matrices(const TensorDesc& t, std::int64_t n) const {
    const std::int64_t parts = filter_pass() ? split : 1;
    return {t.layout == Layout::nchw, int(t.c), int(ceil_div(n * shape.image_tiles(), parts)),
            int(parts)};
  }
  PointMatrices in_matrices(std::int64_t n) const { return matrices(shape.in, n); }
  PointMatrices out_matrices(std::int64_t n) const { return matrices(shape.out, n); }
  // The filter's points, or their gradient: out.c "tiles" of in.c channels.
  PointMatrices filter_matrices() const { return {false, int(shape.in.c), int(shape.out.c), 1}; }

  std::int64_t bytes(const PointMatrices& p) const {
    return round_up(p.elements(shape.points()) * element(), 64);
  }
  std::int64_t in_bytes() const { return bytes(in_matrices(images)); }
  std::int64_t out_bytes() const { return bytes(out_matrices(images)); }
  std::int64_t filter_bytes() const { return bytes(filter_matrices()); }
  std::int64_t workspace_bytes() const {
    return in_bytes() + out_bytes() + (filter_pass() ? split * filter_bytes() : 0);
  }

  // M = U V, or its transpose, for each point.
  Gemm product(std::int64_t n) const {
    const PointMatrices v = in_matrices(n), m = out_matrices(n), u = filter_matrices();
    Gemm g;
    g.dtype = shape.dtype;
    g.math = math;
    g.k = v.channels;
    g.batch = shape.points();
    g.ldc = m.row();
    g.stride_c = m.point_step();
    if (m.by_channel) {
      g.m = m.channels;
      g.n = m.tiles;
      g.lda = u.row();
      g.stride_a = u.point_step();
      g.transpose_b = !v.by_channel;
      g.ldb = v.row();
      g.stride_b = v.point_step();
    } else {
      g.m = m.tiles;
      g.n = m.channels;
      g.transpose_a = v.by_channel;
      g.lda = v.row();
      g.stride_a = v.point_step();
      g.transpose_b = true;
      g.ldb = u.row();
      g.stride_b = u.point_step();
    }
    return g;
  }

  // The gradient of U is W V^T, where W are the points of dy.
  Gemm filter_product() const {
    const PointMatrices v = in_matrices(images), w = out_matrices(images), u = filter_matrices();
    Gemm g;
    g.dtype = shape.dtype;
    g.math = math;
    g.m = w.channels;
    g.n = v.channels;
    g.k = v.tiles;
    g.batch = shape.points() * split;
    g.transpose_a = !w.by_channel;
    g.lda = w.row();
    g.stride_a = w.point_step();
    g.transpose_b = v.by_channel;
    g.ldb = v.row();
    g.stride_b = v.point_step();
    g.ldc = u.row();
    g.stride_c = u.point_step();
    return g;
  }
};

// f(M, R) for a shape's F(m, r), as integral constants.
template <class F>
void with_sizes(const WinogradShape& s, F&& f) {
  using std::integral_constant;
  const auto is = [&](int m, int r) { return s.m == m && s.r == r; };
  if (is(2, 3)) f(integral_constant<int, 2>(), integral_constant<int, 3>());
  if (is(4, 3)) f(integral_constant<int, 4>(), integral_constant<int, 3>());
  if (is(6, 3)) f(integral_constant<int, 6>(), integral_constant<int, 3>());
  if (is(2, 5)) f(integral_constant<int, 2>(), integral_constant<int, 5>());
  if (is(4, 5)) f(integral_constant<int, 4>(), integral_constant<int, 5>());
}

template <class Real>
class WinogradPlan : public ConvPlan {
 public:
  explicit WinogradPlan(const Steps& steps) : steps_(steps) {}

  std::size_t workspace_bytes() const noexcept override {
    return std::size_t(steps_.workspace_bytes());
  }
  std::size_t packed_filter_bytes() const noexcept override {
    return steps_.filter_pass() ? 0 : std::size_t(steps_.filter_bytes());
  }

  void pack_filter(ConstSpan w, Span packed, Stream& stream) const override {
    const WinogradShape& s = steps_.shape;
    with_sizes(s, [&](auto m, auto r) {
      launch_to_points<typename Transforms<m(), r()>::Filter>(
          filter_windows(s), first_tap<Real>(s, w), steps_.filter_matrices(),
          reinterpret_cast<Real*>(packed.data()), stream);
    });
  }

  void run(const ConvArgs& args, Workspace workspace, Stream& stream) const override {
    const std::int64_t images = steps_.shape.in.n;
    for (std::int64_t first = 0; first < images; first += steps_.images) {
      const std::int64_t n = std::min(steps_.images, images - first);
      if (steps_.filter_pass())
        sum_images(args, first, n, workspace, stream);
      else
        run_images(args, first, n, workspace, stream);
    }
    if (!steps_.filter_pass()) return;
    const WinogradShape& s = steps_.shape;
    const TileOutput<Real> output{output_epilogue<Real>(s.epilogue, s.accumulate, args)};
    run_phase(args.phases, 2, stream, [&] {
      with_sizes(s, [&](auto m, auto r) {
        using Code = typename Transforms<r(), m(), ScaledSide::output>::Output;
        launch_from_points<Code>(steps_.filter_matrices(), filter_points(workspace),
                                 int(steps_.split), filter_windows(s), output, stream);
      });
    });
  }

 private:
  Real* in_points(Workspace w) const { return reinterpret_cast<Real*>(w.data()); }
  Real* out_points(Workspace w) const {
    return reinterpret_cast<Real*>(w.data() + steps_.in_bytes());
  }
  Real* filter_points(Workspace w) const {
    return reinterpret_cast<Real*>(w.data() + steps_.in_bytes() + steps_.out_bytes());
  }
  void run_images(const ConvArgs& args, std::int64_t first, std::int64_t n, Workspace workspace,
                  Stream& stream) const {
    const WinogradShape& s = steps_.shape;
    with_sizes(s, [&](auto m, auto r) {
      using Code = Transforms<m(), r()>;
      run_phase(args.phases, 0, stream, [&] {
        launch_to_points<typename Code::Input>(in_windows(s, n), in_image<Real>(s, args, first),
                                               steps_.in_matrices(n), in_points(workspace), stream);
      });
      run_phase(args.phases, 1, stream, [&] {
        const Gemm g = steps_.product(n);
        const void* const points = in_points(workspace);
        const bool by_channel = steps_.out_matrices(n).by_channel;
        gemm(g, 1, by_channel ? args.w : points, by_channel ? points : args.w, 0,
             out_points(workspace), stream);
      });
      run_phase(args.phases, 2, stream, [&] {
        launch_from_points<typename Code::Output>(
            steps_.out_matrices(n), out_points(workspace), 1, out_windows(s, n),
            tile_output<m()>(s, images_epilogue<Real>(s, args, first)), stream);
      });
    });
  }

  // Adds some images' contribution to the filter's gradient. The last part, and a last chunk that
  // lacks images, are padded with tiles of zeros.
  void sum_images(const ConvArgs& args, std::int64_t first, std::int64_t n, Workspace workspace,
                  Stream& stream) const {
    const WinogradShape& s = steps_.shape;
    const Real* const dy = static_cast<const Real*>(args.dy) + first * s.out.c * s.out.h * s.out.w;
    run_phase(args.phases, 0, stream, [&] {
      with_sizes(s, [&](auto m, auto r) {
        // B^T is the same for F(m, r) and F(r, m).
        launch_to_points<typename Transforms<m(), r()>::Input>(
            in_windows(s, n), in_image<Real>(s, args, first), steps_.in_matrices(steps_.images),
            in_points(workspace), stream);
        launch_to_points<typename Transforms<r(), m(), ScaledSide::output>::Filter>(
            out_windows(s, n), dy, steps_.out_matrices(steps_.images), out_points(workspace),
            stream);
      });
    });
    run_phase(args.phases, 1, stream, [&] {
      gemm(steps_.filter_product(), 1, out_points(workspace), in_points(workspace),
           first == 0 ? 0 : 1, filter_points(workspace), stream);
    });
  }

  Steps steps_;
};

// ---- Configurations ----

std::vector<std::int64_t> tile_sizes(std::int64_t r) {
  return r == 3 ? std::vector<std::int64_t>{4, 2, 6} : std::vector<std::int64_t>{4, 2};
}

// The number of images whose points, of both sides, take half of L2.
std::int64_t images_in_cache(const Steps& steps, const DeviceInfo& device) {
  Steps one = steps;
  one.images = one.split = 1;
  return std::clamp<std::int64_t>(device.l2_bytes / 2 / (one.in_bytes() + one.out_bytes()), 1,
                                  steps.shape.in.n);
}

// The number of parts that gives each multiprocessor two blocks of 64 x 64 of the products.
std::int64_t default_split(const Steps& steps, const DeviceInfo& device) {
  const WinogradShape& s = steps.shape;
  const std::int64_t blocks = s.points() * ceil_div(s.in.c, 64) * ceil_div(s.out.c, 64);
  const std::int64_t tiles = steps.images * s.image_tiles();
  return std::clamp<std::int64_t>(2 * device.threads / blocks, 1, ceil_div(tiles, 128));
}

WinogradShape parse_shape(const ConvProblem& p, const Config& config) {
  const std::int64_t m = config.get("tile");
  const std::vector<std::int64_t> sizes = tile_sizes(p.r);
  if (std::find(sizes.begin(), sizes.end(), m) == sizes.end())
    throw InputError(fmt::format("winograd has no tile={} for {}x{} filters", m, p.r, p.s));
  return WinogradShape(p, m);
}

Schedule parse_schedule(const WinogradShape& s, const Config& config) {
  const auto schedule = config.choice<Schedule>("schedule", schedule_names);
  if (schedule == Schedule::fused && !WinogradFused::takes(s))
    throw InputError(
        fmt::format("winograd has no schedule=fused with tile={} for {}x{} filters of {} in {}",
                    s.m, s.r, s.r, to_string(s.dtype), to_string(s.pass)));
  return schedule;
}

WinogradFused parse_fused(const WinogradShape& s, const Config& config) {
  WinogradFused run{s, math_type(config, s.dtype, card_math_types), config.get("split")};
  if (run.split < 1 || run.split > run.most_parts())
    throw InputError(fmt::format("winograd's split={}: expected 1 to {} with {} channels",
                                 run.split, run.most_parts(), s.in.c));
  return run;
}

Steps parse_steps(const WinogradShape& s, const Config& config) {
  Steps steps{s};
  steps.math = math_type(config, s.dtype, library_math_types);  // cuBLAS has no 3xTF32
  steps.images = config.get("images");
  if (steps.images < 1 || steps.images > s.in.n)
    throw InputError(fmt::format("winograd's images={}: expected 1 to {}", steps.images, s.in.n));
  if (!steps.filter_pass()) return steps;
  steps.split = config.get("split");
  const std::int64_t tiles = steps.images * s.image_tiles();
  if (steps.split < 1 || steps.split > tiles)
    throw InputError(
        fmt::format("winograd's split={}: expected 1 to {} tiles", steps.split, tiles));
  return steps;
}

Config tile_config(const WinogradShape& s, Schedule schedule, MathType math) {
  return with_math(
      {{"tile", s.m}, {"schedule", std::string(schedule_names[std::size_t(schedule)])}}, s.dtype,
      math);
}

// All images at once, and chunks that L2 holds; in backward_filter unsplit, and in parts that fill
// the card.
std::vector<Config> step_configs(const WinogradShape& s, MathType math, const DeviceInfo& device) {
  std::vector<Config> configs;
  Steps steps{s};
  for (const std::int64_t images : std::set{images_in_cache(steps, device), s.in.n}) {
    Config config = tile_config(s, Schedule::nonfused, math);
    config.set("images", images);
    if (!steps.filter_pass()) {
      configs.push_back(config);
      continue;
    }
    steps.images = images;
    for (const std::int64_t split : std::set{default_split(steps, device), std::int64_t(1)}) {
      configs.push_back(config);
      configs.back().set("split", split);
    }
  }
  return configs;
}

// Unsplit, and the split with the fewest cycles where that saves a tenth of them: where the unsplit
// grid is small for the card's multiprocessors.
void add_fused_runs(const WinogradShape& s, MathType math, const DeviceInfo& card,
                    std::vector<WinogradFused>& runs) {
  const WinogradFused whole{s, math};
  if (!WinogradFused::takes(s) || !fits_block(whole.shared_bytes(card), card)) return;
  WinogradFused best = whole;
  for (WinogradFused run = whole; run.split <= run.most_parts(); ++run.split)
    if (run.cycles(card) < best.cycles(card)) best = run;
  runs.push_back(whole);
  if (best.cycles(card) < 0.9 * whole.cycles(card)) runs.push_back(best);
}

Config fused_config(const WinogradFused& run) {
  Config config = tile_config(run.shape, Schedule::fused, run.math);
  config.set("split", run.split);
  return config;
}

// Points that stay in L2 between the steps count as no bytes.
WorkEstimate work_of(const Steps& steps, const DeviceInfo& device) {
  const WinogradShape& s = steps.shape;
  double input_flops = 0, filter_flops = 0, output_flops = 0;
  with_sizes(s, [&](auto m, auto r) {
    using Code = Transforms<m(), r()>;
    using Gradient = Transforms<r(), m(), ScaledSide::output>;
    input_flops = nested_flops<typename Code::Input>;
    filter_flops = nested_flops<typename Gradient::Filter>;
    output_flops = steps.filter_pass() ? nested_flops<typename Gradient::Output>
                                       : nested_flops<typename Code::Output>;
  });
  const double tiles = double(s.tiles()), points = double(s.points()), element = steps.element();
  const double in_c = double(s.in.c), out_c = double(s.out.c);
  const double in_bytes = element * double(s.in.elements());
  const double out_bytes = element * double(s.out.elements());
  const bool evicted = steps.in_bytes() + steps.out_bytes() > device.l2_bytes * 3 / 4;
  const double in_points = evicted ? element * tiles * points * in_c : 0;
  const double out_points = evicted ? element * tiles * points * out_c : 0;
  const double filter_bytes = double(steps.filter_bytes());

  PhaseWork input{.name = "input_transform",
                  .flops = tiles * in_c * input_flops,
                  .bytes_read = in_bytes,
                  .bytes_written = in_points,
                  .efficiency = 0.2};
  PhaseWork product{.name = "product",
                    .flops = 2 * tiles * points * in_c * out_c,
                    .bytes_read = in_points,
                    .efficiency = 0.55};
  PhaseWork output{.name = "output_transform", .efficiency = 0.2};
  if (steps.filter_pass()) {
    const double sums = double(steps.split) * filter_bytes;
    const double chunks = double(ceil_div(s.in.n, steps.images));
    input.flops += tiles * out_c * filter_flops;
    input.bytes_read += out_bytes;
    input.bytes_written += out_points;
    product.bytes_read += out_points + (chunks - 1) * sums;
    product.bytes_written = chunks * sums;
    output.flops = in_c * out_c * output_flops;
    output.bytes_read = sums;
    output.bytes_written = element * in_c * out_c * double(s.r * s.r);
  } else {
    product.bytes_read += filter_bytes;
    product.bytes_written = out_points;
    output.flops = tiles * out_c * output_flops;
    output.bytes_read = out_points;
    output.bytes_written = out_bytes;
    if (s.accumulate || s.epilogue.residual) output.bytes_read += out_bytes;
  }
  return {{input, product, output}};
}

class Winograd : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "winograd",
                               .version = 3,
                               .device = DeviceKind::cuda,
                               .origin = Origin::own,
                               .summary = "minimal filtering of 3x3 and 5x5, stride 1",
                               .libraries = {"cublas"}};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device&) const override {
    // 16-bit types would round the points to 11 or 8 bits, which the transforms amplify.
    if (auto refusal = refuse_all_but({DType::f32, DType::f64}, p)) return refusal;
    if (p.r != p.s || (p.r != 3 && p.r != 5))
      return Refusal{Field::filter, "a 3x3 or 5x5 filter", extent(p.r, p.s)};
    if (auto refusal = refuse_all_but_relu(p)) return refusal;
    if (auto refusal = refuse_all_but_dense(p)) return refusal;
    if (auto refusal = refuse_blocked_layouts(p)) return refusal;
    // Kernels count elements of an image, and pairs of a tile and a channel, in 32 bits.
    const WinogradShape s(p, 2);
    const std::int64_t largest =
        std::max({s.in.c * s.in.h * s.in.w, s.out.c * s.out.h * s.out.w,
                  s.tiles() * std::max(s.in.c, s.out.c), s.in.c * s.out.c * s.r * s.r});
    if (largest >= std::int64_t(1) << 31)
      return Refusal{Field::size,
                     "fewer than 2^31 elements of an image, pairs of tile and channel, and taps",
                     std::to_string(largest)};
    return refuse_missing_libraries(info());
  }

  // In each math type the fused runs, the one with the fewest cycles first, and the nonfused. The
  // fused come first if they fill the card but for a quarter: the nonfused have more parallelism.
  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    const DeviceInfo& card = device.info();
    std::vector<Config> configs;
    for (const MathType math : {MathType::f32, MathType::tf32x3, MathType::tf32}) {
      if (math != MathType::f32 && p.dtype != DType::f32) continue;
      std::vector<WinogradFused> fused;
      const auto first = std::ptrdiff_t(configs.size());
      for (const std::int64_t m : tile_sizes(p.r)) {
        const WinogradShape s(p, m);
        add_fused_runs(s, math, card, fused);
        if (math == MathType::tf32x3) continue;  // cuBLAS has none
        for (const Config& steps : step_configs(s, math, card)) configs.push_back(steps);
      }
      std::ranges::stable_sort(fused, {}, [&](const auto& run) { return run.cycles(card); });
      const bool fills = !fused.empty() && 4 * fused.front().blocks(card) >= 3 * card.threads;
      auto place = fills ? configs.begin() + first : configs.end();
      for (const WinogradFused& run : fused)
        place = std::next(configs.insert(place, fused_config(run)));
    }
    return configs;
  }

  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    const WinogradShape s = parse_shape(p, config);
    if (parse_schedule(s, config) == Schedule::fused)
      return parse_fused(s, config).work(device.info());
    return work_of(parse_steps(s, config), device.info());
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    const WinogradShape s = parse_shape(p, config);
    if (parse_schedule(s, config) == Schedule::fused) {
      config.require_only({"tile", "schedule", "math", "split"});
      const WinogradFused run = parse_fused(s, config);
      require_shared_memory("winograd", config, run.shared_bytes(device.info()), device.info());
      return run.plan(device.info());
    }
    if (s.pass == Pass::backward_filter)
      config.require_only({"tile", "schedule", "math", "images", "split"});
    else
      config.require_only({"tile", "schedule", "math", "images"});
    const Steps steps = parse_steps(s, config);
    if (p.dtype == DType::f64) return std::make_unique<WinogradPlan<double>>(steps);
    return std::make_unique<WinogradPlan<float>>(steps);
  }
};

}  // namespace

std::unique_ptr<ConvAlgo> make_winograd() { return std::make_unique<Winograd>(); }

}  // namespace convlab::cuda
