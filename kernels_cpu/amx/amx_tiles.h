// AMX's tile registers as a policy of kernels: those of the hardware. Internal.
//
// Include it between HWY_PUSH_ATTRIBUTES(CONVLAB_AMX_TARGET) and HWY_POP_ATTRIBUTES, and call it
// only if amx_support() says that it is usable. GCC 12's intrinsics take a register's number as a
// token, which no template has, and its _tile_loadconfig tells the compiler of eight bytes of 64.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels_cpu/amx/line.h"

namespace convlab::cpu {

// Configures the registers of this thread: eight tiles of 16 rows x 64 bytes. They are released at
// the end, so that the system need not save them when it switches threads.
class AmxTiles {
 public:
  AmxTiles() {
    Configuration all;
    for (int i = 0; i < 8; ++i) {
      all.row_bytes[i] = 64;
      all.rows[i] = 16;
    }
    asm volatile("ldtilecfg %0" : : "m"(all));
  }
  AmxTiles(const AmxTiles&) = delete;
  ~AmxTiles() { asm volatile("tilerelease"); }

  template <int kTile>
  void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  void load(const void* from, std::ptrdiff_t row_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(from), "r"(row_bytes), "i"(kTile)
                 : "memory");
  }
  template <int kTile>
  void store(void* to, std::ptrdiff_t row_bytes) const {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(to), "r"(row_bytes), "i"(kTile)
                 : "memory");
  }
  // sums += a b: see emulate_tile_product.
  template <int kSums, int kA, int kB>
  void multiply_add() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
  }
  // 32 values, of two lines of 16, to the nearest bf16.
  static void round(const Line& line0, const Line& line1, void* to) {
    const __m512bh rounded = _mm512_cvtne2ps_pbh(__m512(line1), __m512(line0));
    _mm512_storeu_si512(to, __m512i(rounded));
  }

  // Likewise; to[i] has line0[i], and line1[i] in its upper half.
  static void round_pairs(const Line& line0, const Line& line1, LineBits& to) {
    alignas(64) static constexpr std::uint16_t order[32] = {
        0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512bh rounded = _mm512_cvtne2ps_pbh(__m512(line1), __m512(line0));
    to = LineBits(_mm512_permutexvar_epi16(_mm512_load_si512(order), __m512i(rounded)));
  }

 private:
  struct alignas(64) Configuration {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
  };
};

}  // namespace convlab::cpu
