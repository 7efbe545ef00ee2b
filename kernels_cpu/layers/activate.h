// Activations of memory that one thread has at hand. Internal.
#pragma once

#include <cstdint>

#include "conv/layer_ops.h"

namespace convlab::cpu {

// y = f(x), on the calling thread; in place.
void activate(DType, ActivationKind, const void* x, void* y, std::int64_t elements);

}  // namespace convlab::cpu
