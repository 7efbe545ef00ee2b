// The rectifier on vectors; conv/math/relu.h has it for scalars.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_SIMD_RELU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_SIMD_RELU_INL_H_
#undef CONVLAB_KERNELS_CPU_SIMD_RELU_INL_H_
#else
#define CONVLAB_KERNELS_CPU_SIMD_RELU_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// max(v, 0), but NaN stays NaN: on x86 Max would turn it into 0.
template <class V>
HWY_INLINE V Relu(V v) {
  return hn::IfThenZeroElse(hn::Lt(v, hn::Zero(hn::DFromV<V>())), v);
}
// The part of the gradient that passes the ReLU that gave y. If y is NaN, that is all of dy.
template <class V>
HWY_INLINE V ReluGradient(V y, V dy) {
  return hn::IfThenZeroElse(hn::Le(y, hn::Zero(hn::DFromV<V>())), dy);
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
