// Loops over memory by whole vectors, with the rest through masks: the body is written once.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_SIMD_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_SIMD_VECTORS_INL_H_
#undef CONVLAB_KERNELS_CPU_SIMD_VECTORS_INL_H_
#else
#define CONVLAB_KERNELS_CPU_SIMD_VECTORS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using VectorTag = hn::ScalableTag<T>;
template <class T>
using VectorOf = hn::Vec<VectorTag<T>>;

// How a loop's body touches memory: `Load` and `Store` of a whole vector, ...
struct WholeVector {
  template <class T>
  static constexpr std::size_t Count() {
    return hn::MaxLanes(VectorTag<T>());
  }
  template <class T>
  HWY_INLINE VectorOf<T> Load(const T* p) const {
    return hn::LoadU(VectorTag<T>(), p);
  }
  template <class T>
  HWY_INLINE void Store(VectorOf<T> v, T* p) const {
    hn::StoreU(v, VectorTag<T>(), p);
  }
  // v, with absent lanes set to zero.
  template <class T>
  HWY_INLINE VectorOf<T> Keep(VectorOf<T> v) const {
    return v;
  }
};

// ... or of its first lanes; the others are zero, and not stored.
struct FirstLanes {
  std::size_t count;

  template <class T>
  std::size_t Count() const {
    return count;
  }
  template <class T>
  HWY_INLINE VectorOf<T> Load(const T* p) const {
    const VectorTag<T> d;
#if HWY_TARGET == HWY_EMU128  // its MaskedLoad reads the whole vector
    HWY_ALIGN T lanes[hn::MaxLanes(VectorTag<T>())] = {};
    std::copy_n(p, count, lanes);
    return hn::Load(d, lanes);
#else
    return hn::MaskedLoad(hn::FirstN(d, count), d, p);
#endif
  }
  template <class T>
  HWY_INLINE void Store(VectorOf<T> v, T* p) const {
    const VectorTag<T> d;
    hn::BlendedStore(v, hn::FirstN(d, count), d, p);
  }
  template <class T>
  HWY_INLINE VectorOf<T> Keep(VectorOf<T> v) const {
    return hn::IfThenElseZero(hn::FirstN(VectorTag<T>(), count), v);
  }
};

// f(WholeVector or FirstLanes, index of the vector's first element) over `count` elements.
template <class T, class F>
HWY_INLINE void ForEachVector(std::int64_t count, F&& f) {
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(VectorTag<T>()));
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) f(WholeVector(), i);
  if (i < count) f(FirstLanes{static_cast<std::size_t>(count - i)}, i);
}

template <class T>
HWY_INLINE T SumLanes(VectorOf<T> v) {
  return hn::GetLane(hn::SumOfLanes(VectorTag<T>(), v));
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
