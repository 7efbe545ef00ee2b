// Addition and the activations: one pass over memory, whatever the layout.
#include <cmath>

#include "kernels_cuda/layers/layer_ops.h"
#include "kernels_cuda/layers/layer_work.h"

namespace convlab::cuda {
namespace {

// ---- Activations: y of x, and dx of dy and the value that derivative_reads_x() says. NaNs
// propagate. ----

struct Relu {
  template <class T>
  static __device__ T y(T x) {
    return relu(x);
  }
  template <class T>
  static __device__ T dx(T y, T dy) {
    return relu_gradient(y, dy);
  }
};
struct Tanh {
  template <class T>
  static __device__ T y(T x) {
    return std::tanh(x);
  }
  template <class T>
  static __device__ T dx(T y, T dy) {
    return dy * (T(1) - y * y);
  }
};
struct Sigmoid {
  template <class T>
  static __device__ T y(T x) {
    return T(1) / (T(1) + std::exp(-x));
  }
  template <class T>
  static __device__ T dx(T y, T dy) {
    return dy * (y * (T(1) - y));
  }
};
struct Relu6 {
  template <class T>
  static __device__ T y(T x) {
    return x > T(6) ? T(6) : relu(x);
  }
  template <class T>
  static __device__ T dx(T y, T dy) {
    return y <= T(0) || y >= T(6) ? T(0) : dy;
  }
};
struct HardSigmoid {
  template <class T>
  static __device__ T y(T x) {
    return Relu6::y(x + T(3)) / T(6);
  }
  template <class T>
  static __device__ T dx(T y, T dy) {
    return y <= T(0) || y >= T(1) ? T(0) : dy / T(6);
  }
};

// x share, where 0 times -infinity is 0.
template <class T>
__device__ __forceinline__ T share_of(T x, T share) {
  return share == T(0) ? T(0) : x * share;
}
// Far enough out that functions have reached their limits, near enough for products with zero.
template <class T>
__device__ __forceinline__ T limited(T x) {
  constexpr T limit = 1000;
  return x > limit ? limit : x < -limit ? -limit : x;
}

struct HardSwish {
  template <class T>
  static __device__ T y(T x) {
    return share_of(x, HardSigmoid::y(x));
  }
  template <class T>
  static __device__ T dx(T x, T dy) {
    return x <= T(-3) ? T(0) : x >= T(3) ? dy : dy * ((x + x + T(3)) / T(6));
  }
};
struct Silu {
  template <class T>
  static __device__ T y(T x) {
    return share_of(x, Sigmoid::y(x));
  }
  template <class T>
  static __device__ T dx(T x, T dy) {
    const T near = limited(x), s = Sigmoid::y(near);
    return dy * (s * (T(1) + near * (T(1) - s)));
  }
};
struct Gelu {
  template <class T>
  static __device__ T distribution(T x) {
    return T(0.5) * std::erfc(x * T(-0.70710678118654752440));  // -sqrt(1/2)
  }
  template <class T>
  static __device__ T y(T x) {
    return share_of(x, distribution(x));
  }
  template <class T>
  static __device__ T dx(T x, T dy) {
    const T near = limited(x);
    const T density = T(0.39894228040143267794) * std::exp(near * near * T(-0.5));  // 1/sqrt(2 pi)
    return dy * (distribution(near) + near * density);
  }
};

// Activations with numbers, a and b; y and dx of x.

template <class T>
struct LeakyRelu {
  T a, b;
  __device__ T y(T x) const { return x > T(0) ? x : a * x; }
  __device__ T dx(T x, T dy) const { return x > T(0) ? dy : a * dy; }
};
template <class T>
struct Elu {
  T a, b;
  __device__ T y(T x) const { return x > T(0) ? x : a * std::expm1(x); }
  __device__ T dx(T x, T dy) const { return x > T(0) ? dy : dy * (a * std::exp(x)); }
};
template <class T>
struct Clip {
  T a, b;
  __device__ T y(T x) const { return x < a ? a : x > b ? b : x; }
  __device__ T dx(T x, T dy) const { return x >= a && x <= b ? dy : T(0); }
};
template <class T>
struct Softplus {
  T a, b;
  __device__ T y(T x) const {
    const T far = std::log1p(std::exp(-std::abs(x)));
    return x > T(0) ? x + far : far;
  }
  __device__ T dx(T x, T dy) const { return dy * Sigmoid::y(x); }
};
template <class T>
struct Mish {
  T a, b;
  // tanh(ln(1 + e^x)) = (u^2 + 2 u) / (u^2 + 2 u + 2), where u = e^x; divided by u^2 if x > 0.
  static __device__ T tanh_of_softplus(T x) {
    const T e = std::exp(-std::abs(x));
    const T share = x > T(0) ? T(1) + T(2) * e : e * (e + T(2));
    return share / (share + (x > T(0) ? T(2) * e * e : T(2)));
  }
  __device__ T y(T x) const { return share_of(x, tanh_of_softplus(x)); }
  __device__ T dx(T x, T dy) const {
    const T near = limited(x), t = tanh_of_softplus(near);
    return dy * (t + near * Sigmoid::y(near) * (T(1) - t * t));
  }
};

// use(f)
template <class T, class Use>
void with_activation(const LayerActivation& f, Use use) {
  const T a = T(f.a), b = T(f.b);
  switch (f.kind) {
    case LayerActivation::Kind::leaky_relu:
      return use(LeakyRelu<T>{a, b});
    case LayerActivation::Kind::elu:
      return use(Elu<T>{a, b});
    case LayerActivation::Kind::clip:
      return use(Clip<T>{a, b});
    case LayerActivation::Kind::softplus:
      return use(Softplus<T>{a, b});
    case LayerActivation::Kind::mish:
      return use(Mish<T>{a, b});
  }
}

// f(an activation)
template <class F>
void with_activation(ActivationKind kind, F f) {
  switch (kind) {
    case ActivationKind::relu:
      return f(Relu());
    case ActivationKind::tanh:
      return f(Tanh());
    case ActivationKind::sigmoid:
      return f(Sigmoid());
    case ActivationKind::relu6:
      return f(Relu6());
    case ActivationKind::hardsigmoid:
      return f(HardSigmoid());
    case ActivationKind::hardswish:
      return f(HardSwish());
    case ActivationKind::silu:
      return f(Silu());
    case ActivationKind::gelu:
      return f(Gelu());
  }
}

// ---- y = f(a, b); unary functions ignore b ----

struct Add {
  template <class T>
  static __device__ T f(T a, T b) {
    return a + b;
  }
};
template <class Activation>
struct Forward {
  template <class T>
  static __device__ T f(T x, T) {
    return Activation::y(x);
  }
};
template <class Activation>
struct Backward {
  template <class T>
  static __device__ T f(T value, T dy) {
    return Activation::dx(value, dy);
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

// Of x forward, where dy is null, or of x and dy.
template <class T, class F>
__global__ void map_layer_activation(std::int64_t count, bool packed, F f, const T* x, const T* dy,
                                     T* to) {
  for_each_flat<T>(count, packed, [&](auto width, std::int64_t i) {
    constexpr int v = decltype(width)::value;
    auto u = load<v>(x + i);
    const auto w = dy == nullptr ? u : load<v>(dy + i);
    for (int k = 0; k < v; ++k) u.v[k] = dy == nullptr ? f.y(u.v[k]) : f.dx(u.v[k], w.v[k]);
    store(u, to + i);
  });
}

void apply(DType dtype, const LayerActivation& activation, const TensorDesc& desc, const void* x,
           const void* dy, void* to, int multiprocessors, Stream& stream) {
  validate(dtype, "an activation");
  validate(activation);
  require_plain(desc, "an activation");
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    with_activation<T>(activation, [&](auto f) {
      launch(map_layer_activation<T, decltype(f)>,
             flat_grid(desc.elements() / whole_pack<T>, multiprocessors), flat_block, 0, stream,
             desc.elements(), aligned(x, dy, to), f, static_cast<const T*>(x),
             static_cast<const T*>(dy), static_cast<T*>(to));
    });
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
  with_activation(kind, [&](auto activation) {
    apply<Forward<decltype(activation)>>(dtype, desc, x, nullptr, y, multiprocessors_, stream);
  });
}

void CudaLayerOps::activation_backward(DType dtype, ActivationKind kind, const TensorDesc& desc,
                                       const void* value, const void* dy, void* dx,
                                       Stream& stream) const {
  with_activation(kind, [&](auto activation) {
    apply<Backward<decltype(activation)>>(dtype, desc, value, dy, dx, multiprocessors_, stream);
  });
}

void CudaLayerOps::activation_forward(DType dtype, const LayerActivation& f, const TensorDesc& desc,
                                      const void* x, void* y, Stream& stream) const {
  apply(dtype, f, desc, x, nullptr, y, multiprocessors_, stream);
}

void CudaLayerOps::activation_backward(DType dtype, const LayerActivation& f,
                                       const TensorDesc& desc, const void* x, const void* dy,
                                       void* dx, Stream& stream) const {
  apply(dtype, f, desc, x, dy, dx, multiprocessors_, stream);
}

}  // namespace convlab::cuda
