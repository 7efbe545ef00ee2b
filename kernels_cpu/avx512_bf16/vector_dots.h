// Products of rows and tiles by vdpbf16ps, as a policy of DotTiles. Internal.
//
// Include it between HWY_PUSH_ATTRIBUTES(CONVLAB_AVX512_BF16_TARGET) and HWY_POP_ATTRIBUTES, and
// call it only if the CPU has the instruction.
#pragma once

#include <hwy/base.h>
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels_cpu/amx/line.h"
#include "kernels_cpu/amx/terms.h"

namespace convlab::cpu {

struct VectorDots {
  // See EmulatedDots. The sums of all rows stay in registers.
  template <int kRows, int kCols>
  static HWY_NOINLINE void multiply_add(const std::byte* a, const std::byte* b, std::int64_t steps,
                                        float* sums) {
    constexpr int kTile = int(tile_rows * tile_rows);
    using PairAt __attribute__((may_alias)) = std::int32_t;
    __m512 acc[kRows][kCols];
    for (int row = 0; row < kRows; ++row)
      for (int col = 0; col < kCols; ++col)
        acc[row][col] = _mm512_load_ps(sums + col * kTile + row * tile_rows);
    for (; steps > 0; --steps, a += tile_bytes, b += kCols * tile_bytes)
      for (int pair = 0; pair < tile_depth / 2; ++pair) {
        __m512bh columns[kCols];
        for (int col = 0; col < kCols; ++col)
          columns[col] = (__m512bh)_mm512_load_si512(b + col * tile_bytes + pair * 64);
        for (int row = 0; row < kRows; ++row) {
          const __m512i factor =
              _mm512_set1_epi32(*reinterpret_cast<const PairAt*>(a + row * 64 + pair * 4));
          for (int col = 0; col < kCols; ++col)
            acc[row][col] = _mm512_dpbf16_ps(acc[row][col], (__m512bh)factor, columns[col]);
        }
      }
    for (int row = 0; row < kRows; ++row)
      for (int col = 0; col < kCols; ++col)
        _mm512_store_ps(sums + col * kTile + row * tile_rows, acc[row][col]);
  }
};

}  // namespace convlab::cpu
