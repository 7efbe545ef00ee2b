// What a step moves and computes besides a convolution: the other layers' own work, and bringing a
// tensor into another layout. Estimates, for planning.
#pragma once

#include "conv/phases.h"
#include "nets/steps.h"

namespace convlab::nets {

// Of a convolution: only what comes with it (bias and ReLU in training, the weights' update).
// `wants_dx`: for each input, whether its gradient is needed. x and y say in which layouts. In
// training all phases together: forward, backward and update.
WorkEstimate other_work(const Graph&, const Step&, Mode, DType, Layout x, Layout y,
                        const std::vector<bool>& wants_dx);

// The same elements in the same places, whatever the layouts are called.
bool same_memory(const TensorDesc&, const TensorDesc&);
// Nothing when both are the same memory.
WorkEstimate convert_work(const TensorDesc& from, const TensorDesc& to, DType);
// to += from.
WorkEstimate add_work(const TensorDesc&, DType);

TensorDesc tensor_desc(const Shape&, Layout);

}  // namespace convlab::nets
