// AMX's tile registers and their product in ordinary arithmetic, equal to the hardware's bit for
// bit; only the payloads of NaNs may differ. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels_cpu/amx/line.h"

namespace convlab::cpu {

// sums (16 x 16 f32) += a (16 x 32 bf16) times b (16 pairs of depth x 16 columns x 2 bf16).
//
// Each sum has two parts, over even and over odd steps of depth. Each part starts from zero and
// adds its products in order, rounded once each. Then sum += even + odd. Subnormal operands and
// results are zero. The order of additions was found by comparing with the hardware.
void emulate_tile_product(float* sums, const std::uint16_t* a, const std::uint16_t* b);

// To the nearest bf16, ties to even; subnormals become zero and NaNs quiet: vcvtneps2bf16.
inline std::uint16_t round_to_bf16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint32_t exponent = bits & 0x7f800000, fraction = bits & 0x007fffff;
  if (exponent == 0) return std::uint16_t(bits >> 16 & 0x8000);
  if (exponent == 0x7f800000 && fraction != 0) return std::uint16_t(bits >> 16 | 0x40);
  return std::uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The registers, as a policy of kernels: see AmxTiles.
class EmulatedTiles {
 public:
  template <int kTile>
  void zero() {
    std::memset(tiles_[kTile], 0, sizeof tiles_[kTile]);
  }
  template <int kTile>
  void load(const void* from, std::ptrdiff_t row_bytes) {
    for (int row = 0; row < 16; ++row)
      std::memcpy(tiles_[kTile] + row * 64, static_cast<const std::byte*>(from) + row * row_bytes,
                  64);
  }
  template <int kTile>
  void store(void* to, std::ptrdiff_t row_bytes) const {
    for (int row = 0; row < 16; ++row)
      std::memcpy(static_cast<std::byte*>(to) + row * row_bytes, tiles_[kTile] + row * 64, 64);
  }
  template <int kSums, int kA, int kB>
  void multiply_add() {
    emulate_tile_product(reinterpret_cast<float*>(tiles_[kSums]),
                         reinterpret_cast<const std::uint16_t*>(tiles_[kA]),
                         reinterpret_cast<const std::uint16_t*>(tiles_[kB]));
  }
  // 32 values, of two lines of 16.
  static void round(const Line& line0, const Line& line1, void* to) {
    std::uint16_t rounded[32];
    for (int i = 0; i < 16; ++i) {
      rounded[i] = round_to_bf16(line0[i]);
      rounded[16 + i] = round_to_bf16(line1[i]);
    }
    std::memcpy(to, rounded, sizeof rounded);
  }
  // Likewise; to[i] has line0[i], and line1[i] in its upper half.
  static void round_pairs(const Line& line0, const Line& line1, LineBits& to) {
    for (int i = 0; i < 16; ++i)
      to[i] = round_to_bf16(line0[i]) | std::uint32_t{round_to_bf16(line1[i])} << 16;
  }

 private:
  alignas(64) std::byte tiles_[8][1024];
};

}  // namespace convlab::cpu
