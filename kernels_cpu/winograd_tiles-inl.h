// Where the pixels of Winograd's tiles lie: in mosaics of images (winograd.h), phase by phase.
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

#include "kernels_cpu/gemm_kernel-inl.h"
#include "kernels_cpu/range.h"
#include "kernels_cpu/winograd.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

using Shape = WinogradShape;

// Where a tile lies: mosaic, row and column of tiles. Tiles are counted along rows.
struct TileAt {
  std::int64_t mosaic, y, x;
  TileAt(const Shape& s, std::int64_t tile)
      : mosaic(tile / (s.tiles_h() * s.tiles_w())),
        y(tile / s.tiles_w() % s.tiles_h()),
        x(tile % s.tiles_w()) {}
  void Next(const Shape& s) {
    if (++x < s.tiles_w()) return;
    x = 0;
    if (++y < s.tiles_h()) return;
    y = 0;
    ++mosaic;
  }
};

// kSize neighbouring rows or columns of a mosaic from `first` on, in pixels of a phase: where each
// lies, in floats from the mosaic's first pixel, or below zero if it is of no image. Pixel i of the
// phase is i * kStride + offset of its image.
template <int kSize, int kStride>
struct Line {
  std::ptrdiff_t at[kSize];
  bool whole = true;  // all of one image

  HWY_INLINE Line(std::int64_t first, std::int64_t images, std::int64_t pitch, std::int64_t offset,
                  std::int64_t size, std::ptrdiff_t image_step, std::ptrdiff_t step) {
    std::int64_t image = first < 0 ? -1 : images == 1 ? 0 : first / pitch;
    std::int64_t i = first - image * pitch;
    whole = image >= 0 && image < images && (i + kSize - 1) * kStride + offset < size;
    if constexpr (kStride > 1) whole = whole && i * kStride + offset >= 0 && i + kSize <= pitch;
    if (whole) {
      at[0] = image * image_step + (i * kStride + offset) * step;
      for (int k = 1; k < kSize; ++k) at[k] = at[0] + k * kStride * step;
      return;
    }
    for (int k = 0; k < kSize; ++k) {
      const std::int64_t pixel = i * kStride + offset;
      const bool inside = image >= 0 && image < images && pixel >= 0 && pixel < size;
      at[k] = inside ? image * image_step + pixel * step : -1;
      if (++i == pitch) i = 0, ++image;
    }
  }
};

// The kSize x kSize pixels of a tile from (top, left) of its mosaic on, in a phase of tensor t.
template <int kSize, int kStride = 1>
struct Pixels {
  Line<kSize, kStride> rows, columns;

  HWY_INLINE Pixels(const Shape& s, const TensorDesc& t, const WinogradGrid& grid,
                    std::int64_t phase, std::int64_t top, std::int64_t left)
      : rows(top, s.grid_h, s.pitch_h(), grid.at_h(phase), t.h, s.grid_w * ImageStep(t),
             t.w * kBlock),
        columns(left, s.grid_w, s.pitch_w(), grid.at_w(phase), t.w, ImageStep(t), kBlock) {}

  static std::ptrdiff_t ImageStep(const TensorDesc& t) { return t.padded_c() * t.h * t.w; }
  // Below zero where there is no pixel.
  HWY_INLINE std::ptrdiff_t at(int i, int j) const {
    return (rows.at[i] | columns.at[j]) < 0 ? -1 : rows.at[i] + columns.at[j];
  }
  // Asks for the kColumns columns after these, which the next tile will read.
  template <int kColumns>
  HWY_INLINE void AskForNext(const float* plane) const {
    if (!rows.whole || !columns.whole) return;
    for (int i = 0; i < kSize; ++i)
      for (int j = kSize; j < kSize + kColumns; ++j)
        __builtin_prefetch(plane + rows.at[i] + columns.at[0] + j * kStride * kBlock);
  }
  // Of a channel block of the mosaic's first image.
  static std::ptrdiff_t Plane(const Shape& s, const TensorDesc& t, const TileAt& at,
                              std::int64_t block) {
    return at.mosaic * s.grid_h * s.grid_w * ImageStep(t) + block * t.h * t.w * kBlock;
  }
};

// f(outer, inner, place) for a range of outer * tiles + inner, where inner counts tiles of a block.
template <class F>
HWY_INLINE void ForEachTile(const Shape& s, Range block, Range items, F&& f) {
  const std::int64_t tiles = block.end - block.begin;
  for (std::int64_t i = items.begin; i < items.end;) {
    const std::int64_t outer = i / tiles, end = std::min(items.end, (outer + 1) * tiles);
    TileAt at(s, block.begin + i - outer * tiles);
    for (; i < end; ++i, at.Next(s)) f(outer, i - outer * tiles, at);
  }
}

// What lies there, zero where there is no pixel: in place if all is of one image, else copied to
// `patch`.
template <int kSize, int kStride = 1>
struct Window {
  const float* data;
  std::ptrdiff_t row_step, column_step = kBlock;

  HWY_INLINE Window(const Pixels<kSize, kStride>& pixels, const float* plane, std::ptrdiff_t width,
                    float* patch) {
    if (pixels.rows.whole && pixels.columns.whole) {
      data = plane + pixels.rows.at[0] + pixels.columns.at[0];
      row_step = kStride * width * kBlock;
      column_step = kStride * kBlock;
      return;
    }
    alignas(64) static constexpr float zeros[kBlock] = {};
    for (int i = 0; i < kSize; ++i)
      for (int j = 0; j < kSize; ++j) {
        const std::ptrdiff_t at = pixels.at(i, j);
        const float* const from = at < 0 ? zeros : plane + at;
        for (int v = 0; v < kBlock; v += kLanes)
          hn::Store(hn::LoadU(F32(), from + v), F32(), patch + (i * kSize + j) * kBlock + v);
      }
    data = patch;
    row_step = kSize * kBlock;
  }
  HWY_INLINE const float* at(int i, int j) const {
    return data + i * row_step + j * (kStride == 1 ? std::ptrdiff_t{kBlock} : column_step);
  }
};

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
