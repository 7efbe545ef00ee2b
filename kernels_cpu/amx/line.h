// A line of 16 floats, the channels of a pixel or of a tile's row: one vector with AVX-512, several
// elsewhere. Kernels of matrix tiles are compiled for the hardware and for its emulation, and
// Highway 1.0.3 has no target for the former. So they use the compilers' vectors. Internal.
#pragma once

#include <cstddef>
#include <cstdint>

namespace convlab::cpu {

using Line = float __attribute__((vector_size(64)));
using LineBits = std::uint32_t __attribute__((vector_size(64)));
using LineHalves = std::uint16_t __attribute__((vector_size(64)));

// In memory: of any alignment, among elements of any type.
using LineAt = float __attribute__((vector_size(64), aligned(4), may_alias));
using LineBitsAt = std::uint32_t __attribute__((vector_size(64), aligned(4), may_alias));
using LineHalvesAt = std::uint16_t __attribute__((vector_size(64), aligned(2), may_alias));

// A channel block in memory: a line, or half of one. (GCC ignores the attribute where its size
// depends on a template's parameter.)
using HalfLineAt = float __attribute__((vector_size(32), aligned(4), may_alias));
using HalfLineBits = std::uint32_t __attribute__((vector_size(32)));
template <int kBlock>
struct BlockOf {
  using At = LineAt;
  using Bits = LineBits;
};
template <>
struct BlockOf<8> {
  using At = HalfLineAt;
  using Bits = HalfLineBits;
};

}  // namespace convlab::cpu
