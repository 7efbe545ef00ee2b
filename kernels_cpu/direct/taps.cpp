// backward_filter of 3x3 filters, a row of taps at a time: dw[k][c][r][s] += dy[k][p][q]
// x[c][p*stride + r][q*stride + s].
//
// A register tile is 4 filters times 3 vectors (AVX-512: 8 x 3), and its depth runs over the pixels
// of dy. The vectors are one vector of channels at the three taps of a row: neighbouring pixels of
// x. A panel of x is copied with its padding, so that nothing is gathered and L1 or L2 holds it for
// all filters. The sums of all nine taps are transposed once, into the 9 x channels neighbours that
// each filter has in dw. With few output pixels, tiles of channels by filters spend a third of
// their time on that transpose.
#include <algorithm>
#include <cstddef>

#include "kernels_cpu/device/range.h"
#include "kernels_cpu/direct/direct.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/direct/taps.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/gemm/tile_output-inl.h"
#include "kernels_cpu/simd/put_transposed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

constexpr int kTaps = 9;

// Rows [begin, end) of dy of some images.
struct TapsChunk {
  std::int64_t image, images;
  Range rows;
};

// patch[vector][image][h][w][lane] = a panel's channels of the pixels of x that a chunk reads, with
// the padding.
void FillPatch(const DirectTaps& d, const TapsChunk& chunk, const float* x, std::int64_t channels,
               float* patch) {
  const ConvProblem& p = d.problem;
  const std::int64_t first_h = chunk.rows.begin * p.stride_h - p.pad_h;
  const std::int64_t end_h = first_h + d.height(chunk.rows.size());
  for (int j = 0; j * kLanes < channels; ++j)
    for (std::int64_t n = 0; n < chunk.images; ++n) {
      const float* const from = x + (chunk.image + n) * d.x.image + VectorAt(d.x.block, j);
      for (std::int64_t h = first_h; h < end_h; ++h)
        for (std::int64_t w = -p.pad_w; w < d.width() - p.pad_w; ++w, patch += kLanes) {
          const bool inside = h >= 0 && h < p.h && w >= 0 && w < p.w;
          const float* const at = from + (h * p.w + w) * d.x.pixel;
          hn::StoreU(inside ? hn::LoadU(F32(), at) : hn::Zero(F32()), F32(), patch);
        }
    }
}

// dw (+)= of kFilters filters and a panel's channels, over a chunk; dy of its first row.
template <int kStride, int kFilters>
HWY_NOINLINE void RunTaps(const DirectTaps& d, const TapsChunk& chunk, const float* patch,
                          std::int64_t channels, const float* dy, bool add, float* dw) {
  const ConvProblem& p = d.problem;
  const std::int64_t pitch = d.width() * kLanes, step = d.dy.pixel;
  const std::int64_t plane = d.height(chunk.rows.size()) * pitch;
  alignas(64) float sums[kFilters][kTaps][kTileCols];
  for (int j = 0; j * kLanes < channels; ++j, patch += chunk.images * plane)
    for (int r = 0; r < 3; ++r) {
      // Prefetches the lines of dw that this tile's sums will be written to.
      for (int k = 0; k < kFilters; ++k)
        for (int i = 0; i < 3 * kLanes; i += 16)
          hwy::Prefetch(dw + k * p.c * kTaps + (j * 3 + r) * 3 * kLanes + i);
      Tile<kFilters, 3> tile;
      tile.SetZero();
      for (std::int64_t n = 0; n < chunk.images; ++n) {
        const float* values = dy + n * d.dy.image;
        const float* x = patch + n * plane + r * pitch;
        for (std::int64_t row = 0; row < chunk.rows.size();
             ++row, values += p.q * step, x += kStride * pitch)
          tile.template MultiplyAdd<1>({values, 1, step}, {x, kStride * kLanes, kLanes}, p.q);
      }
      tile.ForEach([&](int k, int s, Vec& v)
                       HWY_ATTR { hn::Store(v, F32(), sums[k][r * 3 + s] + j * kLanes); });
    }
  for (int k = 0; k < kFilters; ++k, dw += p.c * kTaps) {
    const WholeSums all{sums[k][0]};
    if (channels == kTileCols)  // constants
      PutTransposed(all, add, kTaps, kTileCols, dw, kTaps);
    else
      PutTransposed(all, add, kTaps, channels, dw, kTaps);
  }
}

template <int kStride>
void RunPanel(const DirectTaps& d, const DirectOperands& data, std::int64_t panel, Range filters,
              float* patch) {
  const ConvProblem& p = d.problem;
  const std::int64_t first = panel * kTileCols;
  const std::int64_t channels = std::min<std::int64_t>(kTileCols, p.c - first);
  const float* const x = data.in + first / kBlock * d.x.block;
  for (std::int64_t n = 0; n < p.n; n += d.images)
    for (std::int64_t row = 0; row < p.p; row += d.rows) {
      const TapsChunk chunk{n, std::min(d.images, p.n - n), {row, std::min(p.p, row + d.rows)}};
      FillPatch(d, chunk, x, channels, patch);
      const float* const dy = data.dy + n * d.dy.image + row * p.q * d.dy.pixel;
      const bool add = n > 0 || row > 0 || p.accumulate;
      for (std::int64_t k = filters.begin; k < filters.end;) {
        const float* const dy_of_k = dy + k / kBlock * d.dy.block + k % kBlock;
        float* const dw = data.output.out + (k * p.c + first) * kTaps;
        const bool whole = k % kHalfBlock == 0 && k + kHalfBlock <= filters.end;
        whole ? RunTaps<kStride, kHalfBlock>(d, chunk, patch, channels, dy_of_k, add, dw)
              : RunTaps<kStride, 1>(d, chunk, patch, channels, dy_of_k, add, dw);
        k += whole ? kHalfBlock : 1;
      }
    }
}

void Taps(const DirectTaps& d, const DirectOperands& data, std::int64_t thread) {
  float* const patch = data.workspace + thread * d.patch_floats();
  const std::int64_t k = d.problem.k, tiles = ceil_div(k, std::int64_t(kHalfBlock));
  const Range own = share(d.panels * tiles, thread, d.threads);
  for (std::int64_t tile = own.begin; tile < own.end;) {
    const std::int64_t begin = tile % tiles, end = std::min(tiles, begin + own.end - tile);
    (d.problem.stride_w == 1 ? RunPanel<1>
                             : RunPanel<2>)(d, data, tile / tiles,
                                            {begin * kHalfBlock, std::min(k, end * kHalfBlock)},
                                            patch);
    tile += end - begin;
  }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(Taps);

void direct_taps(const DirectTaps& d, const DirectOperands& data, std::int64_t thread) {
  HWY_DYNAMIC_DISPATCH(Taps)(d, data, thread);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
