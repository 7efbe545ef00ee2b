// How a register tile ends: its epilogue and its stores. Per-target header: include it after
// hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_GEMM_TILE_OUTPUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_GEMM_TILE_OUTPUT_INL_H_
#undef CONVLAB_KERNELS_CPU_GEMM_TILE_OUTPUT_INL_H_
#else
#define CONVLAB_KERNELS_CPU_GEMM_TILE_OUTPUT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/simd/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// Vector j of a pixel, from the first channel of a panel, whose channel blocks lie `plane` apart.
template <class T = float>
HWY_INLINE std::int64_t VectorAt(std::int64_t plane, int j) {
  return j * kLanesOf<T> / kBlock * plane + j * kLanesOf<T> % kBlock;
}

// An activation on the rows of a tile that were just stored. Pixels that lie side by side are one
// run.
template <class T, class PixelAt>
HWY_NOINLINE void ActivateRows(ActivationKind kind, T* out, std::int64_t plane, PixelAt pixel_at,
                               int begin, int end, int columns) {
  for (int column = 0; column < columns; column += kBlock) {
    const int width = std::min(kBlock, columns - column);
    for (int row = begin, next; row < end; row = next) {
      next = row + 1;
      while (width == kBlock && next < end && pixel_at[next] == pixel_at[next - 1] + kBlock) ++next;
      ActivateStored(kind, out + pixel_at[row] + column / kBlock * plane, (next - row) * width);
    }
  }
}

// The output of a panel: the tile's columns are channels of an activation tensor.
template <class T>
struct TileOutputOf {
  OutputEpilogue<T> epilogue;  // from the panel's first channel on; a bias a column
  std::int64_t plane;          // from one channel block to the next

  // Rows [kBegin, kEnd) of the tile, of which row i goes to pixel_at[i]; pixels ascend.
  // kNeighbours: pixels that lie side by side, as most do, become displacements. That saves the
  // look-ups, which cost most in shallow tiles. But with it GCC 12 keeps some accumulators of
  // direct's AVX-512 tile in memory.
  template <int kBegin, int kEnd, bool kNeighbours = kLanes == 8, class E, int kRows, int kVecs,
            class PixelAt>
  HWY_INLINE void StoreRows(TileOf<E, kRows, kVecs>& tile, const PixelAt& pixel_at) const {
    using D = TagOf<T>;
    static_assert(kBegin < kEnd, "pixel_at may have nothing there");
    const auto at = [&](int i, int j) HWY_ATTR { return pixel_at[i] + VectorAt<T>(plane, j); };
    const auto for_each = [&](auto&& f) HWY_ATTR { tile.template ForEach<kBegin, kEnd>(f); };
    if (epilogue.bias != nullptr)
      for_each([&](int, int j, VecOf<T>& v)
                   HWY_ATTR { v = hn::Add(v, hn::LoadU(D(), epilogue.bias + j * kLanesOf<T>)); });
    FinishSums(epilogue, [&](const auto& f) HWY_ATTR {
      for_each([&](int i, int j, VecOf<T>& v) HWY_ATTR { f(v, at(i, j)); });
    });
    // Neighbouring lines are written one after the other: alternating with another plane's would
    // slow shallow tiles whose results go to L3.
    T* const out = epilogue.out;
    if (epilogue.non_temporal) {
      HWY_UNROLL(16)
      for (int j = 0; j < kVecs; ++j) {
        HWY_UNROLL(16)
        for (int i = kBegin; i < kEnd; ++i) hn::Stream(tile.v[i][j], D(), out + at(i, j));
      }
    } else if (kNeighbours &&
               pixel_at[kEnd - 1] - pixel_at[kBegin] == (kEnd - 1 - kBegin) * kBlock) {
      T* to = out + pixel_at[kBegin];
      HideOrigin(to);
      const std::int64_t apart = plane;  // which no store can change
      HWY_UNROLL(16)
      for (int j = 0; j < kVecs; ++j) {
        HWY_UNROLL(16)
        for (int i = kBegin; i < kEnd; ++i)
          hn::StoreU(tile.v[i][j], D(), to + (i - kBegin) * kBlock + VectorAt<T>(apart, j));
      }
    } else {
      for_each([&](int i, int j, VecOf<T>& v) HWY_ATTR { hn::StoreU(v, D(), out + at(i, j)); });
    }
    if (epilogue.activates_stored())
      ActivateRows(*epilogue.activation, out, plane, pixel_at, kBegin, kEnd, kVecs * kLanesOf<T>);
  }
  template <class E, int kRows, int kVecs, class PixelAt>
  HWY_INLINE void Store(TileOf<E, kRows, kVecs>& tile, const PixelAt& pixel_at) const {
    StoreRows<0, kRows>(tile, pixel_at);
  }
};
using TileOutput = TileOutputOf<float>;

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
