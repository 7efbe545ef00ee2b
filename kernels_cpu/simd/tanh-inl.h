// Hyperbolic tangent and logistic function on vectors, from one reduction:
//   e^-|v| = 2^k e^r with |r| <= ln 2 / 2, and e^r - 1 = r + r^2 / 2! + r^3 / 3! + ...
// The series ends where its next term is below a quarter of a unit in the last place. tanh takes
// e^-2|v| - 1, put together so that nothing cancels near 0; the logistic function takes e^-|v|.
//
// Errors against the exact value are below 3 units in the last place, for both functions, in f32
// and in f64. sigmoid is accurate down to the smallest normal number, below which it does not go.
// NaN gives NaN.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_SIMD_TANH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_SIMD_TANH_INL_H_
#undef CONVLAB_KERNELS_CPU_SIMD_TANH_INL_H_
#else
#define CONVLAB_KERNELS_CPU_SIMD_TANH_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// e^v = scale (1 + more), for v <= 0 down to where 2^k is still normal; clamped there.
template <class V>
struct ReducedExp {
  V scale, more;
};

template <class V>
HWY_INLINE ReducedExp<V> ReduceExp(V v) {
  const hn::DFromV<V> d;
  using T = hn::TFromD<decltype(d)>;
  constexpr bool kF32 = std::is_same_v<T, float>;
  constexpr int kTerms = kF32 ? 7 : 13;
  const V least = hn::Set(d, kF32 ? T(-87.0) : T(-708.0));
  // ln 2 in two parts, of which the first has enough zeros at its end that k times it is exact.
  const V ln2_high = hn::Set(d, kF32 ? T(0x1.62e4p-1) : T(0x1.62e42fee00000p-1));
  const V ln2_low = hn::Set(d, kF32 ? T(0x1.7f7d1cp-20) : T(0x1.a39ef35793c76p-33));
  // Sums of this size have no fraction: adding rounds, and leaves k plus the exponent's bias in the
  // last bits.
  const V shift = hn::Set(d, kF32 ? T(0x1.8p23 + 127) : T(0x1.8p52 + 1023));
  const V clamped = hn::Max(v, least);
  const V biased = hn::MulAdd(clamped, hn::Set(d, T(1.4426950408889634074)), shift);
  const V k = hn::Sub(biased, shift);
  const V r = hn::NegMulAdd(k, ln2_low, hn::NegMulAdd(k, ln2_high, clamped));
  T factorial = 1;
  T factors[kTerms + 1];
  for (int i = 1; i <= kTerms; ++i) {
    factorial *= T(i);
    factors[i] = T(1) / factorial;
  }
  V sum = hn::Set(d, factors[kTerms]);
  HWY_UNROLL(16)
  for (int i = kTerms - 1; i >= 2; --i) sum = hn::MulAdd(sum, r, hn::Set(d, factors[i]));
  const hn::RebindToSigned<decltype(d)> di;
  constexpr int kMantissa = kF32 ? 23 : 52;
  return {hn::BitCast(d, hn::ShiftLeft<kMantissa>(hn::BitCast(di, biased))),
          hn::MulAdd(hn::Mul(r, r), sum, r)};
}

// a / b for b from 1 to 2, to a unit in the last place. A division of vectors takes longer than all
// the rest of these functions; in f32 an approximate reciprocal is refined, and then the quotient.
template <class V>
HWY_INLINE V Quotient(V a, V b) {
  if constexpr (std::is_same_v<hn::TFromD<hn::DFromV<V>>, float>) {
    const V guess = hn::ApproximateReciprocal(b);
    const V two = hn::Set(hn::DFromV<V>(), 2);
    const V inverse = hn::Mul(guess, hn::NegMulAdd(b, guess, two));
    const V quotient = hn::Mul(a, inverse);
    return hn::MulAdd(hn::NegMulAdd(b, quotient, a), inverse, quotient);
  } else {
    return hn::Div(a, b);
  }
}

template <class V>
HWY_INLINE V Tanh(V v) {
  const hn::DFromV<V> d;
  using T = hn::TFromD<decltype(d)>;
  const V one = hn::Set(d, T(1));
  const auto e = ReduceExp(hn::Mul(hn::Abs(v), hn::Set(d, T(-2))));
  const V minus_one = hn::MulAdd(e.scale, e.more, hn::Sub(e.scale, one));  // e^-2|v| - 1
  const V quotient = Quotient(minus_one, hn::Add(minus_one, hn::Set(d, T(2))));
  return hn::IfThenElse(hn::IsNaN(v), v, hn::CopySign(quotient, v));
}

template <class V>
HWY_INLINE V Sigmoid(V v) {
  const hn::DFromV<V> d;
  const V one = hn::Set(d, hn::TFromD<decltype(d)>(1));
  const auto e = ReduceExp(hn::Neg(hn::Abs(v)));
  const V small = hn::MulAdd(e.scale, e.more, e.scale);  // e^-|v|
  const V above = hn::IfThenElse(hn::Lt(v, hn::Zero(d)), small, one);
  return hn::IfThenElse(hn::IsNaN(v), v, Quotient(above, hn::Add(one, small)));
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
