// Loops over memory as of vectors-inl.h that may hold elements of 16 bits: a body loads vectors of
// f32 from them, and stores such vectors rounded to the nearest, ties to even.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_HALF_STORED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_HALF_STORED_INL_H_
#undef CONVLAB_KERNELS_CPU_HALF_STORED_INL_H_
#else
#define CONVLAB_KERNELS_CPU_HALF_STORED_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels_cpu/half/stored.h"
#include "kernels_cpu/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using WideTag = VectorTag<float>;
using WideVector = VectorOf<float>;
using WideBits = hn::RebindToUnsigned<WideTag>;
using HalfBits = hn::Rebind<std::uint16_t, WideTag>;

HWY_INLINE WideVector Widen(const StoredBf16* p) {
  const auto bits = hn::LoadU(HalfBits(), reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(WideTag(), hn::ShiftLeft<16>(hn::PromoteTo(WideBits(), bits)));
}

// As round_to_nearest_bf16().
HWY_INLINE void Round(WideVector v, StoredBf16* p) {
  const WideBits d;
  const hn::RebindToSigned<WideTag> integers;
  const auto bits = hn::BitCast(d, v);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto half = hn::Add(hn::Set(d, 0x7fff), hn::And(upper, hn::Set(d, 1)));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, half));
  const auto quiet = hn::Or(upper, hn::Set(d, 0x40));
  const auto kept = hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(v)), quiet, rounded);
  hn::StoreU(hn::DemoteTo(HalfBits(), hn::BitCast(integers, kept)), HalfBits(),
             reinterpret_cast<std::uint16_t*>(p));
}

#if HWY_TARGET == HWY_EMU128  // has no instruction for f16
HWY_INLINE WideVector Widen(const StoredF16* p) {
  HWY_ALIGN float lanes[hn::MaxLanes(WideTag())];
  for (float& lane : lanes) lane = *p++;
  return hn::Load(WideTag(), lanes);
}
HWY_INLINE void Round(WideVector v, StoredF16* p) {
  HWY_ALIGN float lanes[hn::MaxLanes(WideTag())];
  hn::Store(v, WideTag(), lanes);
  for (const float lane : lanes) *p++ = StoredF16(lane);
}
#else
using Float16Tag = hn::Rebind<hwy::float16_t, WideTag>;

HWY_INLINE WideVector Widen(const StoredF16* p) {
  const auto halves = hn::LoadU(Float16Tag(), reinterpret_cast<const hwy::float16_t*>(p));
  return hn::PromoteTo(WideTag(), halves);
}
HWY_INLINE void Round(WideVector v, StoredF16* p) {
  hn::StoreU(hn::DemoteTo(Float16Tag(), v), Float16Tag(), reinterpret_cast<hwy::float16_t*>(p));
}
#endif

// WholeVector or FirstLanes, of elements of any type. A part of a vector of 16-bit elements goes
// through lanes of its own: not every target masks them.
template <class At>
struct Stored : At {
  template <class S>
  HWY_INLINE VectorOf<Computed<S>> Load(const S* p) const {
    if constexpr (is_computed_as_stored<S>) {
      return At::Load(p);
    } else if constexpr (std::is_same_v<At, WholeVector>) {
      return Widen(p);
    } else {
      HWY_ALIGN S lanes[hn::MaxLanes(WideTag())];
      std::copy_n(p, At::count, lanes);
      return Widen(lanes);
    }
  }
  template <class S>
  HWY_INLINE void Store(VectorOf<Computed<S>> v, S* p) const {
    if constexpr (is_computed_as_stored<S>) {
      At::Store(v, p);
    } else if constexpr (std::is_same_v<At, WholeVector>) {
      Round(v, p);
    } else {
      HWY_ALIGN S lanes[hn::MaxLanes(WideTag())];
      Round(v, lanes);
      std::copy_n(lanes, At::count, p);
    }
  }
};

// ForEachVector for vectors of T, whatever the elements in memory are.
template <class T, class F>
HWY_INLINE void ForEachStored(std::int64_t count, F&& f) {
  ForEachVector<T>(count,
                   [&](auto at, std::int64_t i) HWY_ATTR { f(Stored<decltype(at)>{at}, i); });
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
