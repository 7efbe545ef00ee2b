// Rows of memory to columns, to gather filters: KCRS has the taps side by side, products want the
// channels of the output so. Read row by row, a line is used up at once; read by columns it would
// have left L1 before its next float is met, for rows lie large powers of two apart and share sets.
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

#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/simd/put_transposed-inl.h"
#include "kernels_cpu/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// held[row][i] = from[row][i] of up to kTileCols rows, row_step floats apart, and as many floats of
// each. What follows in each row is prefetched.
HWY_INLINE void HoldRows(const float* from, std::int64_t row_step, std::int64_t rows,
                         std::int64_t floats, float* held) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (int i = 0; i < kTileCols; i += 16) hwy::Prefetch(from + row * row_step + kTileCols + i);
    ForEachVector<float>(floats, [&](auto at, std::int64_t i) HWY_ATTR {
      hn::Store(at.Load(from + row * row_step + i), VectorTag<float>(), held + row * kTileCols + i);
    });
  }
}

// to[i][row] = from[row][i] of up to kTileCols rows, any number of floats of each; the rows of `to`
// are kTileCols long. Up to three more rows of `to` are written, for columns go by fours.
HWY_INLINE void TransposeRows(const float* from, std::int64_t row_step, std::int64_t rows,
                              std::int64_t floats, float* to) {
  alignas(64) float square[kTileCols * kTileCols];
  for (std::int64_t i = 0; i < floats; i += kTileCols) {
    const std::int64_t count = std::min<std::int64_t>(kTileCols, floats - i);
    HoldRows(from + i, row_step, rows, count, square);
    PutTransposed(WholeSums{square}, false, rows, round_up(count, 4), to + i * kTileCols,
                  kTileCols);
  }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
