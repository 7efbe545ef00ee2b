// Channels scaled by a gate. One pass: backward reads x and dy once for both gradients. No two
// threads add to one element, and sums have a fixed order.
#include "kernels_cuda/layers/layer_ops.h"
#include "kernels_cuda/layers/layer_work.h"

namespace convlab::cuda {
namespace {

// A row is a pixel's channels (inner) or one channel's pixels.
template <class T, int V>
__global__ void gate_forward_kernel(Rows rows, bool inner, const T* x, const T* gate, T* y) {
  const std::int64_t channels = inner ? rows.inner * V : rows.middle;
  for_each_in_rows(rows, [&](std::int64_t image, std::int64_t middle, std::int64_t i) {
    const std::int64_t at = ((image * rows.middle + middle) * rows.inner + i) * V;
    auto values = load<V>(x + at);
    if (inner) {
      const auto g = load<V>(gate + image * channels + i * V);
      for (int k = 0; k < V; ++k) values.v[k] *= g.v[k];
    } else {
      const T g = gate[image * channels + middle];
      for (int k = 0; k < V; ++k) values.v[k] *= g;
    }
    store(values, y + at);
  });
}

// One channel's pixels side by side: a warp for each.
template <class T>
__global__ void gate_backward_planes(std::int64_t planes, std::int64_t pixels, const T* x,
                                     const T* gate, const T* dy, T* dx, T* dgate) {
  for (std::int64_t plane = std::int64_t(blockIdx.x) * blockDim.y + threadIdx.y; plane < planes;
       plane += std::int64_t(gridDim.x) * blockDim.y) {
    const T g = gate[plane];
    T sum = 0;
    for (std::int64_t i = threadIdx.x; i < pixels; i += 32) {
      const std::int64_t at = plane * pixels + i;
      const T v = dy[at];
      sum += x[at] * v;
      if (dx != nullptr) dx[at] = g * v;
    }
    sum = warp_sum(sum);
    if (threadIdx.x == 0 && dgate != nullptr) dgate[plane] = sum;
  }
}

// A pixel's channels side by side: a thread sums every eighth pixel of a channel.
constexpr int tile_channels = 32, tile_rows = 8;

template <class T>
__global__ void gate_backward_columns(std::int64_t images, std::int64_t channels,
                                      std::int64_t pixels, const T* x, const T* gate, const T* dy,
                                      T* dx, T* dgate) {
  SHARED(T, sums, [tile_rows][tile_channels]);
  const std::int64_t c = std::int64_t(blockIdx.x) * tile_channels + threadIdx.x;
  for (std::int64_t image = blockIdx.y; image < images; image += gridDim.y) {
    T sum = 0;
    if (c < channels) {
      const T g = gate[image * channels + c];
      for (std::int64_t pixel = threadIdx.y; pixel < pixels; pixel += tile_rows) {
        const std::int64_t at = (image * pixels + pixel) * channels + c;
        const T v = dy[at];
        sum += x[at] * v;
        if (dx != nullptr) dx[at] = g * v;
      }
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && c < channels && dgate != nullptr) {
      for (int row = 1; row < tile_rows; ++row) sum += sums[row][threadIdx.x];
      dgate[image * channels + c] = sum;
    }
    __syncthreads();
  }
}

}  // namespace

void CudaLayerOps::gate_forward(DType dtype, const GateDesc& desc, const void* x, const void* gate,
                                void* y, Stream& stream) const {
  validate(dtype, "gate_forward");
  validate(desc);
  require_plain(desc.x, "gate_forward");
  const bool inner = channels_inner(desc.x);
  Rows rows{desc.x.n, desc.x.c, desc.x.h * desc.x.w};
  if (inner) std::swap(rows.middle, rows.inner);
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    with_width<T>(aligned(x, gate, y) && rows.inner % whole_pack<T> == 0, [&](auto width) {
      constexpr int v = decltype(width)::value;
      rows.inner /= v;
      const RowLaunch shape = row_launch(rows, multiprocessors_);
      launch(gate_forward_kernel<T, v>, shape.grid, shape.block, 0, stream, rows, inner,
             static_cast<const T*>(x), static_cast<const T*>(gate), static_cast<T*>(y));
    });
  });
}

void CudaLayerOps::gate_backward(DType dtype, const GateDesc& desc, const void* x, const void* gate,
                                 const void* dy, void* dx, void* dgate, Stream& stream) const {
  validate(dtype, "gate_backward");
  validate(desc);
  const TensorDesc& t = desc.x;
  require_plain(t, "gate_backward");
  const std::int64_t pixels = t.h * t.w;
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto run = [&](auto kernel, dim3 grid, dim3 block, auto... sizes) {
      launch(kernel, grid, block, 0, stream, sizes..., static_cast<const T*>(x),
             static_cast<const T*>(gate), static_cast<const T*>(dy), static_cast<T*>(dx),
             static_cast<T*>(dgate));
    };
    if (channels_inner(t))
      return run(gate_backward_columns<T>,
                 dim3(unsigned(ceil_div(t.c, tile_channels)),
                      unsigned(std::min<std::int64_t>(t.n, 65535))),
                 dim3(tile_channels, tile_rows), t.n, t.c, pixels);
    constexpr int warps = 8;
    run(gate_backward_planes<T>,
        dim3(unsigned(std::min<std::int64_t>(ceil_div(t.n * t.c, warps), 1 << 20))),
        dim3(32, warps), t.n * t.c, pixels);
  });
}

}  // namespace convlab::cuda
