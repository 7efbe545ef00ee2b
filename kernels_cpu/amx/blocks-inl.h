// A channel block in memory, of f32 or bf16, as a vector of f32.
//
// Included once by each of the files that compile it, with its instruction set in force.
#pragma once

#include <hwy/base.h>

#include "kernels_cpu/amx/line.h"
#include "kernels_cpu/half/stored.h"

namespace convlab::cpu {

// Vectors go by reference: without their instruction set they have no registers to be returned in.
template <int kBlock>
HWY_INLINE void ReadBlock(const float* p, typename BlockOf<kBlock>::At& v) {
  v = *reinterpret_cast<const typename BlockOf<kBlock>::At*>(p);
}
template <int kBlock>
HWY_INLINE void ReadBlock(const StoredBf16* p, typename BlockOf<kBlock>::At& v) {
  using Bits = typename BlockOf<kBlock>::Bits;
  const auto& halves = *reinterpret_cast<const typename BlockOf<kBlock>::HalvesAt*>(p);
  v = (typename BlockOf<kBlock>::At)(__builtin_convertvector(halves, Bits) << 16);
}
template <int kBlock, class S>
HWY_INLINE void AddBlock(const S* p, typename BlockOf<kBlock>::At& v) {
  typename BlockOf<kBlock>::At other;
  ReadBlock<kBlock>(p, other);
  v += other;
}
template <int kBlock>
HWY_INLINE void WriteBlock(const typename BlockOf<kBlock>::At& v, float* p) {
  *reinterpret_cast<typename BlockOf<kBlock>::At*>(p) = v;
}
// As round_to_nearest_bf16().
template <int kBlock>
HWY_INLINE void WriteBlock(const typename BlockOf<kBlock>::At& v, StoredBf16* p) {
  using Bits = typename BlockOf<kBlock>::Bits;
  const Bits bits = (Bits)v, number = (Bits)(v == v);
  const Bits rounded = bits + 0x7fff + (bits >> 16 & 1), quiet = bits | 0x400000;
  *reinterpret_cast<typename BlockOf<kBlock>::HalvesAt*>(p) = __builtin_convertvector(
      ((rounded & number) | (quiet & ~number)) >> 16, typename BlockOf<kBlock>::Halves);
}

}  // namespace convlab::cpu
