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
#include <type_traits>

#include "kernels_cpu/put_transposed-inl.h"
#include "kernels_cpu/winograd.h"
#include "kernels_cpu/winograd_tiles-inl.h"
#include "kernels_cpu/winograd_transforms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// Which tap of the filter each of F(m, R) is, or below zero if none, in each phase of the stride
// (WinogradShape::tap_phase). What unfolds runs backwards within its phase.
template <int R>
struct Taps {
  int of[16][R * R];  // strides up to 4

  Taps(const Shape& s, bool flipped) {
    const int stride = int(s.stride), kernel = int(s.kernel);
    const auto tap = [&](int a, int j) {
      const int at = stride * (s.unfolds() ? R - 1 - j : j) + a;
      return at >= kernel ? -1 : flipped ? kernel - 1 - at : at;
    };
    for (int phase = 0; phase < stride * stride; ++phase)
      for (int i = 0; i < R * R; ++i) {
        const int row = tap(phase / stride, i / R), column = tap(phase % stride, i % R);
        of[phase][i] = row < 0 || column < 0 ? -1 : row * kernel + column;
      }
  }
};

// to[i][row] = from[row][i] of `rows` rows, row_step floats apart, and `floats` of each.
template <int kFloats>
HWY_INLINE void TransposeRows(const float* from, std::int64_t row_step, std::int64_t rows,
                              std::int64_t floats, float* to) {
  alignas(64) float part[kTileCols * kTileCols];
  const auto transpose = [&](std::int64_t i, auto width) HWY_ATTR {
    for (std::int64_t row = 0; row < rows; ++row)
      std::copy_n(from + row * row_step + i, width, part + row * kTileCols);
    PutTransposed(WholeSums{part}, false, rows, width, to + i * kTileCols, kTileCols);
  };
  std::int64_t i = 0;
  for (; i + kTileCols <= floats; i += kTileCols)
    transpose(i, std::integral_constant<int, kTileCols>());
  // Moves instead of calls where the length is known.
  if (const std::int64_t rest = floats - i; rest == kFloats % kTileCols)
    transpose(i, std::integral_constant<int, kFloats % kTileCols>());
  else
    transpose(i, rest);
}

// g of a channel block and a panel's columns, [channel][tap][column]. With stride 1 a column's
// channels and taps lie side by side in memory, or a channel's columns and taps; taps run against
// their order if the filter is flipped.
template <int R>
void GatherTaps(const Shape& s, const FilterView& filter, const Taps<R>& taps, std::int64_t phase,
                std::int64_t first_c, std::int64_t first_k, float* g) {
  const std::int64_t channels = std::clamp<std::int64_t>(s.in.c - first_c, 0, kBlock);
  const std::int64_t columns = std::min<std::int64_t>(kTileCols, s.out.c - first_k);
  if (s.stride > 1 || channels < kBlock || columns < kTileCols)
    std::fill_n(g, kBlock * R * R * kTileCols, 0.f);
  const float* const from = filter.w + first_c * filter.in_step + first_k * filter.out_step;
  if (s.stride == 1 && filter.in_step == R * R)
    return TransposeRows<kBlock * R * R>(from, filter.out_step, columns, channels * R * R, g);
  for (std::int64_t i = 0; i < channels; ++i, g += R * R * kTileCols) {
    if (s.stride == 1) {
      TransposeRows<R * R>(from + i * filter.in_step, filter.out_step, columns, R * R, g);
      continue;
    }
    const std::int64_t c = first_c + i;
    const float* const of_c = filter.w + c / s.in_fold() * filter.in_step;
    for (std::int64_t k = 0; k < columns; ++k) {
      const float* const of_k = of_c + (first_k + k) / s.out_fold() * filter.out_step;
      const int* const tap_at = taps.of[s.tap_phase(s.unfolds() ? first_k + k : c, phase)];
      for (int rs = 0; rs < R * R; ++rs)
        if (const int tap = tap_at[rs]; tap >= 0) g[rs * kTileCols + k] = of_k[tap];
    }
  }
}

// U = G g G^T of item i, [panel][channel block] of all phases. A channel's goes to place(channel),
// its points `step` floats apart; then comes done(channel).
template <int M, int R, class Place, class Done>
HWY_INLINE void TransformFilter(const Shape& s, const FilterView& filter, const Taps<R>& taps,
                                std::int64_t i, std::int64_t step, const Place& place,
                                const Done& done) {
  using Code = typename Transforms<M, R, ScaledSide::filter>::Filter;
  const std::int64_t block = i % s.in_blocks(), panel = i / s.in_blocks();
  const std::int64_t phase = block / s.phase_blocks() + panel / s.phase_panels();  // of one side
  alignas(64) float g[kBlock * R * R * kTileCols];
  GatherTaps<R>(s, filter, taps, phase, block % s.phase_blocks() * kBlock,
                panel % s.phase_panels() * kTileCols, g);
  const bool flipped = s.stride == 1 && filter.flipped;
  for (int c = 0; c < kBlock; ++c) {
    float* const to = place(c);
    for (int lane = 0; lane < kTileCols; lane += kLanes)
      Nested<Code>(
          [&](int r, int col) HWY_ATTR {
            const int rs = flipped ? R * R - 1 - (r * R + col) : r * R + col;
            return hn::Load(F32(), g + (c * R * R + rs) * kTileCols + lane);
          },
          [&](int r, int col, Vec value)
              HWY_ATTR { hn::Store(value, F32(), to + (r * (M + R - 1) + col) * step + lane); });
    done(c);
  }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
