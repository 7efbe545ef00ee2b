// Addition and the activations: one pass over memory, whatever the layout.
#include "kernels_cpu/layers/layer_jobs.h"
#include "kernels_cpu/layers/layer_ops.h"
#include "kernels_cpu/layers/layer_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/layers/elementwise.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"
#include "kernels_cpu/simd/relu-inl.h"
#include "kernels_cpu/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// 1 / (1 + e^-x). Past the limit e^-x would leave Exp's range; a NaN goes through.
template <class T>
HWY_INLINE VectorOf<T> Sigmoid(VectorOf<T> x) {
  const VectorTag<T> d;
  const auto limit = hn::Set(d, T(sizeof(T) == 4 ? 87 : 700));
  const auto one = hn::Set(d, T(1));
  const auto exponent = hn::Neg(hn::Max(x, hn::Neg(limit)));
  const auto y = hn::Div(one, hn::Add(one, hn::Exp(d, exponent)));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

template <class T>
void Apply(Elementwise operation, const T* a, const T* b, T* y, std::int64_t count) {
  const VectorTag<T> d;
  const auto one = hn::Set(d, T(1));
  const auto unary = [&](auto f) HWY_ATTR {
    ForEachVector<T>(count,
                     [&](auto at, std::int64_t i) HWY_ATTR { at.Store(f(at.Load(a + i)), y + i); });
  };
  const auto binary = [&](auto f) HWY_ATTR {
    ForEachVector<T>(count, [&](auto at, std::int64_t i)
                                HWY_ATTR { at.Store(f(at.Load(a + i), at.Load(b + i)), y + i); });
  };
  using V = VectorOf<T>;
  switch (operation) {
    case Elementwise::add:
      return binary([&](V u, V v) HWY_ATTR { return hn::Add(u, v); });
    case Elementwise::relu:
      return unary([&](V x) HWY_ATTR { return Relu(x); });
    case Elementwise::tanh:
      return unary([&](V x) HWY_ATTR { return hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(d, x)); });
    case Elementwise::sigmoid:
      return unary([&](V x) HWY_ATTR { return Sigmoid<T>(x); });
    case Elementwise::relu_backward:
      return binary([&](V out, V dy) HWY_ATTR { return ReluGradient(out, dy); });
    case Elementwise::tanh_backward:
      return binary([&](V out, V dy)
                        HWY_ATTR { return hn::Mul(dy, hn::NegMulAdd(out, out, one)); });
    case Elementwise::sigmoid_backward:
      return binary([&](V out, V dy)
                        HWY_ATTR { return hn::Mul(dy, hn::Mul(out, hn::Sub(one, out))); });
  }
}

void ApplyElementwise(DType dtype, Elementwise operation, const void* a, const void* b, void* y,
                      std::int64_t begin, std::int64_t end) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* const second = b == nullptr ? nullptr : static_cast<const T*>(b) + begin;
    Apply(operation, static_cast<const T*>(a) + begin, second, static_cast<T*>(y) + begin,
          end - begin);
  });
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {
namespace {

HWY_EXPORT(ApplyElementwise);

void apply(DType dtype, Elementwise operation, const TensorDesc& desc, const void* a, const void* b,
           void* y, int threads) {
  validate(dtype, "an elementwise operation");
  parallel_chunks(desc.elements(), threads, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(ApplyElementwise)(dtype, operation, a, b, y, begin, end);
  });
}

void zero_padding_lanes(DType dtype, const TensorDesc& desc, void* data) {
  const Planes planes(desc);
  with_type(dtype, [&](auto zero) {
    auto* const y = static_cast<decltype(zero)*>(data);
    for (std::int64_t n = 0; n < planes.images; ++n)
      for (std::int64_t c = planes.channels; c < planes.padded_channels(); ++c)
        for (std::int64_t p = 0; p < planes.pixels; ++p) y[planes.offset(n, c, p)] = 0;
  });
}

}  // namespace

void CpuLayerOps::add(DType dtype, const TensorDesc& desc, const void* a, const void* b, void* y,
                      Stream&) const {
  apply(dtype, Elementwise::add, desc, a, b, y, threads_);
}

void CpuLayerOps::activation_forward(DType dtype, ActivationKind kind, const TensorDesc& desc,
                                     const void* x, void* y, Stream&) const {
  const Elementwise operation = kind == ActivationKind::relu   ? Elementwise::relu
                                : kind == ActivationKind::tanh ? Elementwise::tanh
                                                               : Elementwise::sigmoid;
  apply(dtype, operation, desc, x, nullptr, y, threads_);
  if (kind == ActivationKind::sigmoid) zero_padding_lanes(dtype, desc, y);  // sigmoid(0) = 1/2
}

void CpuLayerOps::activation_backward(DType dtype, ActivationKind kind, const TensorDesc& desc,
                                      const void* y, const void* dy, void* dx, Stream&) const {
  const Elementwise operation = kind == ActivationKind::relu   ? Elementwise::relu_backward
                                : kind == ActivationKind::tanh ? Elementwise::tanh_backward
                                                               : Elementwise::sigmoid_backward;
  apply(dtype, operation, desc, y, dy, dx, threads_);
}

}  // namespace convlab::cpu
#endif
