// A row-major product as a column-major one, for cuBLAS.
#pragma once

#include "kernels_cuda/vendor.h"

namespace convlab::cuda {

enum class Op : std::uint8_t { none, transpose, conjugate_transpose };

// Column-major: C[i] = op_first(first[i]) op_second(second[i]), where C is m x n. `first` is the
// Gemm's b and `second` its a.
struct ColumnMajorGemm {
  Op op_first = Op::none, op_second = Op::none;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t ld_first = 0, ld_second = 0, ld_c = 0;
  std::int64_t stride_first = 0, stride_second = 0, stride_c = 0;
  std::int64_t batch = 1;
};

// A row-major matrix in memory is its transpose in column-major order, and the transposed product
// is C' = op(B)' op(A)'. So the operands change places and keep their op.
inline ColumnMajorGemm column_major(const Gemm& g) {
  const auto op = [](bool transpose, bool conjugate) {
    return !transpose ? Op::none : conjugate ? Op::conjugate_transpose : Op::transpose;
  };
  return {.op_first = op(g.transpose_b, g.conjugate_b),
          .op_second = op(g.transpose_a, g.conjugate_a),
          .m = g.n,
          .n = g.m,
          .k = g.k,
          .ld_first = g.ldb,
          .ld_second = g.lda,
          .ld_c = g.ldc,
          .stride_first = g.stride_b,
          .stride_second = g.stride_a,
          .stride_c = g.stride_c,
          .batch = g.batch};
}

}  // namespace convlab::cuda
