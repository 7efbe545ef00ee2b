// Local response normalisation across channels. With s_c = k + alpha * sum of x_j^2 over the
// neighbours j of c,
//   y_c  = x_c s_c^-beta
//   dx_c = dy_c s_c^-beta - 2 alpha beta x_c * sum over the j that have c as neighbour of
//          dy_j x_j s_j^(-beta - 1).
// A block takes some channels at some pixels, with a halo of the channels that their sums reach,
// through shared memory: x, and backward the terms of the second sum. Both have the layout of
// memory, a line for each channel (NCHW) or each pixel (NHWC), and a warp reads along a line.
#include <cmath>

#include "kernels_cuda/layers/layer_ops.h"
#include "kernels_cuda/layers/layer_work.h"

namespace convlab::cuda {
namespace {

constexpr int lrn_block = 256, lrn_channels = 64, lrn_pixels = 32;

struct Lrn {
  std::int64_t images, channels, pixels;
  bool inner;  // channels are contiguous, and all pixels are one image's
  int before, after;
  double k, alpha, beta;
  int tile_channels, tile_pixels;
  int halo_before, halo_after;  // channels around a tile

  int around() const { return halo_before + tile_channels + halo_after; }
};

// s^-beta for s > 0. The usual 3/4 is two square roots.
template <class T>
__device__ __forceinline__ T negative_power(T s, double beta) {
  if (beta == 0.75) {
    const T root = std::sqrt(s);
    return T(1) / (root * std::sqrt(root));
  }
  return std::pow(s, T(-beta));
}

// dy is null forward; out is y or dx.
template <class T>
__global__ void __launch_bounds__(lrn_block) lrn_kernel(Lrn lrn, const T* x, const T* dy, T* out) {
  SHARED_DYN(T, tile);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const std::int64_t c0 = std::int64_t(blockIdx.y) * lrn.tile_channels;
  const std::int64_t pixel0 = std::int64_t(blockIdx.x) * lrn.tile_pixels;
  const int pixels = int(min(std::int64_t(lrn.tile_pixels), lrn.pixels - pixel0));
  // Channels count from c0 - halo_before, the tile's first.
  const std::int64_t origin = c0 - lrn.halo_before;
  const int lowest = int(max(std::int64_t(0), -origin));
  const int highest = int(min(std::int64_t(lrn.halo_before + lrn.tile_channels + lrn.halo_after),
                              lrn.channels - origin));
  const int first = lrn.halo_before;
  const int last = int(min(std::int64_t(first + lrn.tile_channels), lrn.channels - origin));
  const int line =
      lrn.inner ? lrn.halo_before + lrn.tile_channels + lrn.halo_after : lrn.tile_pixels;
  const int channel_step = lrn.inner ? 1 : line, pixel_step = lrn.inner ? line : 1;
  T* const terms = tile + std::int64_t(line) *
                              (lrn.inner ? lrn.tile_pixels
                                         : lrn.halo_before + lrn.tile_channels + lrn.halo_after);

  // f(place in the tile, channel, offset in memory) for channels [begin, end) of the tile.
  const auto for_each = [&](std::int64_t image, int begin, int end, auto f) {
    const int lines = lrn.inner ? pixels : end - begin, along = lrn.inner ? end - begin : pixels;
    for (int i = warp; i < lines; i += lrn_block / 32)
      for (int j = lane; j < along; j += 32) {
        const int c = begin + (lrn.inner ? j : i), pixel = lrn.inner ? i : j;
        const std::int64_t offset =
            lrn.inner ? (pixel0 + pixel) * lrn.channels + origin + c
                      : (image * lrn.channels + origin + c) * lrn.pixels + pixel0 + pixel;
        f(c * channel_step + pixel * pixel_step, c, offset);
      }
  };
  const auto s_of = [&](int at, int c) {
    T sum = 0;
    for (int j = max(-lrn.before, lowest - c); j <= min(lrn.after, highest - 1 - c); ++j) {
      const T v = tile[at + j * channel_step];
      sum += v * v;
    }
    return T(lrn.k) + T(lrn.alpha) * sum;
  };

  for (std::int64_t image = blockIdx.z; image < lrn.images; image += gridDim.z) {
    for_each(image, lowest, highest,
             [&](int at, int, std::int64_t offset) { tile[at] = x[offset]; });
    __syncthreads();
    if (dy == nullptr) {
      for_each(image, first, last, [&](int at, int c, std::int64_t offset) {
        out[offset] = tile[at] * negative_power(s_of(at, c), lrn.beta);
      });
    } else {
      for_each(image, max(lowest, first - lrn.after), min(highest, last + lrn.before),
               [&](int at, int c, std::int64_t offset) {
                 const T s = s_of(at, c);
                 terms[at] = dy[offset] * tile[at] * negative_power(s, lrn.beta) / s;
               });
      __syncthreads();
      for_each(image, first, last, [&](int at, int c, std::int64_t offset) {
        T sum = 0;
        for (int j = max(-lrn.after, lowest - c); j <= min(lrn.before, highest - 1 - c); ++j)
          sum += terms[at + j * channel_step];
        out[offset] = dy[offset] * negative_power(s_of(at, c), lrn.beta) -
                      T(2 * lrn.alpha * lrn.beta) * tile[at] * sum;
      });
    }
    __syncthreads();
  }
}

template <class T>
void run_lrn(const LrnDesc& desc, const T* x, const T* dy, T* out, std::int64_t most_bytes,
             Stream& stream) {
  const TensorDesc& t = desc.x;
  Lrn lrn{};
  lrn.images = t.n, lrn.channels = t.c, lrn.pixels = t.h * t.w, lrn.inner = channels_inner(t);
  if (lrn.inner) lrn.pixels *= lrn.images, lrn.images = 1;
  // No neighbour is further away than the number of channels.
  lrn.before = int(std::min(desc.size / 2, t.c - 1));
  lrn.after = int(std::min(desc.size - 1 - desc.size / 2, t.c - 1));
  lrn.k = desc.k, lrn.alpha = desc.alpha, lrn.beta = desc.beta;
  lrn.tile_channels = int(std::min<std::int64_t>(lrn_channels, t.c));
  lrn.halo_before = lrn.before + (dy == nullptr ? 0 : lrn.after);
  lrn.halo_after = lrn.after + (dy == nullptr ? 0 : lrn.before);
  // Wide neighbourhoods leave room for fewer pixels.
  const auto bytes = [&] {
    return std::int64_t(lrn.around()) * lrn.tile_pixels * std::int64_t(sizeof(T)) *
           (dy == nullptr ? 1 : 2);
  };
  for (lrn.tile_pixels = lrn_pixels; bytes() > most_bytes && lrn.tile_pixels > 1;)
    lrn.tile_pixels /= 2;
  if (bytes() > most_bytes)
    throw InputError(
        fmt::format("lrn on CUDA: {} channels around each take {} bytes of shared memory a block, "
                    "the card has {}",
                    desc.size, bytes(), most_bytes));
  constexpr std::int64_t max_y = 65535;
  const dim3 grid(unsigned(ceil_div(lrn.pixels, lrn.tile_pixels)),
                  unsigned(ceil_div(t.c, lrn.tile_channels)),
                  unsigned(std::min(lrn.images, max_y)));
  launch(lrn_kernel<T>, grid, lrn_block, std::size_t(bytes()), stream, lrn, x, dy, out);
}

void run(DType dtype, const LrnDesc& desc, const void* x, const void* dy, void* out,
         std::int64_t most_bytes, Stream& stream) {
  validate(dtype, "lrn");
  validate(desc);
  require_plain(desc.x, "lrn");
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    run_lrn(desc, static_cast<const T*>(x), static_cast<const T*>(dy), static_cast<T*>(out),
            most_bytes, stream);
  });
}

}  // namespace

void CudaLayerOps::lrn_forward(DType dtype, const LrnDesc& desc, const void* x, void* y, Workspace,
                               Stream& stream) const {
  run(dtype, desc, x, nullptr, y, block_shared_bytes_, stream);
}

void CudaLayerOps::lrn_backward(DType dtype, const LrnDesc& desc, const void* x, const void* dy,
                                void* dx, Workspace, Stream& stream) const {
  run(dtype, desc, x, dy, dx, block_shared_bytes_, stream);
}

}  // namespace convlab::cuda
