// What several algorithms refuse, on every device.
#pragma once

#include <optional>

#include "conv/algo.h"

namespace convlab {

// Strides, dilation and groups: what transforms of neighbouring pixels cannot do.
std::optional<Refusal> refuse_all_but_dense(const ConvProblem&);

// The CPU's channel-blocked layout whose block is one vector of the ISA in force (two for 128
// bits).
Layout blocked_layout(const DeviceInfo&);

// All but that one, for x or y.
std::optional<Refusal> refuse_all_but_blocked(const ConvProblem&, const DeviceInfo&);

// All but NCHW and NHWC, for x or y.
std::optional<Refusal> refuse_blocked_layouts(const ConvProblem&);

}  // namespace convlab
