// Transposes the sums of a panel, channels by columns, into dw, whose rows are the columns.
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

#include "kernels_cpu/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// The sums of all parts at one place.
template <class T>
struct PartSums {
  const T* first;
  std::size_t part_stride;
  std::int64_t parts;

  template <class D>
  HWY_INLINE hn::Vec<D> LoadAt(D d, std::int64_t i) const {
    hn::Vec<D> sum = hn::LoadU(d, first + i);
    for (std::int64_t part = 1; part < parts; ++part)
      sum = hn::Add(sum, hn::LoadU(d, first + std::size_t(part) * part_stride + std::size_t(i)));
    return sum;
  }
  T At(std::int64_t i) const { return hn::GetLane(LoadAt(hn::CappedTag<T, 1>(), i)); }
};
template <class T>
PartSums(const T*, std::size_t, std::int64_t) -> PartSums<T>;
// Likewise, if there is one part.
template <class T>
struct WholeSums {
  const T* first;

  template <class D>
  HWY_INLINE hn::Vec<D> LoadAt(D d, std::int64_t i) const {
    return hn::LoadU(d, first + i);
  }
  T At(std::int64_t i) const { return first[i]; }
};

template <class T>
WholeSums(const T*) -> WholeSums<T>;

// Elements in 128 bits; squares with so many a side are transposed at a time.
template <class T>
constexpr int kSquare = 16 / int(sizeof(T));

// Blocks of kSide lanes from `at` on, `step` elements apart, as many as d has.
template <int kSide, class D, class Sums>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, const Sums& sums, std::int64_t at, std::int64_t step) {
  if constexpr (hn::MaxLanes(d) == kSide) {
    return sums.LoadAt(d, at);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d,
                       LoadBlocks<kSide>(half, sums, at + hn::MaxLanes(half) / kSide * step, step),
                       LoadBlocks<kSide>(half, sums, at, step));
  }
}

// Squares of kSquare rows and columns are transposed side by side, row i from load(i):
// put(j, the j-th lanes of all rows' blocks).
template <class D, class Load, class Put>
HWY_INLINE void TransposeSquares(D d, const Load& load, const Put& put) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    const auto r0 = load(0), r1 = load(1);
    put(0, hn::InterleaveLower(d, r0, r1));
    put(1, hn::InterleaveUpper(d, r0, r1));
  } else {
    const auto r0 = load(0), r1 = load(1), r2 = load(2), r3 = load(3);
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
}

// to[column][row] (+)= sums[row][column] of kSquare columns and as many rows as d has lanes: each
// column's rows are one vector.
template <bool kAccumulate, class D, class Sums, class T>
HWY_INLINE void PutSquares(D d, const Sums& sums, std::int64_t at, T* to, std::int64_t pitch) {
  TransposeSquares(
      d,
      [&](int row) HWY_ATTR {
        return LoadBlocks<kSquare<T>>(d, sums, at + row * kTileColsOf<T>,
                                      kSquare<T> * kTileColsOf<T>);
      },
      [&](int column, auto v) HWY_ATTR {
        T* const place = to + column * pitch;
        hn::StoreU(kAccumulate ? hn::Add(v, hn::LoadU(d, place)) : v, d, place);
      });
}

template <bool kAccumulate, class Sums, class T>
HWY_INLINE void PutTransposedAs(const Sums& sums, std::int64_t rows, std::int64_t columns, T* to,
                                std::int64_t pitch) {
  constexpr int kSide = kSquare<T>;
  const hn::CappedTag<T, kSide> square;
  const std::int64_t whole = columns / kSide * kSide;
  // All columns of some rows, which share cache lines of the sums.
  const auto put_squares = [&](auto d, std::int64_t row) HWY_ATTR {
    for (std::int64_t column = 0; column < whole; column += kSide)
      PutSquares<kAccumulate>(d, sums, row * kTileColsOf<T> + column, to + column * pitch + row,
                              pitch);
  };
  std::int64_t row = 0;
  for (; row + kLanesOf<T> <= rows; row += kLanesOf<T>) put_squares(TagOf<T>(), row);
  for (; row + kSide <= rows; row += kSide) put_squares(square, row);
  const auto put_one = [&](std::int64_t r, std::int64_t c) HWY_ATTR {
    T* const place = to + c * pitch + r;
    *place = sums.At(r * kTileColsOf<T> + c) + (kAccumulate ? *place : T(0));
  };
  for (std::int64_t r = row; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) put_one(r, c);
  for (std::int64_t c = whole; c < columns; ++c)
    for (std::int64_t r = 0; r < row; ++r) put_one(r, c);
}

// to[column][row] (+)= sums[row][column].
template <class Sums, class T>
HWY_INLINE void PutTransposed(const Sums& sums, bool accumulate, std::int64_t rows,
                              std::int64_t columns, T* to, std::int64_t pitch) {
  if (accumulate)
    PutTransposedAs<true>(sums, rows, columns, to, pitch);
  else
    PutTransposedAs<false>(sums, rows, columns, to, pitch);
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
