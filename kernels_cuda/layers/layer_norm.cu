// Layer normalisation over the channels of each pixel, the scaling of channels, and PReLU, which
// scales what is not positive. With
// xhat = (x - mean) / deviation of a pixel's channels and g = dy scale[c],
//   dx = (g - mean of g - xhat * mean of (g xhat)) / deviation
//   dscale[c] = sum over pixels of dy xhat, dshift[c] = sum over pixels of dy.
//
// Neighbouring threads take what is contiguous: in NHWC a warp has a pixel's channels and a block
// eight pixels; in NCHW a warp has 32 pixels and the block's eight warps share their channels.
//
// Sums over pixels take two stages, as batch norm's do: a block's, in double, then all blocks' in
// their order. They precede dx, which may be written over dy.
#include <cmath>
#include <type_traits>

#include "kernels_cuda/layers/layer_ops.h"
#include "kernels_cuda/layers/layer_work.h"

namespace convlab::cuda {
namespace {

constexpr int warps = 8;
// Of a multiprocessor: left to itself, the compiler spills to get more.
[[maybe_unused]] constexpr int blocks = 4;
constexpr std::int64_t part_pixels = 256;  // of a block's sums over pixels: 32 a thread at most

// The tensor as pixels of all images.
struct Pixels {
  std::int64_t count, channels;
  std::int64_t plane, image_step;  // pixels of an image, elements of an image
  std::int64_t channel_step;
  bool inner;
  double epsilon;

  explicit Pixels(const TensorDesc& t, double eps = 0)
      : count(t.n * t.h * t.w),
        channels(t.c),
        plane(t.h * t.w),
        image_step(t.c * t.h * t.w),
        channel_step(channels_inner(t) ? 1 : t.h * t.w),
        inner(channels_inner(t)),
        epsilon(eps) {}

  std::int64_t parts() const { return ceil_div(count, part_pixels); }
  template <bool inner>
  __device__ std::int64_t offset(std::int64_t pixel) const {
    if constexpr (inner) return pixel * channels;
    const std::int64_t image = pixel / plane;
    return image * image_step + pixel - image * plane;
  }
};

// A thread's share of a pixel's channels: first, first + step, ...
template <bool inner>
struct Share {
  static constexpr int pixels = inner ? warps : 32;  // of a block
  std::int64_t pixel, offset, first, step;
  bool valid;

  __device__ Share(const Pixels& p, std::int64_t group)
      : pixel(group * pixels + (inner ? threadIdx.y : threadIdx.x)),
        offset(p.template offset<inner>(pixel)),
        first(inner ? threadIdx.x : threadIdx.y),
        step(inner ? 32 : warps),
        valid(pixel < p.count) {}

  template <class F>
  __device__ void for_each(const Pixels& p, F f) const {
    if (!valid) return;
    for (std::int64_t c = first; c < p.channels; c += step) f(c, offset + c * p.channel_step);
  }

  // The sum over the pixel's threads.
  template <class T>
  __device__ T sum(T v) const {
    if constexpr (inner) {
      return warp_sum(v);
    } else {
      SHARED(T, parts, [warps][33]);
      parts[threadIdx.y][threadIdx.x] = v;
      __syncthreads();
      T total = 0;
      for (int i = 0; i < warps; ++i) total += parts[i][threadIdx.x];
      __syncthreads();
      return total;
    }
  }
};

template <class T>
struct Moments {
  T mean, inverse;  // 1 / deviation
};

template <class T, bool inner>
__device__ Moments<T> moments_of(const Pixels& p, const Share<inner>& share, const T* x) {
  T sum = 0;
  share.for_each(p, [&](std::int64_t, std::int64_t i) { sum += x[i]; });
  const T mean = share.sum(sum) / T(p.channels);
  T squares = 0;
  share.for_each(p, [&](std::int64_t, std::int64_t i) {
    const T centred = x[i] - mean;
    squares += centred * centred;
  });
  return {mean, T(1) / std::sqrt(share.sum(squares) / T(p.channels) + T(p.epsilon))};
}

// y is null: writes moments only.
template <class T, bool inner>
__global__ void __launch_bounds__(32 * warps, blocks)
    norm_forward(Pixels p, const T* x, const T* scale, const T* shift, T* y, Moments<T>* moments) {
  const std::int64_t groups = (p.count + Share<inner>::pixels - 1) / Share<inner>::pixels;
  for (std::int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
    const Share<inner> share(p, group);
    const Moments<T> m = moments_of(p, share, x);
    if (y == nullptr) {
      if (share.valid && share.first == 0) moments[share.pixel] = m;
      continue;
    }
    share.for_each(p, [&](std::int64_t c, std::int64_t i) {
      y[i] = (x[i] - m.mean) * m.inverse * scale[c] + shift[c];
    });
  }
}

// In place: a thread reads all that it writes before it writes.
template <class T, bool inner>
__global__ void __launch_bounds__(32 * warps, blocks)
    norm_backward(Pixels p, const T* x, const T* dy, const T* scale, const Moments<T>* moments,
                  T* dx) {
  const std::int64_t groups = (p.count + Share<inner>::pixels - 1) / Share<inner>::pixels;
  for (std::int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
    const Share<inner> share(p, group);
    const Moments<T> m = share.valid ? moments[share.pixel] : Moments<T>{};
    T sum = 0, products = 0;
    share.for_each(p, [&](std::int64_t c, std::int64_t i) {
      const T g = dy[i] * scale[c];
      sum += g;
      products += g * (x[i] - m.mean) * m.inverse;
    });
    const T mean = share.sum(sum) / T(p.channels);
    const T mean_product = share.sum(products) / T(p.channels);
    share.for_each(p, [&](std::int64_t c, std::int64_t i) {
      const T xhat = (x[i] - m.mean) * m.inverse;
      dx[i] = (dy[i] * scale[c] - mean - xhat * mean_product) * m.inverse;
    });
  }
}

// sums[part][0][c] = the part's sum of dy xhat, or of dy x without moments; [1] that of dy. Where
// `rectified`, a positive x counts as 0.
template <class T, bool inner>
__global__ void __launch_bounds__(32 * warps, blocks)
    sum_pixels(Pixels p, bool rectified, const T* x, const T* dy, const Moments<T>* moments,
               double* sums) {
  SHARED(T, partial, [2][warps][33]);
  constexpr int channels = inner ? 32 : warps;  // of a block
  const int x_thread = int(threadIdx.x), y_thread = int(threadIdx.y);
  const std::int64_t part = blockIdx.x;
  const std::int64_t begin = part * part_pixels, end = min(begin + part_pixels, p.count);
  for (std::int64_t c0 = std::int64_t(blockIdx.y) * channels; c0 < p.channels;
       c0 += std::int64_t(gridDim.y) * channels) {
    const std::int64_t c = c0 + (inner ? x_thread : y_thread);
    T product = 0, plain = 0;
    if (c < p.channels)
      for (std::int64_t pixel = begin + (inner ? y_thread : x_thread); pixel < end;
           pixel += inner ? warps : 32) {
        const std::int64_t i = p.template offset<inner>(pixel) + c * p.channel_step;
        T value = x[i];
        if (rectified && value > T(0)) value = T(0);
        if (moments != nullptr) value = (value - moments[pixel].mean) * moments[pixel].inverse;
        product += dy[i] * value;
        plain += dy[i];
      }
    double* const to = sums + part * 2 * p.channels;
    if constexpr (inner) {
      partial[0][y_thread][x_thread] = product;
      partial[1][y_thread][x_thread] = plain;
      __syncthreads();
      if (y_thread < 2 && c < p.channels) {
        double total = 0;
        for (int i = 0; i < warps; ++i) total += double(partial[y_thread][i][x_thread]);
        to[y_thread * p.channels + c] = total;
      }
      __syncthreads();
    } else {
      product = warp_sum(product);
      plain = warp_sum(plain);
      if (x_thread == 0 && c < p.channels) {
        to[c] = double(product);
        to[p.channels + c] = double(plain);
      }
    }
  }
}

// dshift may be null.
template <class T>
__global__ void add_parts(std::int64_t channels, std::int64_t parts, const double* sums, T* dscale,
                          T* dshift) {
  const std::int64_t c = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  double products = 0, plain = 0;
  for (std::int64_t i = 0; i < parts; ++i) {
    products += sums[2 * i * channels + c];
    plain += sums[(2 * i + 1) * channels + c];
  }
  dscale[c] = T(products);
  if (dshift != nullptr) dshift[c] = T(plain);
}

// y = scale[c] * x; the channel is the middle index, or the inner one. With a gate, y = x where the
// gate is positive. In place: an element is read before it is written.
template <class T>
__global__ void scale_rows(Rows rows, bool inner, const T* x, const T* gate, const T* scale, T* y) {
  for_each_in_rows(rows, [&](std::int64_t outer, std::int64_t middle, std::int64_t i) {
    const std::int64_t at = (outer * rows.middle + middle) * rows.inner + i;
    const bool open = gate != nullptr && gate[at] > T(0);
    y[at] = open ? x[at] : x[at] * scale[inner ? i : middle];
  });
}

template <class T>
void scale(const TensorDesc& t, const T* x, const T* gate, const T* factors, T* y,
           int multiprocessors, Stream& stream) {
  const std::int64_t plane = t.h * t.w;
  const bool inner = channels_inner(t);
  const Rows rows = inner ? Rows{1, t.n * plane, t.c} : Rows{t.n, t.c, plane};
  const RowLaunch shape = row_launch(rows, multiprocessors);
  launch(scale_rows<T>, shape.grid, shape.block, 0, stream, rows, inner, x, gate, factors, y);
}

// f(an integral constant: are channels contiguous?)
template <class F>
void with_inner(const Pixels& p, F f) {
  if (p.inner)
    f(std::true_type());
  else
    f(std::false_type());
}

dim3 pixel_grid(const Pixels& p) {
  const std::int64_t groups = ceil_div(p.count, p.inner ? std::int64_t(warps) : 32);
  return dim3(unsigned(std::min<std::int64_t>(groups, 1 << 20)));
}

template <class T>
void find_sums(const Pixels& p, bool rectified, const T* x, const T* dy, const Moments<T>* moments,
               double* sums, T* dscale, T* dshift, Stream& stream) {
  with_inner(p, [&](auto inner) {
    const std::int64_t groups = ceil_div(p.channels, decltype(inner)::value ? 32 : warps);
    launch(sum_pixels<T, decltype(inner)::value>,
           dim3(unsigned(p.parts()), unsigned(std::min<std::int64_t>(groups, 65535))),
           dim3(32, warps), 0, stream, p, rectified, x, dy, moments, sums);
  });
  launch(add_parts<T>, dim3(unsigned(ceil_div(p.channels, std::int64_t{flat_block}))), flat_block,
         0, stream, p.channels, p.parts(), sums, dscale, dshift);
}

}  // namespace

// Sums, then moments.
std::size_t pixel_workspace_bytes(const TensorDesc& desc) {
  const Pixels p(desc);
  return std::size_t(p.parts() * 2 * p.channels) * sizeof(double) +
         std::size_t(p.count) * sizeof(Moments<double>);
}

void CudaLayerOps::layer_norm_forward(DType dtype, const LayerNormDesc& desc, const void* x,
                                      const void* scale, const void* shift, void* y,
                                      Stream& stream) const {
  validate(dtype, "layer_norm_forward");
  validate(desc);
  require_plain(desc.x, "layer_norm_forward");
  const Pixels p(desc.x, desc.epsilon);
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    with_inner(p, [&](auto inner) {
      launch(norm_forward<T, decltype(inner)::value>, pixel_grid(p), dim3(32, warps), 0, stream, p,
             static_cast<const T*>(x), static_cast<const T*>(scale), static_cast<const T*>(shift),
             static_cast<T*>(y), static_cast<Moments<T>*>(nullptr));
    });
  });
}

void CudaLayerOps::layer_norm_backward(DType dtype, const LayerNormDesc& desc,
                                       const LayerNormBackward& io, Workspace workspace,
                                       Stream& stream) const {
  validate(dtype, "layer_norm_backward");
  validate(desc);
  require_plain(desc.x, "layer_norm_backward");
  const Pixels p(desc.x, desc.epsilon);
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    auto* const sums = reinterpret_cast<double*>(workspace.data());
    auto* const moments = reinterpret_cast<Moments<T>*>(sums + p.parts() * 2 * p.channels);
    const auto* const x = static_cast<const T*>(io.x);
    const auto* const dy = static_cast<const T*>(io.dy);
    const auto* const scale = static_cast<const T*>(io.scale);
    with_inner(p, [&](auto inner) {
      launch(norm_forward<T, decltype(inner)::value>, pixel_grid(p), dim3(32, warps), 0, stream, p,
             x, scale, scale, static_cast<T*>(nullptr), moments);
    });
    find_sums<T>(p, false, x, dy, moments, sums, static_cast<T*>(io.dscale),
                 static_cast<T*>(io.dshift), stream);
    with_inner(p, [&](auto inner) {
      launch(norm_backward<T, decltype(inner)::value>, pixel_grid(p), dim3(32, warps), 0, stream, p,
             x, dy, scale, moments, static_cast<T*>(io.dx));
    });
  });
}

void CudaLayerOps::scale_channels_forward(DType dtype, const TensorDesc& desc, const void* x,
                                          const void* factors, void* y, Stream& stream) const {
  validate(dtype, "scale_channels_forward");
  require_plain(desc, "scale_channels_forward");
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    scale<T>(desc, static_cast<const T*>(x), nullptr, static_cast<const T*>(factors),
             static_cast<T*>(y), multiprocessors_, stream);
  });
}

void CudaLayerOps::scale_channels_backward(DType dtype, const TensorDesc& desc, const void* x,
                                           const void* dy, const void* factors, void* dx,
                                           void* dscale, Workspace workspace,
                                           Stream& stream) const {
  validate(dtype, "scale_channels_backward");
  require_plain(desc, "scale_channels_backward");
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    find_sums<T>(Pixels(desc), false, static_cast<const T*>(x), static_cast<const T*>(dy),
                 static_cast<const Moments<T>*>(nullptr),
                 reinterpret_cast<double*>(workspace.data()), static_cast<T*>(dscale), nullptr,
                 stream);
    scale<T>(desc, static_cast<const T*>(dy), nullptr, static_cast<const T*>(factors),
             static_cast<T*>(dx), multiprocessors_, stream);
  });
}

void CudaLayerOps::prelu_forward(DType dtype, const TensorDesc& desc, const void* x,
                                 const void* slope, void* y, Stream& stream) const {
  validate(dtype, "prelu_forward");
  require_plain(desc, "prelu_forward");
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto* const from = static_cast<const T*>(x);
    scale<T>(desc, from, from, static_cast<const T*>(slope), static_cast<T*>(y), multiprocessors_,
             stream);
  });
}

void CudaLayerOps::prelu_backward(DType dtype, const TensorDesc& desc, const void* x,
                                  const void* dy, const void* slope, void* dx, void* dslope,
                                  Workspace workspace, Stream& stream) const {
  validate(dtype, "prelu_backward");
  require_plain(desc, "prelu_backward");
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto *const from = static_cast<const T*>(x), *const gradient = static_cast<const T*>(dy);
    find_sums<T>(Pixels(desc), true, from, gradient, nullptr,
                 reinterpret_cast<double*>(workspace.data()), static_cast<T*>(dslope), nullptr,
                 stream);
    scale<T>(desc, gradient, from, static_cast<const T*>(slope), static_cast<T*>(dx),
             multiprocessors_, stream);
  });
}

}  // namespace convlab::cuda
