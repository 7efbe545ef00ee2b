#include "conv/math/cook_toom.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>

namespace convlab {
namespace {

// Bilinear forms that agree on unit vectors agree everywhere: y[k] is 1 if d's 1 is at k +
// (position of g's 1), else 0.
template <int M, int R>
constexpr bool correlates(const CookToom<M, R>& c) {
  constexpr int T = M + R - 1;
  for (int i = 0; i < T; ++i)
    for (int j = 0; j < R; ++j)
      for (int k = 0; k < M; ++k) {
        Rational y = 0;
        for (int t = 0; t < T; ++t) y = y + c.at[k][t] * c.g[t][j] * c.bt[t][i];
        if (!(y == Rational(i == k + j))) return false;
      }
  return true;
}

template <int M, int R>
constexpr CookToom<M, R> defaults(ScaledSide side) {
  return cook_toom<M, R>(default_points<M + R - 1>(), side);
}
template <int M, int R>
constexpr bool correlates_by_default() {
  return correlates(defaults<M, R>(ScaledSide::filter)) &&
         correlates(defaults<M, R>(ScaledSide::output));
}

static_assert(correlates_by_default<2, 3>());
static_assert(correlates_by_default<4, 3>());
static_assert(correlates_by_default<6, 3>());
static_assert(correlates_by_default<4, 4>());
static_assert(correlates_by_default<2, 5>());
static_assert(correlates_by_default<4, 5>());
static_assert(correlates_by_default<3, 2>());
static_assert(correlates_by_default<3, 4>());
static_assert(correlates_by_default<3, 6>());
static_assert(correlates_by_default<5, 2>());
static_assert(correlates_by_default<5, 4>());
static_assert(correlates(cook_toom<2, 3>({0, 1, -1})));
static_assert(correlates(cook_toom<4, 3>({0, 1, -1, 2, -2})));
static_assert(correlates(cook_toom<3, 3>({0, 1, -1, 2})));
static_assert(correlates(cook_toom<1, 1>(std::array<Rational, 0>{})));
static_assert(correlates(cook_toom<1, 2>({Rational(1, 3)})));

TEST(CookToom, GivesTheMatricesOfLavinAndGray) {
  // F(2, 3) of the paper, up to the signs of its last row and last column.
  const auto c = cook_toom<2, 3>({0, 1, -1});
  const int bt[4][4] = {{-1, 0, 1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, -1, 0, 1}};
  const Rational half(1, 2);
  const Rational g[4][3] = {{-1, 0, 0}, {half, half, half}, {half, -half, half}, {0, 0, 1}};
  const int at[2][4] = {{1, 1, 1, 0}, {0, 1, -1, 1}};
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) EXPECT_EQ(c.bt[i][j], Rational(bt[i][j])) << i << ' ' << j;
    for (int j = 0; j < 3; ++j) EXPECT_EQ(c.g[i][j], g[i][j]) << i << ' ' << j;
    for (int j = 0; j < 2; ++j) EXPECT_EQ(c.at[j][i], Rational(at[j][i])) << i << ' ' << j;
  }
}

TEST(CookToom, KeepsTheScaleWhereItIsTold) {
  const auto filter = defaults<4, 3>(ScaledSide::filter);
  const auto output = defaults<4, 3>(ScaledSide::output);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(filter.at[0][i], Rational(1));
    EXPECT_EQ(output.g[i][0], Rational(1));
  }
}

// A B^T and so on, for small exact matrices.
template <int I, int K, int J>
void multiply(const Rational (&a)[I][K], const Rational (&b)[K][J], Rational (&c)[I][J]) {
  for (int i = 0; i < I; ++i)
    for (int j = 0; j < J; ++j) {
      c[i][j] = 0;
      for (int k = 0; k < K; ++k) c[i][j] = c[i][j] + a[i][k] * b[k][j];
    }
}
template <int I, int J>
void transpose(const Rational (&a)[I][J], Rational (&t)[J][I]) {
  for (int i = 0; i < I; ++i)
    for (int j = 0; j < J; ++j) t[j][i] = a[i][j];
}
template <int I, int J>
void sandwich(const Rational (&a)[I][J], const Rational (&x)[J][J], Rational (&y)[I][I]) {
  Rational left[I][J], right[J][I];
  multiply(a, x, left);
  transpose(a, right);
  multiply(left, right, y);
}

// Counts unit tiles d, g for which the nested form is not the two-dimensional correlation.
template <int M, int R>
int nested_mistakes() {
  constexpr int T = M + R - 1;
  const auto c = defaults<M, R>(ScaledSide::filter);
  int mistakes = 0;
  for (int j = 0; j < R * R; ++j) {
    Rational g[R][R], u[T][T];
    g[j / R][j % R] = 1;
    sandwich(c.g, g, u);
    for (int i = 0; i < T * T; ++i) {
      Rational d[T][T], m[T][T], y[M][M];
      d[i / T][i % T] = 1;
      sandwich(c.bt, d, m);
      for (int t = 0; t < T * T; ++t) m[t / T][t % T] = m[t / T][t % T] * u[t / T][t % T];
      sandwich(c.at, m, y);
      for (int k = 0; k < M * M; ++k) {
        const bool hit = i / T == k / M + j / R && i % T == k % M + j % R;
        mistakes += !(y[k / M][k % M] == Rational(hit));
      }
    }
  }
  return mistakes;
}

TEST(CookToom, NestsInTwoDimensions) {
  EXPECT_EQ((nested_mistakes<2, 3>()), 0);
  EXPECT_EQ((nested_mistakes<4, 3>()), 0);
  EXPECT_EQ((nested_mistakes<6, 3>()), 0);
  EXPECT_EQ((nested_mistakes<4, 4>()), 0);
  EXPECT_EQ((nested_mistakes<2, 5>()), 0);
  EXPECT_EQ((nested_mistakes<4, 5>()), 0);
  EXPECT_EQ((nested_mistakes<3, 2>()), 0);
  EXPECT_EQ((nested_mistakes<3, 4>()), 0);
  EXPECT_EQ((nested_mistakes<3, 6>()), 0);
}

TEST(Rational, ReducesAndRefusesWhatDoesNotFit) {
  EXPECT_EQ(Rational(6, -4), Rational(-3, 2));
  EXPECT_EQ(Rational(0, 7).den, 1);
  EXPECT_EQ(Rational(1, 3) + Rational(1, 6), Rational(1, 2));
  EXPECT_EQ(Rational(2, 3) / Rational(-4, 9), Rational(-3, 2));
  const Rational large = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(large * Rational(1, 2) * Rational(2), large);
  EXPECT_THROW(large + Rational(1), std::overflow_error);
  EXPECT_THROW(Rational(1) / large / Rational(2), std::overflow_error);
  EXPECT_THROW(Rational(1, 0), std::domain_error);
}

template <int I, int J, int K>
void apply(const Rational (&a)[I][J], const float (&x)[J][K], float (&y)[I][K]) {
  for (int i = 0; i < I; ++i)
    for (int k = 0; k < K; ++k) {
      y[i][k] = 0;
      for (int j = 0; j < J; ++j) y[i][k] += static_cast<float>(a[i][j].value()) * x[j][k];
    }
}
// a x a^T in float, rounding after each of the two products as kernels do.
template <int I, int J>
void transform(const Rational (&a)[I][J], const float (&x)[J][J], float (&y)[I][I]) {
  float left[I][J], left_t[J][I], y_t[I][I];
  apply(a, x, left);
  for (int i = 0; i < I; ++i)
    for (int j = 0; j < J; ++j) left_t[j][i] = left[i][j];
  apply(a, left_t, y_t);
  for (int i = 0; i < I; ++i)
    for (int j = 0; j < I; ++j) y[i][j] = y_t[j][i];
}

// Error over the root mean square of the output: 256 channels of N(0,1) data, all in float,
// against double.
template <int M, int R>
double error(const std::array<Rational, M + R - 2>& points) {
  constexpr int T = M + R - 1, channels = 256, tiles = 64;
  const auto c = cook_toom<M, R>(points);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  double error2 = 0, output2 = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    float product[T][T] = {};
    double exact[M][M] = {};
    for (int channel = 0; channel < channels; ++channel) {
      float d[T][T], g[R][R], v[T][T], u[T][T];
      for (auto& row : d)
        for (float& x : row) x = normal(random);
      for (auto& row : g)
        for (float& x : row) x = normal(random);
      transform(c.bt, d, v);
      transform(c.g, g, u);
      for (int i = 0; i < T; ++i)
        for (int j = 0; j < T; ++j) product[i][j] += u[i][j] * v[i][j];
      for (int i = 0; i < M; ++i)
        for (int j = 0; j < M; ++j)
          for (int a = 0; a < R; ++a)
            for (int b = 0; b < R; ++b) exact[i][j] += double{d[i + a][j + b]} * g[a][b];
    }
    float y[M][M];
    transform(c.at, product, y);
    for (int i = 0; i < M; ++i)
      for (int j = 0; j < M; ++j) {
        error2 += (y[i][j] - exact[i][j]) * (y[i][j] - exact[i][j]);
        output2 += exact[i][j] * exact[i][j];
      }
  }
  return std::sqrt(error2 / output2);
}

// The limits come from the same experiment (C = 256, N(0,1), float transforms and sums) run
// elsewhere. A wrong matrix errs by far more than 1e-4, so a factor of two leaves room for another
// order of summation and still detects a point set that loses a bit.
TEST(CookToom, ErrsAsLittleAsItsPointsAllow) {
  const double f23 = error<2, 3>(default_points<4>());
  const double f43 = error<4, 3>(default_points<6>());
  const double f43_usual = error<4, 3>({0, 1, -1, 2, -2});
  const double f63 = error<6, 3>(default_points<8>());
  RecordProperty("f23", std::to_string(f23 * 1e7));
  RecordProperty("f43", std::to_string(f43 * 1e7));
  RecordProperty("f43_usual", std::to_string(f43_usual * 1e7));
  RecordProperty("f63", std::to_string(f63 * 1e7));
  EXPECT_LT(f23, 2 * 4.7e-7);
  EXPECT_LT(f43, 2 * 1.4e-6);
  EXPECT_LT(f63, 2 * 5.7e-6);
  EXPECT_LT(f43, 0.7 * f43_usual);
}

}  // namespace
}  // namespace convlab
