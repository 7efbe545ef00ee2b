// Arrays of the 16-bit types (conv/types/half.h) to f32 and back. Internal.
//
// Rounded to the nearest, ties to even. Subnormals are kept, and NaNs stay NaNs. f16 takes F16C's
// instructions, which every CPU with AVX2 has; bf16 is the upper half of an f32, and takes
// AVX512_BF16's rounding where CPUID shows it.
#pragma once

#include <cstdint>

#include "conv/phases.h"
#include "conv/types/layout.h"

namespace convlab::cpu {

// `half` is f16 or bf16, the type of what is not f32.
void widen(DType half, const void* from, float* to, std::int64_t count);
void round(DType half, const float* from, void* to, std::int64_t count);
// With or without AVX512_BF16, which must be there: for tests.
void round(DType half, const float* from, void* to, std::int64_t count, bool by_unit);

// By so many threads, each of which records the phase.
void widen(DType half, const void* from, float* to, std::int64_t count, int threads, PhaseRecorder*,
           int phase);
void round(DType half, const float* from, void* to, std::int64_t count, int threads, PhaseRecorder*,
           int phase);

// vcvtne2ps2bf16, of AVX512_BF16. Returns how many values it rounded, from the first on: all but
// less than 32.
std::int64_t round_bf16_by_unit(const float* from, std::uint16_t* to, std::int64_t count);

}  // namespace convlab::cpu
