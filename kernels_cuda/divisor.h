// Division by a number that the host knows. Internal.
#pragma once

#include <cstdint>

#include "kernels_cuda/kernel.h"

namespace convlab::cuda {

// Quotients of dividends below 2^31 by one multiplication (Granlund & Montgomery 1994).
struct Divisor {
  int divisor = 1;
  unsigned multiplier = 1, shift = 0;

  Divisor() = default;
  explicit Divisor(std::int64_t d) : divisor(int(d)) {
    while (std::int64_t(1) << shift < d) ++shift;
    multiplier = unsigned(((std::uint64_t(1) << 32) * ((std::uint64_t(1) << shift) - d)) / d + 1);
  }
  __device__ int quotient(int n) const {
    return int((unsigned((std::uint64_t(unsigned(n)) * multiplier) >> 32) + unsigned(n)) >> shift);
  }
};

}  // namespace convlab::cuda
