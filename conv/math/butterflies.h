// Winograd's transforms as straight-line code: butterflies around a sparse matrix.
//
// Points come in pairs +a, -a, so two rows of B^T (or of G) are e + o and e - o, where e has only
// even and o only odd columns; and two columns of A^T multiply s = x1 + x2 in even and d = x1 - x2
// in odd rows. Both are a butterfly on pairs (1,2), (3,4), ... and a matrix that is half zero. The
// butterfly is an exact change of basis for any matrix, so no symmetry has to be detected: it gives
// zeros, for which no code is generated. F(4,3) takes 12 operations for a column of B^T d and 12
// for one of A^T m.
#pragma once

#include <cstdint>

#include "conv/math/cook_toom.h"

namespace convlab {

// The side of the matrix that has the pairs: B^T and G have paired rows, A^T paired columns.
enum class Paired : std::uint8_t { rows, columns };

// Whether i and i + 1 are a pair of `count` points: all but the first and the last.
constexpr bool is_pair(int i, int count) { return i % 2 == 1 && i + 1 < count - 1; }

// The factor of a matrix without its butterflies. With paired columns y = factor * butterfly(x).
// With paired rows y = butterfly(factor * x), where the second row of a pair is divided by
// scale[i], which the butterfly's multiply-adds multiply back at no cost.
template <int I, int J>
struct SparseFactor {
  static constexpr int rows = I, columns = J;
  double coefficient[I][J] = {};  // of row i, divided by scale[i]
  double scale[I] = {};
  int first[I] = {};  // the first term of row i's sum: one with coefficient 1 if there is one

  // FLOPs of one product: a multiply-add for each coefficient.
  constexpr int flops() const {
    int count = 0;
    for (const auto& row : coefficient)
      for (const double a : row) count += a != 0 ? 2 : 0;
    return count;
  }
};

template <Paired kPaired, int I, int J>
constexpr SparseFactor<I, J> without_butterflies(const Rational (&matrix)[I][J]) {
  constexpr bool rows = kPaired == Paired::rows;
  Rational a[I][J];
  for (int i = 0; i < I; ++i)
    for (int j = 0; j < J; ++j) a[i][j] = matrix[i][j];
  for (int pair = 1; is_pair(pair, rows ? I : J); pair += 2)
    for (int other = 0; other < (rows ? J : I); ++other) {
      Rational& p = rows ? a[pair][other] : a[other][pair];
      Rational& q = rows ? a[pair + 1][other] : a[other][pair + 1];
      const Rational sum = p + q, difference = p - q;
      p = sum / 2;
      q = difference / 2;
    }

  SparseFactor<I, J> factor;
  for (int i = 0; i < I; ++i) {
    Rational scale = 1;
    if (rows && i > 0 && is_pair(i - 1, I))
      for (int j = 0; j < J; ++j)
        if (a[i][j].num != 0) scale = a[i][j];
    factor.scale[i] = scale.value();
    factor.first[i] = -1;
    bool one = false;
    for (int j = 0; j < J; ++j) {
      const Rational c = a[i][j] / scale;
      factor.coefficient[i][j] = c.value();
      if (c.num != 0 && (factor.first[i] < 0 || (!one && c == Rational(1)))) {
        factor.first[i] = j;
        one = c == Rational(1);
      }
    }
  }
  return factor;
}

}  // namespace convlab
