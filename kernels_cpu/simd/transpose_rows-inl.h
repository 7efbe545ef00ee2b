// Rows of memory to columns, to gather filters: in KCRS taps are neighbours, products need the
// output's channels as neighbours. Read row by row, a cache line is used at once. Read by columns,
// it would be evicted from L1 before its next element is used, since rows lie large powers of two
// apart and share sets.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_SIMD_TRANSPOSE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_SIMD_TRANSPOSE_ROWS_INL_H_
#undef CONVLAB_KERNELS_CPU_SIMD_TRANSPOSE_ROWS_INL_H_
#else
#define CONVLAB_KERNELS_CPU_SIMD_TRANSPOSE_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels_cpu/simd/lanes-inl.h"
#include "kernels_cpu/simd/put_transposed-inl.h"
#include "kernels_cpu/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// held[row][i] = from[row][i] of up to kTileColsOf<T> rows, row_step elements apart, and as many
// elements of each. The next elements of each row are prefetched.
template <class T>
HWY_INLINE void HoldRows(const T* from, std::int64_t row_step, std::int64_t rows,
                         std::int64_t count, T* held) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (int i = 0; i < kTileColsOf<T>; i += kLineOf<T>)
      hwy::Prefetch(from + row * row_step + kTileColsOf<T> + i);
    ForEachVector<T>(count, [&](auto at, std::int64_t i) HWY_ATTR {
      hn::Store(at.Load(from + row * row_step + i), VectorTag<T>(),
                held + row * kTileColsOf<T> + i);
    });
  }
}

// to[i][row] = from[row][i] of up to kTileColsOf<T> rows, any number of elements of each; the rows
// of `to` are kTileColsOf<T> long. Up to three more rows of `to` are written, since columns go
// kSquare<T> at a time.
template <class T>
HWY_INLINE void TransposeRows(const T* from, std::int64_t row_step, std::int64_t rows,
                              std::int64_t count, T* to) {
  constexpr int kCols = kTileColsOf<T>;
  alignas(64) T square[kCols * kCols];
  for (std::int64_t i = 0; i < count; i += kCols) {
    const std::int64_t part = std::min<std::int64_t>(kCols, count - i);
    HoldRows(from + i, row_step, rows, part, square);
    PutTransposed(WholeSums<T>{square}, false, rows, round_up(part, kSquare<T>), to + i * kCols,
                  kCols);
  }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
