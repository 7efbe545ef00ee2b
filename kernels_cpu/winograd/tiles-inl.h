// Where the pixels of Winograd's tiles lie: in mosaics of images, one stride phase at a time
// (winograd.h).
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_WINOGRAD_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_WINOGRAD_TILES_INL_H_
#undef CONVLAB_KERNELS_CPU_WINOGRAD_TILES_INL_H_
#else
#define CONVLAB_KERNELS_CPU_WINOGRAD_TILES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels_cpu/device/range.h"
#include "kernels_cpu/simd/lanes-inl.h"
#include "kernels_cpu/winograd/winograd.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

using Geometry = WinogradGeometry;
using Spec = WinogradSpec;

// Where a tile lies: its mosaic, and its row and column of tiles there. Tiles are counted along
// rows.
struct TileAt {
  std::int64_t mosaic, y, x;
  TileAt(const Geometry& g, std::int64_t tile)
      : mosaic(tile / (g.tiles_h() * g.tiles_w())),
        y(tile / g.tiles_w() % g.tiles_h()),
        x(tile % g.tiles_w()) {}
};

// `count` neighbouring rows or columns of a mosaic, at most kMost, from `first` on, in pixels of a
// stride phase. Each lies so many elements from the mosaic's first pixel; below zero, it is in no
// image. Pixel i of the phase is pixel i * kStride + offset of its image. Dilated, image i has
// every so-many-th of the tensor's `size` pixels from i on.
template <int kMost, int kStride>
struct Line {
  std::ptrdiff_t at[kMost];
  bool whole = true;  // all in one image

  HWY_INLINE Line(std::int64_t first, int count, std::int64_t images, std::int64_t pitch,
                  std::int64_t offset, std::int64_t size, std::ptrdiff_t image_step,
                  std::ptrdiff_t step, std::int64_t dilation) {
    std::int64_t image = first < 0 ? -1 : images == 1 ? 0 : first / pitch;
    std::int64_t i = first - image * pitch;
    const auto size_of = [&](std::int64_t of_image) {
      return dilation == 1 ? size : ceil_div(size - of_image, dilation);
    };
    whole = image >= 0 && image < images && (i + count - 1) * kStride + offset < size_of(image);
    if constexpr (kStride > 1) whole = whole && i * kStride + offset >= 0 && i + count <= pitch;
    if (whole) {
      at[0] = image * image_step + (i * kStride + offset) * step;
      for (int k = 1; k < count; ++k) at[k] = at[0] + k * kStride * step;
      return;
    }
    for (int k = 0; k < count; ++k) {
      const std::int64_t pixel = i * kStride + offset;
      const bool inside = image >= 0 && image < images && pixel >= 0 && pixel < size_of(image);
      at[k] = inside ? image * image_step + pixel * step : -1;
      if (++i == pitch) i = 0, ++image;
    }
  }
};

// kRows x `count` pixels of tensor t in a stride phase, from (top, left) of their mosaic on.
template <int kRows, int kColumns, int kStride = 1>
struct Pixels {
  Line<kRows, kStride> rows;
  Line<kColumns, kStride> columns;
  std::ptrdiff_t line;  // elements of an image's row

  HWY_INLINE Pixels(const Geometry& g, const TensorDesc& t, const WinogradGrid& grid,
                    std::int64_t phase, std::int64_t top, std::int64_t left, int count = kColumns)
      : rows(top, kRows, g.mosaic_h, g.pitch_h(), grid.at_h(phase), t.h,
             g.dilated() ? t.w * kBlock : g.mosaic_w * t.image_step(), g.dilation_h * t.w * kBlock,
             g.dilation_h),
        columns(left, count, g.mosaic_w, g.pitch_w(), grid.at_w(phase), t.w,
                g.dilated() ? kBlock : t.image_step(), g.dilation_w * kBlock, g.dilation_w),
        line(g.dilated() || g.mosaic_w == 1 ? t.w * kBlock : t.image_step()) {}

  // Below zero where there is no pixel.
  HWY_INLINE std::ptrdiff_t at(int i, int j) const {
    return (rows.at[i] | columns.at[j]) < 0 ? -1 : rows.at[i] + columns.at[j];
  }
  // Where a channel block of the mosaic's first image begins.
  static std::ptrdiff_t Plane(const Geometry& g, const TensorDesc& t, const TileAt& at,
                              std::int64_t block) {
    return at.mosaic * g.mosaic_images() * t.image_step() + block * t.channel_step();
  }
  // Prefetches the last kNew rows, which no tile above has read, of a column ahead; past the line's
  // end, those of the tiles below. First to L2, which has more misses in flight than L1.
  template <int kNew, class Real>
  HWY_INLINE void PrefetchColumn(const Real* plane, int j) const {
    if (!rows.whole || columns.at[j] < 0) return;
    PrefetchNewRows<kNew, 2>(plane,
                             columns.at[j] + std::min<std::ptrdiff_t>(40 * kStride * kBlock, line));
    PrefetchNewRows<kNew, 3>(plane, columns.at[j] + 8 * kStride * kBlock);
  }
  // Column j of a plane, zero where there is no pixel.
  template <class Real>
  HWY_INLINE void Load(const Real* plane, int j, VecOf<Real>* x) const {
    const TagOf<Real> d;
    const std::ptrdiff_t column = columns.at[j];
    if (rows.whole && column >= 0) {
      const Real* const from = plane + rows.at[0] + column;
      const std::ptrdiff_t step = rows.at[1] - rows.at[0];
      HWY_UNROLL(8)
      for (int i = 0; i < kRows; ++i) x[i] = hn::LoadU(d, from + i * step);
      return;
    }
    HWY_UNROLL(8)
    for (int i = 0; i < kRows; ++i)
      x[i] = (rows.at[i] | column) < 0 ? hn::Zero(d) : hn::LoadU(d, plane + rows.at[i] + column);
  }

 private:
  template <int kNew, int kCache, class Real>
  HWY_INLINE void PrefetchNewRows(const Real* plane, std::ptrdiff_t column) const {
    const std::ptrdiff_t step = rows.at[1] - rows.at[0];
    if (column >= line) column += kNew * step - line;
    const Real* const from = plane + rows.at[kRows - kNew] + column;
    HWY_UNROLL(8)
    for (int i = 0; i < kNew; ++i) __builtin_prefetch(from + i * step, 0, kCache);
  }
};

// Neighbours in a row of tiles are transformed together: a run, of at most so many.
constexpr int kRunTiles = 8;

// f(outer, inner, place, count) for a range of items [outer][inner], where inner counts the tiles
// of a block, a run at a time.
template <class F>
HWY_INLINE void ForEachRun(const Geometry& g, Range block, Range items, F&& f) {
  const std::int64_t tiles = block.end - block.begin;
  for (std::int64_t i = items.begin; i < items.end;) {
    const std::int64_t outer = i / tiles, inner = i % tiles;
    const TileAt at(g, block.begin + inner);
    const std::int64_t left = std::min({g.tiles_w() - at.x, tiles - inner, items.end - i});
    const std::int64_t count = ceil_div(left, ceil_div(left, kRunTiles));
    f(outer, inner, at, int(count));
    i += count;
  }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
