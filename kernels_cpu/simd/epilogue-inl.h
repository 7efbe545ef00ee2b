// The epilogue of an output on vectors of sums: see kernels_cpu/epilogue.h.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_SIMD_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_SIMD_EPILOGUE_INL_H_
#undef CONVLAB_KERNELS_CPU_SIMD_EPILOGUE_INL_H_
#else
#define CONVLAB_KERNELS_CPU_SIMD_EPILOGUE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

#include "kernels_cpu/epilogue.h"
#include "kernels_cpu/simd/at_most-inl.h"
#include "kernels_cpu/simd/relu-inl.h"
#include "kernels_cpu/simd/unrolled-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Activations on `count` runs of stored values, `step` apart. In layers/elementwise.cpp, compiled
// for the caller's instruction set.
void ActivateStored(ActivationKind, float* values, std::int64_t length, std::int64_t step = 0,
                    std::int64_t count = 1);
void ActivateStored(ActivationKind, double* values, std::int64_t length, std::int64_t step = 0,
                    std::int64_t count = 1);

// An activation of an instruction or two, on sums that hold everything else.
template <class T, class ForEach>
HWY_INLINE void ClampSums(ActivationKind kind, const ForEach& for_each) {
  if (kind != ActivationKind::relu && kind != ActivationKind::relu6) return;
  for_each([](auto& sum, std::int64_t) CONVLAB_INLINE_LAMBDA { sum = Relu(sum); });
  if (kind == ActivationKind::relu) return;
  for_each([](auto& sum, std::int64_t) CONVLAB_INLINE_LAMBDA {
    sum = AtMost(sum, hn::Set(hn::DFromV<std::remove_reference_t<decltype(sum)>>(), T(6)));
  });
}

// The addend, and a ReLU or ReLU6, on sums that hold their bias: for_each(f) calls f(sum, offset in
// the output) for each of them. A step at a time, so that one that is not wanted costs a tile one
// branch. The caller calls ActivateStored() where epilogue.activates_stored().
template <class T, class ForEach>
HWY_INLINE void FinishSums(const OutputEpilogue<T>& epilogue, const ForEach& for_each) {
  if (epilogue.addend != nullptr)
    for_each([&](auto& sum, std::int64_t at) HWY_ATTR {
      sum = hn::Add(sum, hn::LoadU(hn::DFromV<std::remove_reference_t<decltype(sum)>>(),
                                   epilogue.addend + at));
    });
  if (epilogue.activation) ClampSums<T>(*epilogue.activation, for_each);
}

template <class T, class V>
HWY_INLINE void StoreVector(const OutputEpilogue<T>& epilogue, V value, std::int64_t at) {
  if (epilogue.non_temporal)
    hn::Stream(value, hn::DFromV<V>(), epilogue.out + at);
  else
    hn::StoreU(value, hn::DFromV<V>(), epilogue.out + at);
}

// FinishSums and StoreVector for one vector. The caller calls ActivateStored(), too.
template <class T, class V>
HWY_INLINE void FinishAndStore(const OutputEpilogue<T>& epilogue, V sum, std::int64_t at) {
  FinishSums(epilogue, [&](const auto& f) HWY_ATTR { f(sum, at); });
  StoreVector(epilogue, sum, at);
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
