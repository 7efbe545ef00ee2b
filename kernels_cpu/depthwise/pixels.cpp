// forward and backward_data of depthwise: see depthwise.cpp for the derivation.
#include <hwy/cache_control.h>

#include <algorithm>
#include <type_traits>

#include "kernels_cpu/depthwise/depthwise.h"
#include "kernels_cpu/device/range.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/depthwise/pixels.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/depthwise/tiles-inl.h"
#include "kernels_cpu/simd/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// Each column is loaded once, and multiplied by all taps through which a pixel reads it. `x` points
// to column 0.
template <int kPixels, int kTaps, bool kAllColumns, class T, class Access>
HWY_INLINE void AddChunk(const T* x, std::int64_t step, const T* w, std::uint32_t columns,
                         const Access& access, VecOf<T> (&sums)[kPixels]) {
  VecOf<T> filter[kTaps];
  Unrolled<kTaps>([&](auto t) CONVLAB_INLINE_LAMBDA {
    filter[t] = hn::LoadU(TagOf<T>(), w + t * kLanesOf<T>);
    KeepInRegister(filter[t]);
  });
  Unrolled<kPixels + kTaps - 1>([&](auto column) CONVLAB_INLINE_LAMBDA {
    if (kAllColumns || (columns & (1u << column)) != 0) {
      VecOf<T> v = access.Load(x);
      KeepInRegister(v);
      Unrolled<kTaps>([&](auto t) CONVLAB_INLINE_LAMBDA {
        constexpr int kPixel = column.value - t.value;
        if constexpr (kPixel >= 0 && kPixel < kPixels)
          sums[kPixel] = hn::MulAdd(v, filter[t], sums[kPixel]);
      });
    }
    x += step;
    HideOrigin(x);
  });
}

// What a tile reads and writes for one vector of channels.
template <class T>
struct TileOperands {
  const T* in;            // at the image's first pixel
  const T* filter;        // packed
  const T* bias;          // a vector, zero without biases
  OutputEpilogue<T> out;  // at the output's first pixel
};

// The tile in some output rows.
template <int kPixels, class T, class In, class Out>
HWY_NOINLINE void TileRows(const Depthwise& d, const PixelTile& tile, const TileOperands<T>& data,
                           Range rows, const In& read, const Out& access) {
  const TapChunk* const begin = d.chunks.data() + tile.chunks_begin;
  const TapChunk* const end = d.chunks.data() + tile.chunks_end;
  const OutputEpilogue<T>& out = data.out;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    VecOf<T> sums[kPixels];
    Unrolled<kPixels>([&](auto i)
                          CONVLAB_INLINE_LAMBDA { sums[i] = hn::LoadU(TagOf<T>(), data.bias); });
    const RowTap* tap = d.row_taps.data() + d.row_begin[std::size_t(row)];
    const RowTap* const last = d.row_taps.data() + d.row_begin[std::size_t(row) + 1];
    for (; tap < last; ++tap)
      for (const TapChunk* chunk = begin; chunk < end; ++chunk) {
        const T* const x = data.in + tap->in + chunk->in;
        const T* const w = data.filter + tap->filter + chunk->slot * kLanesOf<T>;
        WithConstant<kChunkTaps>(chunk->taps, [&](auto taps) CONVLAB_INLINE_LAMBDA {
          if (std::is_same_v<In, WholeVector> && chunk->all_columns)
            AddChunk<kPixels, taps, true>(x, d.in_step, w, 0, read, sums);
          else
            AddChunk<kPixels, taps, false>(x, d.in_step, w, chunk->columns, read, sums);
        });
      }
    const std::int64_t at = row * d.out.width * d.out.pixel + tile.out;
    const auto for_each = [&](auto&& f) CONVLAB_INLINE_LAMBDA {
      Unrolled<kPixels>([&](auto i) CONVLAB_INLINE_LAMBDA {
        if (i < tile.count) f(sums[i], at + i * d.out_step);
      });
    };
    if (out.addend != nullptr)
      for_each([&](VecOf<T>& sum, std::int64_t to)
                   CONVLAB_INLINE_LAMBDA { sum = hn::Add(sum, access.Load(out.addend + to)); });
    if (out.relu)
      for_each([&](VecOf<T>& sum, std::int64_t) CONVLAB_INLINE_LAMBDA { sum = Relu(sum); });
    if (out.non_temporal)
      for_each([&](const VecOf<T>& sum, std::int64_t to)
                   CONVLAB_INLINE_LAMBDA { hn::Stream(sum, TagOf<T>(), out.out + to); });
    else
      for_each([&](const VecOf<T>& sum, std::int64_t to)
                   CONVLAB_INLINE_LAMBDA { access.Store(sum, out.out + to); });
  }
}

template <class T>
void Pixels(const Depthwise& d, const ConvArgs& args, bool non_temporal, std::int64_t thread,
            std::int64_t threads) {
  const ConvProblem& p = d.problem;
  const T* const in = static_cast<const T*>(p.pass == Pass::forward ? args.x : args.dy);
  const OutputEpilogue<T> out = output_epilogue<T>(p, args, non_temporal);
  const auto tiles = std::int64_t(d.tiles.size());
  const std::int64_t height = d.out.height, spans = ceil_div(tiles, d.span);
  const std::int64_t groups = ceil_div(d.vectors, d.group);
  const Range units = share(p.n * groups * spans * height, thread, threads);
  for (std::int64_t unit = units.begin, next; unit < units.end; unit = next) {
    const std::int64_t row = unit % height, span = unit / height % spans;
    const std::int64_t group = unit / height / spans % groups;
    const std::int64_t image = unit / height / spans / groups;
    next = std::min({units.end, unit + d.band, unit + height - row});
    for (std::int64_t v = group * d.group; v < std::min(d.vectors, (group + 1) * d.group); ++v) {
      const std::int64_t channel = v * d.lanes;
      T bias[kLanesOf<T>] = {};
      if (out.bias != nullptr && channel < p.k)
        std::copy_n(out.bias + channel, std::min(d.lanes, p.k - channel), bias);
      const TileOperands<T> data{in + image * d.in.image + InAt<T>(d, v),
                                 static_cast<const T*>(args.w) + v * d.filter_vector(), bias,
                                 out.at(image * d.out.image + OutAt<T>(d, v), 0)};
      WithAccess<T>(d, v, [&](const auto& read, const auto& access) HWY_ATTR {
        for (std::int64_t i = span * d.span; i < std::min(tiles, (span + 1) * d.span); ++i) {
          const PixelTile& tile = d.tiles[std::size_t(i)];
          const Range rows{row, row + next - unit};
          tile.few ? TileRows<kFewPixels>(d, tile, data, rows, read, access)
                   : TileRows<kTilePixels>(d, tile, data, rows, read, access);
        }
      });
    }
  }
  if (non_temporal) hwy::FlushStream();
}

void PixelsOf(const Depthwise& d, const ConvArgs& args, bool non_temporal, std::int64_t thread,
              std::int64_t threads) {
  if (d.problem.dtype == DType::f64)
    Pixels<double>(d, args, non_temporal, thread, threads);
  else
    Pixels<float>(d, args, non_temporal, thread, threads);
}

DepthwiseTiles Tiles() { return {kTilePixels, kFewPixels, kChunkTaps, kFilterTaps, kFilterSums}; }

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(PixelsOf);
HWY_EXPORT(Tiles);

void depthwise_pixels(const Depthwise& d, const ConvArgs& args, bool non_temporal,
                      std::int64_t thread, std::int64_t threads) {
  HWY_DYNAMIC_DISPATCH(PixelsOf)(d, args, non_temporal, thread, threads);
}
DepthwiseTiles depthwise_tiles() { return HWY_DYNAMIC_DISPATCH(Tiles)(); }

}  // namespace convlab::cpu
#endif  // HWY_ONCE
