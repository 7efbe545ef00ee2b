#include "conv/math/butterflies.h"

#include <gtest/gtest.h>

#include <cmath>

#include "conv/math/twiddle.h"

namespace convlab {
namespace {

// The butterflies and the factor, applied to unit vectors, give the matrix.
template <Paired kPaired, int I, int J>
void expect_matrix(const Rational (&matrix)[I][J]) {
  const SparseFactor<I, J> factor = without_butterflies<kPaired>(matrix);
  int zeros = 0;
  for (int unit = 0; unit < J; ++unit) {
    double x[J] = {}, y[I] = {};
    x[unit] = 1;
    if (kPaired == Paired::columns)
      for (int j = 1; is_pair(j, J); j += 2) {
        const double sum = x[j] + x[j + 1];
        x[j + 1] = x[j] - x[j + 1];
        x[j] = sum;
      }
    for (int i = 0; i < I; ++i) {
      ASSERT_GE(factor.first[i], 0);
      EXPECT_NE(factor.coefficient[i][factor.first[i]], 0);
      for (int j = 0; j < J; ++j) y[i] += factor.coefficient[i][j] * x[j];
      zeros += factor.coefficient[i][unit] == 0;
    }
    if (kPaired == Paired::rows)
      for (int i = 1; is_pair(i, I); i += 2) {
        const double even = y[i], odd = factor.scale[i + 1] * y[i + 1];
        y[i] = even + odd;
        y[i + 1] = even - odd;
      }
    for (int i = 0; i < I; ++i) EXPECT_NEAR(y[i], matrix[i][unit].value(), 1e-13);
  }
  EXPECT_EQ(factor.flops(), 2 * (I * J - zeros));
}

template <int M, int R>
void expect_transforms() {
  for (const ScaledSide side : {ScaledSide::filter, ScaledSide::output}) {
    const auto c = cook_toom<M, R>(default_points<M + R - 1>(), side);
    expect_matrix<Paired::rows>(c.bt);
    expect_matrix<Paired::rows>(c.g);
    expect_matrix<Paired::columns>(c.at);
  }
}

TEST(Butterflies, AroundTheFactorAreTheMatrix) {
  expect_transforms<2, 3>();
  expect_transforms<4, 3>();
  expect_transforms<6, 3>();
  expect_transforms<2, 5>();
  expect_transforms<4, 5>();
  expect_transforms<3, 4>();
  expect_transforms<5, 4>();
}

// In a pair's rows one half of the columns is even and the other odd.
TEST(Butterflies, HalveWhatPairsOfPointsMultiply) {
  constexpr auto c = cook_toom<4, 3>(default_points<6>());
  const auto bt = without_butterflies<Paired::rows>(c.bt);
  for (int i = 1; i < 5; ++i)
    for (int j = 0; j < 6; ++j) EXPECT_TRUE(bt.coefficient[i][j] == 0 || j % 2 != i % 2) << i << j;
}

TEST(Twiddle, IsARootOfUnity) {
  for (const int n : {5, 16, 32, 160})
    for (int k = 0; 2 * k < n; ++k) {
      const Twiddle w(k, n);
      const double angle = 2 * M_PI * k / n;
      EXPECT_NEAR(w.cos, std::cos(angle), 1e-15);
      EXPECT_NEAR(w.sin, std::sin(angle), 1e-15);
    }
}

}  // namespace
}  // namespace convlab
