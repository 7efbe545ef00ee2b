// Tiles of a folded x (winograd.h), gathered from plain NCHW, and tiles of a folded dx, scattered
// to it; a run of tiles at a time.
//
// The channels of one (c, a) are neighbours both in x and in a pixel of the tile. In f32, four
// channels of some pixels come from one row of x for a stride of four, from two rows for a stride
// of two, and from four planes for a stride of one. They are moved in whole vectors: stores of
// single pixels would fill the store buffer with few lines. x is folded anew each time and needs no
// copy in memory.
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

#include "kernels_cpu/simd/lanes-inl.h"
#include "kernels_cpu/simd/put_transposed-inl.h"
#include "kernels_cpu/winograd/winograd.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// How many channels of a pixel are moved together: as many as 128 bits hold, since those can be
// transposed, or as many as are neighbours in x. A vector of f64 in 128 bits is shorter than a
// stride of four: there each vector of x is half of a pixel's four channels.
template <class Real, int kStride>
constexpr int kFoldedChannels = std::min(kLanesOf<Real>, std::max(kSquare<Real>, kStride));
// Elements from one such vector of a row of x to the next.
template <class Real, int kStride>
constexpr int kFoldedStep = std::max(kLanesOf<Real>, kStride);
// Where the first of them begins.
template <class Real, int kStride>
HWY_INLINE std::int64_t FirstFolded(std::int64_t channel) {
  return kLanesOf<Real> < kStride ? channel % kStride : 0;
}

// The blocks of kSide lanes of v, `step` elements apart.
template <int kSide, class D>
HWY_INLINE void StoreBlocks(D d, hn::Vec<D> v, hn::TFromD<D>* to, std::ptrdiff_t step) {
  if constexpr (hn::MaxLanes(d) == kSide) {
    hn::StoreU(v, d, to);
  } else {
    const hn::Half<D> half;
    StoreBlocks<kSide>(half, hn::LowerHalf(half, v), to, step);
    StoreBlocks<kSide>(half, hn::UpperHalf(half, v), to + hn::MaxLanes(half) / kSide * step, step);
  }
}

// The columns of x that a row of folded pixels covers, in elements from the first of them on.
template <class Real>
struct FoldedColumns {
  std::int64_t first, begin, end;

  FoldedColumns(const WinogradFold& fold, int stride, std::int64_t left, std::int64_t columns)
      : first(left * stride - fold.pad_w),
        begin(std::max<std::int64_t>(-first, 0)),
        end(std::min(fold.x.w - first, columns * stride)) {}
  bool Whole(std::int64_t j) const { return j >= begin && j + kLanesOf<Real> <= end; }
  HWY_INLINE auto Inside(std::int64_t j) const {
    const auto lanes_to = [j](std::int64_t at) HWY_ATTR {
      return hn::FirstN(TagOf<Real>(),
                        std::size_t(std::clamp<std::int64_t>(at - j, 0, kLanesOf<Real>)));
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
  return x + image * fold.x.image_step() + c * fold.x.channel_step() + row * fold.x.w;
}

// to[kRows][kMost] = a channel block of kRows x `columns` folded pixels from (top, left) on, zero
// where x has no pixel or no channel.
template <class Real, int kRows, int kMost, int kStride>
void FoldRun(const WinogradFold& fold, const Real* x, std::int64_t image, std::int64_t block,
             std::int64_t top, std::int64_t left, std::int64_t columns, Real* to) {
  static_assert(kStride == 1 || kStride == 2 || kStride == 4);
  static_assert(kMost * kStride % kLanesOf<Real> == 0);
  constexpr int kChannels = kFoldedChannels<Real, kStride>, kStep = kFoldedStep<Real, kStride>;
  constexpr int kSources = std::max(kChannels / kStride, 1);
  using D = TagOf<Real>;
  const FoldedColumns<Real> inside(fold, kStride, left, columns);
  for (int lane = 0; lane < kBlock; lane += kChannels)
    for (int i = 0; i < kRows; ++i) {
      const Real* rows[kSources];
      for (int r = 0; r < kSources; ++r)
        rows[r] = FoldedRow<kStride>(fold, x, image, block * kBlock + lane + r * kStride, top + i);
      Real* pixels = to + i * kMost * kBlock + lane;
      for (std::int64_t j = FirstFolded<Real, kStride>(lane); j < columns * kStride;
           j += kStep, pixels += kStep / kStride * kBlock) {
        const auto load = [&](int r) HWY_ATTR {
          if (rows[r] == nullptr) return hn::Zero(D());
          const Real* const at = rows[r] + inside.first + j;
          __builtin_prefetch(at + columns * kStride);  // for the next run
          if (inside.Whole(j)) return hn::LoadU(D(), at);
          return hn::MaskedLoad(inside.Inside(j), D(), at);
        };
        const auto put = [&](int pixel, auto blocks) HWY_ATTR {
          StoreBlocks<kChannels>(D(), hn::BitCast(D(), blocks), pixels + pixel * kBlock,
                                 kSources * kBlock);
        };
        if constexpr (kSources == 1) {
          put(0, load(0));
        } else if constexpr (kStride == 2) {  // four channels
          using Pairs = hn::Repartition<double, D>;
          const auto a = hn::BitCast(Pairs(), load(0)), b = hn::BitCast(Pairs(), load(1));
          put(0, hn::InterleaveLower(Pairs(), a, b));
          put(1, hn::InterleaveUpper(Pairs(), a, b));
        } else {
          TransposeSquares(D(), load, put);
        }
      }
    }
}

// Writes a vector of channels of kRows x `columns` folded pixels from (top, left) on to x, or adds
// it, where x has such a pixel and channel. from[kRows][kMost] = the vector whose first channel is
// `channel`.
template <class Real, int kRows, int kMost, int kStride>
void UnfoldRun(const WinogradFold& fold, const Real* from, std::int64_t image, std::int64_t channel,
               std::int64_t top, std::int64_t left, std::int64_t columns, bool accumulate,
               Real* x) {
  constexpr int kVec = kLanesOf<Real>;
  static_assert(kStride == 2 || kStride == 4);
  static_assert(kMost * kStride % kVec == 0);
  constexpr int kChannels = kFoldedChannels<Real, kStride>, kStep = kFoldedStep<Real, kStride>;
  using D = TagOf<Real>;
  const FoldedColumns<Real> inside(fold, kStride, left, columns);
  const auto put = [&](Real* row, std::int64_t j, VecOf<Real> v) HWY_ATTR {
    if (row == nullptr) return;
    Real* const at = row + inside.first + j;
    if (!accumulate && inside.Whole(j)) return hn::StoreU(v, D(), at);
    const auto mask = inside.Inside(j);
    if (accumulate) v = hn::Add(v, hn::MaskedLoad(mask, D(), at));
    hn::BlendedStore(v, mask, D(), at);
  };
  for (int lane = 0; lane < kVec; lane += kChannels)
    for (int i = 0; i < kRows; ++i) {
      Real* const row = FoldedRow<kStride>(fold, x, image, channel + lane, top + i);
      const Real* pixels = from + i * kMost * kVec + lane;
      if constexpr (kChannels <= kStride) {
        for (std::int64_t j = FirstFolded<Real, kStride>(channel + lane); j < columns * kStride;
             j += kStep, pixels += kStep / kStride * kVec)
          put(row, j, LoadBlocks<kChannels>(D(), WholeSums{pixels}, 0, kVec));
      } else {  // four channels, a stride of two
        using Pairs = hn::Repartition<double, D>;
        Real* const below = FoldedRow<kStride>(fold, x, image, channel + lane + 2, top + i);
        for (std::int64_t j = 0; j < columns * kStride;
             j += kStep, pixels += kStep / kStride * kVec) {
          const auto load = [&](int first) HWY_ATTR {
            return hn::BitCast(
                Pairs(), LoadBlocks<kChannels>(D(), WholeSums{pixels}, first * kVec, 2 * kVec));
          };
          const auto even = load(0), odd = load(1);
          put(row, j, hn::BitCast(D(), hn::InterleaveLower(Pairs(), even, odd)));
          put(below, j, hn::BitCast(D(), hn::InterleaveUpper(Pairs(), even, odd)));
        }
      }
    }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
