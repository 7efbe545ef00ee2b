// Dropout whose random bits are a function of the element's index, not of the order of drawing.
//
// Philox4x32-10 (Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011):
// ten rounds of two 32 x 32 -> 64 bit products over a 128-bit counter. Counter (NCHW index, draw),
// key seed, first word of the result.
#include "kernels_cuda/layers/layer_ops.h"
#include "kernels_cuda/layers/layer_work.h"

namespace convlab::cuda {
namespace {

__device__ __forceinline__ std::uint32_t philox(std::uint64_t index, std::uint64_t draw,
                                                std::uint64_t seed) {
  auto c0 = std::uint32_t(index), c1 = std::uint32_t(index >> 32), c2 = std::uint32_t(draw),
       c3 = std::uint32_t(draw >> 32);
  auto key0 = std::uint32_t(seed), key1 = std::uint32_t(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * c0;
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * c2;
    c0 = std::uint32_t(product1 >> 32) ^ c1 ^ key0;
    c2 = std::uint32_t(product0 >> 32) ^ c3 ^ key1;
    c1 = std::uint32_t(product1);
    c3 = std::uint32_t(product0);
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return c0;
}

template <class T>
struct Drop {
  T scale;
  std::uint64_t threshold;  // p 2^32
  std::uint64_t seed, draw;
  // NCHW index of element (outer, middle, inner), or the image's number: start, and the sum of each
  // times its step.
  std::int64_t start, outer_step = 0, middle_step = 0, inner_step = 1;
};

template <class T, int V>
__global__ void drop(Drop<T> d, Rows rows, const T* from, T* to) {
  for_each_in_rows(rows, [&](std::int64_t outer, std::int64_t middle, std::int64_t i) {
    const std::int64_t at = ((outer * rows.middle + middle) * rows.inner + i) * V;
    std::int64_t index =
        d.start + outer * d.outer_step + middle * d.middle_step + i * V * d.inner_step;
    auto values = load<V>(from + at);
    for (int k = 0; k < V; ++k, index += d.inner_step) {
      const bool dropped = philox(std::uint64_t(index), d.draw, d.seed) < d.threshold;
      values.v[k] = dropped ? T(0) : values.v[k] * d.scale;
    }
    store(values, to + at);
  });
}

}  // namespace

void CudaLayerOps::dropout(DType dtype, const DropoutDesc& desc, const void* from, void* to,
                           Stream& stream) const {
  validate(dtype, "dropout");
  validate(desc);
  const TensorDesc& x = desc.x;
  require_plain(x, "dropout");
  const std::int64_t pixels = x.h * x.w;
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    Drop<T> d{T(1 / (1 - desc.p)), std::uint64_t(desc.p * 4294967296.0), desc.seed, desc.draw,
              desc.first_image * x.c * pixels};
    Rows rows{1, 1, x.elements()};  // memory order is NCHW order
    if (desc.whole_images) {
      rows = {x.n, 1, x.elements() / x.n};
      d.start = desc.first_image, d.outer_step = 1, d.inner_step = 0;
    } else if (x.layout == Layout::nhwc && pixels > 1) {
      rows = {x.n, pixels, x.c};
      d.outer_step = x.c * pixels, d.middle_step = 1, d.inner_step = pixels;
    }
    with_width<T>(aligned(from, to) && rows.inner % whole_pack<T> == 0, [&](auto width) {
      constexpr int v = decltype(width)::value;
      rows.inner /= v;
      const RowLaunch shape = row_launch(rows, multiprocessors_);
      launch(drop<T, v>, shape.grid, shape.block, 0, stream, d, rows, static_cast<const T*>(from),
             static_cast<T*>(to));
    });
  });
}

}  // namespace convlab::cuda
