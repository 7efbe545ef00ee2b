// In which type elements of a stored type are computed.
#pragma once

#include "conv/types/layout.h"

namespace convlab {

// Of layer operations, and of a net's parameters: f32 for the 16-bit types, which are storage.
constexpr DType arithmetic_type(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }
constexpr bool has_16_bits(DType t) { return t == DType::f16 || t == DType::bf16; }

}  // namespace convlab
