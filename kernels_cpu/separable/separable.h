// The CPU's depthwise separable convolutions: see separable.cpp. Internal.
#pragma once

#include <memory>
#include <optional>

#include "conv/optional/separable_device.h"
#include "kernels_cpu/device/range.h"
#include "kernels_cpu/epilogue.h"

namespace convlab::cpu {

std::optional<Refusal> refuse_separable(const SeparableProblem&, const DeviceInfo&);
std::unique_ptr<SeparablePlan> plan_separable(const SeparableProblem&, const DeviceInfo&);

// Stores neighbouring pixels, which are in channel blocks `plane` elements apart, as nhwc. The
// output's biases have been added.
void store_nhwc(const float* blocked, std::int64_t plane, std::int64_t pixels,
                std::int64_t channels, const OutputEpilogue<float>& output);

}  // namespace convlab::cpu
