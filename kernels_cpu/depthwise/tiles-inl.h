// The register tiles of depthwise, and its vectors of channels.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_DEPTHWISE_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_DEPTHWISE_TILES_INL_H_
#undef CONVLAB_KERNELS_CPU_DEPTHWISE_TILES_INL_H_
#else
#define CONVLAB_KERNELS_CPU_DEPTHWISE_TILES_INL_H_
#endif

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

// Where a vector of channels starts.
template <class T>
HWY_INLINE std::int64_t ChannelsAt(const ChannelView& view, std::int64_t vector) {
  const std::int64_t channel = vector * kLanesOf<T>;
  return channel / kBlock * view.block + channel % kBlock;
}

// f(how its memory is read and written), for a vector of channels. Only nhwc has parts of vectors.
template <class F>
HWY_INLINE void WithAccess(const Depthwise& d, std::int64_t vector, F&& f) {
  if (vector + 1 == d.vectors && d.last_lanes < d.lanes)
    f(FirstLanes{static_cast<std::size_t>(d.last_lanes)});
  else
    f(WholeVector());
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
