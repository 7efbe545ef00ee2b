// Winograd's filters: which taps they have, how they are gathered from KCRS and transformed.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_WINOGRAD_FILTER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_WINOGRAD_FILTER_INL_H_
#undef CONVLAB_KERNELS_CPU_WINOGRAD_FILTER_INL_H_
#else
#define CONVLAB_KERNELS_CPU_WINOGRAD_FILTER_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels_cpu/gemm/filter_block.h"
#include "kernels_cpu/simd/transpose_rows-inl.h"
#include "kernels_cpu/winograd/tiles-inl.h"
#include "kernels_cpu/winograd/transforms-inl.h"
#include "kernels_cpu/winograd/winograd.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// Which tap of the filter each tap of F(M, R) is, or below zero if none, in each stride phase
// (WinogradGeometry::tap_phase). Where the output is unfolded, taps run backwards within a phase.
template <int R>
struct Taps {
  int of[16][R * R];  // strides up to 4

  explicit Taps(const Geometry& g) {
    const bool flipped = g.pass == Pass::backward_data && !g.unfolds();
    const int stride = int(g.stride), kernel = int(g.kernel);
    const auto tap = [&](int a, int j) {
      const int at = stride * (g.unfolds() ? R - 1 - j : j) + a;
      return at >= kernel ? -1 : flipped ? kernel - 1 - at : at;
    };
    for (int phase = 0; phase < stride * stride; ++phase)
      for (int i = 0; i < R * R; ++i) {
        const int row = tap(phase / stride, i / R), column = tap(phase % stride, i % R);
        of[phase][i] = row < 0 || column < 0 ? -1 : row * kernel + column;
      }
  }
};

// The most taps of the filters that F(M, R) is for; with R = 2 they are the stride phases of 3x3 or
// 4x4.
template <int R>
constexpr int kTapsOf = R == 2 ? 16 : R* R;

// A channel block's taps for a panel's columns, [channel][tap][column]: all taps of the filter, or
// where a stride folds, the R x R of each folded channel.
template <int R, class Real>
void GatherTaps(const Geometry& g, const FilterViewOf<Real>& filter, const Taps<R>& taps,
                std::int64_t first_c, std::int64_t first_k, Real* gathered) {
  constexpr int kCols = kTileColsOf<Real>;
  const std::int64_t channels = std::clamp<std::int64_t>(g.in.c - first_c, 0, kBlock);
  const std::int64_t columns = std::min<std::int64_t>(kCols, g.out.c - first_k);
  const std::int64_t area = g.fold ? R * R : g.kernel * g.kernel;
  if (g.fold || channels < kBlock || columns < kCols)
    std::fill_n(gathered, kBlock * area * kCols, Real(0));
  if (!g.fold) {
    // With a column's taps its channels lie side by side, or with a channel's taps the columns.
    const std::int64_t run = filter.in_step == area ? channels : 1;
    for (std::int64_t c = 0; c < channels; c += run)
      TransposeRows(filter.at(first_c + c, first_k), filter.out_step, columns, run * area,
                    gathered + c * area * kCols);
    return;
  }
  for (std::int64_t i = 0; i < channels; ++i, gathered += R * R * kCols) {
    const std::int64_t c = first_c + i;
    for (std::int64_t k = 0; k < columns; ++k) {
      const Real* const of_k = filter.at(c / g.in_fold(), (first_k + k) / g.out_fold());
      const int* const tap_at = taps.of[g.tap_phase(g.unfolds() ? first_k + k : c, 0)];
      for (int rs = 0; rs < R * R; ++rs)
        if (const int tap = tap_at[rs]; tap >= 0) gathered[rs * kCols + k] = of_k[tap];
    }
  }
}

// U = G g G^T of what GatherTaps gathered, in a stride phase. A channel's U goes to place(channel),
// its points `step` elements apart; then follows done(channel).
template <int M, int R, class Real, class Place, class Done>
HWY_INLINE void TransformTaps(const Geometry& g, const Taps<R>& taps, std::int64_t phase,
                              const Real* gathered, std::int64_t columns, std::int64_t step,
                              const Place& place, const Done& done) {
  using Code = typename Transforms<M, R, ScaledSide::filter>::Filter;
  constexpr int kCols = kTileColsOf<Real>;
  using D = TagOf<Real>;
  alignas(64) static constexpr Real no_tap[kCols] = {};
  const std::int64_t area = g.fold ? R * R : g.kernel * g.kernel;
  for (int c = 0; c < kBlock; ++c) {
    const Real* tap_of[R * R];
    for (int rs = 0; rs < R * R; ++rs) {
      const int tap = g.fold ? rs : taps.of[g.tap_phase(0, phase)][rs];
      tap_of[rs] = tap < 0 ? no_tap : gathered + (c * area + tap) * kCols;
    }
    Real* const to = place(c);
    for (int lane = 0; lane < columns; lane += kLanesOf<Real>)
      Nested<Real, Code>(
          [&](int r, int col) HWY_ATTR { return hn::Load(D(), tap_of[r * R + col] + lane); },
          [&](int r, int col, VecOf<Real> value)
              HWY_ATTR { hn::Store(value, D(), to + (r * (M + R - 1) + col) * step + lane); });
    done(c);
  }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
