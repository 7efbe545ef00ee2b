// Depthwise separable convolutions: a depthwise convolution, its activation and a pointwise
// convolution as one operation, which keeps the tensors between them in caches. A device that
// offers it is also a SeparableDevice: `dynamic_cast<SeparableDevice*>(&device)` is null for
// others.
#pragma once

#include <memory>
#include <optional>

#include "conv/algo.h"

namespace convlab {

//   y = pointwise(depthwise(x))
// with the epilogue of each convolution. Both are forward, and the pointwise one's x is the
// depthwise one's y.
struct SeparableProblem {
  ConvProblem depthwise;
  ConvProblem pointwise;
};

// Pointers for one run, as ConvArgs.
struct SeparableArgs {
  const void* x = nullptr;
  const void* packed = nullptr;  // what pack_filters wrote
  const void* depthwise_bias = nullptr;
  const void* pointwise_bias = nullptr;
  const void* residual = nullptr;
  void* out = nullptr;
};

// As ConvPlan: immutable, and its run allocates nothing.
class SeparablePlan {
 public:
  virtual ~SeparablePlan() = default;
  virtual std::size_t workspace_bytes() const noexcept = 0;
  virtual std::size_t packed_filter_bytes() const noexcept = 0;
  // Both filters are KCRS.
  virtual void pack_filters(ConstSpan depthwise, ConstSpan pointwise, Span packed,
                            Stream&) const = 0;
  virtual void run(const SeparableArgs&, Workspace, Stream&) const = 0;
};

class SeparableDevice {
 public:
  virtual ~SeparableDevice() = default;
  virtual std::optional<Refusal> refuse(const SeparableProblem&) = 0;
  // The problem is not refused.
  virtual std::unique_ptr<SeparablePlan> plan(const SeparableProblem&) = 0;
};

}  // namespace convlab
