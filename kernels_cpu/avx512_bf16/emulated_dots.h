// vdpbf16ps in ordinary arithmetic, equal to the hardware's bit for bit; only the payloads of NaNs
// may differ. Internal.
#pragma once

#include <cstddef>
#include <cstdint>

namespace convlab::cpu {

// sum + a b of two pairs, in this order: the upper product of the pair is added first, each with
// one rounding. Subnormal operands and results are zero.
float emulate_dot(float sum, const std::uint16_t* a, const std::uint16_t* b);

// sums += a b, as a policy of DotTiles. Of rows of a tile of A, 64 bytes apart, and of tiles of
// columns: a step of B has them one after the other, and sums are rows of 16, a tile apart.
struct EmulatedDots {
  template <int kRows, int kCols>
  static void multiply_add(const std::byte* a, const std::byte* b, std::int64_t steps,
                           float* sums) {
    multiply_add(kRows, kCols, a, b, steps, sums);
  }
  static void multiply_add(int rows, int cols, const std::byte* a, const std::byte* b,
                           std::int64_t steps, float* sums);
};

}  // namespace convlab::cpu
