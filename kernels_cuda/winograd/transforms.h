// Winograd's transforms as straight-line code of one thread, made at compile time from the
// Cook-Toom matrices.
//
// Points come in pairs +a, -a, so two rows of B^T (or of G) are e + o and e - o, where e has only
// even and o only odd columns; and two columns of A^T multiply s = x1 + x2 in even and
// d = x1 - x2 in odd rows. Both are a butterfly on pairs (1,2), (3,4), ... around a matrix that is
// half zero. The butterfly is an exact change of basis for any matrix, so no symmetry has to be
// detected: it shows in the zeros, for which no code is made.
#pragma once

#include "conv/math/cook_toom.h"
#include "kernels_cuda/kernel.h"

namespace convlab::cuda {

// Which side of the matrix has the pairs.
enum class Paired : std::uint8_t { rows, columns };

// What is left to do between the butterflies. Device code may only read constants, so that all of
// them are worked out here.
template <int I, int J>
struct TransformSteps {
  double coefficient[I][J] = {};  // of row i, divided by scale[i]
  int first[I] = {};  // where row i's sum starts: at a one if there is any, which costs nothing
  double scale[I] = {};
};

template <Paired kPaired, int I, int J>
constexpr TransformSteps<I, J> transform_steps(const Rational (&matrix)[I][J]) {
  constexpr bool rows = kPaired == Paired::rows;
  Rational a[I][J];
  for (int i = 0; i < I; ++i)
    for (int j = 0; j < J; ++j) a[i][j] = matrix[i][j];
  for (int pair = 1; pair + 1 < (rows ? I : J) - 1; pair += 2)
    for (int other = 0; other < (rows ? J : I); ++other) {
      Rational& p = rows ? a[pair][other] : a[other][pair];
      Rational& q = rows ? a[pair + 1][other] : a[other][pair + 1];
      const Rational sum = p + q, difference = p - q;
      p = sum / 2;
      q = difference / 2;
    }

  TransformSteps<I, J> steps;
  for (int i = 0; i < I; ++i) {
    // The second of a pair is scaled when it is added and subtracted, which costs nothing either.
    Rational scale = 1;
    if (rows && i > 0 && i % 2 == 0 && i < I - 1)
      for (int j = 0; j < J; ++j)
        if (a[i][j].num != 0) scale = a[i][j];
    steps.scale[i] = scale.value();
    steps.first[i] = -1;
    bool one = false;
    for (int j = 0; j < J; ++j) {
      const Rational c = a[i][j] / scale;
      steps.coefficient[i][j] = c.value();
      if (c.num != 0 && (steps.first[i] < 0 || (!one && c == Rational(1)))) {
        steps.first[i] = j;
        one = c == Rational(1);
      }
    }
  }
  return steps;
}

// B^T, G and A^T.
enum class Transform : std::uint8_t { input, filter, output };

// y = A x, where A is one of F(M, R)'s three matrices: M outputs of an R-tap filter.
template <Transform kTransform, int M, int R, ScaledSide kScaled>
struct Codelet {
  static constexpr int T = M + R - 1;
  static constexpr int outputs = kTransform == Transform::output ? M : T;
  static constexpr int inputs = kTransform == Transform::filter ? R : T;
  static constexpr Paired side = kTransform == Transform::output ? Paired::columns : Paired::rows;
  static constexpr TransformSteps<outputs, inputs> steps = [] {
    constexpr CookToom<M, R> exact = cook_toom<M, R>(default_points<T>(), kScaled);
    if constexpr (kTransform == Transform::input) return transform_steps<side>(exact.bt);
    if constexpr (kTransform == Transform::filter) return transform_steps<side>(exact.g);
    if constexpr (kTransform == Transform::output) return transform_steps<side>(exact.at);
  }();

  // Of one application: a multiply-add for each coefficient, near enough.
  static constexpr int flops = [] {
    int count = 0;
    for (const auto& row : steps.coefficient)
      for (const double a : row) count += a != 0 ? 2 : 0;
    return count;
  }();

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
        constexpr Real scale = Real(steps.scale[kRow + 1]);
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
    constexpr int first = steps.first[kRow];
    constexpr Real a = Real(steps.coefficient[kRow][first]);
    return add_terms<kRow, 0>(x, a * x[first]);
  }

  template <int kRow, int kColumn, class Real>
  static __device__ __forceinline__ Real add_terms(const Real (&x)[inputs], Real sum) {
    if constexpr (kColumn < inputs) {
      constexpr Real a = Real(steps.coefficient[kRow][kColumn]);
      if constexpr (kColumn != steps.first[kRow] && a != 0) sum += a * x[kColumn];
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
