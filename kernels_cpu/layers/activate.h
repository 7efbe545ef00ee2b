// Activations of memory that one thread has at hand. Internal.
#pragma once

#include <cstdint>

#include "conv/types/activation.h"
#include "conv/types/layout.h"

namespace convlab::cpu {

// y = f(x) in place, on the calling thread.
void activate(ActivationKind, float* values, std::int64_t count);
void activate(ActivationKind, double* values, std::int64_t count);

// Writes zeros into the lanes that pad the channels.
void zero_padding_lanes(DType, const TensorDesc&, void* data);

}  // namespace convlab::cpu
