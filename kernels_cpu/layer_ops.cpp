#include "kernels_cpu/layer_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "conv/error.h"

namespace convlab::cpu {
namespace {

// Every layout is a channel-blocked one, index (n, c/B, hw, c%B): B = 1 is NCHW, B = C is NHWC.
template <class T>
struct Blocked {
  T* data;
  std::int64_t block, padded_c, pixels;

  Blocked(const TensorDesc& desc, T* data)
      : data(data),
        block(desc.layout == Layout::nhwc ? desc.c : channel_block(desc.layout)),
        padded_c(desc.padded_c()),
        pixels(desc.h * desc.w) {}

  T* at(std::int64_t n, std::int64_t c, std::int64_t pixel) const {
    return data + n * padded_c * pixels + (c / block) * block * pixels + pixel * block + c % block;
  }
};

// One tile goes through a buffer [pixel][channel] that stays in L1, so that both tensors are
// walked along their own contiguous dimension. 16 channels never straddle a block boundary of
// either tensor, except that an nchw8c tile covers two blocks.
constexpr std::int64_t tile_channels = 16;
constexpr std::int64_t tile_pixels = 64;

template <class T>
void read_tile(const Blocked<const T>& from, std::int64_t n, std::int64_t c, std::int64_t channels,
               std::int64_t pixel, std::int64_t pixels, T* tile) {
  const std::int64_t run = std::min(from.block, channels);  // contiguous channels
  for (std::int64_t i = 0; i < channels; i += run) {
    const T* const source = from.at(n, c + i, pixel);
    const std::int64_t count = std::min(run, channels - i);
    for (std::int64_t j = 0; j < pixels; ++j)
      for (std::int64_t lane = 0; lane < count; ++lane)
        tile[j * tile_channels + i + lane] = source[j * from.block + lane];
  }
}

template <class T>
void write_tile(const Blocked<T>& to, std::int64_t n, std::int64_t c, std::int64_t channels,
                std::int64_t pixel, std::int64_t pixels, const T* tile) {
  const std::int64_t run = std::min(to.block, channels);
  for (std::int64_t i = 0; i < channels; i += run) {
    T* const target = to.at(n, c + i, pixel);
    const std::int64_t count = std::min(run, channels - i);
    for (std::int64_t j = 0; j < pixels; ++j)
      for (std::int64_t lane = 0; lane < count; ++lane)
        target[j * to.block + lane] = tile[j * tile_channels + i + lane];
  }
}

template <class T>
void convert(const TensorDesc& from_desc, const void* from_data, const TensorDesc& to_desc,
             void* to_data, int threads) {
  const Blocked<const T> from(from_desc, static_cast<const T*>(from_data));
  const Blocked<T> to(to_desc, static_cast<T*>(to_data));
  const std::int64_t c = from_desc.c, padded_c = to_desc.padded_c(), pixels = to.pixels;
#pragma omp parallel for collapse(3) num_threads(threads) schedule(static)
  for (std::int64_t n = 0; n < from_desc.n; ++n)
    for (std::int64_t c0 = 0; c0 < padded_c; c0 += tile_channels)
      for (std::int64_t p0 = 0; p0 < pixels; p0 += tile_pixels) {
        T tile[tile_pixels * tile_channels] = {};  // channels past C stay zero
        const std::int64_t count = std::min(tile_pixels, pixels - p0);
        read_tile(from, n, c0, std::clamp<std::int64_t>(c - c0, 0, tile_channels), p0, count, tile);
        write_tile(to, n, c0, std::min(tile_channels, padded_c - c0), p0, count, tile);
      }
}

}  // namespace

void CpuLayerOps::convert_layout(DType dtype, const TensorDesc& from_desc, const void* from,
                                 const TensorDesc& to_desc, void* to, Stream&) const {
  if (dtype == DType::f32)
    convert<float>(from_desc, from, to_desc, to, threads_);
  else if (dtype == DType::f64)
    convert<double>(from_desc, from, to_desc, to, threads_);
  else
    throw InputError(
        fmt::format("convert_layout on the CPU takes f32 and f64, not {}", to_string(dtype)));
}

}  // namespace convlab::cpu
