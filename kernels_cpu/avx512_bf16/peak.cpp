#include <hwy/base.h>

#include <cstddef>
#include <cstdint>

#include "kernels_cpu/amx/line.h"
#include "kernels_cpu/amx/terms.h"
#include "kernels_cpu/avx512_bf16/dot_unit.h"

#if HWY_ARCH_X86
// clang-format off
#include <immintrin.h>
#include "kernels_cpu/avx512_bf16/dot_target.h"
HWY_PUSH_ATTRIBUTES(CONVLAB_AVX512_BF16_TARGET)
#include "kernels_cpu/avx512_bf16/vector_dots.h"
// clang-format on

namespace convlab::cpu {

double multiply_dots(std::int64_t rounds) {
  constexpr int kRows = 8, kCols = 2, kSteps = 8;
  // Varied operands between 0.5 and 4, of both signs, as multiply_tiles() has them.
  alignas(64) std::uint16_t operands[(1 + kCols) * kSteps][512];
  alignas(64) float sums[kCols * 256] = {};
  std::uint32_t state = 1;
  for (auto& tile : operands)
    for (std::uint16_t& value : tile) {
      state = state * 1664525u + 1013904223u;
      value = std::uint16_t(0x3f00 + (state >> 23 & 0x17f) + (state >> 16 & 0x8000));
    }
  const auto* const a = reinterpret_cast<const std::byte*>(operands);
  for (std::int64_t i = 0; i < rounds; ++i)
    VectorDots::multiply_add<kRows, kCols>(a, a + kSteps * tile_bytes, kSteps, sums);
  return 2.0 * kRows * double(kCols * tile_rows * tile_depth * kSteps) * double(rounds);
}

}  // namespace convlab::cpu
HWY_POP_ATTRIBUTES
#else
namespace convlab::cpu {
double multiply_dots(std::int64_t) { return 0; }
}  // namespace convlab::cpu
#endif
