// Layout conversion, and channels copied from one tensor into another.
//
// Some channels of a run of pixels are a matrix in both tensors, contiguous along its channels or
// along its pixels. If the two differ, 16-byte squares are transposed in registers.
#include <algorithm>
#include <cstring>

#include "kernels_cpu/layers/layer_jobs.h"
#include "kernels_cpu/layers/layer_ops.h"
#include "kernels_cpu/layers/layer_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/layers/channel_copy.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// to[j][i] = from[i][j] for a square of one 16-byte vector a row.
template <class T>
HWY_INLINE void TransposeSquare(const T* from, std::int64_t from_pitch, T* to,
                                std::int64_t to_pitch) {
  const hn::FixedTag<T, 16 / sizeof(T)> d;
  const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + from_pitch);
  if constexpr (sizeof(T) == 8) {
    hn::StoreU(hn::InterleaveLower(d, r0, r1), d, to);
    hn::StoreU(hn::InterleaveUpper(d, r0, r1), d, to + to_pitch);
  } else {
    const auto r2 = hn::LoadU(d, from + 2 * from_pitch), r3 = hn::LoadU(d, from + 3 * from_pitch);
    const hn::FixedTag<double, 2> pairs;
    const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
    const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
    const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
    const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
    const auto store = [&](auto v, std::int64_t row)
                           HWY_ATTR { hn::StoreU(hn::BitCast(d, v), d, to + row * to_pitch); };
    store(hn::InterleaveLower(pairs, low01, low23), 0);
    store(hn::InterleaveUpper(pairs, low01, low23), 1);
    store(hn::InterleaveLower(pairs, high01, high23), 2);
    store(hn::InterleaveUpper(pairs, high01, high23), 3);
  }
}

// Elements of two bytes go one by one.
template <class T>
void Transpose(const T* from, std::int64_t from_pitch, std::int64_t rows, std::int64_t columns,
               T* to, std::int64_t to_pitch) {
  std::int64_t whole_rows = 0, whole_columns = 0;
  if constexpr (sizeof(T) > 2) {
    constexpr std::int64_t square = 16 / sizeof(T);
    whole_rows = rows / square * square;
    whole_columns = columns / square * square;
    for (std::int64_t j = 0; j < whole_columns; j += square)
      for (std::int64_t i = 0; i < whole_rows; i += square)
        TransposeSquare(from + i * from_pitch + j, from_pitch, to + j * to_pitch + i, to_pitch);
  }
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j)
      to[j * to_pitch + i] = from[i * from_pitch + j];
}

// Channel c of pixel p is data[c * channel + p * pixel]; at least one of the strides is 1.
template <class T>
struct TileView {
  T* data;
  std::int64_t channel, pixel;

  TileView(T* tensor, const Planes& planes, std::int64_t n, std::int64_t c, std::int64_t first)
      : data(tensor + planes.offset(n, c, first)),
        channel(planes.lanes == 1 ? planes.pixels : 1),
        pixel(planes.lanes) {}
};

template <class T>
void CopyView(const TileView<const T>& from, const TileView<T>& to, std::int64_t channels,
              std::int64_t pixels) {
  const auto copy = [](const T* source, T* target, std::int64_t count) HWY_ATTR {
    if constexpr (sizeof(T) == 2)  // AVX2 cannot load a part of a vector of these
      std::copy_n(source, count, target);
    else
      ForEachVector<T>(count, [&](auto at, std::int64_t i)
                                  HWY_ATTR { at.Store(at.Load(source + i), target + i); });
  };
  if (from.channel == 1 && to.channel == 1)
    for (std::int64_t p = 0; p < pixels; ++p)
      copy(from.data + p * from.pixel, to.data + p * to.pixel, channels);
  else if (from.pixel == 1 && to.pixel == 1)
    for (std::int64_t c = 0; c < channels; ++c)
      copy(from.data + c * from.channel, to.data + c * to.channel, pixels);
  else if (from.pixel == 1)
    Transpose(from.data, from.channel, channels, pixels, to.data, to.pixel);
  else
    Transpose(from.data, from.pixel, pixels, channels, to.data, to.channel);
}

// The channels from to_channel + c on, `written` at most. Those past the last one copied are the
// target's padding lanes, and become zero.
template <class T>
void RunTile(const ChannelCopy& copy, const T* from, T* to, std::int64_t n, std::int64_t c,
             std::int64_t written, std::int64_t pixel) {
  const Planes source(copy.from), target(copy.to);
  const std::int64_t pixels = std::min(copy_tile_pixels, source.pixels - pixel);
  const std::int64_t end = std::min(c + copy_tile_channels, written);
  // Runs of channels that both tensors have side by side, or one plane after the other.
  const auto side_by_side = [](const Planes& planes, std::int64_t channel) {
    return planes.lanes == 1 ? planes.padded_channels() : planes.lanes - channel % planes.lanes;
  };
  for (std::int64_t count; c < end; c += count) {
    const std::int64_t at = copy.to_channel + c;
    const TileView<T> view(to, target, n, at, pixel);
    if (c >= copy.channels) {
      count = end - c;
      for (std::int64_t p = 0; p < pixels; ++p)
        std::fill_n(view.data + p * view.pixel, count, T(0));
    } else {
      count = std::min({std::min(end, copy.channels) - c, side_by_side(target, at),
                        side_by_side(source, copy.from_channel + c)});
      CopyView<T>({from, source, n, copy.from_channel + c, pixel}, view, count, pixels);
    }
  }
}

// Dispatches by the element's width: that is enough to move elements.
void CopyTile(DType dtype, const ChannelCopy& copy, const void* from, void* to, std::int64_t n,
              std::int64_t c, std::int64_t written, std::int64_t pixel) {
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    RunTile(copy, static_cast<const T*>(from), static_cast<T*>(to), n, c, written, pixel);
  };
  if (size_of(dtype) == 2) return run(std::uint16_t());
  with_type(dtype, run);
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {
namespace {

HWY_EXPORT(CopyTile);

void copy_tiles(DType dtype, const ChannelCopy& copy, const void* from, void* to, int threads) {
  // Copying the last channel also zeroes the padding lanes.
  const bool last = copy.to_channel + copy.channels == copy.to.c;
  const std::int64_t written =
      last ? Planes(copy.to).padded_channels() - copy.to_channel : copy.channels;
  const std::int64_t pixels = copy.from.h * copy.from.w;
  const auto copy_tile = HWY_DYNAMIC_DISPATCH(CopyTile);
#pragma omp parallel for collapse(3) num_threads(threads) \
    schedule(static) if (copy.from.n * written * pixels > serial_elements)
  for (std::int64_t n = 0; n < copy.from.n; ++n)
    for (std::int64_t c = 0; c < written; c += copy_tile_channels)
      for (std::int64_t p = 0; p < pixels; p += copy_tile_pixels)
        copy_tile(dtype, copy, from, to, n, c, written, p);
}

// In one layout, whole blocks of channels are one run of memory in each image.
bool whole_blocks(const ChannelCopy& copy) {
  const Planes source(copy.from), target(copy.to);
  const std::int64_t block = target.lanes;
  const std::int64_t end = copy.to_channel + copy.channels;
  return copy.from.layout == copy.to.layout && source.lanes == block &&
         copy.from_channel % block == 0 && copy.to_channel % block == 0 &&
         (end % block == 0 ||
          (end == copy.to.c && copy.from_channel + copy.channels == copy.from.c));
}

void copy_blocks(DType dtype, const ChannelCopy& copy, const void* from, void* to, int threads) {
  const Planes source(copy.from), target(copy.to);
  const std::int64_t size = size_of(dtype);
  const std::int64_t bytes = round_up(copy.channels, target.lanes) * target.pixels * size;
  constexpr std::int64_t chunk = 1 << 16;
  const std::int64_t chunks = ceil_div(bytes, chunk);
#pragma omp parallel for collapse(2) num_threads(threads) \
    schedule(static) if (copy.from.n * bytes > serial_elements * size)
  for (std::int64_t n = 0; n < copy.from.n; ++n)
    for (std::int64_t i = 0; i < chunks; ++i)
      std::memcpy(
          static_cast<std::byte*>(to) + target.offset(n, copy.to_channel, 0) * size + i * chunk,
          static_cast<const std::byte*>(from) + source.offset(n, copy.from_channel, 0) * size +
              i * chunk,
          std::size_t(std::min(chunk, bytes - i * chunk)));
}

}  // namespace

void CpuLayerOps::zero(Span bytes, Stream&) const {
  parallel_chunks(std::int64_t(bytes.size()), threads_, [&](std::int64_t begin, std::int64_t end) {
    std::memset(bytes.data() + begin, 0, std::size_t(end - begin));
  });
}

void CpuLayerOps::copy_channels(DType dtype, const ChannelCopy& copy, const void* from, void* to,
                                Stream&) const {
  validate(copy);
  if (whole_blocks(copy)) return copy_blocks(dtype, copy, from, to, threads_);
  copy_tiles(dtype, copy, from, to, threads_);
}

void CpuLayerOps::convert_layout(DType dtype, const TensorDesc& from_desc, const void* from,
                                 const TensorDesc& to_desc, void* to, Stream& stream) const {
  copy_channels(dtype, {from_desc, to_desc, 0, 0, from_desc.c}, from, to, stream);
}

}  // namespace convlab::cpu
#endif
