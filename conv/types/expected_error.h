// The error that a config's math is expected to make, where none has been measured.
#pragma once

#include "conv/config.h"
#include "conv/types/math_type.h"

namespace convlab {

// That of its math, which minimal filtering enlarges: by tiles of m x m outputs of a 3x3 filter, as
// measured.
inline double expected_error(const Config& config) {
  const MathType math = math_type(config);
  if (math == MathType::bf16x3 && config.has("tile"))
    return config.get("tile") == 2 ? 8e-6 : 2.4e-5;
  if (math == MathType::bf16 && config.has("tile")) return 4.4e-3;
  return expected_error(math);
}

}  // namespace convlab
