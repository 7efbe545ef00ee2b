// Addition and the activations: one pass over memory, whatever the layout.
#include <fmt/format.h>

#include "conv/error.h"
#include "kernels_cpu/half/convert.h"
#include "kernels_cpu/layers/activate.h"
#include "kernels_cpu/layers/layer_jobs.h"
#include "kernels_cpu/layers/layer_ops.h"
#include "kernels_cpu/layers/layer_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/layers/elementwise.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"
#include "kernels_cpu/half/stored-inl.h"
#include "kernels_cpu/simd/at_most-inl.h"
#include "kernels_cpu/simd/epilogue-inl.h"
#include "kernels_cpu/simd/normal-inl.h"
#include "kernels_cpu/simd/relu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

template <class T>
inline constexpr T kSigmoidLimit = sizeof(T) == 4 ? T(87) : T(700);

// 1 / (1 + e^-x). Past the limit e^-x would leave Exp's range; a NaN goes through.
template <class T>
HWY_INLINE VectorOf<T> Sigmoid(VectorOf<T> x) {
  const VectorTag<T> d;
  const auto limit = hn::Set(d, kSigmoidLimit<T>);
  const auto one = hn::Set(d, T(1));
  const auto exponent = hn::Neg(hn::Max(x, hn::Neg(limit)));
  const auto y = hn::Div(one, hn::Add(one, hn::Exp(d, exponent)));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// x, limited to where f's exponentials stay normal numbers. A NaN may become a limit.
template <class T>
HWY_INLINE VectorOf<T> Limited(VectorOf<T> x, T limit) {
  const VectorTag<T> d;
  return hn::Max(hn::Min(x, hn::Set(d, limit)), hn::Set(d, -limit));
}

// min(max(x, 0), 6), but NaN stays NaN.
template <class T>
HWY_INLINE VectorOf<T> Relu6(VectorOf<T> x) {
  return AtMost(Relu(x), hn::Set(VectorTag<T>(), T(6)));
}

// x share(x), where share goes from 0 to 1 and is computed within limits. Beyond them the product
// is 0 or x.
template <class T>
HWY_INLINE VectorOf<T> Share(VectorOf<T> x, VectorOf<T> share, T limit) {
  const auto far = hn::Gt(hn::Abs(x), hn::Set(VectorTag<T>(), limit));
  return hn::IfThenElse(far, Relu(x), hn::Mul(x, share));
}

template <class S>
void Activate(ActivationKind kind, const S* from, S* to, std::int64_t count) {
  using T = Computed<S>;
  using V = VectorOf<T>;
  const VectorTag<T> d;
  const auto three = hn::Set(d, T(3)), sixth = hn::Set(d, T(1) / T(6));
  const auto each = [&](auto f) HWY_ATTR {
    ForEachStored<T>(
        count, [&](auto at, std::int64_t i) HWY_ATTR { at.Store(f(at.Load(from + i)), to + i); });
  };
  switch (kind) {
    case ActivationKind::relu:
      return each([&](V x) HWY_ATTR { return Relu(x); });
    case ActivationKind::tanh:
      return each([&](V x) HWY_ATTR { return hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(d, x)); });
    case ActivationKind::sigmoid:
      return each([&](V x) HWY_ATTR { return Sigmoid<T>(x); });
    case ActivationKind::relu6:
      return each([&](V x) HWY_ATTR { return Relu6<T>(x); });
    case ActivationKind::hardsigmoid:
      return each([&](V x) HWY_ATTR { return hn::Mul(Relu6<T>(hn::Add(x, three)), sixth); });
    case ActivationKind::hardswish:
      return each([&](V x) HWY_ATTR {
        return Share<T>(x, hn::Mul(Relu6<T>(hn::Add(x, three)), sixth), T(3));
      });
    case ActivationKind::silu:
      return each([&](V x) HWY_ATTR { return Share<T>(x, Sigmoid<T>(x), kSigmoidLimit<T>); });
    case ActivationKind::gelu:
      return each([&](V x) HWY_ATTR {
        const V near = Limited<T>(x, kNormalLimit<T>);
        return Share<T>(x, NormalAt<T>(near).distribution, kNormalLimit<T>);
      });
  }
}

// value: what derivative_reads_x() says.
template <class S>
void ActivateBackward(ActivationKind kind, const S* value, const S* dy, S* dx, std::int64_t count) {
  using T = Computed<S>;
  using V = VectorOf<T>;
  const VectorTag<T> d;
  const auto zero = hn::Zero(d), one = hn::Set(d, T(1)), three = hn::Set(d, T(3)),
             sixth = hn::Set(d, T(1) / T(6));
  const auto each = [&](auto f) HWY_ATTR {
    ForEachStored<T>(count, [&](auto at, std::int64_t i) HWY_ATTR {
      at.Store(f(at.Load(value + i), at.Load(dy + i)), dx + i);
    });
  };
  // v where 0 < y < high or y is NaN, else 0.
  const auto within = [&](V y, T high, V v) HWY_ATTR {
    const auto flat = hn::Or(hn::Le(y, zero), hn::Ge(y, hn::Set(d, high)));
    return hn::IfThenZeroElse(flat, v);
  };
  switch (kind) {
    case ActivationKind::relu:
      return each([&](V y, V g) HWY_ATTR { return ReluGradient(y, g); });
    case ActivationKind::tanh:
      return each([&](V y, V g) HWY_ATTR { return hn::Mul(g, hn::NegMulAdd(y, y, one)); });
    case ActivationKind::sigmoid:
      return each([&](V y, V g) HWY_ATTR { return hn::Mul(g, hn::Mul(y, hn::Sub(one, y))); });
    case ActivationKind::relu6:
      return each([&](V y, V g) HWY_ATTR { return within(y, T(6), g); });
    case ActivationKind::hardsigmoid:
      return each([&](V y, V g) HWY_ATTR { return within(y, T(1), hn::Mul(g, sixth)); });
    case ActivationKind::hardswish:  // (2 x + 3) / 6 between -3 and 3
      return each([&](V x, V g) HWY_ATTR {
        const V inside = hn::Mul(hn::Add(hn::Add(x, x), three), sixth);
        const V slope = hn::IfThenElse(hn::Ge(x, three), one,
                                       hn::IfThenZeroElse(hn::Le(x, hn::Neg(three)), inside));
        return hn::Mul(g, slope);
      });
    case ActivationKind::silu:  // s (1 + x (1 - s)), s = sigmoid(x)
      return each([&](V x, V g) HWY_ATTR {
        const V s = Sigmoid<T>(x), near = Limited<T>(x, kSigmoidLimit<T>);
        return hn::Mul(g, hn::Mul(s, hn::MulAdd(near, hn::Sub(one, s), one)));
      });
    case ActivationKind::gelu:  // Phi(x) + x Phi'(x)
      return each([&](V x, V g) HWY_ATTR {
        const V near = Limited<T>(x, kNormalLimit<T>);
        const Normal<T> normal = NormalAt<T>(near);
        const V slope = hn::MulAdd(near, normal.density, normal.distribution);
        return hn::Mul(g, hn::IfThenElse(hn::IsNaN(x), x, slope));
      });
  }
}

// e^x where x is at most 0. A NaN may become a number.
template <class T>
HWY_INLINE VectorOf<T> ExpOfNegative(VectorOf<T> x) {
  const VectorTag<T> d;
  return hn::Exp(d, hn::Max(x, hn::Set(d, -kSigmoidLimit<T>)));
}

// tanh(ln(1 + e^x)) = (u^2 + 2 u) / (u^2 + 2 u + 2), where u = e^x; divided by u^2 if x > 0.
template <class T>
HWY_INLINE VectorOf<T> TanhOfSoftplus(VectorOf<T> x) {
  const VectorTag<T> d;
  const auto one = hn::Set(d, T(1)), two = hn::Set(d, T(2));
  const auto e = ExpOfNegative<T>(hn::Neg(hn::Abs(x)));
  const auto above = hn::MulAdd(two, e, one), below = hn::Mul(e, hn::Add(e, two));
  const auto positive = hn::Gt(x, hn::Zero(d));
  const auto rest = hn::IfThenElse(positive, hn::Mul(hn::Add(e, e), e), two);
  const auto share = hn::IfThenElse(positive, above, below);
  return hn::Div(share, hn::Add(share, rest));
}

template <class S>
void Activate(const LayerActivation& f, const S* x, S* y, std::int64_t count) {
  using T = Computed<S>;
  using V = VectorOf<T>;
  const VectorTag<T> d;
  const auto zero = hn::Zero(d), a = hn::Set(d, T(f.a)), b = hn::Set(d, T(f.b));
  const auto each = [&](auto value) HWY_ATTR {
    ForEachStored<T>(count, [&](auto at, std::int64_t i) HWY_ATTR {
      const V v = at.Load(x + i);
      at.Store(hn::IfThenElse(hn::IsNaN(v), v, value(v)), y + i);
    });
  };
  switch (f.kind) {
    case LayerActivation::Kind::leaky_relu:
      return each([&](V v) HWY_ATTR { return hn::IfThenElse(hn::Gt(v, zero), v, hn::Mul(a, v)); });
    case LayerActivation::Kind::elu:
      return each([&](V v) HWY_ATTR {
        const V low = hn::Max(hn::Min(v, zero), hn::Set(d, -kSigmoidLimit<T>));
        return hn::IfThenElse(hn::Gt(v, zero), v, hn::Mul(a, hn::Expm1(d, low)));
      });
    case LayerActivation::Kind::clip:
      return each([&](V v) HWY_ATTR { return hn::Min(hn::Max(v, a), b); });
    case LayerActivation::Kind::softplus:  // max(x, 0) + ln(1 + e^-|x|)
      return each([&](V v) HWY_ATTR {
        return hn::Add(hn::Max(v, zero), hn::Log1p(d, ExpOfNegative<T>(hn::Neg(hn::Abs(v)))));
      });
    case LayerActivation::Kind::mish:
      return each([&](V v)
                      HWY_ATTR { return Share<T>(v, TanhOfSoftplus<T>(v), kSigmoidLimit<T>); });
  }
}

template <class S>
void ActivateBackward(const LayerActivation& f, const S* x, const S* dy, S* dx,
                      std::int64_t count) {
  using T = Computed<S>;
  using V = VectorOf<T>;
  const VectorTag<T> d;
  const auto zero = hn::Zero(d), one = hn::Set(d, T(1)), a = hn::Set(d, T(f.a)),
             b = hn::Set(d, T(f.b));
  const auto each = [&](auto slope) HWY_ATTR {
    ForEachStored<T>(count, [&](auto at, std::int64_t i) HWY_ATTR {
      at.Store(hn::Mul(at.Load(dy + i), slope(at.Load(x + i))), dx + i);
    });
  };
  switch (f.kind) {
    case LayerActivation::Kind::leaky_relu:
      return each([&](V v) HWY_ATTR { return hn::IfThenElse(hn::Gt(v, zero), one, a); });
    case LayerActivation::Kind::elu:
      return each([&](V v) HWY_ATTR {
        return hn::IfThenElse(hn::Gt(v, zero), one, hn::Mul(a, ExpOfNegative<T>(hn::Min(v, zero))));
      });
    case LayerActivation::Kind::clip:
      return each([&](V v) HWY_ATTR {
        return hn::IfThenElseZero(hn::And(hn::Ge(v, a), hn::Le(v, b)), one);
      });
    case LayerActivation::Kind::softplus:
      return each([&](V v) HWY_ATTR { return Sigmoid<T>(v); });
    case LayerActivation::Kind::mish:  // t + x sigmoid(x) (1 - t^2), t = tanh(ln(1 + e^x))
      return each([&](V v) HWY_ATTR {
        const V near = Limited<T>(v, kSigmoidLimit<T>), t = TanhOfSoftplus<T>(near);
        const V rest = hn::Mul(hn::Mul(near, Sigmoid<T>(near)), hn::NegMulAdd(t, t, one));
        return hn::IfThenElse(hn::IsNaN(v), v, hn::Add(t, rest));
      });
  }
}

template <class T>
void ActivateRuns(ActivationKind kind, T* values, std::int64_t length, std::int64_t step,
                  std::int64_t count) {
  if (step == length) length *= count, count = 1;
  for (std::int64_t i = 0; i < count; ++i)
    Activate(kind, values + i * step, values + i * step, length);
}

void ActivateStored(ActivationKind kind, float* values, std::int64_t length, std::int64_t step,
                    std::int64_t count) {
  ActivateRuns(kind, values, length, step, count);
}
void ActivateStored(ActivationKind kind, double* values, std::int64_t length, std::int64_t step,
                    std::int64_t count) {
  ActivateRuns(kind, values, length, step, count);
}

void AddVectors(DType dtype, const void* a, const void* b, void* y, std::int64_t begin,
                std::int64_t end) {
  with_stored_type(dtype, [&](auto zero) {
    using S = decltype(zero);
    const S* const u = static_cast<const S*>(a) + begin;
    const S* const v = static_cast<const S*>(b) + begin;
    S* const sum = static_cast<S*>(y) + begin;
    ForEachStored<Computed<S>>(end - begin, [&](auto at, std::int64_t i) HWY_ATTR {
      at.Store(hn::Add(at.Load(u + i), at.Load(v + i)), sum + i);
    });
  });
}

void ForwardActivation(DType dtype, ActivationKind kind, const void* x, void* y, std::int64_t begin,
                       std::int64_t end) {
  with_stored_type(dtype, [&](auto zero) {
    using S = decltype(zero);
    Activate(kind, static_cast<const S*>(x) + begin, static_cast<S*>(y) + begin, end - begin);
  });
}

void ForwardLayerActivation(DType dtype, const LayerActivation& f, const void* x, void* y,
                            std::int64_t begin, std::int64_t end) {
  with_stored_type(dtype, [&](auto zero) {
    using S = decltype(zero);
    Activate(f, static_cast<const S*>(x) + begin, static_cast<S*>(y) + begin, end - begin);
  });
}

void BackwardLayerActivation(DType dtype, const LayerActivation& f, const void* x, const void* dy,
                             void* dx, std::int64_t begin, std::int64_t end) {
  with_stored_type(dtype, [&](auto zero) {
    using S = decltype(zero);
    ActivateBackward(f, static_cast<const S*>(x) + begin, static_cast<const S*>(dy) + begin,
                     static_cast<S*>(dx) + begin, end - begin);
  });
}

void BackwardActivation(DType dtype, ActivationKind kind, const void* value, const void* dy,
                        void* dx, std::int64_t begin, std::int64_t end) {
  with_stored_type(dtype, [&](auto zero) {
    using S = decltype(zero);
    ActivateBackward(kind, static_cast<const S*>(value) + begin, static_cast<const S*>(dy) + begin,
                     static_cast<S*>(dx) + begin, end - begin);
  });
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {
namespace {

HWY_EXPORT(AddVectors);
HWY_EXPORT(ForwardActivation);
HWY_EXPORT(BackwardActivation);
HWY_EXPORT(ForwardLayerActivation);
HWY_EXPORT(BackwardLayerActivation);

}  // namespace

void zero_padding_lanes(DType dtype, const TensorDesc& desc, void* data) {
  const Planes planes(desc);
  with_stored_type(dtype, [&](auto zero) {
    auto* const y = static_cast<decltype(zero)*>(data);
    for (std::int64_t n = 0; n < planes.images; ++n)
      for (std::int64_t c = planes.channels; c < planes.padded_channels(); ++c)
        for (std::int64_t p = 0; p < planes.pixels; ++p) y[planes.offset(n, c, p)] = zero;
  });
}

void CpuLayerOps::convert_type(DType from_type, const void* from, DType to_type, void* to,
                               std::int64_t count, Stream&) const {
  const bool widens = to_type == DType::f32;
  if (!has_16_bits(widens ? from_type : to_type) || (!widens && from_type != DType::f32))
    throw InputError(fmt::format("cannot convert {} to {}: expected f32 and a 16-bit type",
                                 to_string(from_type), to_string(to_type)));
  const int threads = count > serial_elements ? threads_ : 1;
  if (widens)
    widen(from_type, from, static_cast<float*>(to), count, threads, nullptr, 0);
  else
    cpu::round(to_type, static_cast<const float*>(from), to, count, threads, nullptr, 0);
}

void CpuLayerOps::add(DType dtype, const TensorDesc& desc, const void* a, const void* b, void* y,
                      Stream&) const {
  parallel_chunks(desc.elements(), threads_, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(AddVectors)(dtype, a, b, y, begin, end);
  });
}

void activate(ActivationKind kind, float* values, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(ForwardActivation)(DType::f32, kind, values, values, 0, count);
}
void activate(ActivationKind kind, double* values, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(ForwardActivation)(DType::f64, kind, values, values, 0, count);
}

void CpuLayerOps::activation_forward(DType dtype, ActivationKind kind, const TensorDesc& desc,
                                     const void* x, void* y, Stream&) const {
  parallel_chunks(desc.elements(), threads_, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(ForwardActivation)(dtype, kind, x, y, begin, end);
  });
  if (!keeps_zero(kind)) zero_padding_lanes(dtype, desc, y);
}

void CpuLayerOps::activation_backward(DType dtype, ActivationKind kind, const TensorDesc& desc,
                                      const void* value, const void* dy, void* dx, Stream&) const {
  parallel_chunks(desc.elements(), threads_, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(BackwardActivation)(dtype, kind, value, dy, dx, begin, end);
  });
}

void CpuLayerOps::activation_forward(DType dtype, const LayerActivation& f, const TensorDesc& desc,
                                     const void* x, void* y, Stream&) const {
  validate(f);
  parallel_chunks(desc.elements(), threads_, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(ForwardLayerActivation)(dtype, f, x, y, begin, end);
  });
  if (!f.keeps_zero()) zero_padding_lanes(dtype, desc, y);
}

void CpuLayerOps::activation_backward(DType dtype, const LayerActivation& f, const TensorDesc& desc,
                                      const void* x, const void* dy, void* dx, Stream&) const {
  validate(f);
  parallel_chunks(desc.elements(), threads_, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(BackwardLayerActivation)(dtype, f, x, dy, dx, begin, end);
  });
}

}  // namespace convlab::cpu
#endif
