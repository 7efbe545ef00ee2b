// Nets of bf16: values are stored in 16 bits (conv/optional/half_ops.h), and parameters are f32.
#pragma once

#include <cstdint>

#include "conv/device.h"
#include "nets/graph.h"
#include "nets/steps.h"

namespace convlab::nets {

// Throws InputError if this net cannot run in this type on this device: f16, whose gradients would
// need a scaled loss; bf16 on a card; a recurrent layer in bf16.
void require_type(const Graph&, DType, Device&);

// From f32 to a 16-bit type, and back.
void round_values(const LayerOps&, DType half, const void* from, void* to, std::int64_t count,
                  Stream&);
void widen_values(const LayerOps&, DType half, const void* from, void* to, std::int64_t count,
                  Stream&);

// Bytes at the start of a convolution's workspace for the weights that each run of a pass rounds,
// or for the gradient of the filter. 0 in inference, which keeps rounded weights, and in other
// types.
std::size_t rounded_weights_bytes(const ConvProblem&, Mode);

}  // namespace convlab::nets
