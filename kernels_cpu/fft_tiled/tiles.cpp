#include "kernels_cpu/fft_tiled/tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/fft_tiled/tiles.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <utility>

#include "conv/types/layout.h"
#include "kernels_cpu/device/range.h"
#include "kernels_cpu/fft_tiled/codelets-inl.h"
#include "kernels_cpu/simd/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu {
namespace HWY_NAMESPACE {
namespace {

using fft::F32;
using fft::kLanes;
using fft::TileFft;
using fft::Vec;
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kBlock = kLanes == 16 ? 16 : 8;

// Accumulators are kRows complex vectors: with the two operands and two broadcasts, 28 of
// AVX-512's 32 registers, or 14 of 16.
constexpr int kRows = kLanes == 16 ? 12 : 5;
// Depth that keeps both panels of a register tile in L1 (12 rows and 16 columns of 128: 28 KB).
constexpr std::int64_t kDepthBlock = 128;

// One register tile over `depth`. Each step prefetches a line of what follows this panel of b,
// which is read once and misses L2. kWhole: a has whole channel blocks. If only some of their lanes
// are kept, im lies nearer to re, and its address costs an addition a step.
template <bool kWhole, int kCount>
void ProductTile(const PointProduct& p, const float* a, const float* b, float* out,
                 std::int64_t depth, bool accumulate, const float* next, std::int64_t next_step) {
  const F32 d;
  const std::int64_t a_im = kWhole ? kBlock : p.a_im;
  Vec re[kCount], im[kCount];
  HWY_UNROLL(16)
  for (int i = 0; i < kCount; ++i) {
    // The output's lines are prefetched before the products, so that they arrive before the sums
    // are ready; a short depth would wait for each line otherwise.
    if (!accumulate) {
      hwy::Prefetch(out + i * p.out_row);
      hwy::Prefetch(out + i * p.out_row + kBlock);
    }
    re[i] = accumulate ? hn::Load(d, out + i * p.out_row) : hn::Zero(d);
    im[i] = accumulate ? hn::Load(d, out + i * p.out_row + kBlock) : hn::Zero(d);
  }
  for (std::int64_t l = 0; l < depth; l += p.group, a += p.a_group) {
    const std::int64_t group = std::min(p.group, depth - l);
    for (std::int64_t j = 0; j < group; ++j, b += p.b_depth, next += next_step) {
      hwy::Prefetch(next);
      const Vec br = hn::Load(d, b), bi = hn::Load(d, b + kBlock);
      HWY_UNROLL(16)
      for (int i = 0; i < kCount; ++i) {
        const Vec ar = hn::Set(d, a[i * p.a_row + j]), ai = hn::Set(d, a[i * p.a_row + j + a_im]);
        re[i] = hn::MulAdd(ai, bi, hn::MulAdd(ar, br, re[i]));
        im[i] = hn::NegMulAdd(ar, bi, hn::MulAdd(ai, br, im[i]));
      }
    }
  }
  HWY_UNROLL(16)
  for (int i = 0; i < kCount; ++i) {
    hn::Store(re[i], d, out + i * p.out_row);
    hn::Store(im[i], d, out + i * p.out_row + kBlock);
  }
}

template <bool kWhole, int... i>
constexpr auto ProductTiles(std::integer_sequence<int, i...>) {
  return std::array{&ProductTile<kWhole, i + 1>...};
}

void Product(const PointProduct& p) {
  using Counts = std::make_integer_sequence<int, kRows>;
  static constexpr auto kWholeTiles = ProductTiles<true>(Counts()),
                        kTiles = ProductTiles<false>(Counts());
  const auto& product = p.a_im == kBlock ? kWholeTiles : kTiles;
  // Tiles of nearly equal height, so that none is too short to hide latency: `taller` of them have
  // a row more.
  const std::int64_t tiles = ceil_div(p.rows, kRows);
  const std::int64_t height = p.rows / tiles, taller = p.rows % tiles;
  const std::int64_t a_step = kDepthBlock / p.group * p.a_group;
  for (std::int64_t point = 0; point < p.points; ++point) {
    const float* a = p.a + point * p.a_point;
    for (std::int64_t l = 0; l < p.depth; l += kDepthBlock, a += a_step)
      for (std::int64_t block = 0; block < p.blocks; ++block)
        for (int lane = 0; lane < kBlock; lane += kLanes) {
          const std::int64_t depth = std::min(kDepthBlock, p.depth - l);
          const float* const b = p.b + point * p.b_point + l * p.b_depth + block * p.b_block;
          float* const out = p.out + point * p.out_point + block * 2 * kBlock + lane;
          for (std::int64_t tile = 0, first = 0; tile < tiles; ++tile) {
            const std::int64_t rows = height + (tile < taller ? 1 : 0);
            // Two lines a step: the first two tiles fetch one each.
            const bool fetch = tile < 2 && p.b_depth == 2 * kBlock;
            product[static_cast<std::size_t>(rows - 1)](
                p, a + first * p.a_row, b + lane, out + first * p.out_row, depth,
                p.accumulate || l > 0, fetch ? b + p.b_block + tile * depth * kBlock : b,
                fetch ? kBlock : 0);
            first += rows;
          }
        }
  }
}

// One row of a few columns at one point, prefetching b's next point.
template <int kFew>
void FewSums(const FewProduct& p, const float* a, const float* b, float* out) {
  const F32 d;
  Vec re[kFew], im[kFew];
  for (int v = 0; v < kFew; ++v) re[v] = im[v] = hn::Zero(d);
  for (std::int64_t block = 0; block < p.blocks; ++block, a += 2 * kBlock, b += kFew * 2 * kBlock)
    for (int lane = 0; lane < kBlock; lane += kLanes) {
      const Vec ar = hn::Load(d, a + lane), ai = hn::Load(d, a + lane + kBlock);
      HWY_UNROLL(4)
      for (int v = 0; v < kFew; ++v) {
        const float* const at = b + v * 2 * kBlock + lane;
        hwy::Prefetch(at + p.b_point);
        hwy::Prefetch(at + p.b_point + kBlock);
        const Vec br = hn::Load(d, at), bi = hn::Load(d, at + kBlock);
        re[v] = hn::MulAdd(ai, bi, hn::MulAdd(ar, br, re[v]));
        im[v] = hn::NegMulAdd(ar, bi, hn::MulAdd(ai, br, im[v]));
      }
    }
  for (int lane = 0; lane < 2 * kBlock; lane += kLanes) hn::Store(hn::Zero(d), d, out + lane);
  HWY_UNROLL(4)
  for (int v = 0; v < kFew; ++v) {
    out[v] = hn::GetLane(hn::SumOfLanes(d, re[v]));
    out[kBlock + v] = hn::GetLane(hn::SumOfLanes(d, im[v]));
  }
}

void ProductOfFew(const FewProduct& p) {
  static_assert(FewProduct::most == 4);
  constexpr std::array sums{&FewSums<1>, &FewSums<2>, &FewSums<3>, &FewSums<4>};
  for (std::int64_t point = 0; point < p.points; ++point)
    for (std::int64_t row = 0; row < p.rows; ++row)
      sums[static_cast<std::size_t>(p.few - 1)](p, p.a + point * p.a_point + row * p.a_row,
                                                p.b + point * p.b_point,
                                                p.out + point * p.out_point + row * p.out_row);
}

// Prefetches some rows of the window.
void PrefetchLines(const WindowIn& window, Range rows) {
  const Window& at = window.at;
  const std::int64_t first = std::max<std::int64_t>(at.x, 0);
  const std::int64_t last = std::min(at.w, at.x + at.cols);
  for (std::int64_t y = std::max(at.y + rows.begin, std::int64_t{0});
       y < std::min(at.h, at.y + rows.end); ++y)
    for (std::int64_t x = first; x < last; ++x)
      __builtin_prefetch(window.plane + at.offset(y, x) * kBlock, 0, 2);
}

// Row transforms are bound by memory, and column transforms read none of it: the latter prefetch
// the next window's rows.
template <int n>
void ForwardTile(const WindowIn& in, const WindowIn* next, float* scratch, TileSpectrum<float> to) {
  const Window& window = in.at;
  HWY_ALIGN float staged[n * kBlock];
  const std::int64_t first = std::max<std::int64_t>(0, -window.x);
  const std::int64_t last = std::min({std::int64_t{n}, window.cols, window.w - window.x});
  const std::int64_t step = window.pixel_step * kBlock;
  for (int lane = 0; lane < kBlock; lane += kLanes) {
    for (int x = 0; x < n; ++x) hn::Store(hn::Zero(F32()), F32(), staged + x * kBlock);
    const auto row_at = [&](int y) HWY_ATTR -> const float* {
      const std::int64_t row = window.y + y;
      if (row < 0 || row >= window.h || y >= window.rows || first >= last) return nullptr;
      return in.plane + window.offset(row, window.x) * kBlock + lane;
    };
    // Rows lie too far apart for the hardware prefetcher.
    const auto prefetch_row = [&](int y) HWY_ATTR {
      if (const float* const row = row_at(y))
        for (std::int64_t x = first; x < last; ++x) hwy::Prefetch(row + x * step);
    };
    constexpr int kPrefetchRows = 4;
    for (int y = 0; y < kPrefetchRows; ++y) prefetch_row(y);
    TileFft<n>::Forward(
        [&](int y) HWY_ATTR -> const float* {
          prefetch_row(y + kPrefetchRows);
          const float* const from = row_at(y);
          if (from == nullptr) return nullptr;
          if (first == 0 && last == n && window.pixel_step == 1) return from;
          for (std::int64_t x = first; x < last; ++x)
            hn::Store(hn::Load(F32(), from + x * step), F32(), staged + x * kBlock);
          return staged;
        },
        kBlock, scratch, {to.data + lane, to.point_stride, kBlock},
        [&](int v) HWY_ATTR {
          if (next != nullptr && lane == 0)
            PrefetchLines(*next, share(next->at.rows, v - 1, n / 2 - 1));
        });
  }
}

template <int n>
void InverseTile(TileSpectrum<const float> from, float* scratch, const OutputEpilogue<float>& plane,
                 const Window& window) {
  const std::int64_t step = window.pixel_step * kBlock;
  for (int lane = 0; lane < kBlock; lane += kLanes) {
    const Vec bias = plane.bias ? hn::Load(F32(), plane.bias + lane) : hn::Zero(F32());
    TileFft<n>::Inverse(
        {from.data + lane, from.point_stride, kBlock}, scratch, static_cast<int>(window.rows),
        [&](int y, const float* pixels) HWY_ATTR {
          const std::int64_t offset = window.offset(window.y + y, window.x) * kBlock + lane;
          for (std::int64_t x = 0; x < window.cols; ++x)
            FinishAndStore(plane, hn::Add(hn::Load(F32(), pixels + x * kLanes), bias),
                           offset + x * step);
          if (plane.activates_stored())
            ActivateStored(*plane.activation, plane.out + offset, kLanes, step, window.cols);
        });
  }
}

void CopyNonTemporal(const float* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; i += kLanes)
    hn::Stream(hn::Load(F32(), from + i), F32(), to + i);
}

// One table per instruction set and tile size.
template <int n>
constexpr TileKernels kKernels{.forward = &ForwardTile<n>,
                               .inverse = &InverseTile<n>,
                               .product = &Product,
                               .few_product = &ProductOfFew,
                               .copy_non_temporal = &CopyNonTemporal,
                               .points = TileFft<n>::kPoints,
                               .scratch = round_up(TileFft<n>::kScratch, 16)};

const TileKernels& Kernels(std::int64_t tile) {
  return tile == 16 ? kKernels<16> : tile == 32 ? kKernels<32> : kKernels<40>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convlab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {
namespace {
HWY_EXPORT(Kernels);
}  // namespace

const TileKernels& fft_tile_kernels(std::int64_t tile) {
  return HWY_DYNAMIC_DISPATCH(Kernels)(tile);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
