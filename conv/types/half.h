// The 16-bit floating-point types on the host: bit patterns, converted to and from double. f16 is
// IEEE 754 binary16 (5 bits of exponent, 10 of mantissa), bf16 the upper half of a binary32 (8 and
// 7).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace convlab {

// A float of this many bits of exponent and mantissa. Rounds to nearest, ties to even, from the
// full double: rounding twice, via float, would sometimes be off by one.
template <int exponent_bits, int mantissa_bits>
class SmallFloat {
 public:
  SmallFloat() = default;
  explicit SmallFloat(double v) : bits_(std::uint16_t(magnitude(std::abs(v)))) {
    if (std::signbit(v)) bits_ |= sign_bit;
  }
  explicit operator double() const {
    constexpr int shift = std::numeric_limits<double>::digits - 1 - mantissa_bits;
    const int exponent = bits_ >> mantissa_bits & max_exponent, mantissa = bits_ & mantissa_mask;
    double v;
    if (exponent == max_exponent)
      v = mantissa ? std::numeric_limits<double>::quiet_NaN()
                   : std::numeric_limits<double>::infinity();
    else if (exponent == 0)
      v = std::ldexp(mantissa, 1 - bias - mantissa_bits);
    else
      v = std::bit_cast<double>(
          std::uint64_t(((exponent - bias + 1023) << mantissa_bits) + mantissa) << shift);
    return bits_ & sign_bit ? -v : v;
  }
  static SmallFloat from_bits(std::uint16_t bits) {
    SmallFloat f;
    f.bits_ = bits;
    return f;
  }
  std::uint16_t bits() const { return bits_; }
  friend bool operator==(SmallFloat a, SmallFloat b) { return double(a) == double(b); }

 private:
  static constexpr int max_exponent = (1 << exponent_bits) - 1, bias = max_exponent / 2;
  static constexpr int mantissa_mask = (1 << mantissa_bits) - 1, sign_bit = 1 << 15;

  static int magnitude(double v) {
    if (std::isnan(v)) return max_exponent << mantissa_bits | mantissa_mask;
    if (std::isinf(v)) return max_exponent << mantissa_bits;
    if (v == 0) return 0;
    // In units of the last place of v's binade (or of the denormals'), the pattern is the rounded
    // count plus the binade's start; a carry out of the mantissa correctly gives the next binade.
    const int exponent = std::max(std::ilogb(v), 1 - bias);
    const double units = std::nearbyint(std::ldexp(v, mantissa_bits - exponent));
    const double pattern = units + std::ldexp(double(exponent + bias - 1), mantissa_bits);
    return int(std::min(pattern, double(max_exponent << mantissa_bits)));
  }

  std::uint16_t bits_ = 0;
};

using Float16 = SmallFloat<5, 10>;
using BFloat16 = SmallFloat<8, 7>;

}  // namespace convlab
