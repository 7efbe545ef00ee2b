// Tiles of a folded x (winograd.h), gathered from plain NCHW, and of a folded dx, put there.
//
// The channels of one (c, a) are neighbours in x, and so are they in a pixel of the tile: `stride`
// floats go at once, six moves for the twelve channels of 7x7/2. A tile of T x T pixels shares
// T - m rows and columns with the next; folded anew each time, it needs no copy of x in memory.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_WINOGRAD_FOLD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_WINOGRAD_FOLD_INL_H_
#undef CONVLAB_KERNELS_CPU_WINOGRAD_FOLD_INL_H_
#else
#define CONVLAB_KERNELS_CPU_WINOGRAD_FOLD_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels_cpu/gemm_kernel-inl.h"
#include "kernels_cpu/winograd.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// to[i][j] = a channel block of the kSize x kSize folded pixels from (top, left) on, zero where x
// has no pixel or no channel.
template <int kSize, int kStride>
void FoldTile(const WinogradFold& fold, const float* x, std::int64_t image, std::int64_t block,
              std::int64_t top, std::int64_t left, float* to) {
  constexpr int groups = kBlock / kStride;
  constexpr std::int64_t line = 64 / sizeof(float);
  const std::int64_t h = fold.x.h, w = fold.x.w, column = left * kStride - fold.pad_w;
  const bool whole = column >= 0 && column + kSize * kStride <= w;
  for (int group = 0; group < groups; ++group, to += kStride) {
    const std::int64_t c = (block * groups + group) / kStride;
    const std::int64_t first = top * kStride + (block * groups + group) % kStride - fold.pad_h;
    const float* const plane = x + (image * fold.x.c + c) * h * w;
    for (int i = 0; i < kSize; ++i) {
      const std::int64_t row = first + i * kStride;
      const bool inside = c < fold.x.c && row >= 0 && row < h;
      float* const pixels = to + i * kSize * kBlock;
      if (inside && whole) {
        const float* const from = plane + row * w + column;
        __builtin_prefetch(from + kSize * kStride + line);  // of the tiles that come next
        for (int j = 0; j < kSize; ++j)
          std::memcpy(pixels + j * kBlock, from + j * kStride, kStride * sizeof(float));
        continue;
      }
      for (int j = 0; j < kSize * kStride; ++j) {
        const std::int64_t at = column + j;
        pixels[j / kStride * kBlock + j % kStride] =
            inside && at >= 0 && at < w ? plane[row * w + at] : 0.f;
      }
    }
  }
}

// Four floats each of as many pixels as d has fours, `step` floats apart.
template <class D>
HWY_INLINE hn::Vec<D> LoadFours(D d, const float* from, std::ptrdiff_t step) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, LoadFours(half, from + hn::MaxLanes(half) / 4 * step, step),
                       LoadFours(half, from, step));
  }
}

// A vector of channels of kRows x `columns` folded pixels from (top, left) on goes to x, or is
// added to it, where x has such a pixel and channel. from[kRows][kMost] = the vector whose first
// channel is `channel`.
//
// Four channels are one row of x for a stride of four, two for one of two. They go there a vector
// at a time: of single pixels' stores few lines would fill the store buffer, and all would wait.
template <int kRows, int kMost, int kStride>
void UnfoldRun(const WinogradFold& fold, const float* from, std::int64_t image,
               std::int64_t channel, std::int64_t top, std::int64_t left, std::int64_t columns,
               bool accumulate, float* x) {
  static_assert(kStride == 2 || kStride == 4);
  static_assert(kMost * kStride % kLanes == 0);
  const std::int64_t h = fold.x.h, w = fold.x.w, column = left * kStride - fold.pad_w;
  // What x has of a row, in floats from `column` on.
  const std::int64_t begin = std::max<std::int64_t>(-column, 0);
  const std::int64_t end = std::min(w - column, columns * kStride);
  const auto put = [&](float* row, std::int64_t j, Vec v) HWY_ATTR {
    if (row == nullptr) return;
    if (!accumulate && j >= begin && j + kLanes <= end) return hn::StoreU(v, F32(), row + j);
    const auto lanes_to = [j](std::int64_t at) HWY_ATTR {
      return hn::FirstN(F32(), std::size_t(std::clamp<std::int64_t>(at - j, 0, kLanes)));
    };
    const auto inside = hn::AndNot(lanes_to(begin), lanes_to(end));
    if (accumulate) v = hn::Add(v, hn::MaskedLoad(inside, F32(), row + j));
    hn::BlendedStore(v, inside, F32(), row + j);
  };
  for (int lane = 0; lane < kLanes; lane += 4)
    for (int i = 0; i < kRows; ++i) {
      const auto row_of = [&](std::int64_t group) -> float* {
        const std::int64_t c = group / kStride;
        const std::int64_t row = (top + i) * kStride + group % kStride - fold.pad_h;
        if (c >= fold.x.c || row < 0 || row >= h) return nullptr;
        return x + ((image * fold.x.c + c) * h + row) * w + column;
      };
      const std::int64_t group = (channel + lane) / kStride;
      float* const row = row_of(group);
      const float* pixels = from + i * kMost * kLanes + lane;
      if constexpr (kStride == 4) {
        for (std::int64_t j = 0; j < columns * kStride; j += kLanes, pixels += kLanes / 4 * kLanes)
          put(row, j, LoadFours(F32(), pixels, kLanes));
      } else {
        using Pairs = hn::Repartition<double, F32>;
        float* const below = row_of(group + 1);
        for (std::int64_t j = 0; j < columns * kStride;
             j += kLanes, pixels += kLanes / 2 * kLanes) {
          const auto even = hn::BitCast(Pairs(), LoadFours(F32(), pixels, 2 * kLanes));
          const auto odd = hn::BitCast(Pairs(), LoadFours(F32(), pixels + kLanes, 2 * kLanes));
          put(row, j, hn::BitCast(F32(), hn::InterleaveLower(Pairs(), even, odd)));
          put(below, j, hn::BitCast(F32(), hn::InterleaveUpper(Pairs(), even, odd)));
        }
      }
    }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
