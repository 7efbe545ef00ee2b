// Convolution by Fourier transforms of small tiles (overlap-save).
//
// The image is cut into n x n tiles (n = 16 or 32) that overlap by R-1 rows and S-1 columns. The
// cyclic correlation of a tile with the filter equals the linear one in its first n-R+1 rows and
// n-S+1 columns, so a tile gives that many outputs; in the frequency domain
//   forward          Y  = sum over c of X conj(W)
//   backward_data    the same, of dy with the filter turned by 180 degrees and padding R-1-pad
//   backward_filter  DW = sum over tiles of X conj(DY), where dy's tiles are n-R+1 rows of outputs
//                    followed by zeros; its inverse is taken once, after all tiles.
// A real tile has n*n/2 + 2 points, so an output costs about 2 n^2 / ((n-R+1)(n-S+1)) multiply-adds
// per channel pair instead of R S: for 5x5 filters 3.6 (n = 16) or 2.6 (n = 32) instead of 25.
//
// One register holds one pixel's block of channels (nchw16c, nchw8c), so transforms are
// straight-line code (fft_codelets-inl.h). At each point the product is a complex matrix product
// [tiles, C] x [C, K]; spectra lie as
//   tiles    [point][re, im][tile][channel]           the broadcast operand, and the result
//   filters  [point][K block][C][re, im][K in block]  read in one stream
// and in backward_filter [K, tiles] x [tiles, C] comes out as [point][re, im][K][C].
//
// Tiles are worked on in blocks. A block belongs to one thread (shared=0), small enough for its
// spectra to stay in L2 while the filters stream by; or to all threads (shared=1), which split each
// phase and meet at barriers: then filters are read once per block, and blocks are large.
//
// Vasilache et al. 2014 (arXiv:1412.7580, tiled FFT convolution), Zlateski, Jia, Li, Durand 2018
// (arXiv:1809.07851, FFT against Winograd on CPUs).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/fft_tiled.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "conv/layout.h"
#include "kernels_cpu/fft_codelets-inl.h"

#ifndef CONVLAB_KERNELS_CPU_FFT_TILED_CPP_
#define CONVLAB_KERNELS_CPU_FFT_TILED_CPP_

namespace convlab::cpu {

// Where the spectrum of one tile and channel block lies; strides in floats.
template <class T>
struct SpectrumAt {
  T* data;
  std::int64_t point_stride, im_offset;
};

// Part of an image plane [h][w][block]: rows x cols pixels from (y, x), which may lie outside.
struct Window {
  std::int64_t h, w, y, x, rows, cols;
};

// What becomes of an output pixel; pointers are to the plane's channel block, or null.
struct PixelEpilogue {
  const float* bias;
  const float* residual;
  bool relu, accumulate;
};

// The product at one point: out[i][v] (+)= sum over l of a[l][i] conj(b[l][v]), with a broadcast
// and v in whole channel blocks; or its conjugate, with im_sign -1. Strides in floats.
struct PointProduct {
  const float* a;
  std::int64_t a_im, a_row, a_depth;
  const float* b;
  std::int64_t b_im, b_depth, b_block;
  float* out;
  std::int64_t out_im, out_row;
  std::int64_t rows, depth, blocks;
  float im_sign;
  bool accumulate;
};

// The code of one instruction set for one tile size.
struct TileKernels {
  void (*product)(const PointProduct&);
  void (*input)(const float* plane, const Window&, float* scratch, SpectrumAt<float>);
  void (*output)(SpectrumAt<const float>, float* scratch, float* plane, const Window&,
                 const PixelEpilogue&);
  std::int64_t points, scratch;  // of a spectrum; floats a transform needs
};

}  // namespace convlab::cpu

#endif

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu {
namespace HWY_NAMESPACE {
namespace {

using fft::F32;
using fft::kLanes;
using fft::TileFft;
using fft::Vec;
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kBlock = kLanes == 16 ? 16 : 8;

// Accumulators are kRows complex vectors: with the two operands and two broadcasts, 28 of
// AVX-512's 32 registers, or 14 of 16.
constexpr int kRows = kLanes == 16 ? 12 : 5;
// Depth that keeps both panels of a register tile in L1 (12 rows and 16 columns of 128: 28 KB).
constexpr std::int64_t kDepthBlock = 128;

template <int kCount>
void ProductTile(const PointProduct& p, const float* a, const float* b, float* out,
                 std::int64_t depth, bool accumulate) {
  const F32 d;
  const Vec sign = hn::Set(d, p.im_sign);
  Vec re[kCount], im[kCount];
  HWY_UNROLL(16)
  for (int i = 0; i < kCount; ++i) {
    re[i] = accumulate ? hn::Load(d, out + i * p.out_row) : hn::Zero(d);
    im[i] = accumulate ? hn::Mul(sign, hn::Load(d, out + i * p.out_row + p.out_im)) : hn::Zero(d);
  }
  for (std::int64_t l = 0; l < depth; ++l, a += p.a_depth, b += p.b_depth) {
    const Vec br = hn::Load(d, b), bi = hn::Load(d, b + p.b_im);
    HWY_UNROLL(16)
    for (int i = 0; i < kCount; ++i) {
      const Vec ar = hn::Set(d, a[i * p.a_row]), ai = hn::Set(d, a[i * p.a_row + p.a_im]);
      re[i] = hn::MulAdd(ai, bi, hn::MulAdd(ar, br, re[i]));
      im[i] = hn::NegMulAdd(ar, bi, hn::MulAdd(ai, br, im[i]));
    }
  }
  HWY_UNROLL(16)
  for (int i = 0; i < kCount; ++i) {
    hn::Store(re[i], d, out + i * p.out_row);
    hn::Store(hn::Mul(sign, im[i]), d, out + i * p.out_row + p.out_im);
  }
}

template <int... i>
constexpr auto ProductTiles(std::integer_sequence<int, i...>) {
  return std::array{&ProductTile<i + 1>...};
}

void Product(const PointProduct& p) {
  static constexpr auto kTiles = ProductTiles(std::make_integer_sequence<int, kRows>());
  const std::int64_t tiles = (p.rows + kRows - 1) / kRows;
  for (std::int64_t l = 0; l < p.depth; l += kDepthBlock)
    for (std::int64_t block = 0; block < p.blocks; ++block)
      for (int lane = 0; lane < kBlock; lane += kLanes)
        for (std::int64_t tile = 0; tile < tiles; ++tile) {
          // Tiles of nearly equal height, so that none is too short to hide latency.
          const std::int64_t first = tile * p.rows / tiles, last = (tile + 1) * p.rows / tiles;
          kTiles[static_cast<std::size_t>(last - first - 1)](
              p, p.a + l * p.a_depth + first * p.a_row,
              p.b + l * p.b_depth + block * p.b_block + lane,
              p.out + first * p.out_row + block * kBlock + lane, std::min(kDepthBlock, p.depth - l),
              p.accumulate || l > 0);
        }
}

// One tile of a plane [h][w][kBlock]; pixels outside the window or the plane are zero.
template <int n>
void InputTile(const float* plane, const Window& window, float* scratch, SpectrumAt<float> to) {
  HWY_ALIGN float staged[n * kBlock];
  const std::int64_t first = std::max<std::int64_t>(0, -window.x);
  const std::int64_t last = std::min({std::int64_t{n}, window.cols, window.w - window.x});
  for (int lane = 0; lane < kBlock; lane += kLanes) {
    for (int x = 0; x < n; ++x) hn::Store(hn::Zero(F32()), F32(), staged + x * kBlock);
    TileFft<n>::Forward(
        [&](int y) HWY_ATTR -> const float* {
          const std::int64_t row = window.y + y;
          if (row < 0 || row >= window.h || y >= window.rows || first >= last) return nullptr;
          const float* const from = plane + (row * window.w + window.x) * kBlock + lane;
          if (first == 0 && last == n) return from;
          for (std::int64_t x = first; x < last; ++x)
            hn::Store(hn::Load(F32(), from + x * kBlock), F32(), staged + x * kBlock);
          return staged;
        },
        kBlock, scratch, {to.data + lane, to.point_stride, to.im_offset});
  }
}

// The window of a plane from a tile's first rows and columns. The window lies inside the plane.
template <int n>
void OutputTile(SpectrumAt<const float> from, float* scratch, float* plane, const Window& window,
                const PixelEpilogue& epilogue) {
  for (int lane = 0; lane < kBlock; lane += kLanes) {
    const Vec bias = epilogue.bias ? hn::Load(F32(), epilogue.bias + lane) : hn::Zero(F32());
    TileFft<n>::Inverse(
        {from.data + lane, from.point_stride, from.im_offset}, scratch,
        static_cast<int>(window.rows), [&](int y, const float* pixels) HWY_ATTR {
          const std::int64_t offset = ((window.y + y) * window.w + window.x) * kBlock + lane;
          for (std::int64_t x = 0; x < window.cols; ++x) {
            float* const to = plane + offset + x * kBlock;
            Vec v = hn::Add(hn::Load(F32(), pixels + x * kLanes), bias);
            if (epilogue.residual)
              v = hn::Add(v, hn::Load(F32(), epilogue.residual + offset + x * kBlock));
            if (epilogue.relu) v = hn::Max(v, hn::Zero(F32()));
            if (epilogue.accumulate) v = hn::Add(v, hn::Load(F32(), to));
            hn::Store(v, F32(), to);
          }
        });
  }
}

// One table per instruction set and tile size.
template <int n>
constexpr TileKernels kKernels{.product = &Product,
                               .input = &InputTile<n>,
                               .output = &OutputTile<n>,
                               .points = TileFft<n>::kPoints,
                               .scratch = round_up(TileFft<n>::kScratch, 16)};

const TileKernels& Kernels(std::int64_t tile) { return tile == 16 ? kKernels<16> : kKernels<32>; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convlab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <fmt/format.h>
#include <omp.h>

#include <cmath>
#include <vector>

#include "conv/error.h"
#include "kernels_cpu/algos.h"

namespace convlab::cpu {
namespace {

HWY_EXPORT(Kernels);

// A pass as a correlation of tiles of `from` (x, or dy in backward_data) whose windows start at
// (i * step - pad) for outputs from i * step on.
struct Tiling {
  TensorDesc from, to;  // to: what the windows are counted over (y, or dx in backward_data)
  std::int64_t block;   // channels in a block
  std::int64_t pad_h, pad_w, step_h, step_w;
  std::int64_t across, per_image, tiles;

  Tiling(const ConvProblem& p, std::int64_t tile) {
    const bool turned = p.pass == Pass::backward_data;
    from = turned ? p.y_desc() : p.x_desc();
    to = turned ? p.x_desc() : p.y_desc();
    block = channel_block(p.x_layout);
    pad_h = turned ? p.r - 1 - p.pad_h : p.pad_h;
    pad_w = turned ? p.s - 1 - p.pad_w : p.pad_w;
    step_h = tile - p.r + 1;
    step_w = tile - p.s + 1;
    across = ceil_div(to.w, step_w);
    per_image = ceil_div(to.h, step_h) * across;
    tiles = p.n * per_image;
  }

  struct Place {
    std::int64_t n, h, w;  // image and first output
  };
  Place place(std::int64_t tile) const {
    const std::int64_t inside = tile % per_image;
    return {tile / per_image, inside / across * step_h, inside % across * step_w};
  }
};

// Spectra of some tiles: [point][re, im][tile][channel].
struct Spectra {
  std::int64_t channels, im_offset, point_stride;  // floats

  Spectra(std::int64_t tiles, std::int64_t channels)
      : channels(channels),
        im_offset(tiles * channels),
        // An odd number of cache lines: powers of two would put every point of a tile, which are
        // written together, into the same cache set.
        point_stride((ceil_div(2 * im_offset, 16) | 1) * 16) {}

  template <class T>
  SpectrumAt<T> at(T* data, std::int64_t tile, std::int64_t channel) const {
    return {data + tile * channels + channel, point_stride, im_offset};
  }
};

class FftTiledPlan final : public ConvPlan {
 public:
  FftTiledPlan(const ConvProblem& p, const Config& config, Device& device)
      : problem_(p),
        kernels_(HWY_DYNAMIC_DISPATCH(Kernels)(config.get("tile"))),
        tiling_(p, config.get("tile")),
        device_(device),
        threads_(device.info().threads),
        tile_(config.get("tile")),
        tiles_(std::min(config.get("block"), tiling_.tiles)),
        shared_(config.get("shared") == 1),
        filter_pass_(p.pass == Pass::backward_filter),
        in_(tiles_, tiling_.from.padded_c()),
        out_(tiles_, tiling_.to.padded_c()) {
    out_chunk_ = tiling_.to.padded_c();
    if (!shared_) {
      // The part of the output channels whose spectra take as much of L2 as the input's may.
      const std::int64_t bytes = kernels_.points * tiles_ * tiling_.block * 2 * 4;
      out_chunk_ = std::clamp<std::int64_t>(device.info().l2_bytes / 3 / bytes, 1,
                                            out_chunk_ / tiling_.block) *
                   tiling_.block;
      out_ = Spectra(tiles_, out_chunk_);
    }
  }

  std::size_t workspace_bytes() const noexcept override {
    return static_cast<std::size_t>((teams() * team_floats() + threads_ * scratch_floats()) * 4);
  }

  std::size_t packed_filter_bytes() const noexcept override {
    if (filter_pass_) return 0;
    return static_cast<std::size_t>(kernels_.points * filter_point_stride() * 4);
  }

  void pack_filter(ConstSpan span, Span packed, Stream&) const override {
    const float* const w = reinterpret_cast<const float*>(span.data());
    float* const to = reinterpret_cast<float*>(packed.data());
    const std::int64_t block = tiling_.block, taps = problem_.r * problem_.s;
    const std::int64_t depth = tiling_.from.c, outputs = tiling_.to.c;
    const bool turned = problem_.pass == Pass::backward_data;
    // KCRS: strides of an output and of an input channel of this pass.
    const std::int64_t out_stride = turned ? taps : problem_.c * taps;
    const std::int64_t in_stride = turned ? problem_.c * taps : taps;
    const float scale = 1.f / static_cast<float>(tile_ * tile_);
    const Buffer memory =
        device_.allocate(static_cast<std::size_t>(threads_ * scratch_floats() * 4));
#pragma omp parallel for collapse(2) num_threads(threads_)
    for (std::int64_t k = 0; k < outputs; k += block)
      for (std::int64_t c = 0; c < depth; ++c) {
        float* const scratch = memory.as<float>() + omp_get_thread_num() * scratch_floats();
        float* const plane = scratch + kernels_.scratch;  // the filters as an image [r][s][block]
        const float* const from = w + k * out_stride + c * in_stride;
        for (std::int64_t t = 0; t < taps; ++t)
          for (std::int64_t lane = 0; lane < block; ++lane)
            plane[(turned ? taps - 1 - t : t) * block + lane] =
                k + lane < outputs ? scale * from[lane * out_stride + t] : 0.f;
        kernels_.input(plane, {problem_.r, problem_.s, 0, 0, tile_, tile_}, scratch,
                       {to + (k * depth + c * block) * 2, filter_point_stride(), block});
      }
  }

  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    float* const memory = reinterpret_cast<float*>(workspace.data());
#pragma omp parallel num_threads(threads_)
    {
      const int thread = omp_get_thread_num();
      const Worker me{.args = args,
                      .memory = memory + (shared_ ? 0 : thread * team_floats()),
                      .scratch = memory + teams() * team_floats() + thread * scratch_floats(),
                      .rank = shared_ ? thread : 0,
                      .crew = shared_ ? threads_ : 1};
      // Blocks of nearly equal size, none larger than tiles_.
      const std::int64_t blocks = ceil_div(tiling_.tiles, tiles_);
      for (std::int64_t b = shared_ ? 0 : thread; b < blocks; b += teams()) {
        const std::int64_t first = b * tiling_.tiles / blocks;
        const std::int64_t count = (b + 1) * tiling_.tiles / blocks - first;
        if (filter_pass_)
          add_to_filter_spectra(me, first, count);
        else
          convolve(me, first, count);
      }
      if (filter_pass_) write_filter_gradient(me);
    }
  }

 private:
  // One thread's view of a run. A crew shares the memory and splits the work.
  struct Worker {
    const ConvArgs& args;
    float* memory;
    float* scratch;
    int rank, crew;

    void meet() const {
      if (crew > 1) {
#pragma omp barrier
      }
    }
    // f(i) for this worker's part of [0, count).
    template <class F>
    void share(std::int64_t count, const F& f) const {
      for (std::int64_t i = rank * count / crew; i < (rank + 1) * count / crew; ++i) f(i);
    }
  };

  // Per thread: for the codelets, and one block of filters as an image.
  std::int64_t scratch_floats() const {
    return kernels_.scratch + round_up(problem_.r * problem_.s * tiling_.block, 16);
  }
  int teams() const { return shared_ ? 1 : threads_; }
  // backward_filter holds the spectra of x, dy and dw; the others of one input and one output.
  std::int64_t team_floats() const {
    const std::int64_t strides = in_.point_stride + out_.point_stride;
    return kernels_.points * (strides + (filter_pass_ ? gradient().point_stride : 0));
  }
  Spectra gradient() const { return {problem_.k, tiling_.from.padded_c()}; }
  std::int64_t filter_point_stride() const { return tiling_.to.padded_c() * tiling_.from.c * 2; }

  // Spectra of the input's tiles [first, first + count).
  void transform(const Worker& me, const void* data, const TensorDesc& desc, std::int64_t first,
                 std::int64_t count, bool outputs, const Spectra& spectra, float* to) const {
    const std::int64_t blocks = desc.padded_c() / tiling_.block;
    me.share(count * blocks, [&](std::int64_t i) {
      const std::int64_t tile = i / blocks, channel = i % blocks * tiling_.block;
      const Tiling::Place at = tiling_.place(first + tile);
      Window window{desc.h, desc.w, at.h - tiling_.pad_h, at.w - tiling_.pad_w, tile_, tile_};
      if (outputs) window = {desc.h, desc.w, at.h, at.w, tiling_.step_h, tiling_.step_w};
      kernels_.input(static_cast<const float*>(data) + desc.offset(at.n, channel, 0, 0), window,
                     me.scratch, spectra.at(to, tile, channel));
    });
  }

  // forward and backward_data.
  void convolve(const Worker& me, std::int64_t first, std::int64_t count) const {
    const bool forward = problem_.pass == Pass::forward;
    const Spectra in(count, in_.channels);
    float* const in_data = me.memory;
    float* const out_data = in_data + kernels_.points * in_.point_stride;
    {
      const PhaseScope scope(me.args.phases, 0);
      transform(me, forward ? me.args.x : me.args.dy, tiling_.from, first, count, false, in,
                in_data);
    }
    me.meet();
    for (std::int64_t k = 0; k < tiling_.to.padded_c(); k += out_chunk_) {
      const std::int64_t channels = std::min(out_chunk_, tiling_.to.padded_c() - k);
      const Spectra out(count, channels);
      {
        const PhaseScope scope(me.args.phases, 1);
        me.share(kernels_.points, [&](std::int64_t point) {
          kernels_.product({.a = in_data + point * in.point_stride,
                            .a_im = in.im_offset,
                            .a_row = in.channels,
                            .a_depth = 1,
                            .b = static_cast<const float*>(me.args.w) +
                                 point * filter_point_stride() + k * tiling_.from.c * 2,
                            .b_im = tiling_.block,
                            .b_depth = 2 * tiling_.block,
                            .b_block = 2 * tiling_.block * tiling_.from.c,
                            .out = out_data + point * out.point_stride,
                            .out_im = out.im_offset,
                            .out_row = channels,
                            .rows = count,
                            .depth = tiling_.from.c,
                            .blocks = channels / tiling_.block,
                            .im_sign = 1,
                            .accumulate = false});
        });
      }
      me.meet();
      {
        const PhaseScope scope(me.args.phases, 2);
        write(me, first, count, k, out, out_data);
      }
      me.meet();
    }
  }

  void write(const Worker& me, std::int64_t first, std::int64_t count, std::int64_t channel,
             const Spectra& spectra, const float* data) const {
    const TensorDesc& to = tiling_.to;
    const std::int64_t blocks = spectra.channels / tiling_.block;
    me.share(count * blocks, [&](std::int64_t i) {
      const std::int64_t tile = i / blocks, c = i % blocks * tiling_.block;
      const Tiling::Place at = tiling_.place(first + tile);
      const Window window{to.h,
                          to.w,
                          at.h,
                          at.w,
                          std::min(tiling_.step_h, to.h - at.h),
                          std::min(tiling_.step_w, to.w - at.w)};
      const std::int64_t plane = to.offset(at.n, channel + c, 0, 0);
      alignas(64) float bias[16] = {};  // lanes past K stay zero
      if (problem_.epilogue.bias)
        std::copy_n(static_cast<const float*>(me.args.bias) + channel + c,
                    std::min(tiling_.block, to.c - channel - c), bias);
      kernels_.output(spectra.at(data, tile, c), me.scratch,
                      static_cast<float*>(me.args.out) + plane, window,
                      {.bias = problem_.epilogue.bias ? bias : nullptr,
                       .residual = problem_.epilogue.residual
                                       ? static_cast<const float*>(me.args.residual) + plane
                                       : nullptr,
                       .relu = problem_.epilogue.relu,
                       .accumulate = problem_.accumulate});
    });
  }

  // DW += X conj(DY) over a block of tiles, as the conjugate of DY conj(X).
  void add_to_filter_spectra(const Worker& me, std::int64_t first, std::int64_t count) const {
    const Spectra x(count, in_.channels), dy(count, out_.channels), dw = gradient();
    float* const x_data = me.memory;
    float* const dy_data = x_data + kernels_.points * in_.point_stride;
    float* const dw_data = dy_data + kernels_.points * out_.point_stride;
    {
      const PhaseScope scope(me.args.phases, 0);
      transform(me, me.args.x, tiling_.from, first, count, false, x, x_data);
      transform(me, me.args.dy, tiling_.to, first, count, true, dy, dy_data);
    }
    me.meet();
    {
      const PhaseScope scope(me.args.phases, 1);
      me.share(kernels_.points, [&](std::int64_t point) {
        kernels_.product({.a = dy_data + point * dy.point_stride,
                          .a_im = dy.im_offset,
                          .a_row = 1,
                          .a_depth = dy.channels,
                          .b = x_data + point * x.point_stride,
                          .b_im = x.im_offset,
                          .b_depth = x.channels,
                          .b_block = tiling_.block,
                          .out = dw_data + point * dw.point_stride,
                          .out_im = dw.im_offset,
                          .out_row = dw.channels,
                          .rows = problem_.k,
                          .depth = count,
                          .blocks = x.channels / tiling_.block,
                          .im_sign = -1,
                          .accumulate = first > 0});
      });
    }
    me.meet();
  }

  void write_filter_gradient(const Worker& me) const {
    const PhaseScope scope(me.args.phases, 2);
    const Spectra dw = gradient();
    const float* const data = me.memory + kernels_.points * (in_.point_stride + out_.point_stride);
    const std::int64_t blocks = dw.channels / tiling_.block, taps = problem_.r * problem_.s;
    const float scale = 1.f / static_cast<float>(tile_ * tile_);
    float* const plane = me.scratch + kernels_.scratch;
    me.share(problem_.k * blocks, [&](std::int64_t i) {
      const std::int64_t k = i / blocks, c = i % blocks * tiling_.block;
      kernels_.output(dw.at(data, k, c), me.scratch, plane,
                      {problem_.r, problem_.s, 0, 0, problem_.r, problem_.s}, {});
      float* const to = static_cast<float*>(me.args.out) + (k * problem_.c + c) * taps;
      for (std::int64_t lane = 0; lane < std::min(tiling_.block, problem_.c - c); ++lane)
        for (std::int64_t t = 0; t < taps; ++t) {
          const float value = scale * plane[t * tiling_.block + lane];
          float& at = to[lane * taps + t];
          at = problem_.accumulate ? at + value : value;
        }
    });
  }

  const ConvProblem problem_;
  const TileKernels& kernels_;
  const Tiling tiling_;
  Device& device_;
  const int threads_;
  const std::int64_t tile_, tiles_;  // tile's side; tiles in a block
  const bool shared_, filter_pass_;
  Spectra in_, out_;
  std::int64_t out_chunk_ = 0;  // output channels worked on at a time
};

// FLOPs of the codelets for one channel: butterflies with a twiddle are six fused multiply-adds,
// the others four additions.
double transform_flops(double n) {
  return n == 1 ? 0 : 2 * transform_flops(n / 2) + (n == 2 ? 4 : 8 + 12 * (n / 2 - 2));
}
double real_transform_flops(double n) {
  return n == 1 ? 0 : 2 * real_transform_flops(n / 2) + 2 + (n < 8 ? 0 : 12 * (n / 4 - 1));
}
double tile_flops(double n) {
  return (n + 2) * real_transform_flops(n) + (n / 2 - 1) * transform_flops(n);
}

class FftTiled final : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "fft_tiled",
                               .version = 1,
                               .device = DeviceKind::cpu,
                               .origin = Origin::own,
                               .summary = "FFT of 16x16 or 32x32 tiles, fused in cache blocks",
                               .libraries = {}};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    if (p.dtype != DType::f32) return Refusal{fmt::format("needs f32, has {}", to_string(p.dtype))};
    if (p.stride_h != 1 || p.stride_w != 1)
      return Refusal{fmt::format("needs stride 1, has {}x{}", p.stride_h, p.stride_w)};
    if (p.dilation_h != 1 || p.dilation_w != 1)
      return Refusal{fmt::format("needs dilation 1, has {}x{}", p.dilation_h, p.dilation_w)};
    if (p.groups != 1) return Refusal{fmt::format("needs 1 group, has {}", p.groups)};
    if (std::max(p.r, p.s) > largest_filter(32))
      return Refusal{fmt::format("needs a filter of at most {0}x{0}, has {1}x{2}",
                                 largest_filter(32), p.r, p.s)};
    const Layout layout = device.info().vector_bytes == 64 ? Layout::nchw16c : Layout::nchw8c;
    for (const Layout has : {p.x_layout, p.y_layout})
      if (has != layout)
        return Refusal{fmt::format("needs {}, has {}", to_string(layout), to_string(has))};
    return {};
  }

  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    struct Choice {
      Config config;
      double cost;
    };
    std::vector<Choice> choices;
    for (const std::int64_t tile : {16, 32}) {
      if (std::max(p.r, p.s) > largest_filter(tile)) continue;
      for (const std::int64_t shared : {1, 0}) {
        if (shared == 0 && p.pass == Pass::backward_filter) continue;  // one sum over all tiles
        const Config config{
            {"tile", tile}, {"shared", shared}, {"block", block(p, tile, shared == 1, device)}};
        choices.push_back({config, seconds(work(p, config, device))});
      }
    }
    std::stable_sort(choices.begin(), choices.end(),
                     [](const Choice& a, const Choice& b) { return a.cost < b.cost; });
    std::vector<Config> configs;
    for (Choice& choice : choices) configs.push_back(std::move(choice.config));
    return configs;
  }

  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  WorkEstimate work(const ConvProblem& p, const Config& config, Device&) const override {
    const std::int64_t tile = config.get("tile");
    const Tiling tiling(p, tile);
    const bool filter_pass = p.pass == Pass::backward_filter;
    const double points = double(HWY_DYNAMIC_DISPATCH(Kernels)(tile).points);
    const double tiles = double(tiling.tiles), spectrum = points * 2 * 4;  // bytes
    const double from = double(tiling.from.padded_c()), to = double(tiling.to.padded_c());
    const double tiles_per_block = double(std::min(config.get("block"), tiling.tiles));
    const double blocks = std::ceil(tiles / tiles_per_block);
    const double in_bytes = 4.0 * double(tiling.from.elements());
    const double out_bytes = 4.0 * double(tiling.to.elements());
    const double filters =
        spectrum * double(filter_pass ? p.k : tiling.from.c) * (filter_pass ? from : to);
    // Spectra of a block cost traffic only when L2 does not hold them.
    const bool cached = config.get("shared") == 0;
    const double spill = cached ? 0 : spectrum * tiles;
    constexpr double transform_efficiency = 0.4, product_efficiency = 0.75;
    const double one = tile_flops(double(tile));
    WorkEstimate estimate;
    if (filter_pass) {
      estimate.phases.push_back({"input_transform", tiles * (from + to) * one, in_bytes + out_bytes,
                                 spill * (from + to), transform_efficiency});
      estimate.phases.push_back({"product", 8 * points * tiles * double(p.k) * from,
                                 spill * (from + to) + (blocks - 1) * filters, blocks * filters,
                                 product_efficiency});
      estimate.phases.push_back({"output_transform", double(p.k) * from * one, filters,
                                 double(p.filter_bytes()), transform_efficiency});
    } else {
      estimate.phases.push_back(
          {"input_transform", tiles * from * one, in_bytes, spill * from, transform_efficiency});
      estimate.phases.push_back({"product", 8 * points * tiles * double(tiling.from.c) * to,
                                 spill * from + blocks * filters, spill * to, product_efficiency});
      estimate.phases.push_back(
          {"output_transform", tiles * to * one, spill * to, out_bytes, transform_efficiency});
    }
    return estimate;
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    const std::int64_t tile = config.get("tile"), shared = config.get("shared");
    if ((tile != 16 && tile != 32) || std::max(p.r, p.s) > largest_filter(tile))
      throw InputError(fmt::format("fft_tiled: tile={}: expected 16 for filters up to {}x{}, or 32",
                                   tile, largest_filter(16), largest_filter(16)));
    if (shared != 1 && (shared != 0 || p.pass == Pass::backward_filter))
      throw InputError(fmt::format("fft_tiled: shared={}: expected 1, or 0 outside bwd_w", shared));
    if (config.get("block") < 1)
      throw InputError(fmt::format("fft_tiled: block={}: expected 1 or more", config.get("block")));
    return std::make_unique<FftTiledPlan>(p, config, device);
  }

 private:
  // At least half of a tile is output.
  static std::int64_t largest_filter(std::int64_t tile) { return tile / 2 + 1; }

  // Tiles in a block.
  static std::int64_t block(const ConvProblem& p, std::int64_t tile, bool shared, Device& device) {
    const Tiling tiling(p, tile);
    const std::int64_t points = HWY_DYNAMIC_DISPATCH(Kernels)(tile).points;
    const std::int64_t from = points * tiling.from.padded_c() * 2 * 4;
    const std::int64_t to = points * tiling.to.padded_c() * 2 * 4;
    constexpr std::int64_t shared_bytes = 128 << 20;
    const std::int64_t fits =
        shared ? shared_bytes / (from + to) : device.info().l2_bytes / 3 / from;
    const std::int64_t most = std::clamp<std::int64_t>(
        fits, 1, shared ? tiling.tiles : ceil_div(tiling.tiles, device.info().threads));
    // As few blocks as that allows, of equal size.
    return ceil_div(tiling.tiles, ceil_div(tiling.tiles, most));
  }

  // A rough machine, only to order the candidates: FLOPs per second against bytes per second.
  static double seconds(const WorkEstimate& estimate) {
    double sum = 0;
    for (const PhaseWork& phase : estimate.phases)
      sum +=
          phase.flops / phase.efficiency / 300e9 + (phase.bytes_read + phase.bytes_written) / 40e9;
    return sum;
  }
};

}  // namespace

std::unique_ptr<ConvAlgo> make_fft_tiled() { return std::make_unique<FftTiled>(); }

}  // namespace convlab::cpu
#endif  // HWY_ONCE
