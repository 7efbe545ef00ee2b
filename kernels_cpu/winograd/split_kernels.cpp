// Winograd's forward and backward_data by products of bf16 terms: see split.h. Only the storing of
// V, the packing of the filter and the product are not f32's (kernels-inl.h).
#include <algorithm>
#include <cstdint>

#include "kernels_cpu/winograd/split.h"
#include "kernels_cpu/winograd/winograd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/winograd/split_kernels.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/winograd/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// The next term of x in the upper halves of its lanes, whose lower halves do not count; x becomes
// the rest.
//
// A term is rounded by adding half of its last place to the bits. That could turn a NaN into
// something else, but the rest of a NaN is NaN, and the last term is a product, which keeps it: it
// is enlarged by half of its last place on average, rather than exactly. That adds 6% to its error.
template <bool kLast>
HWY_INLINE auto TakeTerm(VecOf<float>& x) {
  const TagOf<float> d;
  const hn::RebindToUnsigned<TagOf<float>> bits;
  if constexpr (kLast) {
    return hn::BitCast(bits, hn::Mul(x, hn::Set(d, 1 + 0.7f * 0x1p-8f)));
  } else {
    const auto rounded = hn::Add(hn::BitCast(bits, x), hn::Set(bits, 0x8000u));
    x = hn::Sub(x, hn::BitCast(d, hn::And(rounded, hn::Set(bits, 0xffff0000u))));
    return rounded;
  }
}

// Terms of x0 and x1 as pairs, term by term from kTerm on: put(term, pairs).
template <int kTerms, int kTerm = 0, class Put>
HWY_INLINE void SplitPairs(VecOf<float> x0, VecOf<float> x1, const Put& put) {
  const hn::RebindToUnsigned<TagOf<float>> bits;
  constexpr bool kLast = kTerm + 1 == kTerms;
  const auto low = TakeTerm<kLast>(x0), high = TakeTerm<kLast>(x1);
  put(kTerm, hn::Or(hn::And(high, hn::Set(bits, 0xffff0000u)), hn::ShiftRight<16>(low)));
  if constexpr (!kLast) SplitPairs<kTerms, kTerm + 1>(x0, x1, put);
}

constexpr std::int64_t kPairsOfStep = tile_depth / 2;  // channels i and i + 16 of a step

// V = B^T d B for (step, tile) pairs, split.
template <class Input, int M, int kTerms>
void TransformSplit(const Spec& s, const float* in, float* v, Range block, Range items) {
  constexpr int T = Input::inputs, kMore = T - M, kColumns = kRunTiles * M + kMore;
  constexpr int kLine = kLineOf<float>;
  const hn::RebindToUnsigned<TagOf<float>> bits;
  const Geometry& g = s.geometry;
  const std::int64_t term = s.buffers.padded_tiles * kLine, point = s.buffers.v_point;
  ForEachRun(
      g, block, items,
      [&](std::int64_t step, std::int64_t tile, const TileAt& place, int count) HWY_ATTR {
        const Pixels<T, kColumns> pixels(g, g.in, g.in_grid, 0, place.y * M - g.pad_h,
                                         place.x * M - g.pad_w, count * M + kMore);
        RunColumns<float, Input, kColumns> runs[2];
        for (std::int64_t part = 0; part < kPairsOfStep; part += kLanes) {
          for (int half = 0; half < 2; ++half) {
            const std::int64_t channel = step * tile_depth + half * kPairsOfStep + part;
            const bool exists = channel / kBlock < g.in_blocks();
            const float* const plane =
                in + pixels.Plane(g, g.in, place, exists ? channel / kBlock : 0) + channel % kBlock;
            runs[half].Fill(count * M + kMore, [&](int c, VecOf<float>* x) HWY_ATTR {
              if (!exists) {
                for (int i = 0; i < T; ++i) x[i] = hn::Zero(TagOf<float>());
                return;
              }
              if (s.prefetch_input) pixels.template PrefetchColumn<M>(plane, c);
              pixels.Load(plane, c, x);
            });
          }
          float* const to = v + (step * kTerms * s.buffers.padded_tiles + tile) * kLine + part;
          for (int i = 0; i < T; ++i)
            for (int t = 0; t < count; ++t) {
              VecOf<float> y[2][T];
              for (int half = 0; half < 2; ++half) runs[half].Row(t * M, i, y[half]);
              float* const at = to + t * kLine + i * T * point;
              HWY_UNROLL(8)
              for (int j = 0; j < T; ++j)
                SplitPairs<kTerms>(y[0][j], y[1][j], [&](int n, auto pairs) HWY_ATTR {
                  auto* const put = reinterpret_cast<std::uint32_t*>(at + j * point + n * term);
                  s.non_temporal_v ? hn::Stream(pairs, bits, put) : hn::StoreU(pairs, bits, put);
                });
            }
        }
      });
}

// Packs items [panel][step].
template <int M, int kTerms>
void PackItemsSplit(const Spec& s, const FilterViewOf<float>& filter, float* packed, Range items) {
  constexpr int points = (M + 2) * (M + 2);
  constexpr int kCols = (kTileCols + 15) / 16 * 16;
  constexpr std::int64_t kTile = tile_bytes / std::int64_t{sizeof(float)}, kRow = 16;
  const hn::RebindToUnsigned<TagOf<float>> bits;
  const Geometry& g = s.geometry;
  const Taps<3> taps(g);
  alignas(64) float u[points][kCols] = {};
  alignas(64) float gathered[(kBlock * kTapsOf<3> + 3) * kTileCols];
  for (std::int64_t i = items.begin; i < items.end; ++i) {
    const std::int64_t panel = i / s.split_steps(), step = i % s.split_steps();
    const std::int64_t columns = g.panel_columns(panel), tiles = ceil_div(columns, kRow);
    float* const to = packed + panel * s.buffers.packed_panel + step * kTerms * tiles * kTile;
    for (int point = 0; point < points; ++point)
      std::fill_n(to + point * s.buffers.packed_point, kTerms * tiles * kTile, 0.f);
    for (std::int64_t first = step * tile_depth; first < (step + 1) * tile_depth; first += kBlock) {
      if (first >= g.in.c) break;
      GatherTaps(g, filter, taps, first, panel * kTileCols, gathered);
      TransformTaps<M, 3>(
          g, taps, 0, gathered, columns, kCols, [&](int) { return u[0]; },
          [&](int c) HWY_ATTR {
            const std::int64_t channel = first % tile_depth + c;
            const bool upper = channel >= kPairsOfStep;
            for (int point = 0; point < points; ++point)
              for (std::int64_t column = 0; column < columns; column += kLanes) {
                float* const at = to + point * s.buffers.packed_point + column / kRow * kTile +
                                  channel % kPairsOfStep * kRow + column % kRow;
                const VecOf<float> value = hn::Load(TagOf<float>(), u[point] + column);
                const VecOf<float> none = hn::Zero(TagOf<float>());
                SplitPairs<kTerms>(
                    upper ? none : value, upper ? value : none, [&](int n, auto pairs) HWY_ATTR {
                      auto* const put = reinterpret_cast<std::uint32_t*>(at + n * tiles * kTile);
                      hn::StoreU(hn::Or(pairs, hn::LoadU(bits, put)), bits, put);
                    });
              }
          });
    }
  }
}

// M = V U for items [point][panel], of some panels.
void MultiplySplitItems(const Spec& s, const float* packed, Range panels, Range items,
                        const float* v, std::int64_t tiles, float* m) {
  constexpr int kAtOnce = 64;
  const WinogradBuffers& b = s.buffers;
  const std::int64_t of_point = panels.size();
  const SplitProducts all{s.math, tiles, s.split_steps(), b.padded_tiles * 64};
  const auto filter = [&](std::int64_t item) {
    return packed + item / of_point * b.packed_point +
           (panels.begin + item % of_point) * b.packed_panel;
  };
  SplitProduct products[kAtOnce];
  for (std::int64_t first = items.begin; first < items.end; first += kAtOnce) {
    const std::int64_t count = std::min<std::int64_t>(kAtOnce, items.end - first);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t item = first + i, point = item / of_point, own = item % of_point;
      products[i] = {v + point * b.v_point, filter(item), filter(item + 1),
                     m + point * b.m_point + own * b.padded_tiles * kTileCols,
                     s.geometry.panel_columns(panels.begin + own)};
    }
    s.multiply_split(all, products, count);
  }
}

// f(M, terms) as integral constants.
template <class F>
void WithTerms(const Spec& s, F&& f) {
  const auto with = [&](auto m) {
    if constexpr (m() == 2) {
      if (s.terms() == 1) return f(m, std::integral_constant<int, 1>());
    }
    if (s.terms() == 3)
      f(m, std::integral_constant<int, 3>());
    else
      f(m, std::integral_constant<int, 2>());
  };
  if (s.geometry.tile == 2) with(std::integral_constant<int, 2>());
  if (s.geometry.tile == 4) with(std::integral_constant<int, 4>());
  if (s.geometry.tile == 6) with(std::integral_constant<int, 6>());
}

void PackSplit(const Spec& s, const FilterViewOf<float>& filter, float* packed, std::int64_t thread,
               std::int64_t threads) {
  const Range items = share(s.geometry.phase_panels() * s.split_steps(), thread, threads);
  WithTerms(s, [&](auto m, auto terms) { PackItemsSplit<m(), terms()>(s, filter, packed, items); });
}

void RunSplit(const Spec& s, const WinogradOperandsOf<float>& data, std::int64_t thread,
              std::int64_t threads) {
  WithTerms(s, [&](auto m, auto terms) {
    using Code = Transforms<m(), 3, ScaledSide::filter>;
    const ForwardSteps<float> steps{TransformSplit<typename Code::Input, m(), terms()>,
                                    MultiplySplitItems,
                                    TransformOutput<float, typename Code::Output, 1>};
    ForwardPacked(s, data, steps, {thread, threads});
  });
  if (data.output.non_temporal) hwy::FlushStream();
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(PackSplit);
HWY_EXPORT(RunSplit);

void winograd_pack_split(const WinogradSpec& s, const FilterViewOf<float>& filter, float* packed,
                         std::int64_t thread, std::int64_t threads) {
  HWY_DYNAMIC_DISPATCH(PackSplit)(s, filter, packed, thread, threads);
}
void winograd_run_split(const WinogradSpec& s, const WinogradOperandsOf<float>& data,
                        std::int64_t thread, std::int64_t threads) {
  HWY_DYNAMIC_DISPATCH(RunSplit)(s, data, thread, threads);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
