// A step's memory traffic and arithmetic besides convolution: other layers' work and layout
// conversions. Estimates, for planning.
#pragma once

#include "conv/phases.h"
#include "nets/steps.h"

namespace convlab::nets {

// For a convolution or recurrent layer: only the work around it (bias and ReLU in training, the
// weights' update).
// `wants_dx`: whether each input's gradient is needed. x and y are the layouts. In training all
// phases together: forward, backward and update.
WorkEstimate other_work(const Graph&, const Step&, Mode, DType, Layout x, Layout y,
                        const std::vector<bool>& wants_dx);

// Whether both have the same elements in the same places, whatever their layouts' names.
bool same_memory(const TensorDesc&, const TensorDesc&);
// Zero work when both are the same memory.
WorkEstimate convert_work(const TensorDesc& from, const TensorDesc& to, DType);
// to += from.
WorkEstimate add_work(const TensorDesc&, DType);

// With D * H rows.
TensorDesc tensor_desc(const Shape&, Layout);

}  // namespace convlab::nets
