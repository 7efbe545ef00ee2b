// Layout conversion, and channels copied from one tensor into another.
#include <algorithm>
#include <cstring>

#include "kernels_cpu/layer_ops.h"
#include "kernels_cpu/layer_work.h"

namespace convlab::cpu {
namespace {

// A tile goes through a buffer [pixel][channel] that stays in L1, so that both tensors are walked
// along their own contiguous dimension.
constexpr std::int64_t tile_channels = 16;
constexpr std::int64_t tile_pixels = 64;

// f(pointer to the first of `count` channels that lie side by side, their place in the tile,
// count) for the channels [c, c + channels) at one pixel.
template <class T, class F>
void for_each_run(T* data, const Planes& planes, std::int64_t n, std::int64_t c,
                  std::int64_t channels, std::int64_t pixel, F f) {
  for (std::int64_t i = 0, count; i < channels; i += count) {
    count = std::min(planes.lanes - (c + i) % planes.lanes, channels - i);
    f(data + planes.offset(n, c + i, pixel), i, count);
  }
}

struct Region {
  std::int64_t n, pixel, pixels;
};

template <class T>
void read_tile(const T* from, const Planes& planes, const Region& r, std::int64_t c,
               std::int64_t channels, T* tile) {
  for_each_run(from, planes, r.n, c, channels, r.pixel,
               [&](const T* source, std::int64_t i, std::int64_t count) {
                 for (std::int64_t p = 0; p < r.pixels; ++p)
                   for (std::int64_t lane = 0; lane < count; ++lane)
                     tile[p * tile_channels + i + lane] = source[p * planes.lanes + lane];
               });
}

template <class T>
void write_tile(T* to, const Planes& planes, const Region& r, std::int64_t c, std::int64_t channels,
                const T* tile) {
  for_each_run(to, planes, r.n, c, channels, r.pixel,
               [&](T* target, std::int64_t i, std::int64_t count) {
                 for (std::int64_t p = 0; p < r.pixels; ++p)
                   for (std::int64_t lane = 0; lane < count; ++lane)
                     target[p * planes.lanes + lane] = tile[p * tile_channels + i + lane];
               });
}

template <class T>
void copy_tiles(const ChannelCopy& copy, const T* from, T* to, int threads) {
  const Planes source(copy.from), target(copy.to);
  // The last channel brings the padding lanes with it, as zero.
  const bool last = copy.to_channel + copy.channels == copy.to.c;
  const std::int64_t written = last ? target.padded_channels() - copy.to_channel : copy.channels;
  const std::int64_t pixels = source.pixels;
#pragma omp parallel for collapse(3) num_threads(threads) \
    schedule(static) if (copy.from.n * written * pixels > serial_elements)
  for (std::int64_t n = 0; n < copy.from.n; ++n)
    for (std::int64_t c = 0; c < written; c += tile_channels)
      for (std::int64_t p = 0; p < pixels; p += tile_pixels) {
        T tile[tile_pixels * tile_channels] = {};
        const Region region{n, p, std::min(tile_pixels, pixels - p)};
        read_tile(from, source, region, copy.from_channel + c,
                  std::clamp<std::int64_t>(copy.channels - c, 0, tile_channels), tile);
        write_tile(to, target, region, copy.to_channel + c, std::min(tile_channels, written - c),
                   tile);
      }
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

void check(const ChannelCopy& copy) {
  const auto inside = [&](std::string_view which, const TensorDesc& t, std::int64_t first) {
    if (first < 0 || copy.channels < 1 || first + copy.channels > t.c)
      throw InputError(fmt::format("cannot copy {} channels from channel {} on: {} has {}",
                                   copy.channels, first, which, t.c));
  };
  inside("the source", copy.from, copy.from_channel);
  inside("the target", copy.to, copy.to_channel);
  if (copy.from.n != copy.to.n || copy.from.h != copy.to.h || copy.from.w != copy.to.w)
    throw InputError(fmt::format("cannot copy channels of {}x{}x{} into {}x{}x{} (N, H, W)",
                                 copy.from.n, copy.from.h, copy.from.w, copy.to.n, copy.to.h,
                                 copy.to.w));
}

}  // namespace

void CpuLayerOps::zero(Span bytes, Stream&) const {
  parallel_chunks(std::int64_t(bytes.size()), threads_, [&](std::int64_t begin, std::int64_t end) {
    std::memset(bytes.data() + begin, 0, std::size_t(end - begin));
  });
}

void CpuLayerOps::copy_channels(DType dtype, const ChannelCopy& copy, const void* from, void* to,
                                Stream&) const {
  require_f32_or_f64(dtype, "copy_channels");
  check(copy);
  if (whole_blocks(copy)) return copy_blocks(dtype, copy, from, to, threads_);
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    copy_tiles<T>(copy, static_cast<const T*>(from), static_cast<T*>(to), threads_);
  });
}

void CpuLayerOps::convert_layout(DType dtype, const TensorDesc& from_desc, const void* from,
                                 const TensorDesc& to_desc, void* to, Stream& stream) const {
  copy_channels(dtype, {from_desc, to_desc, 0, 0, from_desc.c}, from, to, stream);
}

}  // namespace convlab::cpu
