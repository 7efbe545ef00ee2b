// Addition and the activations: one pass over memory, whatever the layout.
#include <cmath>

#include "kernels_cuda/layers/layer_ops.h"
#include "kernels_cuda/layers/layer_work.h"

namespace convlab::cuda {
namespace {

// y = f(a, b); unary functions ignore b. Gradients take the output and dy. NaNs propagate.
struct Add {
  template <class T>
  static __device__ T f(T a, T b) {
    return a + b;
  }
};
struct Relu {
  template <class T>
  static __device__ T f(T x, T) {
    return relu(x);
  }
};
struct Tanh {
  template <class T>
  static __device__ T f(T x, T) {
    return std::tanh(x);
  }
};
struct Sigmoid {
  template <class T>
  static __device__ T f(T x, T) {
    return T(1) / (T(1) + std::exp(-x));
  }
};
struct ReluBackward {
  template <class T>
  static __device__ T f(T y, T dy) {
    return relu_gradient(y, dy);
  }
};
struct TanhBackward {
  template <class T>
  static __device__ T f(T y, T dy) {
    return dy * (T(1) - y * y);
  }
};
struct SigmoidBackward {
  template <class T>
  static __device__ T f(T y, T dy) {
    return dy * (y * (T(1) - y));
  }
};

// b is null for unary functions. In place: an element is read before it is written.
template <class T, class Operation>
__global__ void map(std::int64_t count, bool packed, const T* a, const T* b, T* y) {
  for_each_flat<T>(count, packed, [&](auto width, std::int64_t i) {
    constexpr int v = decltype(width)::value;
    auto u = load<v>(a + i);
    const auto w = b == nullptr ? u : load<v>(b + i);
    for (int k = 0; k < v; ++k) u.v[k] = Operation::f(u.v[k], w.v[k]);
    store(u, y + i);
  });
}

template <class Operation>
void apply(DType dtype, const TensorDesc& desc, const void* a, const void* b, void* y,
           int multiprocessors, Stream& stream) {
  validate(dtype, "an elementwise operation");
  require_plain(desc, "an elementwise operation");
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(map<T, Operation>, flat_grid(desc.elements() / whole_pack<T>, multiprocessors),
           flat_block, 0, stream, desc.elements(), aligned(a, b, y), static_cast<const T*>(a),
           static_cast<const T*>(b), static_cast<T*>(y));
  });
}

}  // namespace

void CudaLayerOps::add(DType dtype, const TensorDesc& desc, const void* a, const void* b, void* y,
                       Stream& stream) const {
  apply<Add>(dtype, desc, a, b, y, multiprocessors_, stream);
}

void CudaLayerOps::activation_forward(DType dtype, ActivationKind kind, const TensorDesc& desc,
                                      const void* x, void* y, Stream& stream) const {
  const auto run = kind == ActivationKind::relu   ? apply<Relu>
                   : kind == ActivationKind::tanh ? apply<Tanh>
                                                  : apply<Sigmoid>;
  run(dtype, desc, x, nullptr, y, multiprocessors_, stream);
}

void CudaLayerOps::activation_backward(DType dtype, ActivationKind kind, const TensorDesc& desc,
                                       const void* y, const void* dy, void* dx,
                                       Stream& stream) const {
  const auto run = kind == ActivationKind::relu   ? apply<ReluBackward>
                   : kind == ActivationKind::tanh ? apply<TanhBackward>
                                                  : apply<SigmoidBackward>;
  run(dtype, desc, y, dy, dx, multiprocessors_, stream);
}

}  // namespace convlab::cuda
