// The normal distribution function.
//
// For z >= 0, with t = 1 / (1 + z / 4), Phi(-z) = exp(-z^2 / 2) t h(2 t - 1), where h is smooth on
// [-1, 1]: at its ends h is 1/2 and 1 / (4 sqrt(2 pi)). The coefficients below are h's Chebyshev
// series, computed with 50 digits and cut where the terms left are below a rounding error, as
// powers of 2 t - 1. So there is one range, and Phi(-z) keeps its digits far out.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_SIMD_NORMAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_SIMD_NORMAL_INL_H_
#undef CONVLAB_KERNELS_CPU_SIMD_NORMAL_INL_H_
#else
#define CONVLAB_KERNELS_CPU_SIMD_NORMAL_INL_H_
#endif

#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"
#include "kernels_cpu/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

template <class T>
struct Normal {
  VectorOf<T> distribution, density;
};

// Beyond it exp(-z^2 / 2) leaves the normal numbers.
template <class T>
inline constexpr T kNormalLimit = sizeof(T) == 4 ? T(13) : T(37);

inline constexpr float kNormalSeriesF32[] = {
    0.188821282f,   0.151974101f,     0.0967843907f,    0.0466316777f,  0.015098824f,
    0.00187805785f, -0.000869041974f, -0.000390946725f, 3.23314203e-5f, 3.93301424e-5f};
inline constexpr double kNormalSeriesF64[] = {
    0.18882128260393786,   0.15197416049297324,   0.09678435018555665,     0.046630464489894679,
    0.01509914372259023,   0.0018850472422229047, -0.00086992308916287565, -0.00040770462136839643,
    3.3336052290036948e-5, 5.7773784446822334e-5, -4.7691900767977454e-7,  -8.7864005897611287e-6,
    1.7865053828168654e-7, 1.480723444385482e-6,  -1.5623877693912945e-7,  -2.5674601753579824e-7,
    6.6183432049496696e-8, 4.0557908021339176e-8, -1.9695900856734094e-8,  -4.8924022349935121e-9,
    4.0168467393323505e-9, 3.19308785823943e-10,  -4.2216442416966837e-10};

// Of |x| <= kNormalLimit.
template <class T>
HWY_INLINE Normal<T> NormalAt(VectorOf<T> x) {
  const VectorTag<T> d;
  const auto& series = []() -> const auto& {
    if constexpr (sizeof(T) == 4)
      return kNormalSeriesF32;
    else
      return kNormalSeriesF64;
  }
  ();
  const auto one = hn::Set(d, T(1));
  const auto z = hn::Abs(x);
  const auto t = hn::Div(one, hn::MulAdd(z, hn::Set(d, T(0.25)), one));
  const auto s = hn::MulSub(hn::Set(d, T(2)), t, one);
  auto h = hn::Zero(d);
  for (std::size_t i = std::size(series); i-- > 0;) h = hn::MulAdd(h, s, hn::Set(d, series[i]));
  const auto bell = hn::Exp(d, hn::Mul(hn::Mul(z, z), hn::Set(d, T(-0.5))));
  const auto tail = hn::Mul(hn::Mul(bell, t), h);
  const auto below = hn::Lt(x, hn::Zero(d));
  return {hn::IfThenElse(below, tail, hn::Sub(one, tail)),
          hn::Mul(bell, hn::Set(d, T(0.3989422804014326779)))};  // 1 / sqrt(2 pi)
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
