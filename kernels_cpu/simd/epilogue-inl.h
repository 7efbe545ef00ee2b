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
#include "kernels_cpu/simd/relu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The addend and the rectifier, on sums that hold their bias: for_each(f) calls f(sum, offset in
// the output) for each of them. A step at a time, so that one that is not wanted costs a tile one
// branch.
template <class T, class ForEach>
HWY_INLINE void FinishSums(const OutputEpilogue<T>& epilogue, const ForEach& for_each) {
  if (epilogue.addend != nullptr)
    for_each([&](auto& sum, std::int64_t at) HWY_ATTR {
      sum = hn::Add(sum, hn::LoadU(hn::DFromV<std::remove_reference_t<decltype(sum)>>(),
                                   epilogue.addend + at));
    });
  if (epilogue.relu) for_each([](auto& sum, std::int64_t) HWY_ATTR { sum = Relu(sum); });
}

template <class T, class V>
HWY_INLINE void StoreVector(const OutputEpilogue<T>& epilogue, V value, std::int64_t at) {
  if (epilogue.non_temporal)
    hn::Stream(value, hn::DFromV<V>(), epilogue.out + at);
  else
    hn::StoreU(value, hn::DFromV<V>(), epilogue.out + at);
}

// FinishSums and StoreVector for one vector.
template <class T, class V>
HWY_INLINE void FinishAndStore(const OutputEpilogue<T>& epilogue, V sum, std::int64_t at) {
  FinishSums(epilogue, [&](const auto& f) HWY_ATTR { f(sum, at); });
  StoreVector(epilogue, sum, at);
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
