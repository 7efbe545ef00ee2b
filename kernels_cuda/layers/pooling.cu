// Pooling. A thread computes an element of the output: of y forward, of dx backward, which gathers
// its gradients from dy. So no two threads add to one element, and sums have a fixed order. In NHWC
// a thread takes V neighbouring channels.
#include <cmath>
#include <limits>

#include "kernels_cuda/layers/layer_ops.h"
#include "kernels_cuda/layers/layer_work.h"

namespace convlab::cuda {
namespace {

// The axes fit an int, so that an element's row and column cost a 32-bit division.
struct Pool {
  int d, h, w, z, p, q;
  int window_d, window_h, window_w, stride_d, stride_h, stride_w, pad_d, pad_h, pad_w;
  int pad_end_d, pad_end_h, pad_end_w;
  std::int64_t channels;
  bool mean, count_padding, inner;  // inner: channels are contiguous

  __device__ int in_plane() const { return d * h * w; }
  __device__ int out_plane() const { return z * p * q; }
  // A plane of one image: elements from one channel, and from one pixel, to the next.
  __device__ std::int64_t channel_step(int plane) const { return inner ? 1 : plane; }
  __device__ std::int64_t pixel_step() const { return inner ? channels : 1; }
};

struct Range {
  int begin, end;
  __device__ int size() const { return end - begin; }
};

// Window elements of output position `out` that lie inside an axis of `size`.
__device__ __forceinline__ Range window_inside(int out, int stride, int pad, int window, int size) {
  const int first = out * stride - pad;
  return {max(0, -first), min(window, size - first)};
}

// Where a pixel is in a plane of so many slices and rows, of `width` pixels each.
struct Position {
  int slice, row, column;
};
__device__ __forceinline__ Position position(int pixel, int slices, int rows, int width) {
  const int row = pixel / width, slice = slices == 1 ? 0 : row / rows;
  return {slice, row - slice * rows, pixel - row * width};
}

// Output positions whose window holds input position `in`.
__device__ __forceinline__ Range outputs_of(int in, int stride, int pad, int window, int out) {
  const int reach = in + pad;
  return {reach < window ? 0 : (reach - window) / stride + 1, min(out, reach / stride + 1)};
}

// The window elements of an output that lie inside, along each axis.
struct Window {
  Range t, r, s;
  __device__ int size() const { return t.size() * r.size() * s.size(); }
};
__device__ __forceinline__ Window window_inside(const Pool& pool, const Position& out) {
  return {window_inside(out.slice, pool.stride_d, pool.pad_d, pool.window_d, pool.d),
          window_inside(out.row, pool.stride_h, pool.pad_h, pool.window_h, pool.h),
          window_inside(out.column, pool.stride_w, pool.pad_w, pool.window_w, pool.w)};
}

// The offset in its plane, in pixels, of an output's first window element, which may lie outside.
__device__ __forceinline__ std::int64_t window_begin(const Pool& pool, const Position& out) {
  const std::int64_t row = (out.slice * pool.stride_d - pool.pad_d) * std::int64_t(pool.h) +
                           out.row * pool.stride_h - pool.pad_h;
  return row * pool.w + out.column * pool.stride_w - pool.pad_w;
}

// Window elements of output position `out` before the end of an axis and its padding.
__device__ __forceinline__ int counted_window(int out, int stride, int pad, int window, int size,
                                              int pad_end) {
  return min(window, size + pad_end - (out * stride - pad));
}

// 1 / the number of elements that the mean at this output counts.
template <class T>
__device__ __forceinline__ T mean_share(const Pool& pool, const Position& out) {
  if (pool.count_padding)
    return T(1) / T(counted_window(out.slice, pool.stride_d, pool.pad_d, pool.window_d, pool.d,
                                   pool.pad_end_d) *
                    counted_window(out.row, pool.stride_h, pool.pad_h, pool.window_h, pool.h,
                                   pool.pad_end_h) *
                    counted_window(out.column, pool.stride_w, pool.pad_w, pool.window_w, pool.w,
                                   pool.pad_end_w));
  return T(1) / T(window_inside(pool, out).size());
}

// f(image, channel, pixel) for rows over a tensor with `plane` pixels.
template <int V, class F>
__device__ __forceinline__ void for_each_output(const Pool& pool, const Rows& rows, F f) {
  for_each_in_rows(rows, [&](std::int64_t image, std::int64_t middle, std::int64_t i) {
    if (pool.inner)
      f(image, i * V, int(middle));
    else
      f(image, middle, int(i));
  });
}

template <class T, int V>
__global__ void pool_forward_kernel(Pool pool, Rows rows, const T* x, T* y, std::uint8_t* index) {
  const int out_plane = pool.out_plane(), in_plane = pool.in_plane();
  for_each_output<V>(pool, rows, [&](std::int64_t image, std::int64_t channel, int pixel) {
    const Position at = position(pixel, pool.z, pool.p, pool.q);
    const auto [t, r, s] = window_inside(pool, at);
    const std::int64_t step = pool.pixel_step();
    const T* const from = x + image * pool.channels * in_plane +
                          channel * pool.channel_step(in_plane) + window_begin(pool, at) * step;
    const std::int64_t to =
        image * pool.channels * out_plane + channel * pool.channel_step(out_plane) + pixel * step;
    Pack<T, V> out;
    Pack<std::uint8_t, V> winner;
    for (int k = 0; k < V; ++k) {
      out.v[k] = pool.mean ? T(0) : -T(INFINITY);
      winner.v[k] = std::uint8_t((t.begin * pool.window_h + r.begin) * pool.window_w + s.begin);
    }
    for (int h = t.begin; h < t.end; ++h)
      for (int i = r.begin; i < r.end; ++i)
        for (int j = s.begin; j < s.end; ++j) {
          const auto v = load<V>(from + ((h * pool.h + i) * std::int64_t(pool.w) + j) * step);
          for (int k = 0; k < V; ++k) {
            if (pool.mean) {
              out.v[k] += v.v[k];
            } else if (v.v[k] > out.v[k] || v.v[k] != v.v[k]) {  // a NaN wins and stays
              out.v[k] = v.v[k];
              winner.v[k] = std::uint8_t((h * pool.window_h + i) * pool.window_w + j);
            }
          }
        }
    if (pool.mean) {
      const T share = mean_share<T>(pool, at);
      for (int k = 0; k < V; ++k) out.v[k] *= share;
    } else if (index != nullptr) {
      store(winner, index + to);
    }
    store(out, y + to);
  });
}

// Means of windows that are large and of one channel, as in global pooling in NCHW: a warp each.
template <class T>
__global__ void pool_large_means(Pool pool, std::int64_t outputs, const T* x, T* y) {
  const int lane = int(threadIdx.x), out_plane = pool.out_plane();
  for (std::int64_t out = std::int64_t(blockIdx.x) * blockDim.y + threadIdx.y; out < outputs;
       out += std::int64_t(gridDim.x) * blockDim.y) {
    const std::int64_t plane = out / out_plane;
    const Position at = position(int(out - plane * out_plane), pool.z, pool.p, pool.q);
    const Window inside = window_inside(pool, at);
    const T* const from = x + plane * pool.in_plane() + window_begin(pool, at);
    T sum = 0;
    for (int i = lane; i < inside.size(); i += 32) {
      const Position of = position(i, inside.t.size(), inside.r.size(), inside.s.size());
      const std::int64_t row =
          std::int64_t(inside.t.begin + of.slice) * pool.h + inside.r.begin + of.row;
      sum += from[row * pool.w + inside.s.begin + of.column];
    }
    sum = warp_sum(sum) * mean_share<T>(pool, at);
    if (lane == 0) y[out] = sum;
  }
}

template <class T, int V>
__global__ void pool_backward_kernel(Pool pool, Rows rows, const T* dy, const std::uint8_t* index,
                                     T* dx) {
  const int out_plane = pool.out_plane(), in_plane = pool.in_plane();
  for_each_output<V>(pool, rows, [&](std::int64_t image, std::int64_t channel, int pixel) {
    const auto [d, h, w] = position(pixel, pool.d, pool.h, pool.w);
    const Range z = outputs_of(d, pool.stride_d, pool.pad_d, pool.window_d, pool.z);
    const Range p = outputs_of(h, pool.stride_h, pool.pad_h, pool.window_h, pool.p);
    const Range q = outputs_of(w, pool.stride_w, pool.pad_w, pool.window_w, pool.q);
    const std::int64_t step = pool.pixel_step();
    const std::int64_t from =
        image * pool.channels * out_plane + channel * pool.channel_step(out_plane);
    Pack<T, V> sum{};
    for (int l = z.begin; l < z.end; ++l)
      for (int i = p.begin; i < p.end; ++i)
        for (int j = q.begin; j < q.end; ++j) {
          const std::int64_t at = from + ((l * pool.p + i) * pool.q + j) * step;
          const auto v = load<V>(dy + at);
          if (pool.mean) {
            const T share = mean_share<T>(pool, {l, i, j});
            for (int k = 0; k < V; ++k) sum.v[k] += v.v[k] * share;
          } else {
            const int t = d + pool.pad_d - l * pool.stride_d,
                      r = h + pool.pad_h - i * pool.stride_h,
                      s = w + pool.pad_w - j * pool.stride_w;
            const auto element = std::uint8_t((t * pool.window_h + r) * pool.window_w + s);
            const auto winner = load<V>(index + at);
            for (int k = 0; k < V; ++k) sum.v[k] += winner.v[k] == element ? v.v[k] : T(0);
          }
        }
    store(sum, dx + image * pool.channels * in_plane + channel * pool.channel_step(in_plane) +
                   pixel * step);
  });
}

// ---- Launching ----

Pool pool_of(const PoolDesc& d) {
  for (const std::int64_t size : {d.x.h * d.x.w, d.y.h * d.y.w, d.x_depth + d.window_d + d.pad_d,
                                  d.x_rows() + d.window_h + d.pad_h, d.x.w + d.window_w + d.pad_w})
    if (size > std::numeric_limits<int>::max() / 2)
      throw InputError(
          fmt::format("pooling on CUDA takes planes below 2^30 elements, not {}x{}", d.x.h, d.x.w));
  return {.d = int(d.x_depth),
          .h = int(d.x_rows()),
          .w = int(d.x.w),
          .z = int(d.y_depth),
          .p = int(d.y_rows()),
          .q = int(d.y.w),
          .window_d = int(d.window_d),
          .window_h = int(d.window_h),
          .window_w = int(d.window_w),
          .stride_d = int(d.stride_d),
          .stride_h = int(d.stride_h),
          .stride_w = int(d.stride_w),
          .pad_d = int(d.pad_d),
          .pad_h = int(d.pad_h),
          .pad_w = int(d.pad_w),
          .pad_end_d = int(std::min(d.pad_end_d, d.window_d)),
          .pad_end_h = int(std::min(d.pad_end_h, d.window_h)),
          .pad_end_w = int(std::min(d.pad_end_w, d.window_w)),
          .channels = d.x.c,
          .mean = d.kind == PoolKind::average,
          .count_padding = d.count_padding,
          .inner = d.x.layout == Layout::nhwc};
}

// launch_with(Width<V>, rows over the tensor `to` in packs, their launch)
template <class T, class F>
void over_outputs(const TensorDesc& to, bool aligned_operands, int multiprocessors, F launch_with) {
  Rows rows{to.n, to.c, to.h * to.w};
  const bool inner = to.layout == Layout::nhwc;
  if (inner) std::swap(rows.middle, rows.inner);
  with_width<T>(inner && aligned_operands && to.c % whole_pack<T> == 0, [&](auto width) {
    rows.inner /= decltype(width)::value;
    launch_with(width, rows, row_launch(rows, multiprocessors));
  });
}

}  // namespace

void CudaLayerOps::pool_forward(DType dtype, const PoolDesc& desc, const void* x, void* y,
                                void* index, Stream& stream) const {
  validate(dtype, "pool_forward");
  validate(desc);
  require_plain(desc.x, "pool_forward");
  const Pool pool = pool_of(desc);
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto* const from = static_cast<const T*>(x);
    auto* const to = static_cast<T*>(y);
    if (pool.mean && !pool.inner && desc.window_elements() >= 32) {
      constexpr int warps = 8;
      const std::int64_t outputs = desc.y.elements();
      return launch(pool_large_means<T>,
                    dim3(unsigned(std::min<std::int64_t>(ceil_div(outputs, warps), 1 << 20))),
                    dim3(32, warps), 0, stream, pool, outputs, from, to);
    }
    over_outputs<T>(desc.y, aligned(x, y, index), multiprocessors_,
                    [&](auto width, const Rows& rows, const RowLaunch& shape) {
                      launch(pool_forward_kernel<T, decltype(width)::value>, shape.grid,
                             shape.block, 0, stream, pool, rows, from, to,
                             static_cast<std::uint8_t*>(index));
                    });
  });
}

void CudaLayerOps::pool_backward(DType dtype, const PoolDesc& desc, const void* dy,
                                 const void* index, void* dx, Stream& stream) const {
  validate(dtype, "pool_backward");
  validate(desc);
  require_plain(desc.x, "pool_backward");
  const Pool pool = pool_of(desc);
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto* const winners = pool.mean ? nullptr : static_cast<const std::uint8_t*>(index);
    over_outputs<T>(desc.x, aligned(dy, winners, dx), multiprocessors_,
                    [&](auto width, const Rows& rows, const RowLaunch& shape) {
                      launch(pool_backward_kernel<T, decltype(width)::value>, shape.grid,
                             shape.block, 0, stream, pool, rows, static_cast<const T*>(dy), winners,
                             static_cast<T*>(dx));
                    });
  });
}

}  // namespace convlab::cuda
