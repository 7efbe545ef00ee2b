// The vectors of the instruction set, and the channel blocks and panels that are made of them.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_SIMD_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_SIMD_LANES_INL_H_
#undef CONVLAB_KERNELS_CPU_SIMD_LANES_INL_H_
#else
#define CONVLAB_KERNELS_CPU_SIMD_LANES_INL_H_
#endif

#include <hwy/highway.h>

// No functions, and so no HWY_BEFORE_NAMESPACE: clang warns of attributes that apply to none.
namespace convlab::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One vector of the instruction set, of any element type.
template <class T>
using TagOf = hn::CappedTag<T, 64 / sizeof(T)>;
template <class T>
using VecOf = hn::Vec<TagOf<T>>;
template <class T>
constexpr int kLanesOf = HWY_LANES(float) * 4 / int(sizeof(T));

using F32 = TagOf<float>;
using Vec = VecOf<float>;
constexpr int kLanes = kLanesOf<float>;
// Channels in one block of the blocked layout, of any type: nchw16c, else nchw8c.
constexpr int kBlock = kLanes == 16 ? 16 : 8;
// The vectors and the columns of a panel, the width of the full register tile: one or more whole
// channel blocks.
template <class T>
constexpr int kTileVecsOf = kBlock > 2 * kLanesOf<T> ? kBlock / kLanesOf<T> : 2;
template <class T>
constexpr int kTileColsOf = kTileVecsOf<T>* kLanesOf<T>;
constexpr int kTileVecs = kTileVecsOf<float>;
constexpr int kTileCols = kTileColsOf<float>;
// Elements of a cache line.
template <class T>
constexpr int kLineOf = 64 / int(sizeof(T));

}  // namespace convlab::cpu::HWY_NAMESPACE

#endif  // per-target include guard
