// Arithmetic on non-negative sizes that may be absurd: it saturates at 2^62.
#pragma once

#include <cstdint>

namespace convlab {

inline constexpr std::int64_t too_much = std::int64_t{1} << 62;

inline std::int64_t saturating_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) || sum > too_much ? too_much : sum;
}

inline std::int64_t saturating_mul(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) || product > too_much ? too_much : product;
}

}  // namespace convlab
