// forward and backward_data of depthwise: see depthwise.cpp for the derivation.
#include <hwy/cache_control.h>

#include <algorithm>
#include <type_traits>

#include "kernels_cpu/depthwise/rows.h"

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
  OutputEpilogue<T> out;  // at the first pixel of output row `first_row`
  std::int64_t first_row = 0;
};

// This tile's share of the input that the next output row is the first to read, into L2.
template <class T>
HWY_NOINLINE void PrefetchColumns(const Depthwise& d, const PixelTile& tile, const T* in,
                                  std::int64_t row) {
  const Range rows = d.rows_ahead[std::size_t(row)];
  for (std::int64_t in_row = rows.begin; in_row < rows.end; ++in_row)
    for (std::int64_t column = tile.ahead.begin; column < tile.ahead.end; ++column)
      __builtin_prefetch(in + (in_row * d.in.width + column) * d.in.pixel, 0, 2);
}

// The tile in some output rows.
template <int kPixels, class T, class In, class Out>
HWY_NOINLINE void TileRows(const Depthwise& d, const PixelTile& tile, const TileOperands<T>& data,
                           Range rows, const In& read, const Out& access) {
  const TapChunk* const begin = d.chunks.data() + tile.chunks_begin;
  const TapChunk* const end = d.chunks.data() + tile.chunks_end;
  const OutputEpilogue<T>& out = data.out;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    if (d.prefetch) PrefetchColumns(d, tile, data.in, row);
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
    const std::int64_t at = (row - data.first_row) * d.out.width * d.out.pixel + tile.out;
    const auto for_each = [&](auto&& f) CONVLAB_INLINE_LAMBDA {
      Unrolled<kPixels>([&](auto i) CONVLAB_INLINE_LAMBDA {
        if (i < tile.count) f(sums[i], at + i * d.out_step);
      });
    };
    if (out.addend != nullptr)
      for_each([&](VecOf<T>& sum, std::int64_t to)
                   CONVLAB_INLINE_LAMBDA { sum = hn::Add(sum, access.Load(out.addend + to)); });
    if (out.activation) ClampSums<T>(*out.activation, for_each);
    if (out.non_temporal)
      for_each([&](const VecOf<T>& sum, std::int64_t to)
                   CONVLAB_INLINE_LAMBDA { hn::Stream(sum, TagOf<T>(), out.out + to); });
    else
      for_each([&](const VecOf<T>& sum, std::int64_t to)
                   CONVLAB_INLINE_LAMBDA { access.Store(sum, out.out + to); });
    if (out.activates_stored())
      ActivateStored(*out.activation, out.out + at, std::int64_t(access.template Count<T>()),
                     d.out_step, tile.count);
  }
}

// Some rows and tiles of a vector of channels.
template <class T>
void VectorRows(const Depthwise& d, std::int64_t vector, const TileOperands<T>& data, Range tiles,
                Range rows) {
  WithAccess<T>(d, vector, [&](const auto& read, const auto& access) HWY_ATTR {
    for (Range some{rows.begin, 0}; some.begin < rows.end; some.begin = some.end) {
      some.end = std::min(some.begin + d.tile_rows, rows.end);
      for (std::int64_t i = tiles.begin; i < tiles.end; ++i) {
        const PixelTile& tile = d.tiles[std::size_t(i)];
        tile.few ? TileRows<kFewPixels>(d, tile, data, some, read, access)
                 : TileRows<kTilePixels>(d, tile, data, some, read, access);
      }
    }
  });
}

// The biases of a vector of channels, zero where there are none.
template <class T>
HWY_INLINE void CopyBias(const Depthwise& d, const T* bias, std::int64_t vector,
                         T (&to)[kLanesOf<T>]) {
  const std::int64_t channel = vector * d.lanes;
  if (bias != nullptr && channel < d.problem.k)
    std::copy_n(bias + channel, std::min(d.lanes, d.problem.k - channel), to);
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
      T bias[kLanesOf<T>] = {};
      CopyBias(d, out.bias, v, bias);
      const TileOperands<T> data{in + image * d.in.image + InAt<T>(d, v),
                                 static_cast<const T*>(args.w) + v * d.filter_vector(), bias,
                                 out.at(image * d.out.image + OutAt<T>(d, v), 0)};
      VectorRows(d, v, data, {span * d.span, std::min(tiles, (span + 1) * d.span)},
                 {row, row + next - unit});
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

void Rows(const Depthwise& d, const DepthwiseRows& job, Range vectors) {
  ChannelView out = d.out;
  out.block = job.out_block;
  for (std::int64_t v = vectors.begin; v < vectors.end; ++v) {
    float bias[kLanesOf<float>] = {};
    CopyBias(d, job.bias, v, bias);
    const TileOperands<float> data{
        .in = job.in + InAt<float>(d, v),
        .filter = job.filter + v * d.filter_vector(),
        .bias = bias,
        .out = {.out = job.out + ChannelAt(out, v * d.lanes), .activation = job.activation},
        .first_row = job.rows.begin};
    VectorRows(d, v, data, {0, std::int64_t(d.tiles.size())}, job.rows);
  }
}

DepthwiseTiles Tiles() { return {kTilePixels, kFewPixels, kChunkTaps, kFilterTaps, kFilterSums}; }

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(PixelsOf);
HWY_EXPORT(Rows);
HWY_EXPORT(Tiles);

void depthwise_pixels(const Depthwise& d, const ConvArgs& args, bool non_temporal,
                      std::int64_t thread, std::int64_t threads) {
  HWY_DYNAMIC_DISPATCH(PixelsOf)(d, args, non_temporal, thread, threads);
}
void depthwise_rows(const Depthwise& d, const DepthwiseRows& job, Range vectors) {
  HWY_DYNAMIC_DISPATCH(Rows)(d, job, vectors);
}
DepthwiseTiles depthwise_tiles() { return HWY_DYNAMIC_DISPATCH(Tiles)(); }

}  // namespace convlab::cpu
#endif  // HWY_ONCE
