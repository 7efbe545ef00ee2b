// The roots of unity of Fourier transforms, at compile time.
#pragma once

namespace convlab {

// exp(-i angle) = cos - i sin for angle = 2 pi k / n, by power series; exact to double over half a
// turn.
struct Twiddle {
  double cos = 0, sin = 0;

  constexpr Twiddle(int k, int n) {
    const double angle = 2 * 3.14159265358979323846 * k / n;
    double term = 1;  // angle^i / i!
    for (int i = 0; i < 40; ++i, term *= angle / i)
      (i % 2 == 0 ? cos : sin) += i % 4 < 2 ? term : -term;
  }
  constexpr double tan() const { return sin / cos; }
};

}  // namespace convlab
