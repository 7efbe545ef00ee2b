// A value of a 16-bit type to f32 and back, by bits. conv/types/half.h goes through double, and is
// for the host's checks. Internal.
#pragma once

#include <bit>
#include <cstdint>

namespace convlab::cpu {

inline float widen_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

// To the nearest, ties to even: adding just less than half a unit carries into the upper half. A
// NaN, which that could turn into an infinity, keeps its upper bits and becomes quiet.
inline std::uint16_t round_to_nearest_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return std::uint16_t(bits >> 16 | 0x40);
  return std::uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The exponent's bias is 15, f32's is 127. A subnormal counts units of 2^-24.
inline float widen_f16(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits} >> 15 << 31, magnitude = bits & 0x7fffu;
  std::uint32_t wide = (magnitude << 13) + (112u << 23);
  if (magnitude >= 0x7c00) wide = (magnitude << 13) | 0x7f800000u;
  if (magnitude < 0x0400) wide = std::bit_cast<std::uint32_t>(float(magnitude) * 0x1p-24f);
  return std::bit_cast<float>(wide | sign);
}

inline std::uint16_t round_to_nearest_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 31 << 15, magnitude = bits & 0x7fffffffu;
  std::uint32_t half = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  // The unit of a float in [1/2, 1) is that of f16's subnormals: the addition rounds.
  constexpr std::uint32_t smallest_normal = 113u << 23, rounds_to_infinity = 0x477ff000u;
  if (magnitude < smallest_normal)
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - (126u << 23);
  if (magnitude >= rounds_to_infinity) half = 0x7c00;
  if (magnitude > 0x7f800000u) half = 0x7e00 | (magnitude >> 13 & 0x1ff);
  return std::uint16_t(half | sign);
}

}  // namespace convlab::cpu
