// Direct convolution: the loops of the definition, blocked for registers and caches; no column
// matrix, no transform, and no copy of the input.
//
// forward:         y[k][p][q] += x[c][p*stride + r][q*stride + s] w[k][c][r][s]. A register tile is
//                  14 x 2 (AVX-512): pixels along rows times vectors of K. Each w vector is loaded
//                  once for 14 pixels and each x value is broadcast to two vectors. Taps that fall
//                  into the padding read from a line of zeros.
// backward_data:   the same loop over dy with the filter turned around; for stride > 1 once per
//                  phase of the stride (see pixel_grid.h).
// backward_filter: a tile is half a channel block times two vectors of K, and its depth runs over
//                  pixels. 3x3 filters have tiles of their own (direct_taps.cpp).
//
// Caches: the filters of a panel (the tile's K) and a chunk of C stay in L2 while all tiles of a
// strip of pixels use them, as does the strip's input for all panels. L1 need not hold the chunk,
// since a step of 28 multiply-adds reads 2 vectors of it; a smaller chunk would send the sums of
// each tile out and back more often, which costs more. In backward_filter rows of dy and x stay in
// L1 for all taps. Threads share pixels or panels; where backward_filter has to share pixels, each
// thread sums into its own copy, and the copies are added in a fixed order.
//
// backward_data of a first layer, with its few channels, takes vectors of pixels instead
// (direct_first_data.cpp). Depthwise filters are vectors of channels throughout
// (direct_depthwise.cpp). What is left, f64 and ragged groups among it, takes plain loops
// (direct_plain.cpp).
//
// Channel-blocked layouts after Georganas et al. 2018 (arXiv:1808.05567) and Zhang et al. 2018
// (arXiv:1809.10170).

#include "kernels_cpu/direct/direct.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>

#include "conv/error.h"
#include "conv/refusals.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/gemm/filter_block.h"
#include "kernels_cpu/gemm/streaming.h"
#include "kernels_cpu/inside_taps.h"

namespace convlab::cpu {
namespace {

using i64 = std::int64_t;

const float* floats(const void* p) { return static_cast<const float*>(p); }

enum class Path { tiles, taps, first_layer, first_layer_data, depthwise, plain };

bool has_rows_of_taps(const ConvProblem& p) {
  return p.r == 3 && p.s == 3 && p.dilation_h == 1 && p.dilation_w == 1 &&
         p.stride_h == p.stride_w && p.stride_w <= 2 && p.groups == 1;
}

Path path_of(const ConvProblem& p) {
  const i64 block = tile_shape().block;
  const auto tiled = [&](Layout layout, i64 channels) {
    return channel_block(layout) == block || (layout == Layout::nhwc && channels % block == 0);
  };
  if (p.groups > 1 && p.groups == p.c && p.groups == p.k && p.x_layout == p.y_layout &&
      tiled(p.x_layout, p.c))
    return Path::depthwise;
  if (p.dtype != DType::f32 || !tiled(p.y_layout, p.k)) return Path::plain;
  const bool whole_blocks = p.c / p.groups % block == 0 && p.k / p.groups % block == 0;
  if (tiled(p.x_layout, p.c) && (p.groups == 1 || whole_blocks))
    return p.pass == Pass::backward_filter && has_rows_of_taps(p) ? Path::taps : Path::tiles;
  if (p.x_layout == Layout::nchw && p.c <= 4 && p.groups == 1)
    return p.pass == Pass::backward_data ? Path::first_layer_data : Path::first_layer;
  return Path::plain;
}

ChannelView view_of(const TensorDesc& t) {
  const i64 block = tile_shape().block, pixels = t.h * t.w;
  if (t.layout == Layout::nhwc) return {pixels * t.c, block, t.c, t.h, t.w};
  return {pixels * t.padded_c(), pixels * block, block, t.h, t.w};
}

Panels panels_of(i64 groups, i64 channels) {
  return {groups, channels / groups, ceil_div(channels / groups, tile_shape().cols)};
}

// What there is to compute, before any blocking.
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
  d.epilogue = p.epilogue;
  d.accumulate = p.accumulate;
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
  d.panel_threads = config.get("split") ? std::min(threads, d.panels.count()) : 1;
  d.row_threads = std::min(threads / d.panel_threads, ceil_div(pixels, shape.rows));
  return d;
}

i64 packed_floats(const DirectPixels& d) {
  const TileShape shape = tile_shape();
  i64 taps = 0;
  for (const PixelGrid& grid : d.grids) taps += i64(grid.taps.size());
  return d.panels.count() * d.in_blocks * taps * shape.block * shape.cols;
}

// Columns of a panel that there are, and that are computed.
struct PanelColumns {
  i64 first, count, computed;
  PanelColumns(const Panels& panels, i64 index) {
    const TileShape shape = tile_shape();
    const i64 within = index % panels.per_group * shape.cols;
    first = index / panels.per_group * panels.channels + within;
    count = std::min(shape.cols, panels.channels - within);
    computed = shape.panel_cols(count);
  }
};

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

// Beginning and ending a tile and turning its sums around take as long as 25 steps of its depth.
double taps_efficiency(const ConvProblem& p) {
  const double depth = double(p.n * p.p * p.q);
  return 0.86 * depth / (depth + 25);
}

bool worth_streaming(const ConvProblem& p, const DeviceInfo& device) {
  return !p.accumulate &&
         leaves_caches(p.pass == Pass::forward ? p.y_bytes() : p.x_bytes(), device);
}

class PixelPlan : public ConvPlan {
 public:
  PixelPlan(const ConvProblem& p, const Config& config, const DeviceInfo& device)
      : problem_(p),
        pixels_(plan_pixels(p, config, device)),
        threads_(device.threads),
        stream_(streams(config)) {}

  std::size_t workspace_bytes() const noexcept override { return 0; }
  std::size_t packed_filter_bytes() const noexcept override {
    return std::size_t(packed_floats(pixels_)) * sizeof(float);
  }
  void pack_filter(ConstSpan w, Span packed, Stream&) const override {
    pack_pixels(pixels_, problem_, floats(w.data()), reinterpret_cast<float*>(packed.data()),
                threads_);
  }
  void run(const ConvArgs& args, Workspace, Stream&) const override {
    const bool forward = problem_.pass == Pass::forward;
    const DirectOperands data{floats(forward ? args.x : args.dy),
                              floats(args.w),
                              nullptr,
                              problem_.epilogue.bias ? floats(args.bias) : nullptr,
                              problem_.epilogue.residual ? floats(args.residual) : nullptr,
                              static_cast<float*>(args.out),
                              nullptr,
                              stream_ && can_stream(args.out)};
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
  bool stream_;
};

DirectFilter filter_of(const ConvProblem& original) {
  const ConvProblem p = flattened(original);
  DirectFilter d;
  d.problem = p;
  d.x = view_of(p.x_desc());
  d.dy = view_of(p.y_desc());
  d.n = p.n;
  d.in_blocks = ceil_div(p.c / p.groups, tile_shape().block);
  d.panels = panels_of(p.groups, p.k);
  return d;
}

DirectFilter plan_filter(const ConvProblem& original, const Config& config,
                         const DeviceInfo& device) {
  DirectFilter d = filter_of(original);
  const ConvProblem& p = d.problem;
  d.strip = std::max<i64>(1, config.get("pixels") / p.q);
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
    const DirectOperands data{floats(args.x),
                              nullptr,
                              floats(args.dy),
                              nullptr,
                              nullptr,
                              static_cast<float*>(args.out),
                              reinterpret_cast<float*>(workspace.data())};
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
    DirectOperands data{};
    data.in = floats(args.x);
    data.dy = floats(args.dy);
    data.out = static_cast<float*>(args.out);
    data.workspace = reinterpret_cast<float*>(workspace.data());
#pragma omp parallel for num_threads(taps_.threads) schedule(static, 1)
    for (i64 thread = 0; thread < taps_.threads; ++thread) {
      const PhaseScope scope(args.phases, 0);
      direct_taps(taps_, data, thread);
    }
  }

 private:
  DirectTaps taps_;
};

class FirstLayerPlan : public ConvPlan {
 public:
  FirstLayerPlan(const ConvProblem& p, const Config& config, const DeviceInfo& device)
      : first_{view_of(p.y_desc()), panels_of(1, p.k), p, {}},
        threads_(std::min<i64>(device.threads, p.n * p.p)),
        stream_(streams(config)) {
    for (i64 c = 0; c < p.c; ++c)
      for (i64 r = 0; r < p.r; ++r)
        for (i64 s = 0; s < p.s; ++s)
          first_.tap_at.push_back((c * first_.height() + r * p.dilation_h) * first_.pitch() +
                                  s * p.dilation_w);
  }

  std::size_t packed_filter_bytes() const noexcept override {
    return forward() ? std::size_t(copy_floats()) * sizeof(float) : 0;
  }
  void pack_filter(ConstSpan span, Span packed, Stream&) const override {
    const TileShape shape = tile_shape();
    const float* const w = reinterpret_cast<const float*>(span.data());
    for (i64 index = 0; index < first_.panels.count(); ++index) {
      const PanelColumns columns(first_.panels, index);
      float* to = reinterpret_cast<float*>(packed.data()) + index * first_.taps() * shape.cols;
      for (i64 tap = 0; tap < first_.taps(); ++tap)
        for (i64 column = 0; column < columns.computed; ++column)
          *to++ = column < columns.count ? w[(columns.first + column) * first_.taps() + tap] : 0.f;
    }
  }
  std::size_t workspace_bytes() const noexcept override {
    const i64 copy = forward() ? 0 : copy_floats();
    return std::size_t(threads_ * (first_.patch_floats() + copy)) * sizeof(float);
  }
  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    const ConvProblem& p = first_.problem;
    float* const scratch = reinterpret_cast<float*>(workspace.data());
    const DirectOperands data{floats(args.x),
                              floats(args.w),
                              floats(args.dy),
                              p.epilogue.bias ? floats(args.bias) : nullptr,
                              p.epilogue.residual ? floats(args.residual) : nullptr,
                              static_cast<float*>(args.out),
                              scratch,
                              stream_ && can_stream(args.out)};
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
    for (i64 thread = 0; thread < threads_; ++thread) {
      const PhaseScope scope(args.phases, 0);
      (forward() ? direct_first_forward : direct_first_filter)(first_, data, thread, threads_);
    }
    if (forward()) return;
    const PhaseScope scope(args.phases, 1);
    add_copies(scratch, static_cast<float*>(args.out));
  }

 private:
  bool forward() const { return first_.problem.pass == Pass::forward; }
  i64 copy_floats() const { return first_.panels.count() * first_.taps() * tile_shape().cols; }

  void add_copies(const float* sums, float* dw) const {
    const TileShape shape = tile_shape();
    for (i64 k = 0; k < first_.problem.k; ++k) {
      const i64 index = k / shape.cols, cols = PanelColumns(first_.panels, index).computed;
      for (i64 tap = 0; tap < first_.taps(); ++tap) {
        const float* from = sums + index * first_.taps() * shape.cols + tap * cols + k % shape.cols;
        float sum = 0;
        for (i64 thread = 0; thread < threads_; ++thread, from += copy_floats()) sum += *from;
        float& to = dw[k * first_.taps() + tap];
        to = first_.problem.accumulate ? to + sum : sum;
      }
    }
  }

  DirectFirst first_;
  i64 threads_;
  bool stream_;
};

DirectFirstData plan_first_data(const ConvProblem& p, const DeviceInfo& device) {
  DirectFirstData d;
  d.dy = view_of(p.y_desc());
  d.problem = p;
  d.grids = backward_grids(p);
  i64 last_h = 0, last_w = 0, filter = 0;
  for (PixelGrid& grid : d.grids) {
    for (const Tap& tap : grid.taps) {
      d.first_h = std::min<i64>(d.first_h, tap.dh);
      d.first_w = std::min<i64>(d.first_w, tap.dw);
      last_h = std::max<i64>(last_h, tap.dh);
      last_w = std::max<i64>(last_w, tap.dw);
    }
    grid.filter = filter;
    filter += p.k * i64(grid.taps.size()) * p.c;
  }
  d.span_h = last_h - d.first_h;
  d.span_w = last_w - d.first_w;
  d.pitch = ceil_div(p.w, p.stride_w) + d.span_w;
  const i64 rows = ceil_div(p.h, p.stride_h);
  const i64 fit = std::max<i64>(1, device.l2_bytes / 2 / (4 * p.k * d.pitch) - d.span_h);
  d.band = ceil_div(rows, std::max(ceil_div(rows, fit), ceil_div(i64(device.threads), p.n)));
  for (const PixelGrid& grid : d.grids) {
    d.tap_at.emplace_back();
    for (const Tap& tap : grid.taps)
      d.tap_at.back().push_back((tap.dh - d.first_h) * d.pitch + tap.dw - d.first_w);
  }
  return d;
}

class FirstLayerDataPlan : public ConvPlan {
 public:
  FirstLayerDataPlan(const ConvProblem& p, const DeviceInfo& device)
      : first_(plan_first_data(p, device)),
        threads_(std::min<i64>(device.threads, p.n * first_.bands())) {}

  std::size_t packed_filter_bytes() const noexcept override {
    return std::size_t(first_.problem.filter_bytes());
  }
  void pack_filter(ConstSpan span, Span packed, Stream&) const override {
    const ConvProblem& p = first_.problem;
    const float* const w = floats(span.data());
    float* to = reinterpret_cast<float*>(packed.data());
    for (const PixelGrid& grid : first_.grids)
      for (i64 k = 0; k < p.k; ++k)
        for (const Tap& tap : grid.taps)
          for (i64 c = 0; c < p.c; ++c) *to++ = w[(k * p.c + c) * p.r * p.s + tap.rs];
  }
  std::size_t workspace_bytes() const noexcept override {
    return std::size_t(threads_ * first_.thread_floats()) * sizeof(float);
  }
  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    DirectOperands data{};
    data.filter = floats(args.w);
    data.dy = floats(args.dy);
    data.out = static_cast<float*>(args.out);
    data.workspace = reinterpret_cast<float*>(workspace.data());
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
    for (i64 thread = 0; thread < threads_; ++thread) {
      const PhaseScope scope(args.phases, 0);
      direct_first_data(first_, data, thread, threads_);
    }
  }

 private:
  DirectFirstData first_;
  i64 threads_;
};

class DepthwisePlan : public ConvPlan {
 public:
  DepthwisePlan(const ConvProblem& p, const DeviceInfo& device)
      : problem_(p), threads_(device.threads) {
    if (p.pass == Pass::backward_filter)
      filter_ = filter_of(p);
    else
      pixels_ = pixels_of(p);
  }

  std::size_t workspace_bytes() const noexcept override { return 0; }
  std::size_t packed_filter_bytes() const noexcept override {
    if (problem_.pass == Pass::backward_filter) return 0;
    return std::size_t(round_up(problem_.k, tile_shape().block) * problem_.r * problem_.s *
                       size_of(problem_.dtype));
  }
  void pack_filter(ConstSpan w, Span packed, Stream&) const override {
    problem_.dtype == DType::f64 ? pack<double>(w, packed) : pack<float>(w, packed);
  }
  void run(const ConvArgs& args, Workspace, Stream&) const override {
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
    for (i64 thread = 0; thread < threads_; ++thread) {
      const PhaseScope scope(args.phases, 0);
      if (problem_.pass == Pass::backward_filter)
        direct_depthwise_filter(filter_, args, thread, threads_);
      else
        direct_depthwise_pixels(pixels_, args, problem_, thread, threads_);
    }
  }

 private:
  template <class T>
  void pack(ConstSpan span, Span packed) const {
    const T* const w = reinterpret_cast<const T*>(span.data());
    T* to = reinterpret_cast<T*>(packed.data());
    const i64 block = tile_shape().block, area = problem_.r * problem_.s;
    for (i64 first = 0; first < problem_.k; first += block)
      for (i64 rs = 0; rs < area; ++rs)
        for (i64 k = first; k < first + block; ++k)
          *to++ = k < problem_.k ? w[k * area + rs] : T(0);
  }

  ConvProblem problem_;
  i64 threads_;
  DirectPixels pixels_;
  DirectFilter filter_;
};

class PlainPlan : public ConvPlan {
 public:
  PlainPlan(const ConvProblem& p, const DeviceInfo& device)
      : problem_(p), threads_(device.threads) {}

  std::size_t workspace_bytes() const noexcept override { return 0; }
  void run(const ConvArgs& args, Workspace, Stream&) const override {
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
    for (int thread = 0; thread < threads_; ++thread) {
      const PhaseScope scope(args.phases, 0);
      direct_plain(problem_, args, thread, threads_);
    }
  }

 private:
  ConvProblem problem_;
  int threads_;
};

class Direct : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override { return info_; }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    if (auto refusal = refuse_all_but({DType::f32, DType::f64}, p)) return refusal;
    const Layout blocked = blocked_layout(device.info());
    for (const Layout layout : {p.x_layout, p.y_layout})
      if (is_blocked(layout) && layout != blocked)
        return Refusal{Field::layout, fmt::format("{} on this instruction set", to_string(blocked)),
                       std::string(to_string(layout))};
    if (path_of(p) == Path::plain && p.x_layout != p.y_layout)
      return Refusal{Field::layout,
                     fmt::format("one layout for x and y, or f32, {} or nhwc in whole blocks, and "
                                 "groups of whole blocks",
                                 to_string(blocked)),
                     fmt::format("{} and {}", to_string(p.x_layout), to_string(p.y_layout))};
    return {};
  }

  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    const Path path = path_of(p);
    const DeviceInfo& info = device.info();
    if (path == Path::first_layer && p.pass == Pass::forward && worth_streaming(p, info))
      return {streaming, Config{}};
    if (path != Path::tiles) return {Config{}};
    if (p.pass == Pass::backward_filter) return {{{"pixels", 128}}};
    const TileShape shape = tile_shape();
    const i64 depth = info.l2_bytes / 8 / (shape.cols * 4);
    const Config by_pixels{{"depth", depth}, {"split", 0}};
    const Config by_panels{{"depth", depth}, {"split", 1}};
    if (worth_streaming(p, info))
      return {{{"depth", depth}, {"split", 0}, {"stream", 1}}, by_pixels};
    if (info.threads == 1) return {by_pixels};
    const i64 in_bytes = p.pass == Pass::forward ? p.x_bytes() : p.y_bytes();
    if (p.filter_bytes() > in_bytes) return {by_panels, by_pixels};
    return {by_pixels, by_panels};
  }

  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  // Tiles pad channels to whole blocks. Every thread that shares pixels reads the whole filter, and
  // one that shares panels the whole input.
  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    const double x = double(p.x_bytes()), y = double(p.y_bytes()), w = double(p.filter_bytes());
    const double block = double(tile_shape().block);
    const Path path = path_of(p);
    const bool padded = path == Path::tiles || path == Path::taps;
    const double c = padded ? double(round_up(p.c, i64(block))) / double(p.c) : 1;
    const double k = path == Path::plain || path == Path::first_layer_data
                         ? 1
                         : double(round_up(p.k, i64(block))) / double(p.k);
    const double efficiency = path == Path::tiles  ? (p.pass == Pass::backward_filter ? 0.67 : 0.77)
                              : path == Path::taps ? taps_efficiency(p)
                              : path == Path::first_layer      ? 0.6
                              : path == Path::first_layer_data ? 0.7
                              : path == Path::depthwise        ? 0.3
                                                               : 0.01;
    const double threads = double(device.info().threads);
    const bool by_panels = config.has("split") && config.get("split") != 0;
    // Tiles within one row skip its padding; those across rows multiply its zeros, uncounted here.
    const double inside = path == Path::tiles ? inside_share(p) : 1;
    PhaseWork loops{"loops", p.flops() * c * k * inside, 0, 0, efficiency};
    if (p.pass == Pass::backward_filter) {
      loops.bytes_read = x * (padded ? threads : 1) + y;
      loops.bytes_written = w;
      return {{loops, {"sum", 0, w, w, 1}}};
    }
    const double in = p.pass == Pass::forward ? x : y, out = p.pass == Pass::forward ? y : x;
    loops.bytes_read = in * (by_panels ? threads : 1) + w * (by_panels ? 1 : threads);
    loops.bytes_read += p.epilogue.residual || p.accumulate ? out : 0;
    loops.bytes_written = out;
    if (worth_streaming(p, device.info()) && !streams(config)) loops.bytes_read += out;
    WorkEstimate estimate{{loops}};
    if (path != Path::plain)
      estimate.pack = {"pack_filter", 0, w, w * (padded ? c * k : k), packing_efficiency};
    return estimate;
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    const Path path = path_of(p);
    if (path != Path::tiles && config != Config{} &&
        !(path == Path::first_layer && config == streaming))
      throw InputError(
          fmt::format("direct: config '{}': expected none for this problem", config.text()));
    if (path == Path::plain) return std::make_unique<PlainPlan>(p, device.info());
    if (path == Path::taps) return std::make_unique<TapsPlan>(p, device.info());
    if (path == Path::depthwise) return std::make_unique<DepthwisePlan>(p, device.info());
    if (path == Path::first_layer)
      return std::make_unique<FirstLayerPlan>(p, config, device.info());
    if (path == Path::first_layer_data)
      return std::make_unique<FirstLayerDataPlan>(p, device.info());
    if (p.pass == Pass::backward_filter)
      return std::make_unique<FilterPlan>(p, config, device.info());
    return std::make_unique<PixelPlan>(p, config, device.info());
  }

 private:
  const Config streaming{{"stream", 1}};
  AlgoInfo info_{"direct",
                 10,
                 DeviceKind::cpu,
                 Origin::own,
                 "the definition's loops, tiled for registers and caches",
                 {}};
};

}  // namespace

std::unique_ptr<ConvAlgo> make_direct() { return std::make_unique<Direct>(); }

}  // namespace convlab::cpu
