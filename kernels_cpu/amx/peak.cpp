#include "kernels_cpu/amx/peak.h"

#include <hwy/base.h>

#include <cstddef>

#include "kernels_cpu/amx/line.h"

#if HWY_ARCH_X86
// clang-format off
#include <immintrin.h>
#include "kernels_cpu/amx/amx_target.h"
HWY_PUSH_ATTRIBUTES(CONVLAB_AMX_TARGET)
#include "kernels_cpu/amx/amx_tiles.h"
// clang-format on

namespace convlab::cpu {

double multiply_tiles(std::int64_t rounds) {
  // Varied operands between 0.5 and 4, of both signs: the unit draws less power, and is faster, on
  // constant data.
  alignas(64) std::uint16_t operands[4][512];
  std::uint32_t state = 1;
  for (auto& tile : operands)
    for (std::uint16_t& value : tile) {
      state = state * 1664525u + 1013904223u;
      value = std::uint16_t(0x3f00 + (state >> 23 & 0x17f) + (state >> 16 & 0x8000));
    }
  AmxTiles tiles;
  tiles.zero<0>();
  tiles.zero<1>();
  tiles.zero<2>();
  tiles.zero<3>();
  tiles.load<4>(operands[0], 64);
  tiles.load<5>(operands[1], 64);
  tiles.load<6>(operands[2], 64);
  tiles.load<7>(operands[3], 64);
  for (std::int64_t i = 0; i < rounds; ++i) {
    tiles.multiply_add<0, 4, 6>();
    tiles.multiply_add<1, 4, 7>();
    tiles.multiply_add<2, 5, 6>();
    tiles.multiply_add<3, 5, 7>();
  }
  return 2.0 * 4 * 16 * 16 * 32 * double(rounds);
}

}  // namespace convlab::cpu
HWY_POP_ATTRIBUTES
#else
namespace convlab::cpu {
double multiply_tiles(std::int64_t) { return 0; }
}  // namespace convlab::cpu
#endif
