#include "kernels_cpu/amx/emulated_tiles.h"

#include "kernels_cpu/amx/bf16_arithmetic.h"

namespace convlab::cpu {
void emulate_tile_product(float* sums, const std::uint16_t* a, const std::uint16_t* b) {
  float b_even[16][16], b_odd[16][16];
  for (int pair = 0; pair < 16; ++pair)
    for (int column = 0; column < 16; ++column) {
      b_even[pair][column] = from_bf16(b[pair * 32 + 2 * column]);
      b_odd[pair][column] = from_bf16(b[pair * 32 + 2 * column + 1]);
    }
  for (int row = 0; row < 16; ++row) {
    float even[16] = {}, odd[16] = {};
    for (int pair = 0; pair < 16; ++pair) {
      const float a_even = from_bf16(a[row * 32 + 2 * pair]);
      const float a_odd = from_bf16(a[row * 32 + 2 * pair + 1]);
      for (int column = 0; column < 16; ++column) {
        even[column] = fused(a_even, b_even[pair][column], even[column]);
        odd[column] = fused(a_odd, b_odd[pair][column], odd[column]);
      }
    }
    float* const sum = sums + row * 16;
    for (int column = 0; column < 16; ++column)
      sum[column] = flushed(flushed(sum[column]) + flushed(even[column] + odd[column]));
  }
}

}  // namespace convlab::cpu
