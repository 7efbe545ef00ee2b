// The arithmetic of bf16 products, as AMX and AVX512_BF16 have it: subnormal operands and results
// are zero, and a multiply-add rounds once. For emulations. Internal.
#pragma once

#include <cstdint>
#include <cstring>

namespace convlab::cpu {

// Subnormals become zeros of the same sign.
inline float flushed(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  bits &= (bits & 0x7f800000) == 0 ? 0x80000000 : 0xffffffff;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

inline float from_bf16(std::uint16_t value) {
  const std::uint32_t bits = std::uint32_t{value} << 16;
  float f = 0;
  std::memcpy(&f, &bits, sizeof f);
  return flushed(f);
}

// a b + sum, rounded once: a product of two bf16 is exact in f64, and rounding the sum of two f32
// to f64 first does not change the result (Figueroa 1995).
inline float fused(float a, float b, float sum) {
  return flushed(static_cast<float>(double(a) * double(b) + double(sum)));
}

}  // namespace convlab::cpu
