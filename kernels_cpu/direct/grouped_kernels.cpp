// The loops of direct_grouped: see grouped.cpp for the derivation.
#include <algorithm>
#include <cstddef>

#include "kernels_cpu/direct/grouped.h"
#include "kernels_cpu/gemm/non_temporal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/direct/grouped_kernels.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/simd/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// Pixels of a tile: m accumulators and a vector of x for each, and one of the filter.
template <int kGroup>
constexpr int kGroupedPixels = ((kLanes == 16 ? 32 : 16) - 1) / (kGroup + 1);
// Taps of a tile of backward_filter: m accumulators and a vector of x for each, and two of dy. With
// 16 registers x is read from L1 instead.
template <int kGroup>
constexpr int kGroupedTaps = kLanes == 16 ? 30 / (kGroup + 1) : 12 / kGroup;

// Lane l gets lane l ^ kStep, a power of two.
template <class T, int kStep>
HWY_INLINE VecOf<T> SwapLanes(VecOf<T> v) {
  constexpr int kBytes = kStep * int(sizeof(T));
  if constexpr (kBytes == 4) {
    return hn::Shuffle2301(v);
  } else if constexpr (kBytes == 8 && sizeof(T) == 4) {
    return hn::Shuffle1032(v);
  } else if constexpr (kBytes == 8) {
    return hn::Shuffle01(v);
  } else if constexpr (kBytes == 16) {
    return hn::SwapAdjacentBlocks(v);
  } else {
    static_assert(kBytes == 32);
    return hn::ConcatLowerUpper(TagOf<T>(), v, v);
  }
}

// a[0] = sum over j < 2 kStep of a[j], each with its lanes l ^ j at l.
template <class T, int kStep>
HWY_INLINE void SumSwapped(VecOf<T>* a) {
  if constexpr (kStep > 0) {
    HWY_UNROLL(4)
    for (int j = 0; j < kStep; ++j) a[j] = hn::Add(a[j], SwapLanes<T, kStep>(a[j + kStep]));
    SumSwapped<T, kStep / 2>(a);
  }
}

// One row of one vector's outputs.
template <class T>
struct GroupedRow {
  const GroupedTap *taps, *taps_end;
  const T *in, *filter;  // of the vector: its image, its taps
  OutputEpilogue<T> output;
  VecOf<T> bias;
  std::int64_t out_at;  // where column 0 of the grid lies
};

// kPixels of its pixels from `first` on.
template <class T, int kGroup, int kPixels>
HWY_NOINLINE void RunPixels(const Grouped& g, Range inside, const GroupedRow<T>& row,
                            std::int64_t first) {
  const TagOf<T> d;
  constexpr int kVec = kLanesOf<T>;
  VecOf<T> sums[kPixels][kGroup];
  HWY_UNROLL(32)
  for (int i = 0; i < kPixels; ++i) {
    HWY_UNROLL(8)
    for (int j = 0; j < kGroup; ++j) sums[i][j] = hn::Zero(d);
  }
  const std::int64_t step = g.in_step_w * g.in.pixel;
  const T* const in = row.in + first * step;
  const bool all_inside = first >= inside.begin && first + kPixels <= inside.end;
  for (const GroupedTap* tap = row.taps; tap != row.taps_end; ++tap) {
    const T* const from = in + tap->in;
    VecOf<T> x[kPixels];
    if (all_inside) {
      HWY_UNROLL(32)
      for (int i = 0; i < kPixels; ++i) x[i] = hn::LoadU(d, from + i * step);
    } else {
      HWY_UNROLL(32)
      for (int i = 0; i < kPixels; ++i) {
        const std::int64_t at = tap->column + (first + i) * g.in_step_w;
        x[i] = at >= 0 && at < g.in.width ? hn::LoadU(d, from + i * step) : hn::Zero(d);
      }
    }
    const T* const filter = row.filter + tap->filter;
    HWY_UNROLL(8)
    for (int j = 0; j < kGroup; ++j) {
      const VecOf<T> u = hn::LoadU(d, filter + j * kVec);
      HWY_UNROLL(32)
      for (int i = 0; i < kPixels; ++i) sums[i][j] = hn::MulAdd(x[i], u, sums[i][j]);
    }
  }
  const std::int64_t out_step = g.out_step_w * g.out.pixel, out_at = row.out_at + first * out_step;
  VecOf<T> out[kPixels];
  HWY_UNROLL(32)
  for (int i = 0; i < kPixels; ++i) {
    SumSwapped<T, kGroup / 2>(sums[i]);
    out[i] = hn::Add(sums[i][0], row.bias);
  }
  FinishSums(row.output, [&](const auto& f) HWY_ATTR {
    HWY_UNROLL(32)
    for (int i = 0; i < kPixels; ++i) f(out[i], out_at + i * out_step);
  });
  HWY_UNROLL(32)
  for (int i = 0; i < kPixels; ++i) StoreVector(row.output, out[i], out_at + i * out_step);
  if (row.output.activates_stored())
    ActivateStored(*row.output.activation, row.output.out + out_at, kLanesOf<T>, out_step, kPixels);
}

// Where a vector begins in a tensor.
template <class T>
HWY_INLINE std::int64_t VectorStart(const ChannelView& view, std::int64_t vector) {
  const std::int64_t channel = vector * kLanesOf<T>;
  return channel / kBlock * view.block + channel % kBlock;
}

// One thread's share of the rows of each grid: [image][vector][row], or with rows_first
// [image][row][vector].
template <class T, int kGroup>
void GroupedPixels(const Grouped& g, const ConvArgs& args, std::int64_t thread,
                   std::int64_t threads) {
  const ConvProblem& p = g.problem;
  constexpr int kVec = kLanesOf<T>;
  const T* const in = static_cast<const T*>(p.pass == Pass::forward ? args.x : args.dy);
  const OutputEpilogue<T> output =
      output_epilogue<T>(p, args, g.non_temporal && is_aligned_for_non_temporal(args.out));
  const std::int64_t vectors = g.vectors();
  for (const GroupedGrid& taps : g.grids) {
    const PixelGrid& grid = taps.pixels;
    const Range own = share(p.n * vectors * grid.h, thread, threads);
    for (std::int64_t i = own.begin; i < own.end; ++i) {
      const std::int64_t n = i / (vectors * grid.h), rest = i % (vectors * grid.h);
      const std::int64_t h = g.rows_first ? rest / vectors : rest % grid.h;
      const std::int64_t vector = g.rows_first ? rest % vectors : rest / grid.h;
      alignas(64) T bias[kVec] = {};
      if (output.bias != nullptr)
        std::copy_n(output.bias + std::min(vector * kVec, p.k),
                    std::clamp<std::int64_t>(p.k - vector * kVec, 0, kVec), bias);
      const std::int64_t out_h = grid.first_h + h * g.out_step_h;
      const GroupedTap* const row_taps = taps.taps.data();
      const GroupedRow<T> row{.taps = row_taps + taps.row_begin[std::size_t(h)],
                              .taps_end = row_taps + taps.row_begin[std::size_t(h) + 1],
                              .in = in + n * g.in.image + VectorStart<T>(g.in, vector),
                              .filter = static_cast<const T*>(args.w) + vector * g.vector_taps(),
                              .output = output,
                              .bias = hn::Load(TagOf<T>(), bias),
                              .out_at = n * g.out.image + VectorStart<T>(g.out, vector) +
                                        (out_h * g.out.width + grid.first_w) * g.out.pixel};
      ForEachEvenRowTile<kGroupedPixels<kGroup>>(
          grid.w, [&](auto pixels, std::int64_t first)
                      HWY_ATTR { RunPixels<T, kGroup, pixels.value>(g, taps.inside, row, first); });
    }
  }
  if (output.non_temporal) hwy::FlushStream();
}

// f(std::integral_constant<int, j>(), dy with its lanes l ^ j at l) for each j. They come in the
// order of the Gray code, each a swap away from the one before.
template <class T, int kGroup, int kIndex = 0, class F>
HWY_INLINE void ForEachSwap(VecOf<T> v, const F& f) {
  if constexpr (kIndex > 0) v = SwapLanes<T, (kIndex & -kIndex)>(v);
  f(std::integral_constant<int, kIndex ^ (kIndex >> 1)>(), v);
  if constexpr (kIndex + 1 < kGroup) ForEachSwap<T, kGroup, kIndex + 1>(v, f);
}

// sums (+)= those of kTaps neighbouring taps from (r, s) on, over rows [begin, end) of an image;
// x and dy of the vector.
template <class T, int kGroup, int kTaps>
HWY_NOINLINE void RunTaps(const Grouped& g, const T* x, const T* dy, Range rows, std::int64_t r,
                          std::int64_t s, bool add, T* sums) {
  const TagOf<T> d;
  const ConvProblem& p = g.problem;
  constexpr int kVec = kLanesOf<T>;
  VecOf<T> sum[kTaps][kGroup];
  HWY_UNROLL(32)
  for (int t = 0; t < kTaps; ++t) {
    HWY_UNROLL(8)
    for (int j = 0; j < kGroup; ++j)
      sum[t][j] = add ? hn::LoadU(d, sums + (t * kGroup + j) * kVec) : hn::Zero(d);
  }
  const std::int64_t left = s * p.dilation_w - p.pad_w;  // what the first tap reads for q = 0
  const std::int64_t tap_step = p.dilation_w * g.in.pixel, step = p.stride_w * g.in.pixel;
  // Columns for which all taps lie in the image.
  const std::int64_t right = left + (kTaps - 1) * p.dilation_w;
  const std::int64_t begin = left >= 0 ? 0 : std::min(p.q, ceil_div(-left, p.stride_w));
  const std::int64_t end =
      right >= p.w ? begin : std::clamp((p.w - 1 - right) / p.stride_w + 1, begin, p.q);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const std::int64_t h = row * p.stride_h + r * p.dilation_h - p.pad_h;
    if (h < 0 || h >= p.h) continue;
    const T* const line = x + (h * p.w + left) * g.in.pixel;
    const T* const values = dy + row * p.q * g.out.pixel;
    const auto pixel = [&](std::int64_t q, const auto& load) HWY_ATTR {
      VecOf<T> at[kTaps];
      HWY_UNROLL(32)
      for (int t = 0; t < kTaps; ++t) at[t] = load(t, line + q * step + t * tap_step);
      ForEachSwap<T, kGroup>(hn::LoadU(d, values + q * g.out.pixel),
                             [&](auto j, VecOf<T> v) HWY_ATTR {
                               HWY_UNROLL(32)
                               for (int t = 0; t < kTaps; ++t)
                                 sum[t][j.value] = hn::MulAdd(at[t], v, sum[t][j.value]);
                             });
    };
    const auto at_edge = [&](std::int64_t q) HWY_ATTR {
      pixel(q, [&](int t, const T* from) HWY_ATTR {
        const std::int64_t w = left + q * p.stride_w + t * p.dilation_w;
        return w >= 0 && w < p.w ? hn::LoadU(d, from) : hn::Zero(d);
      });
    };
    for (std::int64_t q = 0; q < begin; ++q) at_edge(q);
    for (std::int64_t q = begin; q < end; ++q)
      pixel(q, [&](int, const T* from) HWY_ATTR { return hn::LoadU(d, from); });
    for (std::int64_t q = end; q < p.q; ++q) at_edge(q);
  }
  HWY_UNROLL(32)
  for (int t = 0; t < kTaps; ++t) {
    HWY_UNROLL(8)
    for (int j = 0; j < kGroup; ++j) hn::StoreU(sum[t][j], d, sums + (t * kGroup + j) * kVec);
  }
}

template <class T, int kGroup>
void GroupedFilter(const Grouped& g, const ConvArgs& args, std::int64_t unit, void* sums) {
  const ConvProblem& p = g.problem;
  const std::int64_t vector = unit / g.parts;
  const T* const x = static_cast<const T*>(args.x) + VectorStart<T>(g.in, vector);
  const T* const dy = static_cast<const T*>(args.dy) + VectorStart<T>(g.out, vector);
  const Range own = share(p.n * p.p, unit % g.parts, g.parts);
  for (std::int64_t row = own.begin; row < own.end;) {
    const std::int64_t n = row / p.p, first = row % p.p;
    const Range rows{first, std::min({p.p, first + g.strip, first + own.end - row})};
    for (std::int64_t r = 0; r < p.r; ++r)
      ForEachEvenRowTile<kGroupedTaps<kGroup>>(p.s, [&](auto taps, std::int64_t s) HWY_ATTR {
        RunTaps<T, kGroup, taps.value>(
            g, x + n * g.in.image, dy + n * g.out.image, rows, r, s, row > own.begin,
            static_cast<T*>(sums) + (r * p.s + s) * kGroup * kLanesOf<T>);
      });
    row += rows.size();
  }
}

// f(element, group) with the type of elements and the channels of a group.
template <class T, class F>
void WithGroup(std::int64_t group, const F& f) {
  if (group == 2) f(T(), std::integral_constant<int, 2>());
  if constexpr (kLanesOf<T> >= 4) {
    if (group == 4) f(T(), std::integral_constant<int, 4>());
  }
  if constexpr (kLanes == 16) {
    if (group == 8) f(T(), std::integral_constant<int, 8>());
  }
}
template <class F>
void WithTypes(const Grouped& g, const F& f) {
  g.problem.dtype == DType::f64 ? WithGroup<double>(g.group, f) : WithGroup<float>(g.group, f);
}

void Pixels(const Grouped& g, const ConvArgs& args, std::int64_t thread, std::int64_t threads) {
  WithTypes(g, [&](auto zero, auto group) {
    GroupedPixels<decltype(zero), group.value>(g, args, thread, threads);
  });
}

void Filter(const Grouped& g, const ConvArgs& args, std::int64_t unit, void* sums) {
  WithTypes(g, [&](auto zero, auto group) {
    GroupedFilter<decltype(zero), group.value>(g, args, unit, sums);
  });
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(Pixels);
HWY_EXPORT(Filter);

void grouped_pixels(const Grouped& g, const ConvArgs& args, std::int64_t thread,
                    std::int64_t threads) {
  HWY_DYNAMIC_DISPATCH(Pixels)(g, args, thread, threads);
}

void grouped_filter(const Grouped& g, const ConvArgs& args, std::int64_t unit, void* sums) {
  HWY_DYNAMIC_DISPATCH(Filter)(g, args, unit, sums);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
