// Winograd's transforms as straight-line code of one thread, made at compile time
// (conv/math/butterflies.h).
#pragma once

#include "conv/math/butterflies.h"
#include "kernels_cuda/kernel.h"

namespace convlab::cuda {

// B^T, G and A^T.
enum class Transform : std::uint8_t { input, filter, output };

// y = A x, where A is one of F(M, R)'s three matrices: M outputs of an R-tap filter.
template <Transform kTransform, int M, int R, ScaledSide kScaled>
struct Codelet {
  static constexpr int T = M + R - 1;
  static constexpr int outputs = kTransform == Transform::output ? M : T;
  static constexpr int inputs = kTransform == Transform::filter ? R : T;
  static constexpr Paired side = kTransform == Transform::output ? Paired::columns : Paired::rows;
  // Device code may read constants, but not compute them.
  static constexpr SparseFactor<outputs, inputs> factor = [] {
    constexpr CookToom<M, R> exact = cook_toom<M, R>(default_points<T>(), kScaled);
    if constexpr (kTransform == Transform::input) return without_butterflies<side>(exact.bt);
    if constexpr (kTransform == Transform::filter) return without_butterflies<side>(exact.g);
    if constexpr (kTransform == Transform::output) return without_butterflies<side>(exact.at);
  }();
  static constexpr int flops = factor.flops();  // of one application

  template <class Real>
  static __device__ __forceinline__ void apply(const Real (&x)[inputs], Real (&y)[outputs]) {
    if constexpr (side == Paired::columns) {
      Real basis[inputs];
      basis[0] = x[0];
      basis[inputs - 1] = x[inputs - 1];
#pragma unroll
      for (int j = 1; j < inputs - 1; j += 2) {
        const bool paired = j + 1 < inputs - 1;
        basis[j] = paired ? x[j] + x[j + 1] : x[j];
        if (paired) basis[j + 1] = x[j] - x[j + 1];
      }
      rows_from<0>(basis, y);
    } else {
      rows_from<0>(x, y);
    }
  }

 private:
  template <int kRow, class Real>
  static __device__ __forceinline__ void rows_from(const Real (&x)[inputs], Real (&y)[outputs]) {
    if constexpr (kRow < outputs) {
      constexpr bool paired = side == Paired::rows && kRow % 2 == 1 && kRow + 1 < outputs - 1;
      if constexpr (paired) {
        constexpr Real scale = Real(factor.scale[kRow + 1]);
        const Real even = row_times<kRow>(x);
        const Real odd = row_times<kRow + 1>(x);
        y[kRow] = even + scale * odd;
        y[kRow + 1] = even - scale * odd;
      } else {
        y[kRow] = row_times<kRow>(x);
      }
      rows_from<kRow + (paired ? 2 : 1)>(x, y);
    }
  }

  template <int kRow, class Real>
  static __device__ __forceinline__ Real row_times(const Real (&x)[inputs]) {
    constexpr int first = factor.first[kRow];
    constexpr Real a = Real(factor.coefficient[kRow][first]);
    return add_terms<kRow, 0>(x, a * x[first]);
  }

  template <int kRow, int kColumn, class Real>
  static __device__ __forceinline__ Real add_terms(const Real (&x)[inputs], Real sum) {
    if constexpr (kColumn < inputs) {
      constexpr Real a = Real(factor.coefficient[kRow][kColumn]);
      if constexpr (kColumn != factor.first[kRow] && a != 0) sum += a * x[kColumn];
      return add_terms<kRow, kColumn + 1>(x, sum);
    } else {
      return sum;
    }
  }
};

// Y = A X A^T.
template <class Code, class Real>
__device__ __forceinline__ void nested(const Real (&x)[Code::inputs][Code::inputs],
                                       Real (&y)[Code::outputs][Code::outputs]) {
  Real half[Code::inputs][Code::outputs];
#pragma unroll
  for (int r = 0; r < Code::inputs; ++r) Code::apply(x[r], half[r]);
#pragma unroll
  for (int c = 0; c < Code::outputs; ++c) {
    Real from[Code::inputs], to[Code::outputs];
#pragma unroll
    for (int r = 0; r < Code::inputs; ++r) from[r] = half[r][c];
    Code::apply(from, to);
#pragma unroll
    for (int i = 0; i < Code::outputs; ++i) y[i][c] = to[i];
  }
}

// Floating-point operations of one nested application.
template <class Code>
constexpr double nested_flops = double(Code::outputs + Code::inputs) * Code::flops;

// The transforms of F(M, R): M x M outputs of an R x R filter.
template <int M, int R, ScaledSide kScaled = ScaledSide::filter>
struct Transforms {
  using Input = Codelet<Transform::input, M, R, kScaled>;
  using Filter = Codelet<Transform::filter, M, R, kScaled>;
  using Output = Codelet<Transform::output, M, R, kScaled>;
};

}  // namespace convlab::cuda
