// Products of bf16 tiles on a CPU's matrix unit, by the config. Problems of f32 have a `math` for
// them (conv/types/math_type.h). Those of bf16, whose operands are multiplied as they are, say
// operands=bf16.
#pragma once

#include "conv/types/math_type.h"

namespace convlab {

inline constexpr const char* operands_key = "operands";

inline bool has_bf16_operands(const Config& config) { return config.has(operands_key); }
inline bool multiplies_bf16(const Config& config) {
  return has_bf16_operands(config) || multiplies_bf16(math_type(config));
}

}  // namespace convlab
