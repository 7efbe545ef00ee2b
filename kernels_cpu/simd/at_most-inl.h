// The minimum of a vector and a limit. Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_SIMD_AT_MOST_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_SIMD_AT_MOST_INL_H_
#undef CONVLAB_KERNELS_CPU_SIMD_AT_MOST_INL_H_
#else
#define CONVLAB_KERNELS_CPU_SIMD_AT_MOST_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// min(v, most), but NaN stays NaN: on x86 Min would turn it into `most`.
template <class V>
HWY_INLINE V AtMost(V v, V most) {
  return hn::IfThenElse(hn::Gt(v, most), most, v);
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
