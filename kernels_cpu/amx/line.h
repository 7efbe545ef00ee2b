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
using HalvesOfLine = std::uint16_t __attribute__((vector_size(32)));  // 16: an element, a lane

// In memory: of any alignment, among elements of any type. (Clang ignores an alignment to the right
// of the equals sign.)
using LineAt __attribute__((vector_size(64), aligned(4), may_alias)) = float;
using LineBitsAt __attribute__((vector_size(64), aligned(4), may_alias)) = std::uint32_t;
using LineHalvesAt __attribute__((vector_size(64), aligned(2), may_alias)) = std::uint16_t;
using HalvesOfLineAt __attribute__((vector_size(32), aligned(2), may_alias)) = std::uint16_t;
using HalvesOfHalfLine = std::uint16_t __attribute__((vector_size(16)));
using HalvesOfHalfLineAt __attribute__((vector_size(16), aligned(2), may_alias)) = std::uint16_t;

// A channel block in memory: a line, or half of one. (GCC ignores the attribute where its size
// depends on a template's parameter.)
using HalfLineAt __attribute__((vector_size(32), aligned(4), may_alias)) = float;
static_assert(alignof(LineAt) == 4 && alignof(LineBitsAt) == 4 && alignof(LineHalvesAt) == 2 &&
              alignof(HalfLineAt) == 4 && alignof(HalvesOfLineAt) == 2 &&
              alignof(HalvesOfHalfLineAt) == 2);
using HalfLineBits = std::uint32_t __attribute__((vector_size(32)));
template <int kBlock>
struct BlockOf {
  using At = LineAt;
  using Bits = LineBits;
  using Halves = HalvesOfLine;
  using HalvesAt = HalvesOfLineAt;
};
template <>
struct BlockOf<8> {
  using At = HalfLineAt;
  using Bits = HalfLineBits;
  using Halves = HalvesOfHalfLine;
  using HalvesAt = HalvesOfHalfLineAt;
};

}  // namespace convlab::cpu
