#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "kernels_cpu/cpu.h"
#include "tests/problems.h"

namespace convlab {

// Of this CPU, best first: oneDNN keeps the first ISA that a process requests. Reduced: the best.
inline std::vector<std::string> isas() {
  std::vector<std::string> names = supported_isas();
  std::reverse(names.begin(), names.end());
  if (reduced()) names.resize(1);
  return names;
}

}  // namespace convlab
