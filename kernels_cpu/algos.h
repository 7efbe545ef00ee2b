// The CPU's strategies, one maker per file. Internal: programs call append_cpu_algos.
#pragma once

#include <memory>

#include "conv/algo.h"

namespace convlab::cpu {

// std::unique_ptr<ConvAlgo> make_direct();

}  // namespace convlab::cpu
