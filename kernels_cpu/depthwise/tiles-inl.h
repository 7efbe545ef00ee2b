// The register tiles of depthwise, and its vectors of channels.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_DEPTHWISE_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_DEPTHWISE_TILES_INL_H_
#undef CONVLAB_KERNELS_CPU_DEPTHWISE_TILES_INL_H_
#else
#define CONVLAB_KERNELS_CPU_DEPTHWISE_TILES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels_cpu/depthwise/depthwise.h"
#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/simd/unrolled-inl.h"
#include "kernels_cpu/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// Pixels' sums, a chunk's taps and one input column share the registers: 14 + 7 + 1 of 32, or
// 7 + 5 + 1 of 16. Most nets' rows are multiples of 7.
constexpr int kTilePixels = kLanes == 16 ? 14 : 7, kFewPixels = 7;
constexpr int kChunkTaps = kLanes == 16 ? 7 : 5;
// In backward_filter the taps' sums in several filter rows, as many columns of dy as taps, and one
// of x: 21 + 7 + 1 of 32, or 9 + 3 + 1 of 16.
constexpr int kFilterTaps = kLanes == 16 ? 7 : 4;
constexpr int kFilterSums = kLanes == 16 ? 21 : 9;

HWY_INLINE std::int64_t ChannelAt(const ChannelView& view, std::int64_t channel) {
  return channel / kBlock * view.block + channel % kBlock;
}

// Where a vector of channels of `out` starts, and what it reads of `in`. Channel c has the filters
// c * multiplier to (c + 1) * multiplier - 1.
template <class T>
HWY_INLINE std::int64_t OutAt(const Depthwise& d, std::int64_t vector) {
  return ChannelAt(d.out, vector * kLanesOf<T>);
}
template <class T>
HWY_INLINE std::int64_t InAt(const Depthwise& d, std::int64_t vector) {
  const std::int64_t channel = vector * kLanesOf<T>;
  // In f64 the last vector of a block may be padding of dx, where dy has no padding as far.
  return ChannelAt(d.in, d.problem.pass == Pass::backward_data
                             ? std::min(channel, d.problem.c - 1) * d.multiplier
                             : channel / d.multiplier);
}

// Lane i is x's channel of filter `first` + i.
template <class T>
class Repeated {
 public:
  using Index = hwy::MakeSigned<T>;

  Repeated(const Depthwise& d, std::int64_t first, std::int64_t lanes) {
    for (int i = 0; i < kLanesOf<T>; ++i)
      index_[i] = static_cast<Index>((first + std::min<std::int64_t>(i, lanes - 1)) / d.multiplier -
                                     first / d.multiplier);
    some_.count = static_cast<std::size_t>(index_[kLanesOf<T> - 1] + 1);
  }
  HWY_INLINE VecOf<T> Load(const T* p) const {
    return hn::TableLookupLanes(some_.Load(p), hn::SetTableIndices(TagOf<T>(), index_));
  }

 private:
  HWY_ALIGN Index index_[kLanesOf<T>];
  FirstLanes some_;
};

// Lane i is dy's channel of the same one of the filters of dx's channel i, zero where dx has
// padding.
template <class T>
class Gathered {
 public:
  using Index = hwy::MakeSigned<T>;

  Gathered(const Depthwise& d, std::int64_t first) {
    const std::int64_t lanes = std::clamp<std::int64_t>(d.problem.c - first, 0, kLanesOf<T>);
    lanes_ = static_cast<std::size_t>(lanes);
    for (int i = 0; i < kLanesOf<T>; ++i)
      index_[i] = i < lanes ? static_cast<Index>(ChannelAt(d.in, i * d.multiplier)) : 0;
  }
  HWY_INLINE VecOf<T> Load(const T* p) const {
    const TagOf<T> d;
    const auto index = hn::Load(hn::RebindToSigned<TagOf<T>>(), index_);
    return hn::IfThenElseZero(hn::FirstN(d, lanes_), hn::GatherIndex(d, p, index));
  }

 private:
  HWY_ALIGN Index index_[kLanesOf<T>];
  std::size_t lanes_;
};

// f(how `in` is read, how `out` is read and written), for a vector of channels.
template <class T, class F>
HWY_INLINE void WithAccess(const Depthwise& d, std::int64_t vector, F&& f) {
  const std::int64_t lanes = vector + 1 == d.vectors ? d.last_lanes : d.lanes;
  const FirstLanes some{static_cast<std::size_t>(lanes)};
  if (d.multiplier > 1 && d.problem.pass == Pass::backward_data)
    f(Gathered<T>(d, vector * d.lanes), some);
  else if (d.multiplier > 1)
    f(Repeated<T>(d, vector * d.lanes, lanes), some);
  else if (lanes < d.lanes)
    f(some, some);
  else
    f(WholeVector(), WholeVector());
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
