// Small versions of the zoo's nets: the same layers in the same order with the same names.
#pragma once

#include <cstdint>

#include "nets/graph.h"

namespace convlab::nets {

struct Scale {
  std::int64_t batch = 1;
  std::int64_t image = 1;  // its height and width
  std::int64_t depth = 1;
  std::int64_t divisor = 1;  // of filters and hidden outputs, rounded up
  std::int64_t outputs = 1;
  bool dropout = false;  // false: its probability becomes 0
};

// The graph keeps its name, although it is a different net.
Graph scaled(const Graph&, const Scale&);

}  // namespace convlab::nets
