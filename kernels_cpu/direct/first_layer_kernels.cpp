// forward and backward_filter of direct_first_layer: see first_layer.cpp for the derivation.
#include <hwy/cache_control.h>

#include <algorithm>
#include <cstddef>

#include "kernels_cpu/device/range.h"
#include "kernels_cpu/direct/first_layer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/direct/first_layer_kernels.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/direct/panel-inl.h"
#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/gemm/tile_output-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// Copies the rows of x that one output row reads into the patch and returns their window; `first`
// is the thread's first output row of this image.
float* FillPatch(const FirstLayer& d, const float* image, std::int64_t row, std::int64_t first,
                 float* patch) {
  const ConvProblem& p = d.problem;
  const std::int64_t pitch = d.pitch(), extent = d.extent(), slide = (row - first) % d.slides;
  const std::int64_t left = std::clamp<std::int64_t>(p.pad_w, 0, pitch);
  const std::int64_t right = std::clamp<std::int64_t>(p.w + p.pad_w, left, pitch);
  const std::int64_t channel = p.x_desc().channel_step();
  float* const window = patch + slide * p.stride_h * pitch;
  for (std::int64_t c = 0; c < p.c; ++c)
    for (std::int64_t i = slide == 0 ? 0 : std::max<std::int64_t>(0, extent - p.stride_h);
         i < extent; ++i) {
      float* const to = window + (c * d.height() + i) * pitch;
      const std::int64_t h = row * p.stride_h - p.pad_h + i;
      if (h < 0 || h >= p.h) {
        std::fill_n(to, pitch, 0.f);
        continue;
      }
      const float* const from = image + c * channel + h * p.w - p.pad_w;
      std::fill_n(to, left, 0.f);
      std::copy(from + left, from + right, to + left);
      std::fill(to + right, to + pitch, 0.f);
    }
  return window;
}

struct Neighbours {
  std::int64_t first, step;
  HWY_INLINE std::int64_t operator[](int i) const { return first + i * step; }
};

template <int kRows, int kVecs>
HWY_NOINLINE void ForwardTile(const FirstLayer& d, const float* patch, const float* b,
                              const TileOutput& output, std::int64_t pixel) {
  const ConvProblem& p = d.problem;
  constexpr std::ptrdiff_t kCols = kVecs * kLanes;
  Tile<kRows, kVecs> tile;
  tile.SetZero();
  // One loop over all taps: short ones within each row cost more. With three channels, as most
  // images have, the unrolled loop has no remainder.
  HWY_UNROLL(3)
  for (const std::ptrdiff_t at : d.tap_at) {
    tile.template MultiplyAdd<1>({patch + at, p.stride_w, 0}, {b, kCols, kLanes}, 1);
    b += kCols;
  }
  output.Store(tile, Neighbours{pixel * d.y.pixel, d.y.pixel});
}

void Forward(const FirstLayer& d, const DirectOperands& data, std::int64_t thread,
             std::int64_t threads) {
  const ConvProblem& p = d.problem;
  float* const patch = data.workspace + thread * d.patch_floats();
  const Range rows = share(p.n * p.p, thread, threads);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const std::int64_t image = row / p.p;
    const float* const window =
        FillPatch(d, data.in + image * p.x_desc().image_step(), row % p.p,
                  std::max<std::int64_t>(0, rows.begin - image * p.p), patch);
    for (std::int64_t index = 0; index < d.panels.count(); ++index) {
      const Panel panel(d.panels, index);
      alignas(64) float bias[kTileCols] = {};
      if (data.output.bias != nullptr)
        std::copy_n(data.output.bias + panel.channel, panel.channels, bias);
      const std::int64_t at = image * d.y.image + panel.at(d.y);
      const TileOutput output{data.output.at(at, 0).with_biases(bias), d.y.block};
      const float* const b = data.filter + index * d.taps() * kTileCols;
      ForEachTile(p.q, [&](auto pixels, std::int64_t q) HWY_ATTR {
        const float* const from = window + q * p.stride_w;
        const std::int64_t pixel = row % p.p * p.q + q;
        panel.vecs == 1 ? ForwardTile<pixels.value, 1>(d, from, b, output, pixel)
                        : ForwardTile<pixels.value, kTileVecs>(d, from, b, output, pixel);
      });
    }
  }
  if (data.output.non_temporal) hwy::FlushStream();
}

// kRows taps of dw for one panel, over one output row.
template <int kRows, int kVecs>
HWY_NOINLINE void FilterTile(const FirstLayer& d, const float* patch, const float* dy,
                             std::int64_t tap, bool load, float* sums) {
  const ConvProblem& p = d.problem;
  constexpr std::int64_t kCols = kVecs * kLanes;
  Tile<kRows, kVecs> tile;
  tile.SetZero();
  tile.template MultiplyAddAt<1>(patch, d.tap_at.data() + tap, p.stride_w,
                                 {dy, d.y.pixel, VectorAt(d.y.block, 1)}, p.q);
  tile.ForEach([&](int i, int j, Vec& v) HWY_ATTR {
    float* const to = sums + (tap + i) * kCols + j * kLanes;
    hn::StoreU(load ? hn::Add(v, hn::LoadU(F32(), to)) : v, F32(), to);
  });
}

void Filter(const FirstLayer& d, const DirectOperands& data, std::int64_t thread,
            std::int64_t threads) {
  const ConvProblem& p = d.problem;
  const std::int64_t copy = d.panels.count() * d.taps() * kTileCols;
  float* const sums = data.workspace + thread * copy;
  float* const patch = data.workspace + threads * copy + thread * d.patch_floats();
  const Range rows = share(p.n * p.p, thread, threads);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const std::int64_t image = row / p.p;
    const float* const window =
        FillPatch(d, data.in + image * p.x_desc().image_step(), row % p.p,
                  std::max<std::int64_t>(0, rows.begin - image * p.p), patch);
    for (std::int64_t index = 0; index < d.panels.count(); ++index) {
      const Panel panel(d.panels, index);
      const float* const dy =
          data.dy + image * d.y.image + panel.at(d.y) + row % p.p * p.q * d.y.pixel;
      float* const to = sums + index * d.taps() * kTileCols;
      const bool load = row > rows.begin;
      ForEachTile(d.taps(), [&](auto taps, std::int64_t tap) HWY_ATTR {
        panel.vecs == 1 ? FilterTile<taps.value, 1>(d, window, dy, tap, load, to)
                        : FilterTile<taps.value, kTileVecs>(d, window, dy, tap, load, to);
      });
    }
  }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(Forward);
HWY_EXPORT(Filter);

void first_layer_forward(const FirstLayer& d, const DirectOperands& data, std::int64_t thread,
                         std::int64_t threads) {
  HWY_DYNAMIC_DISPATCH(Forward)(d, data, thread, threads);
}
void first_layer_filter(const FirstLayer& d, const DirectOperands& data, std::int64_t thread,
                        std::int64_t threads) {
  HWY_DYNAMIC_DISPATCH(Filter)(d, data, thread, threads);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
