// Winograd's minimal filtering F(m, r) by the Cook-Toom construction, in exact rationals.
//
// Correlating d (length m + r - 1) with g (length r) gives m outputs
//   y = A^T [ (G g) . (B^T d) ],
// where G evaluates g as a polynomial at m + r - 2 finite points and at infinity, and A^T, B^T
// follow by transposing the interpolation (Toom-Cook, then Matyas' transposition principle).
// Nested in two dimensions: Y = A^T [ (G g G^T) . (B^T d B) ] A.
// Lavin & Gray 2015 (arXiv:1509.09308); points: Barabasz et al. 2018 (arXiv:1803.10986).
#pragma once

#include <array>
#include <cstdint>

namespace convlab {

// A reduced fraction with a positive denominator; overflow fails constant evaluation.
struct Rational;

template <int M, int R>
struct CookToom;  // members at[M][T], g[T][R], bt[T][T] with T = M + R - 1

// Points are distinct; infinity is implied as the last one.
template <int M, int R>
constexpr CookToom<M, R> cook_toom(const std::array<Rational, M + R - 2>& points);

}  // namespace convlab
