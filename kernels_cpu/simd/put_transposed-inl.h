// Sums of a panel, channels by columns, to dw, whose rows are the columns.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_SIMD_PUT_TRANSPOSED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_SIMD_PUT_TRANSPOSED_INL_H_
#undef CONVLAB_KERNELS_CPU_SIMD_PUT_TRANSPOSED_INL_H_
#else
#define CONVLAB_KERNELS_CPU_SIMD_PUT_TRANSPOSED_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// The sums of all parts at one place.
struct PartSums {
  const float* first;
  std::size_t part_stride;
  std::int64_t parts;

  template <class D>
  HWY_INLINE hn::Vec<D> LoadAt(D d, std::int64_t i) const {
    hn::Vec<D> sum = hn::LoadU(d, first + i);
    for (std::int64_t part = 1; part < parts; ++part)
      sum = hn::Add(sum, hn::LoadU(d, first + std::size_t(part) * part_stride + std::size_t(i)));
    return sum;
  }
  float At(std::int64_t i) const { return hn::GetLane(LoadAt(hn::CappedTag<float, 1>(), i)); }
};
// Likewise, where they are whole.
struct WholeSums {
  const float* first;

  template <class D>
  HWY_INLINE hn::Vec<D> LoadAt(D d, std::int64_t i) const {
    return hn::LoadU(d, first + i);
  }
  float At(std::int64_t i) const { return first[i]; }
};

// Blocks of four lanes from `at` on, `step` floats apart, as many as d has.
template <class D, class Sums>
HWY_INLINE hn::Vec<D> LoadFours(D d, const Sums& sums, std::int64_t at, std::int64_t step) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return sums.LoadAt(d, at);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, LoadFours(half, sums, at + hn::MaxLanes(half) / 4 * step, step),
                       LoadFours(half, sums, at, step));
  }
}

// Blocks of 4 x 4 are transposed side by side: put(i, the i-th lanes of all four's blocks).
template <class D, class V, class Put>
HWY_INLINE void TransposeFours(D d, V r0, V r1, V r2, V r3, const Put& put) {
  const hn::Repartition<double, D> pairs;
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
  put(0, hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)));
  put(1, hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)));
  put(2, hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)));
  put(3, hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)));
}

// to[column][row] (+)= sums[row][column] of four columns and as many rows as d has lanes: each
// column's rows are one vector.
template <bool kAccumulate, class D, class Sums>
HWY_INLINE void PutFour(D d, const Sums& sums, std::int64_t at, float* to, std::int64_t pitch) {
  const auto load = [&](int row) HWY_ATTR {
    return LoadFours(d, sums, at + row * kTileCols, 4 * kTileCols);
  };
  TransposeFours(d, load(0), load(1), load(2), load(3), [&](int column, auto v) HWY_ATTR {
    float* const place = to + column * pitch;
    hn::StoreU(kAccumulate ? hn::Add(v, hn::LoadU(d, place)) : v, d, place);
  });
}

template <bool kAccumulate, class Sums>
HWY_INLINE void PutTransposedAs(const Sums& sums, std::int64_t rows, std::int64_t columns,
                                float* to, std::int64_t pitch) {
  const hn::CappedTag<float, 4> four;
  const std::int64_t whole = columns / 4 * 4;
  // All columns of some rows, which share cache lines of the sums.
  const auto put_fours = [&](auto d, std::int64_t row) HWY_ATTR {
    for (std::int64_t column = 0; column < whole; column += 4)
      PutFour<kAccumulate>(d, sums, row * kTileCols + column, to + column * pitch + row, pitch);
  };
  std::int64_t row = 0;
  for (; row + kLanes <= rows; row += kLanes) put_fours(F32(), row);
  for (; row + 4 <= rows; row += 4) put_fours(four, row);
  const auto put_one = [&](std::int64_t r, std::int64_t c) HWY_ATTR {
    float* const place = to + c * pitch + r;
    *place = sums.At(r * kTileCols + c) + (kAccumulate ? *place : 0.f);
  };
  for (std::int64_t r = row; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) put_one(r, c);
  for (std::int64_t c = whole; c < columns; ++c)
    for (std::int64_t r = 0; r < row; ++r) put_one(r, c);
}

// to[column][row] (+)= sums[row][column].
template <class Sums>
HWY_INLINE void PutTransposed(const Sums& sums, bool accumulate, std::int64_t rows,
                              std::int64_t columns, float* to, std::int64_t pitch) {
  if (accumulate)
    PutTransposedAs<true>(sums, rows, columns, to, pitch);
  else
    PutTransposedAs<false>(sums, rows, columns, to, pitch);
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
