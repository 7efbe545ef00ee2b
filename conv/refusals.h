// Refusals shared by several algorithms, on every device.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "conv/algo.h"

namespace convlab {

// "3x3": a height and a width, for a refusal.
std::string extent(std::int64_t height, std::int64_t width);

std::optional<Refusal> refuse_all_but(std::initializer_list<DType>, const ConvProblem&);
std::optional<Refusal> refuse_groups(const ConvProblem&);

// For kernels whose epilogue has no other activation.
std::optional<Refusal> refuse_all_but_relu(const ConvProblem&);

// Refuses strides, dilation and groups, which transforms of neighbouring pixels cannot handle.
std::optional<Refusal> refuse_all_but_dense(const ConvProblem&);

// The CPU's channel-blocked layout whose block is one vector of the ISA in force (two for 128
// bits).
Layout blocked_layout(const DeviceInfo&);

// Refuses every other layout, for x or y.
std::optional<Refusal> refuse_all_but_blocked(const ConvProblem&, const DeviceInfo&);

// Refuses different layouts of x and y.
std::optional<Refusal> refuse_two_layouts(const ConvProblem&);

// Refuses all layouts but NCHW and NHWC, for x or y.
std::optional<Refusal> refuse_blocked_layouts(const ConvProblem&);

}  // namespace convlab
