// Resizing: each output is a mean of at most two rows and two columns. Backward a thread gathers
// the gradients of one element of dx, so sums have one fixed order.
#include "kernels_cuda/layers/layer_ops.h"
#include "kernels_cuda/layers/layer_work.h"

namespace convlab::cuda {
namespace {

// An output is (1 - weight) * x[low] + weight * x[high].
struct Sample {
  std::int64_t low, high;
  double weight;

  // The share that x[i] has in the output.
  __device__ double share(std::int64_t i) const {
    return (low == i ? 1 - weight : 0) + (high == i ? weight : 0);
  }
};

// One direction of a plane.
struct Axis {
  bool nearest;
  std::int64_t in, out;  // sizes of x and y

  __device__ Sample sample(std::int64_t i) const {
    if (nearest) {
      const std::int64_t at = i * in / out;
      return {at, at, 0};
    }
    const double position = (double(i) + 0.5) * double(in) / double(out) - 0.5;
    const double at = position > 0 ? position : 0;
    const std::int64_t low = min(std::int64_t(at), in - 1);
    return {low, min(low + 1, in - 1), at - double(low)};
  }
  // The first output whose sample reaches x[i] or beyond it.
  __device__ std::int64_t first_reaching(std::int64_t i) const {
    std::int64_t before = 0, after = out;
    while (before < after) {
      const std::int64_t middle = (before + after) / 2;
      if (sample(middle).high < i)
        before = middle + 1;
      else
        after = middle;
    }
    return before;
  }
};

struct Resize {
  Axis rows, columns;
  bool inner;             // NHWC
  std::int64_t channels;  // side by side: 1 in NCHW
};

// Outer rows are an image's (NHWC) or a plane's (NCHW): in NHWC outer counts rows of y.
template <class T>
__global__ void resize_forward_kernel(Resize r, Rows rows, const T* x, T* y) {
  for_each_in_rows(rows, [&](std::int64_t outer, std::int64_t middle, std::int64_t i) {
    const std::int64_t plane = r.inner ? outer / r.rows.out : outer;
    const std::int64_t p = r.inner ? outer - plane * r.rows.out : middle;
    const std::int64_t q = r.inner ? middle : i, channel = r.inner ? i : 0;
    const Sample row = r.rows.sample(p), column = r.columns.sample(q);
    const T* const from = x + plane * r.rows.in * r.columns.in * r.channels + channel;
    const auto at = [&](std::int64_t h, std::int64_t w) {
      return from[(h * r.columns.in + w) * r.channels];
    };
    T v = at(row.low, column.low);
    if (!r.rows.nearest) {
      const T right = T(column.weight), down = T(row.weight);
      v += right * (at(row.low, column.high) - v);
      T below = at(row.high, column.low);
      below += right * (at(row.high, column.high) - below);
      v += down * (below - v);
    }
    y[((plane * r.rows.out + p) * r.columns.out + q) * r.channels + channel] = v;
  });
}

template <class T>
__global__ void resize_backward_kernel(Resize r, Rows rows, const T* dy, T* dx) {
  for_each_in_rows(rows, [&](std::int64_t outer, std::int64_t middle, std::int64_t i) {
    const std::int64_t plane = r.inner ? outer / r.rows.in : outer;
    const std::int64_t h = r.inner ? outer - plane * r.rows.in : middle;
    const std::int64_t w = r.inner ? middle : i, channel = r.inner ? i : 0;
    const T* const from = dy + plane * r.rows.out * r.columns.out * r.channels + channel;
    const std::int64_t first = r.columns.first_reaching(w);
    T sum = 0;
    for (std::int64_t p = r.rows.first_reaching(h); p < r.rows.out; ++p) {
      const Sample row = r.rows.sample(p);
      if (row.low > h) break;
      T along = 0;
      for (std::int64_t q = first; q < r.columns.out; ++q) {
        const Sample column = r.columns.sample(q);
        if (column.low > w) break;
        along += T(column.share(w)) * from[(p * r.columns.out + q) * r.channels];
      }
      sum += T(row.share(h)) * along;
    }
    dx[((plane * r.rows.in + h) * r.columns.in + w) * r.channels + channel] = sum;
  });
}

Resize resize_of(const ResizeDesc& d) {
  const bool nearest = d.kind == ResizeKind::nearest, inner = d.x.layout == Layout::nhwc;
  return {{nearest, d.x.h, d.y.h}, {nearest, d.x.w, d.y.w}, inner, inner ? d.x.c : 1};
}

Rows rows_over(const TensorDesc& to) {
  if (to.layout == Layout::nhwc) return {to.n * to.h, to.w, to.c};
  return {to.n * to.c, to.h, to.w};
}

}  // namespace

void CudaLayerOps::resize_forward(DType dtype, const ResizeDesc& desc, const void* x, void* y,
                                  Stream& stream) const {
  validate(dtype, "resize_forward");
  validate(desc);
  require_plain(desc.x, "resize_forward");
  const Rows rows = rows_over(desc.y);
  const RowLaunch shape = row_launch(rows, multiprocessors_);
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(resize_forward_kernel<T>, shape.grid, shape.block, 0, stream, resize_of(desc), rows,
           static_cast<const T*>(x), static_cast<T*>(y));
  });
}

void CudaLayerOps::resize_backward(DType dtype, const ResizeDesc& desc, const void* dy, void* dx,
                                   Stream& stream) const {
  validate(dtype, "resize_backward");
  validate(desc);
  require_plain(desc.x, "resize_backward");
  const Rows rows = rows_over(desc.x);
  const RowLaunch shape = row_launch(rows, multiprocessors_);
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(resize_backward_kernel<T>, shape.grid, shape.block, 0, stream, resize_of(desc), rows,
           static_cast<const T*>(dy), static_cast<T*>(dx));
  });
}

}  // namespace convlab::cuda
