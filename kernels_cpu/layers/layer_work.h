// Shared by the layer operations' files outside their vector code: splitting a tensor among
// threads. Pieces never depend on the number of threads, and neither do results.
#pragma once

#include <algorithm>
#include <cstdint>

#include "conv/types/arithmetic_type.h"

namespace convlab::cpu {

// f(T()) for the C++ type in which elements of a DType are computed.
template <class F>
void with_type(DType dtype, F f) {
  if (dtype == DType::f64)
    f(double());
  else
    f(float());
}

// Waking the other threads costs some microseconds, in which one thread handles about this many
// elements.
constexpr std::int64_t serial_elements = 1 << 14;

// f(begin, end) over [0, count) in chunks that stay in L1.
template <class F>
void parallel_chunks(std::int64_t count, int threads, F f) {
  constexpr std::int64_t chunk = 1 << 12;
#pragma omp parallel for num_threads(threads) schedule(static) if (count > serial_elements)
  for (std::int64_t begin = 0; begin < count; begin += chunk)
    f(begin, std::min(begin + chunk, count));
}

// Channels that lie side by side at one pixel.
constexpr std::int64_t lanes_of(const TensorDesc& t) {
  return t.layout == Layout::nhwc ? t.c : channel_block(t.layout);
}

// A tensor as index (image, block, pixel, lane), where block * lanes + lane is the channel.
struct Planes {
  std::int64_t images, blocks, pixels, lanes, channels;

  explicit Planes(const TensorDesc& t)
      : images(t.n),
        blocks(t.padded_c() / lanes_of(t)),
        pixels(t.h * t.w),
        lanes(lanes_of(t)),
        channels(t.c) {
    // One pixel: every layout has all channels side by side.
    if (pixels == 1) lanes *= blocks, blocks = 1;
  }

  std::int64_t elements() const { return images * blocks * pixels * lanes; }
  std::int64_t padded_channels() const { return blocks * lanes; }
  std::int64_t offset(std::int64_t image, std::int64_t channel, std::int64_t pixel) const {
    return ((image * blocks + channel / lanes) * pixels + pixel) * lanes + channel % lanes;
  }
};

}  // namespace convlab::cpu
