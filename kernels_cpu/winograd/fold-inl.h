// Tiles of a folded x (winograd.h), gathered from plain NCHW, and tiles of a folded dx, scattered
// to it; a run of tiles at a time.
//
// The channels of one (c, a) are neighbours both in x and in a pixel of the tile. Four channels of
// some pixels come from one row of x for a stride of four, from two rows for a stride of two, and
// from four planes for a stride of one. They are moved in whole vectors: stores of single pixels
// would fill the store buffer with few lines. x is folded anew each time and needs no copy in
// memory.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_WINOGRAD_FOLD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_WINOGRAD_FOLD_INL_H_
#undef CONVLAB_KERNELS_CPU_WINOGRAD_FOLD_INL_H_
#else
#define CONVLAB_KERNELS_CPU_WINOGRAD_FOLD_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/simd/put_transposed-inl.h"
#include "kernels_cpu/winograd/winograd.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// The blocks of four lanes of v, `step` floats apart.
template <class D>
HWY_INLINE void StoreFours(D d, hn::Vec<D> v, float* to, std::ptrdiff_t step) {
  if constexpr (hn::MaxLanes(d) == 4) {
    hn::StoreU(v, d, to);
  } else {
    const hn::Half<D> half;
    StoreFours(half, hn::LowerHalf(half, v), to, step);
    StoreFours(half, hn::UpperHalf(half, v), to + hn::MaxLanes(half) / 4 * step, step);
  }
}

// The columns of x that a row of folded pixels covers, in floats from the first of them on.
struct FoldedColumns {
  std::int64_t first, begin, end;

  FoldedColumns(const WinogradFold& fold, int stride, std::int64_t left, std::int64_t columns)
      : first(left * stride - fold.pad_w),
        begin(std::max<std::int64_t>(-first, 0)),
        end(std::min(fold.x.w - first, columns * stride)) {}
  bool Whole(std::int64_t j) const { return j >= begin && j + kLanes <= end; }
  HWY_INLINE auto Inside(std::int64_t j) const {
    const auto lanes_to = [j](std::int64_t at) HWY_ATTR {
      return hn::FirstN(F32(), std::size_t(std::clamp<std::int64_t>(at - j, 0, kLanes)));
    };
    return hn::AndNot(lanes_to(begin), lanes_to(end));
  }
};

// The row of x that is row i of a channel's pixels; null where x has none.
template <int kStride, class T>
HWY_INLINE T* FoldedRow(const WinogradFold& fold, T* x, std::int64_t image, std::int64_t channel,
                        std::int64_t i) {
  const std::int64_t group = channel / kStride, c = group / kStride;
  const std::int64_t row = i * kStride + group % kStride - fold.pad_h;
  if (c >= fold.x.c || row < 0 || row >= fold.x.h) return nullptr;
  return x + ((image * fold.x.c + c) * fold.x.h + row) * fold.x.w;
}

// to[kRows][kMost] = a channel block of kRows x `columns` folded pixels from (top, left) on, zero
// where x has no pixel or no channel.
template <int kRows, int kMost, int kStride>
void FoldRun(const WinogradFold& fold, const float* x, std::int64_t image, std::int64_t block,
             std::int64_t top, std::int64_t left, std::int64_t columns, float* to) {
  static_assert(kStride == 1 || kStride == 2 || kStride == 4);
  static_assert(kMost * kStride % kLanes == 0);
  constexpr int kSources = 4 / kStride, kStep = kSources * kBlock;
  using Pairs = hn::Repartition<double, F32>;
  const FoldedColumns inside(fold, kStride, left, columns);
  for (int lane = 0; lane < kBlock; lane += 4)
    for (int i = 0; i < kRows; ++i) {
      const float* rows[kSources];
      for (int r = 0; r < kSources; ++r)
        rows[r] = FoldedRow<kStride>(fold, x, image, block * kBlock + lane + r * kStride, top + i);
      float* pixels = to + i * kMost * kBlock + lane;
      for (std::int64_t j = 0; j < columns * kStride;
           j += kLanes, pixels += kLanes / kStride * kBlock) {
        const auto load = [&](int r) HWY_ATTR {
          if (rows[r] == nullptr) return hn::Zero(F32());
          const float* const at = rows[r] + inside.first + j;
          __builtin_prefetch(at + columns * kStride);  // for the next run
          if (inside.Whole(j)) return hn::LoadU(F32(), at);
          return hn::MaskedLoad(inside.Inside(j), F32(), at);
        };
        const auto put = [&](int pixel, auto fours) HWY_ATTR {
          StoreFours(F32(), hn::BitCast(F32(), fours), pixels + pixel * kBlock, kStep);
        };
        if constexpr (kStride == 4) {
          put(0, load(0));
        } else if constexpr (kStride == 2) {
          const auto a = hn::BitCast(Pairs(), load(0)), b = hn::BitCast(Pairs(), load(1));
          put(0, hn::InterleaveLower(Pairs(), a, b));
          put(1, hn::InterleaveUpper(Pairs(), a, b));
        } else {
          TransposeSquares(F32(), load, put);
        }
      }
    }
}

// Writes a vector of channels of kRows x `columns` folded pixels from (top, left) on to x, or adds
// it, where x has such a pixel and channel. from[kRows][kMost] = the vector whose first channel is
// `channel`.
template <int kRows, int kMost, int kStride>
void UnfoldRun(const WinogradFold& fold, const float* from, std::int64_t image,
               std::int64_t channel, std::int64_t top, std::int64_t left, std::int64_t columns,
               bool accumulate, float* x) {
  static_assert(kStride == 2 || kStride == 4);
  static_assert(kMost * kStride % kLanes == 0);
  const FoldedColumns inside(fold, kStride, left, columns);
  const auto put = [&](float* row, std::int64_t j, Vec v) HWY_ATTR {
    if (row == nullptr) return;
    float* const at = row + inside.first + j;
    if (!accumulate && inside.Whole(j)) return hn::StoreU(v, F32(), at);
    const auto mask = inside.Inside(j);
    if (accumulate) v = hn::Add(v, hn::MaskedLoad(mask, F32(), at));
    hn::BlendedStore(v, mask, F32(), at);
  };
  for (int lane = 0; lane < kLanes; lane += 4)
    for (int i = 0; i < kRows; ++i) {
      float* const row = FoldedRow<kStride>(fold, x, image, channel + lane, top + i);
      const float* pixels = from + i * kMost * kLanes + lane;
      if constexpr (kStride == 4) {
        for (std::int64_t j = 0; j < columns * kStride; j += kLanes, pixels += kLanes / 4 * kLanes)
          put(row, j, LoadBlocks(F32(), WholeSums{pixels}, 0, kLanes));
      } else {
        using Pairs = hn::Repartition<double, F32>;
        float* const below = FoldedRow<kStride>(fold, x, image, channel + lane + 2, top + i);
        for (std::int64_t j = 0; j < columns * kStride;
             j += kLanes, pixels += kLanes / 2 * kLanes) {
          const auto load = [&](int first) HWY_ATTR {
            return hn::BitCast(Pairs(),
                               LoadBlocks(F32(), WholeSums{pixels}, first * kLanes, 2 * kLanes));
          };
          const auto even = load(0), odd = load(1);
          put(row, j, hn::BitCast(F32(), hn::InterleaveLower(Pairs(), even, odd)));
          put(below, j, hn::BitCast(F32(), hn::InterleaveUpper(Pairs(), even, odd)));
        }
      }
    }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
