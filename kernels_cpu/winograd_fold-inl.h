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

// A vector of channels of kRows x `columns` folded pixels from (top, left) on goes to x, or is
// added to it, where x has such a pixel and channel. from[kRows][kMost] = the vector whose first
// channel is `channel`.
template <int kRows, int kMost, int kStride>
void UnfoldRun(const WinogradFold& fold, const float* from, std::int64_t image,
               std::int64_t channel, std::int64_t top, std::int64_t left, std::int64_t columns,
               bool accumulate, float* x) {
  const std::int64_t h = fold.x.h, w = fold.x.w, column = left * kStride - fold.pad_w;
  const bool whole = !accumulate && column >= 0 && column + columns * kStride <= w;
  for (int lane = 0; lane < kLanes; lane += kStride, from += kStride) {
    const std::int64_t group = (channel + lane) / kStride, c = group / kStride;
    if (c >= fold.x.c) return;
    for (int i = 0; i < kRows; ++i) {
      const std::int64_t row = (top + i) * kStride + group % kStride - fold.pad_h;
      if (row < 0 || row >= h) continue;
      const float* const pixels = from + i * kMost * kLanes;
      float* const to = x + ((image * fold.x.c + c) * h + row) * w;
      if (whole) {
        for (int j = 0; j < columns; ++j)
          std::memcpy(to + column + j * kStride, pixels + j * kLanes, kStride * sizeof(float));
        continue;
      }
      const std::int64_t begin = std::max<std::int64_t>(-column, 0);
      const std::int64_t end = std::min(w - column, columns * kStride);
      for (std::int64_t j = begin; j < end; ++j) {
        const float value = pixels[j / kStride * kLanes + j % kStride];
        to[column + j] = accumulate ? to[column + j] + value : value;
      }
    }
  }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
