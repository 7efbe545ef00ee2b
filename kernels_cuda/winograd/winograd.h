// Shared by winograd's two schedules: winograd.cu (three steps through memory) and fused.cu (one
// kernel). Internal.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "conv/algo.h"
#include "kernels_cuda/epilogue.h"
#include "kernels_cuda/kernel.h"
#include "kernels_cuda/vendor.h"

namespace convlab::cuda {

// Forward from `in` to `out`: backward_data is the forward of dy with the filter's taps reversed
// and its channels swapped; in backward_filter `in` is x and `out` is dy.
struct WinogradShape {
  Pass pass = Pass::forward;
  DType dtype = DType::f32;
  std::int64_t m = 0, r = 0;  // F(m, r); backward_filter is F(r, m), of the same T
  TensorDesc in, out;
  std::int64_t pad_h = 0, pad_w = 0;
  Epilogue epilogue;
  bool accumulate = false;

  WinogradShape(const ConvProblem& p, std::int64_t tile)
      : pass(p.pass),
        dtype(p.dtype),
        m(tile),
        r(p.r),
        in(p.pass == Pass::backward_data ? p.y_desc() : p.x_desc()),
        out(p.pass == Pass::backward_data ? p.x_desc() : p.y_desc()),
        pad_h(p.pass == Pass::backward_data ? p.r - 1 - p.pad_h : p.pad_h),
        pad_w(p.pass == Pass::backward_data ? p.s - 1 - p.pad_w : p.pad_w),
        epilogue(p.epilogue),
        accumulate(p.accumulate) {}

  std::int64_t points() const { return (m + r - 1) * (m + r - 1); }
  std::int64_t tiles_h() const { return ceil_div(out.h, m); }
  std::int64_t tiles_w() const { return ceil_div(out.w, m); }
  std::int64_t image_tiles() const { return tiles_h() * tiles_w(); }
  std::int64_t tiles() const { return out.n * image_tiles(); }
};

// The tiles of a tensor, with strides in elements, so that one kernel reads NCHW, NHWC and, as a
// tile of taps for each pair of channels, the filter and the flipped filter.
struct TileWindows {
  int images = 0, h = 0, w = 0;
  std::int64_t image_step = 0;
  int channel_step = 0, row_step = 0, column_step = 0;
  int tiles_h = 1, tiles_w = 1;  // of one image
  int step = 0;                  // from one tile to the next
  int pad_h = 0, pad_w = 0;
};

inline TileWindows windows_of(const WinogradShape& s, const TensorDesc& t, std::int64_t images) {
  const bool last = t.layout == Layout::nhwc;
  TileWindows v;
  v.images = int(images);
  v.h = int(t.h);
  v.w = int(t.w);
  v.image_step = t.c * t.h * t.w;
  v.channel_step = last ? 1 : int(t.h * t.w);
  v.row_step = int(last ? t.w * t.c : t.w);
  v.column_step = last ? int(t.c) : 1;
  v.tiles_h = int(s.tiles_h());
  v.tiles_w = int(s.tiles_w());
  v.step = int(s.m);
  return v;
}

inline TileWindows in_windows(const WinogradShape& s, std::int64_t images) {
  TileWindows v = windows_of(s, s.in, images);
  v.pad_h = int(s.pad_h);
  v.pad_w = int(s.pad_w);
  return v;
}

inline TileWindows out_windows(const WinogradShape& s, std::int64_t images) {
  return windows_of(s, s.out, images);
}

// An "image" for each channel of the output (of dy in backward_filter), a channel for each of the
// input. It starts at first_tap, which is the last one where taps are reversed.
inline TileWindows filter_windows(const WinogradShape& s) {
  const int taps = int(s.r * s.r);
  const bool data = s.pass == Pass::backward_data;
  TileWindows f;
  f.images = int(s.out.c);
  f.h = f.w = int(s.r);
  f.image_step = data ? taps : s.in.c * taps;
  f.channel_step = data ? int(s.out.c) * taps : taps;
  f.row_step = data ? -int(s.r) : int(s.r);
  f.column_step = data ? -1 : 1;
  return f;
}

template <class Real>
const Real* first_tap(const WinogradShape& s, ConstSpan filter) {
  return reinterpret_cast<const Real*>(filter.data()) +
         (s.pass == Pass::backward_data ? s.r * s.r - 1 : 0);
}

template <class Real>
const Real* in_image(const WinogradShape& s, const ConvArgs& args, std::int64_t n) {
  const void* const in = s.pass == Pass::backward_data ? args.dy : args.x;
  return static_cast<const Real*>(in) + n * s.in.c * s.in.h * s.in.w;
}

template <class Real>
struct TileOutput {
  OutputEpilogue<Real> epilogue;
  bool vectors = false;  // tiles' rows are aligned to row_vector columns
};

template <class Real, int M>
constexpr int row_vector = M % 4 == 0 && sizeof(Real) == 4 ? 4
                           : M % 2 == 0                    ? 2
                                                           : 1;

// Outputs of a convolution from image n on.
template <class Real>
OutputEpilogue<Real> images_epilogue(const WinogradShape& s, const ConvArgs& args, std::int64_t n) {
  return output_epilogue<Real>(s.epilogue, s.accumulate, args, n * s.out.c * s.out.h * s.out.w);
}

// Tiles of F(M, r).
template <int M, class Real>
TileOutput<Real> tile_output(const WinogradShape& s, const OutputEpilogue<Real>& epilogue) {
  constexpr int width = row_vector<Real, M>;
  const auto aligned = [](const Real* p) {
    return reinterpret_cast<std::uintptr_t>(p) % (width * sizeof(Real)) == 0;
  };
  return {epilogue, s.out.layout == Layout::nchw && s.out.w % width == 0 && aligned(epilogue.out) &&
                        aligned(epilogue.addend)};
}

template <int kWidth, class Real, int M>
__device__ __forceinline__ void store_rows(const TileWindows& to, const OutputEpilogue<Real>& e,
                                           std::int64_t offset, int channel, int rows, int columns,
                                           const Real (&y)[M][M]) {
  const Real bias = e.bias_of(channel);
#pragma unroll
  for (int r = 0; r < M; ++r)
#pragma unroll
    for (int c = 0; c < M; c += kWidth) {
      if (r >= rows || c >= columns) continue;
      Real v[kWidth];
#pragma unroll
      for (int i = 0; i < kWidth; ++i) v[i] = y[r][c + i] + bias;
      e.store(offset + r * to.row_step + c * to.column_step, v);
    }
}

// Stores a tile from `offset` of the tensor on, which has so many rows and columns from there.
template <class Real, int M>
__device__ __forceinline__ void store_tile(const TileWindows& to, const TileOutput<Real>& o,
                                           std::int64_t offset, int channel, int rows, int columns,
                                           const Real (&y)[M][M]) {
  if (o.vectors)
    store_rows<row_vector<Real, M>>(to, o.epilogue, offset, channel, rows, columns, y);
  else
    store_rows<1>(to, o.epilogue, offset, channel, rows, columns, y);
}

// A fused run (fused.cu). The size of its blocks follows the card's shared memory.
struct WinogradFused {
  WinogradShape shape;
  MathType math = MathType::f32;
  std::int64_t split = 1;  // parts of the sum over the input's channels, a block for each

  static bool takes(const WinogradShape&);
  std::int64_t most_parts() const;
  std::int64_t shared_bytes(const DeviceInfo&) const;
  std::int64_t blocks(const DeviceInfo&) const;
  double cycles(const DeviceInfo&) const;  // that the card is busy, roughly; they rank splits
  WorkEstimate work(const DeviceInfo&) const;
  std::unique_ptr<ConvPlan> plan(const DeviceInfo&) const;
};

}  // namespace convlab::cuda
