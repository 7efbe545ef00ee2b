// Losses. One block an image.
#include <cmath>

#include "kernels_cuda/layers/layer_ops.h"
#include "kernels_cuda/layers/layer_work.h"

namespace convlab::cuda {
namespace {

__device__ __forceinline__ bool is_class(std::int64_t label, std::int64_t classes) {
  return label >= 0 && label < classes;
}

constexpr int row_block = 512;  // threads at most, for a row

// p = e^(x - max) / sum; loss = log(sum) + max - x[label]. Subtracting the greatest keeps every
// exponential within [0, 1]. p may be x, so a row reads all it needs of x before it writes p.
template <class T>
__global__ void __launch_bounds__(row_block)
    softmax_kernel(std::int64_t images, std::int64_t classes, const T* x, const std::int32_t* label,
                   T* p, T* loss) {
  for (std::int64_t n = blockIdx.x; n < images; n += gridDim.x) {
    const T* const row = x + n * classes;
    const std::int64_t own = label == nullptr ? -1 : label[n];
    const T at_label = is_class(own, classes) ? row[own] : T(0);
    T greatest = -T(INFINITY);
    for (std::int64_t i = threadIdx.x; i < classes; i += blockDim.x)
      greatest = row[i] > greatest ? row[i] : greatest;
    greatest = block_max(greatest);
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < classes; i += blockDim.x)
      sum += double(std::exp(row[i] - greatest));
    sum = block_sum(sum);
    const T factor = T(1 / sum);
    for (std::int64_t i = threadIdx.x; i < classes; i += blockDim.x)
      p[n * classes + i] = std::exp(row[i] - greatest) * factor;
    if (loss != nullptr && threadIdx.x == 0)
      loss[n] =
          is_class(own, classes) ? T(std::log(sum) + (double(greatest) - double(at_label))) : T(0);
  }
}

template <class T>
__global__ void cross_entropy_gradient(Rows rows, const T* p, const std::int32_t* label, T factor,
                                       T* dx) {
  for_each_in_rows(rows, [&](std::int64_t, std::int64_t n, std::int64_t i) {
    const std::int64_t own = label[n], at = n * rows.inner + i;
    const T difference = p[at] - (i == own ? T(1) : T(0));
    dx[at] = is_class(own, rows.inner) ? difference * factor : T(0);
  });
}

// Runs of 32 differences are summed in T, the runs in double.
template <class T>
__global__ void __launch_bounds__(row_block)
    squared_error(std::int64_t images, std::int64_t count, const T* x, const T* target, T* loss) {
  for (std::int64_t n = blockIdx.x; n < images; n += gridDim.x) {
    const T* const a = x + n * count;
    const T* const b = target + n * count;
    double total = 0;
    for (std::int64_t i = threadIdx.x; i < count;) {
      T sum = 0;
      for (int k = 0; k < 32 && i < count; ++k, i += blockDim.x) {
        const T difference = a[i] - b[i];
        sum += difference * difference;
      }
      total += double(sum);
    }
    total = block_sum(total);
    if (threadIdx.x == 0) loss[n] = T(total / double(count));
  }
}

template <class T>
__global__ void squared_error_gradient(std::int64_t count, bool packed, const T* x, const T* target,
                                       T factor, T* dx) {
  for_each_flat<T>(count, packed, [&](auto width, std::int64_t i) {
    constexpr int v = decltype(width)::value;
    auto a = load<v>(x + i);
    const auto b = load<v>(target + i);
    for (int k = 0; k < v; ++k) a.v[k] = factor * (a.v[k] - b.v[k]);
    store(a, dx + i);
  });
}

// A block for each of n rows of `count`, with some elements a thread.
struct RowBlocks {
  dim3 grid, block;
  RowBlocks(std::int64_t n, std::int64_t count)
      : grid(unsigned(std::min<std::int64_t>(n, 1 << 30))),
        block(unsigned(std::clamp<std::int64_t>(round_up(ceil_div(count, 4), 32), 32, row_block))) {
  }
};

}  // namespace

void CudaLayerOps::softmax(DType dtype, const TensorDesc& desc, const void* x, void* p,
                           Stream& stream) const {
  cross_entropy_forward(dtype, desc, x, nullptr, p, nullptr, stream);
}

void CudaLayerOps::cross_entropy_forward(DType dtype, const TensorDesc& desc, const void* x,
                                         const std::int32_t* label, void* p, void* loss,
                                         Stream& stream) const {
  validate(dtype, "softmax");
  validate_classes(desc, "softmax");
  require_plain(desc, "softmax");
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const RowBlocks shape(desc.n, desc.c);
    launch(softmax_kernel<T>, shape.grid, shape.block, 0, stream, desc.n, desc.c,
           static_cast<const T*>(x), label, static_cast<T*>(p), static_cast<T*>(loss));
  });
}

void CudaLayerOps::cross_entropy_backward(DType dtype, const TensorDesc& desc, const void* p,
                                          const std::int32_t* label, double factor, void* dx,
                                          Stream& stream) const {
  validate(dtype, "cross_entropy");
  validate_classes(desc, "cross_entropy");
  require_plain(desc, "cross_entropy");
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const Rows rows{1, desc.n, desc.c};
    const RowLaunch shape = row_launch(rows, multiprocessors_);
    launch(cross_entropy_gradient<T>, shape.grid, shape.block, 0, stream, rows,
           static_cast<const T*>(p), label, T(factor), static_cast<T*>(dx));
  });
}

void CudaLayerOps::squared_error_forward(DType dtype, const TensorDesc& desc, const void* x,
                                         const void* target, void* loss, Stream& stream) const {
  validate(dtype, "squared_error");
  require_plain(desc, "squared_error");
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t count = desc.c * desc.h * desc.w;
    const RowBlocks shape(desc.n, count);
    launch(squared_error<T>, shape.grid, shape.block, 0, stream, desc.n, count,
           static_cast<const T*>(x), static_cast<const T*>(target), static_cast<T*>(loss));
  });
}

void CudaLayerOps::squared_error_backward(DType dtype, const TensorDesc& desc, const void* x,
                                          const void* target, double factor, void* dx,
                                          Stream& stream) const {
  validate(dtype, "squared_error");
  require_plain(desc, "squared_error");
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t image = desc.c * desc.h * desc.w;
    launch(squared_error_gradient<T>, flat_grid(desc.elements() / whole_pack<T>, multiprocessors_),
           flat_block, 0, stream, desc.elements(), aligned(x, target, dx), static_cast<const T*>(x),
           static_cast<const T*>(target), T(2 * factor / double(image)), static_cast<T*>(dx));
  });
}

}  // namespace convlab::cuda
