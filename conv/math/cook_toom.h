// Winograd's minimal filtering F(m, r) by the Cook-Toom construction, in exact rationals.
//
// Evaluate two polynomials g (r coefficients) and u (m coefficients) at T = m + r - 1 points a_i,
// multiply the values, and interpolate: the T coefficients of their product are
//   s = V_T^-1 [ (V_r g) . (V_m u) ],   V_n[i][j] = a_i^j.
// That form is linear in u for fixed g, and its transpose is the correlation we want (Matyas'
// transposition principle): with d of length T, the m outputs y[k] = sum_j g[j] d[k + j] are
//   y = A^T [ (G g) . (B^T d) ],   A^T = V_m^T,   G = V_r,   B^T = V_T^-T.
// The last point is infinity, where a polynomial's value is its leading coefficient. Row i of B^T
// then holds the coefficients of Lagrange's polynomial prod_{j != i} (x - a_j) / (a_i - a_j), and
// its last row those of prod_j (x - a_j).
//
// Each triple (row i of B^T, row i of G, column i of A^T) may be scaled by factors of product 1.
// The rows of B^T are kept monic, and Lagrange's denominator goes to G or A^T, so that A^T or G
// hold plain powers of the points and points +a, -a give rows that share their even and odd parts.
//
// Nested in two dimensions: Y = A^T [ (G g G^T) . (B^T d B) ] A. The gradient of the filter is
// F(r, m): r x r outputs, of a tile of x correlated with an m x m tile of dy.
//
// Lavin & Gray 2015 (arXiv:1509.09308); Blahut, "Fast Algorithms for Signal Processing", ch. 5;
// points: Barabasz et al. 2018 (arXiv:1803.10986).
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace convlab {

// A reduced fraction with a positive denominator. Overflow and division by zero throw, so they
// fail constant evaluation.
struct Rational {
  std::int64_t num = 0, den = 1;

  constexpr Rational() = default;
  constexpr Rational(std::int64_t n, std::int64_t d = 1) : Rational(reduced(n, d)) {}

  constexpr double value() const { return static_cast<double>(num) / static_cast<double>(den); }

  friend constexpr Rational operator+(Rational a, Rational b) {
    return reduced(Wide{a.num} * b.den + Wide{b.num} * a.den, Wide{a.den} * b.den);
  }
  friend constexpr Rational operator-(Rational a) { return Rational(0) - a; }
  friend constexpr Rational operator-(Rational a, Rational b) {
    return reduced(Wide{a.num} * b.den - Wide{b.num} * a.den, Wide{a.den} * b.den);
  }
  friend constexpr Rational operator*(Rational a, Rational b) {
    return reduced(Wide{a.num} * b.num, Wide{a.den} * b.den);
  }
  friend constexpr Rational operator/(Rational a, Rational b) {
    return reduced(Wide{a.num} * b.den, Wide{a.den} * b.num);
  }
  friend constexpr bool operator==(Rational, Rational) = default;

 private:
  // Products of two 64-bit integers and their sums fit, but for the extreme values.
  __extension__ typedef __int128 Wide;

  static constexpr Rational reduced(Wide n, Wide d) {
    if (d == 0) throw std::domain_error("Rational: division by zero");
    Wide a = n < 0 ? -n : n, b = d < 0 ? -d : d;
    while (b != 0) {
      const Wide rest = a % b;
      a = b;
      b = rest;
    }
    if (d < 0) a = -a;
    n /= a;
    d /= a;
    constexpr Wide limit = std::numeric_limits<std::int64_t>::max();
    if (n > limit || n < -limit || d > limit) throw std::overflow_error("Rational: overflow");
    Rational r;
    r.num = static_cast<std::int64_t>(n);
    r.den = static_cast<std::int64_t>(d);
    return r;
  }
};

template <int M, int R>
struct CookToom {
  static constexpr int T = M + R - 1;
  Rational at[M][T], g[T][R], bt[T][T];
};

// The side that carries Lagrange's denominators: the filter if its transform is precomputed, the
// output if (as for the gradient of the filter) its transform is the rarer one.
enum class ScaledSide : std::uint8_t { filter, output };

// The finite points are distinct; infinity is implied as the last one.
template <int M, int R>
constexpr CookToom<M, R> cook_toom(const std::array<Rational, M + R - 2>& points,
                                   ScaledSide scaled = ScaledSide::filter) {
  constexpr int T = M + R - 1;
  CookToom<M, R> c;
  for (int i = 0; i < T; ++i) {
    const bool finite = i < T - 1;
    Rational denominator = 1;
    // Row i of B^T: the product of (x - a_j) over all finite points but the i-th.
    c.bt[i][0] = 1;
    for (int j = 0, degree = 0; j < T - 1; ++j) {
      if (j == i) continue;
      ++degree;
      for (int k = degree; k >= 0; --k)
        c.bt[i][k] = (k > 0 ? c.bt[i][k - 1] : Rational(0)) - points[j] * c.bt[i][k];
      if (finite) denominator = denominator * (points[i] - points[j]);
    }
    Rational power = 1;
    for (int k = 0; finite && k < (M > R ? M : R); ++k) {
      if (k < R) c.g[i][k] = scaled == ScaledSide::filter ? power / denominator : power;
      if (k < M) c.at[k][i] = scaled == ScaledSide::output ? power / denominator : power;
      power = power * points[i];
    }
    if (!finite) c.g[i][R - 1] = c.at[M - 1][i] = 1;
  }
  return c;
}

// Points for T = m + r - 1 by error: zero, then pairs of opposite sign, small fractions spread
// around 1. For T = 6, 3/4 and 3/2 halve the error of the customary 1 and 2.
template <int T>
constexpr std::array<Rational, T - 1> default_points() {
  static_assert(T >= 4 && T <= 8, "no default points for this tile");
  if constexpr (T == 4) return {0, 1, -1};
  if constexpr (T == 5) return {0, {3, 4}, {-3, 4}, 2};
  if constexpr (T == 6) return {0, {3, 4}, {-3, 4}, {3, 2}, {-3, 2}};
  if constexpr (T == 7) return {0, 1, -1, {1, 2}, {-1, 2}, {5, 2}};
  if constexpr (T == 8) return {0, 1, -1, 2, -2, {1, 2}, {-1, 2}};
}

}  // namespace convlab
