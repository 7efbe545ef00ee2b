#include "kernels_cpu/avx512_bf16/emulated_dots.h"

#include "kernels_cpu/amx/bf16_arithmetic.h"
#include "kernels_cpu/amx/terms.h"

namespace convlab::cpu {

float emulate_dot(float sum, const std::uint16_t* a, const std::uint16_t* b) {
  const float upper = fused(from_bf16(a[1]), from_bf16(b[1]), flushed(sum));
  return fused(from_bf16(a[0]), from_bf16(b[0]), upper);
}

void EmulatedDots::multiply_add(int rows, int cols, const std::byte* a, const std::byte* b,
                                std::int64_t steps, float* sums) {
  for (std::int64_t step = 0; step < steps; ++step, a += tile_bytes, b += cols * tile_bytes)
    for (int row = 0; row < rows; ++row)
      for (int col = 0; col < cols; ++col) {
        const auto* const factors = reinterpret_cast<const std::uint16_t*>(a + row * 64);
        const auto* const columns = reinterpret_cast<const std::uint16_t*>(b + col * tile_bytes);
        float* const sum = sums + (col * tile_rows + row) * tile_rows;
        for (int pair = 0; pair < tile_depth / 2; ++pair)
          for (int i = 0; i < tile_rows; ++i)
            sum[i] = emulate_dot(sum[i], factors + 2 * pair, columns + (pair * tile_rows + i) * 2);
      }
}

}  // namespace convlab::cpu
